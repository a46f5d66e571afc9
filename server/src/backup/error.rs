//! Errors of backups and restores: the affected object or file, and the cause.

use std::io;
use std::path::PathBuf;

use tidewire::cluster::journal::JoinError;
use tidewire::error::Error;
use tidewire::storage::archive::ArchiveError;
use tidewire::storage::error::StorageError;
use tidewire::storage::log::LogError;

/// The reason why a backup or a restore failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// The settings of the store cannot be used.
    #[error("cannot use the store {place}: {cause}")]
    Unusable {
        /// The place of the backups.
        place: String,
        /// The error of the store.
        cause: String,
    },
    /// An operation of the store failed.
    #[error("cannot {action} {place}: {source}")]
    Store {
        /// The operation that was attempted, as a verb for the message.
        action: &'static str,
        /// The object, or the place of the backups.
        place: String,
        /// The error of the store.
        source: object_store::Error,
    },
    /// The place has backups of another data directory, or of another cluster.
    #[error(
        "{place} has backups of {}, and this is {}; if that data was lost, restore it into an empty directory with \
         `tidewire restore`, or else name another place",
        owner(found),
        owner(expected)
    )]
    OtherIdentity {
        /// The place of the backups, or the manifest that was found.
        place: String,
        /// The identity in it.
        found: String,
        /// The identity of the data directory.
        expected: String,
    },
    /// The data directory is new, and the place has backups. The data may have been lost.
    #[error(
        "{place} has backups of {}, and the data directory {} is empty; if the data was lost, restore it with \
         `tidewire restore --from {place} --data-dir {}`, or else name another place",
        owner(found), directory.display(), directory.display()
    )]
    NewDirectory {
        /// The place of the backups.
        place: String,
        /// The identity of the backups.
        found: String,
        /// The data directory of the server.
        directory: PathBuf,
    },
    /// Another process writes to the same place.
    #[error("{place} was written by another process since the last run; only one server may use this place")]
    Shared {
        /// The manifest of the other process.
        place: String,
    },
    /// There are more backups than a process handles.
    #[error("{place} has more than {max} backups; remove old ones, or name another place")]
    TooMany {
        /// The place of the backups.
        place: String,
        /// Maximum number of backups.
        max: usize,
    },
    /// An object of a backup does not exist.
    #[error(
        "the object {place} is missing; restore another backup with --backup NAME, or an earlier event \
         (`tidewire restore --list` shows names and events)"
    )]
    Missing {
        /// The object that is missing.
        place: String,
    },
    /// An object does not have the content that the backup wrote.
    #[error(
        "the object {place} is damaged: {what}; restore another backup with --backup NAME, or an earlier event \
         (`tidewire restore --list` shows names and events)"
    )]
    Damaged {
        /// The object that is damaged.
        place: String,
        /// Description of the damage.
        what: String,
    },
    /// A manifest cannot be read, so the content of the backup is unknown.
    #[error(
        "the manifest {place} is damaged: {what}; this backup cannot be restored, and the server makes and removes no \
         backups until the manifest is repaired or moved out of the store"
    )]
    DamagedManifest {
        /// The manifest that is damaged.
        place: String,
        /// Description of the damage.
        what: String,
    },
    /// There is no backup of the requested name.
    #[error("there is no backup {place}; `tidewire restore --list` shows the names of all backups")]
    NoSuchBackup {
        /// The place where its manifest would be.
        place: String,
    },
    /// A later version wrote the manifest.
    #[error("{place} has format {found}, and this version reads up to {known}; use the version that wrote it")]
    NewerFormat {
        /// The manifest of a later version.
        place: String,
        /// The format of the manifest.
        found: u32,
        /// The latest format that this version can read.
        known: u32,
    },
    /// There is nothing to restore.
    #[error("{place} has no complete backup")]
    NoBackup {
        /// The place of the backups.
        place: String,
    },
    /// No backup contains the requested event or time.
    #[error("{wanted} cannot be restored from {place}, which has {ranges}")]
    OutOfRange {
        /// The requested event or time.
        wanted: String,
        /// The place of the backups.
        place: String,
        /// The events and times that can be restored.
        ranges: String,
    },
    /// The directory is in use or has files.
    #[error("the directory {} is not empty: it has {file}; name an empty one, or one that does not exist", directory.display())]
    NotEmpty {
        /// The directory that should be empty.
        directory: PathBuf,
        /// One of its files.
        file: String,
    },
    /// A server was started on a directory in which a killed process has left unfinished files.
    #[error(
        "{}/restore.unfinished has files of a restore or an import that was killed: run it again, or remove them to begin with an empty directory",
        directory.display()
    )]
    Unfinished {
        /// The data directory.
        directory: PathBuf,
    },
    /// A restored directory does not have the state that it should have.
    #[error("the restored journal ends at event {found} instead of {expected}")]
    Incomplete {
        /// The last event that was found.
        found: u64,
        /// The event at which the journal should end.
        expected: u64,
    },
    /// There is no data directory to back up.
    #[error("an engine without a data directory cannot be backed up")]
    NoDataDirectory,
    /// The server is shutting down.
    #[error("the server stopped during the backup")]
    Stopping,
    /// A file cannot be read or written.
    #[error("cannot {action} {place}: {source}")]
    File {
        /// The operation that was attempted, as a verb for the message.
        action: &'static str,
        /// Path of the file.
        place: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The log of the cluster cannot be read.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The state of the cluster cannot be rebuilt.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// A file of the data directory cannot be used.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The archive cannot be read or written.
    #[error("{}", .0.with_sources())]
    Archive(ArchiveError),
    /// The engine refused the request.
    #[error(transparent)]
    Engine(#[from] Error),
}

/// Describes the owner of this identity. The identity of a cluster begins with `cluster` and a zero byte.
fn owner(identity: &str) -> String {
    match identity.strip_prefix("636c757374657200") {
        Some(cluster) => format!("cluster {cluster}"),
        None => format!("data directory {identity}"),
    }
}

impl From<ArchiveError> for BackupError {
    fn from(cause: ArchiveError) -> Self {
        Self::Archive(cause)
    }
}

impl BackupError {
    /// Returns a function that adds the operation and its file to an I/O error.
    pub(super) fn file(action: &'static str, place: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let place = place.into();
        move |source| Self::File { action, place, source }
    }
}
