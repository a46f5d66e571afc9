//! Errors of opening, reading or writing an archive.
//!
//! Responsible for:
//! - naming the file in the message and, where possible, the action that solves the problem.
//!
//! Not responsible for:
//! - the reaction of the engine to an error.

use std::error::Error;
use std::path::PathBuf;

use crate::storage::files::is_full;

/// The reason why an archive could not be opened, read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// The file is not an archive.
    #[error("{} is no archive: {why}; move it away or name another file", path.display())]
    NotAnArchive {
        /// Path of the file.
        path: PathBuf,
        /// The evidence for it.
        why: &'static str,
    },
    /// A newer version wrote the file.
    #[error(
        "the archive {} has format {found}, and this version knows formats up to {known}; \
        open it with the version that wrote it or a newer one",
        path.display()
    )]
    NewerFormat {
        /// Path of the file.
        path: PathBuf,
        /// The format of the file.
        found: u64,
        /// The newest format that this version can read.
        known: u64,
    },
    /// Another process, or another engine in this process, has the file open.
    #[error("the archive {} is in use; stop the process that has it open or name another file", path.display())]
    Locked {
        /// Path of the file.
        path: PathBuf,
    },
    /// The file contains data that no version writes.
    #[error("the archive {} is damaged: {what}; put back the whole data directory from a backup, or start with --repair", path.display())]
    Damaged {
        /// Path of the file.
        path: PathBuf,
        /// Description of the damage.
        what: String,
    },
    /// An operation of the system failed. After a failed write the archive rejects all writes until it is opened again, unless the disk was
    /// full.
    #[error("failed to {action} the archive {}", path.display())]
    Failed {
        /// The operation that was attempted, as a verb for the message.
        action: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// The cause of the failure.
        source: Box<dyn Error + Send + Sync>,
    },
}

impl ArchiveError {
    /// Returns true if the disk was full. The same operation may succeed once there is space.
    pub fn is_full(&self) -> bool {
        let Self::Failed { source, .. } = self else { return false };
        match source.downcast_ref::<redb::Error>() {
            Some(redb::Error::Io(cause)) => is_full(cause),
            Some(_) => false,
            None => source.downcast_ref().is_some_and(is_full),
        }
    }

    /// Returns the text of the error and of all its causes.
    pub fn with_sources(&self) -> String {
        let mut text = self.to_string();
        let mut source = self.source();
        while let Some(cause) = source {
            text += &format!(": {cause}");
            source = cause.source();
        }
        text
    }
}
