//! Errors of a data directory: the affected file, the problem, and the remedy for the operator.

use std::io;

use crate::storage::archive::ArchiveError;
use crate::storage::files::is_full;
use crate::storage::identity::Identity;
use crate::storage::sequence::Sequence;

/// The reason why a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StorageError {
    /// A file system operation failed.
    #[error("cannot {action} {place}: {source}")]
    Io {
        /// The operation that was attempted, as a verb for the message.
        action: &'static str,
        /// The file or directory it was attempted on.
        place: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Another process uses the directory.
    #[error("the data directory {directory} is in use{holder}; stop that process, or choose another with --data-dir")]
    Locked {
        /// Path of the data directory.
        directory: String,
        /// The process that holds the lock, as text for the message. Empty if the lock file does not name one.
        holder: String,
    },
    /// A file has a name of this format, but does not start with its magic bytes.
    #[error("{place} is not a Tidewire {what} (bad magic bytes); move it out of the data directory")]
    Foreign {
        /// Path of the file.
        place: String,
        /// The kind of file that its name indicates.
        what: &'static str,
    },
    /// A file is larger than any version writes. None of it was read.
    #[error("{place} is not a Tidewire {what}: it is larger than {bytes_max} bytes; move it out of the data directory")]
    TooLarge {
        /// Path of the file.
        place: String,
        /// The kind of file that its name indicates.
        what: &'static str,
        /// Maximum bytes of such a file.
        bytes_max: u64,
    },
    /// The directory contains files of two data directories.
    #[error(
        "{place} belongs to another data directory: its identity is {found}, and that of {other} is {expected}; move the foreign file \
         out, or restore all files from one directory"
    )]
    Mixed {
        /// Path of the first file.
        place: String,
        /// The identity in the first file.
        found: Identity,
        /// Path of the second file.
        other: String,
        /// The identity in the second file.
        expected: Identity,
    },
    /// A server on one machine was given the directory of a node of a cluster.
    #[error(
        "{directory} is the data directory of a node of cluster {cluster:016x}; start it as a node (--cluster), or choose another directory with \
         --data-dir"
    )]
    OfNode {
        /// Path of the data directory.
        directory: String,
        /// The id of the cluster.
        cluster: u64,
    },
    /// A node was given the directory of a server on one machine.
    #[error(
        "{directory} is the data directory of a server on one machine; a node of a cluster needs one of its own, choose it with --data-dir"
    )]
    OfOneMachine {
        /// Path of the data directory.
        directory: String,
    },
    /// A node was given the directory of a node of another cluster.
    #[error(
        "{directory} is the data directory of a node of cluster {found:016x}, and the log is of cluster {cluster:016x}; choose another \
         directory with --data-dir, or another log with --cluster and --kafka"
    )]
    OfOtherCluster {
        /// Path of the data directory.
        directory: String,
        /// The id of the cluster that owns the directory.
        found: u64,
        /// The id of the cluster that owns the log.
        cluster: u64,
    },
    /// The file with the positions of consumers cannot be read.
    #[error(
        "{place} is not a list of consumers of changes: {reason}; restore it, or remove it and register the consumers again"
    )]
    BadConsumers {
        /// Path of the file.
        place: String,
        /// Description of the problem.
        reason: String,
    },
    /// The file `identity` of the directory does not contain a valid identity.
    #[error(
        "{place} is damaged; restore it, or remove it if all files are of one directory: the next start reads the identity from them"
    )]
    BadIdentity {
        /// Path of the file.
        place: String,
    },
    /// A later version wrote the file.
    #[error(
        "{place} has format {found}, and this version reads up to {known}; use the version that wrote it, or a later one"
    )]
    NewerFormat {
        /// Path of the file.
        place: String,
        /// The format of the file.
        found: u16,
        /// The latest format that this version can read.
        known: u16,
    },
    /// The journal is damaged before the end of the acknowledged events.
    #[error(
        "{place} is damaged at byte {offset_bytes}, where event {sequence} should be: {reason}; restore the file from a \
         backup, or start with --repair to continue without the lost data"
    )]
    Damaged {
        /// Path of the segment.
        place: String,
        /// Offset of the damage in the file, in bytes.
        offset_bytes: u64,
        /// The sequence of the event that is expected there.
        sequence: Sequence,
        /// Description of the damage.
        reason: String,
    },
    /// Events between two segments are in no segment.
    #[error(
        "no journal segment before {place} contains events {} to {}; restore the missing segment, or a snapshot of event {} \
         or later, or start with --repair to continue without them", from, until.0 - 1, until.0 - 1
    )]
    Missing {
        /// Path of the segment before which the events are missing.
        place: String,
        /// The first missing event.
        from: Sequence,
        /// The first event after the gap.
        until: Sequence,
    },
    /// The operation was cancelled because the engine is shutting down.
    #[error("the engine is shutting down")]
    Stopping,
    /// No snapshot can be loaded, and the journal is incomplete without one.
    #[error("{causes}. Without a snapshot, {without}")]
    NoSnapshot {
        /// The reasons why the snapshots cannot be loaded.
        causes: String,
        /// The error of a recovery without a snapshot.
        without: Box<StorageError>,
    },
    /// The journal ends before the last event that is contained in a snapshot.
    #[error(
        "the journal ends at event {last}, but {place} contains event {through}; restore the newest segments, or start \
         with --repair to continue without the events in between"
    )]
    BehindSnapshot {
        /// Path of the snapshot.
        place: String,
        /// The last event of the journal.
        last: Sequence,
        /// The last event that is contained in the snapshot.
        through: Sequence,
    },
    /// A snapshot cannot be read.
    #[error("the snapshot {place} is damaged at byte {offset_bytes}: {reason}")]
    BadSnapshot {
        /// Path of the snapshot.
        place: String,
        /// Offset of the damaged block, in bytes.
        offset_bytes: u64,
        /// Description of the damage.
        reason: String,
    },
    /// The archive that a snapshot relies on is missing or empty.
    #[error(
        "{place} relies on an archive with posts, which is missing or empty; restore archive.redb, or name its place \
         with --archive if it is elsewhere, or start with --repair to continue without those posts"
    )]
    NoArchive {
        /// Path of the snapshot.
        place: String,
    },
    /// The data directory contains an archive, but the options name another one.
    #[error(
        "{file} has posts that {archive} may lack: copy them with \"tidewire archive copy\" and move the file away, or start without --archive"
    )]
    TwoArchives {
        /// Path of the archive in the data directory.
        file: String,
        /// Place of the other archive.
        archive: String,
    },
    /// The archive is an older copy of the one that a snapshot relies on.
    #[error(
        "{place} relies on posts archived up to event {needs}, but the archive {archive} ends at event {has}: it is an \
         older copy; restore the newest one, or start with --repair to continue without the posts that were archived in between"
    )]
    BehindArchive {
        /// Path of the snapshot.
        place: String,
        /// Path of the archive.
        archive: String,
        /// The journal event with which the archive was persisted last.
        has: Sequence,
        /// The earliest event with which the archive must have been persisted.
        needs: Sequence,
    },
    /// The archive has writes of events after the end of the journal. It would ignore new writes that reuse these event numbers.
    #[error(
        "the journal ends at event {last}, but the archive {archive} has writes of events up to {written}, and would ignore new posts and edits \
         up to that event; restore the archive from its own backup of the same time as the data directory, or prepare an empty one (tidewire \
         archive init), copy the archive into it (tidewire archive copy) and start with that"
    )]
    BehindWrites {
        /// Place of the archive.
        archive: String,
        /// The last event of the journal.
        last: Sequence,
        /// The largest event with which the archive was written.
        written: Sequence,
    },
    /// The repaired state could not be written.
    #[error("repaired, but cannot write the result: {0}")]
    Repair(String),
    /// The archive in the data directory is damaged.
    #[error("{0}; restore the data directory and its archive from one backup, or start with --repair")]
    DamagedArchive(ArchiveError),
    /// The archive failed.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
}

impl StorageError {
    /// Adds the remedy to the error of a damaged archive in the data directory. A repair does not help an archive that is elsewhere.
    pub(crate) fn of_own_archive(self) -> Self {
        match self {
            Self::Archive(cause @ ArchiveError::Damaged { .. }) => Self::DamagedArchive(cause),
            cause => cause,
        }
    }

    /// Returns true if the disk was full. The same operation may succeed once there is space.
    pub fn is_full(&self) -> bool {
        match self {
            Self::Io { source, .. } => is_full(source),
            Self::Archive(cause) => cause.is_full(),
            _ => false,
        }
    }

    /// Returns a closure for `map_err` that adds the attempted operation and the file to an error.
    pub fn io(action: &'static str, place: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let place = place.into();
        move |source| Self::Io { action, place, source }
    }
}
