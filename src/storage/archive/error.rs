//! Why an archive could not be opened, read or written.
//!
//! Responsible for:
//! - naming the file and, where there is something to do, what.
//!
//! Not responsible for:
//! - what the engine makes of it.

use std::error::Error;
use std::path::PathBuf;

use crate::storage::files::is_full;

/// Why an archive could not be opened, read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// The file is something else.
    #[error("{} is no archive: {why}; move it away or name another file", path.display())]
    NotAnArchive {
        /// The file.
        path: PathBuf,
        /// How that shows.
        why: &'static str,
    },
    /// A newer version wrote the file.
    #[error(
        "the archive {} has format {found}, and this version knows formats up to {known}; \
        open it with the version that wrote it or a newer one",
        path.display()
    )]
    NewerFormat {
        /// The file.
        path: PathBuf,
        /// The format it has.
        found: u64,
        /// The newest format this version can read.
        known: u64,
    },
    /// Another process, or another engine in this one, has the file open.
    #[error("the archive {} is in use; stop the process that has it open or name another file", path.display())]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// The file holds what no version writes.
    #[error("the archive {} is damaged: {what}; put back the whole data directory from a backup, or start with --repair", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The system refused. After a failed write the archive takes nothing more until it is opened again, unless the disk was full.
    #[error("failed to {action} the archive {}", path.display())]
    Failed {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why it failed.
        source: Box<dyn Error + Send + Sync>,
    },
}

impl ArchiveError {
    /// Whether the disk was full: the same may succeed once there is room.
    pub fn is_full(&self) -> bool {
        let Self::Failed { source, .. } = self else { return false };
        match source.downcast_ref::<redb::Error>() {
            Some(redb::Error::Io(cause)) => is_full(cause),
            Some(_) => false,
            None => source.downcast_ref().is_some_and(is_full),
        }
    }

    /// Its text, with what caused it.
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
