//! Errors of opening, reading or writing an archive.

use std::error::Error;

use crate::storage::files::is_full;

/// The reason why an archive could not be opened, read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// The file is not an archive.
    #[error("{place} is not an archive: {why}; move it away or name another file")]
    NotAnArchive {
        /// The place of the archive: the path of its file, or its address.
        place: String,
        /// The evidence for this.
        why: &'static str,
    },
    /// A newer version wrote the file.
    #[error(
        "the archive {place} has format {found}, and this version reads formats up to {known}; \
        open it with the version that wrote it or a newer one"
    )]
    NewerFormat {
        /// The place of the archive: the path of its file, or its address.
        place: String,
        /// The format of the file.
        found: u64,
        /// The newest format that this version can read.
        known: u64,
    },
    /// Another process, or another engine in this process, has the file open.
    #[error("the archive {place} is in use; stop the process that has it open or name another file")]
    Locked {
        /// The place of the archive: the path of its file, or its address.
        place: String,
    },
    /// The archive contains data that no version writes. The caller adds the remedy, which depends on the place.
    #[error("the archive {place} is damaged: {what}")]
    Damaged {
        /// The place of the archive: the path of its file, or its address.
        place: String,
        /// Description of the damage.
        what: String,
    },
    /// An operation of the system failed. After a failed write the archive rejects all writes until it is opened again, unless the disk was
    /// full.
    #[error("failed to {action} the archive {place}")]
    Failed {
        /// The operation that was attempted, as a verb for the message.
        action: &'static str,
        /// The place of the archive: the path of its file, or its address.
        place: String,
        /// The cause of the failure.
        source: Box<dyn Error + Send + Sync>,
    },
    /// A store that needs a one-time preparation was not prepared, or not completely.
    #[error("the archive {place} is not prepared: {missing}; \"tidewire archive init\" creates it")]
    Unprepared {
        /// The address of the archive.
        place: String,
        /// Description of the missing part.
        missing: String,
    },
    /// The store is in several datacentres and none is named, or the named one cannot be used.
    #[error("the archive {place} {why}")]
    Datacentre {
        /// The address of the archive.
        place: String,
        /// Description of the problem, and the remedy.
        why: String,
    },
    /// The store did not answer in time, or refuses for now. It may have written the data, or may still write it, so a retry of the same
    /// write is safe. A later attempt may succeed.
    #[error("the archive {place} is unavailable: {why}")]
    Unavailable {
        /// The place of the archive: the path of its file, or its address.
        place: String,
        /// The attempted operation, and the cause of its failure.
        why: String,
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

    /// Returns true if the store is not available now. The archive itself is not known to have a fault.
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }

    /// Returns true if the same operation may succeed later although nothing is repaired: the store was unavailable, or the disk full.
    pub fn is_temporary(&self) -> bool {
        self.is_unavailable() || self.is_full()
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
