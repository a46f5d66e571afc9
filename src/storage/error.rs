//! What can be wrong with a data directory: what, where, and what to do about it.

use std::io;

use crate::storage::archive::ArchiveError;
use crate::storage::files::is_full;
use crate::storage::identity::Identity;
use crate::storage::journal::Sequence;

/// Why a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StorageError {
    /// The file system refused.
    #[error("cannot {action} {place}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file or directory.
        place: String,
        /// Why it failed.
        source: io::Error,
    },
    /// Another process works on the directory.
    #[error("the data directory {directory} is in use{holder}; stop that process, or choose another by --data-dir")]
    Locked {
        /// The directory.
        directory: String,
        /// Which process has it, if it says so.
        holder: String,
    },
    /// A file that has our name but is none of ours.
    #[error("{place} is no Tidewire {what}: it does not begin as one; move it out of the data directory")]
    Foreign {
        /// The file.
        place: String,
        /// What its name claims.
        what: &'static str,
    },
    /// A file that is larger than any version writes. Nothing of it was read.
    #[error("{place} is no Tidewire {what}: it is larger than {bytes_max} bytes; move it out of the data directory")]
    TooLarge {
        /// The file.
        place: String,
        /// What its name claims.
        what: &'static str,
        /// How large one may be.
        bytes_max: u64,
    },
    /// Files of two data directories.
    #[error(
        "{place} is of another data directory: its identity is {found}, and that of {other} is {expected}; move out what does not belong \
         there, or restore the files of one directory together"
    )]
    Mixed {
        /// A file.
        place: String,
        /// The identity that it carries.
        found: Identity,
        /// Another file.
        other: String,
        /// The identity that this one carries.
        expected: Identity,
    },
    /// The file with the identity of the directory holds none.
    #[error(
        "{place} is damaged; restore it, or remove it if all files are of one directory: the next start takes the identity from them"
    )]
    BadIdentity {
        /// The file.
        place: String,
    },
    /// Written by a later version.
    #[error(
        "{place} has format {found}, and this version reads up to {known}; use the version that wrote it, or a later one"
    )]
    NewerFormat {
        /// The file.
        place: String,
        /// Its format.
        found: u16,
        /// The last format known here.
        known: u16,
    },
    /// Damage before the end of what was acknowledged.
    #[error(
        "{place} is damaged at byte {offset_bytes}, where event {sequence} should be: {reason}; restore the file from a \
         backup, or start with --repair to go on without what is gone"
    )]
    Damaged {
        /// The file.
        place: String,
        /// Where in it.
        offset_bytes: u64,
        /// The event that should be there.
        sequence: Sequence,
        /// What is wrong.
        reason: String,
    },
    /// Events between two files are nowhere.
    #[error(
        "events {} to {} are in no journal segment before {place}; restore the missing segment, or start with --repair \
         to go on without them", from, until.0 - 1
    )]
    Missing {
        /// The file before which they should be.
        place: String,
        /// The first event that is missing.
        from: Sequence,
        /// The first event after the gap.
        until: Sequence,
    },
    /// Given up, since the engine ends.
    #[error("the engine is shutting down")]
    Stopping,
    /// No snapshot can be loaded, and the journal is not whole without one.
    #[error("{causes}. Without a snapshot, {without}")]
    NoSnapshot {
        /// What is wrong with each of them.
        causes: String,
        /// What is wrong then.
        without: Box<StorageError>,
    },
    /// The journal ends before what a snapshot saw.
    #[error(
        "the journal ends at event {last}, but {place} saw event {through}; restore the newest segments, or start with \
         --repair to go on without the events between"
    )]
    BehindSnapshot {
        /// The snapshot.
        place: String,
        /// The last event of the journal.
        last: Sequence,
        /// The last event the snapshot saw.
        through: Sequence,
    },
    /// A snapshot that cannot be read.
    #[error("the snapshot {place} is damaged at byte {offset_bytes}: {reason}")]
    BadSnapshot {
        /// The file.
        place: String,
        /// Where in it.
        offset_bytes: u64,
        /// What is wrong.
        reason: String,
    },
    /// The archive that a snapshot relies on is not there.
    #[error(
        "{place} was taken beside an archive with posts in it, and that archive is gone or empty; restore archive.redb, \
         or start with --repair to go on without those posts"
    )]
    NoArchive {
        /// The snapshot.
        place: String,
    },
    /// The archive is an older copy of the one that a snapshot relies on.
    #[error(
        "{place} relies on what was archived up to event {needs}, but the archive {archive} ends at event {has}: it is an \
         older copy; restore the newest one, or start with --repair to go on without the posts that were archived between"
    )]
    BehindArchive {
        /// The snapshot.
        place: String,
        /// The archive.
        archive: String,
        /// The event it was persisted with last.
        has: Sequence,
        /// The event it must have been persisted with, or a later one.
        needs: Sequence,
    },
    /// The state after a repair could not be kept.
    #[error("repaired, but cannot keep the result: {0}")]
    Repair(String),
    /// The second-level store failed.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
}

impl StorageError {
    /// Whether the disk was full: the same may succeed once there is room.
    pub fn is_full(&self) -> bool {
        match self {
            Self::Io { source, .. } => is_full(source),
            Self::Archive(cause) => cause.is_full(),
            _ => false,
        }
    }

    /// For `map_err`: what was tried, on what.
    pub fn io(action: &'static str, place: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let place = place.into();
        move |source| Self::Io { action, place, source }
    }
}
