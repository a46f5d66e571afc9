//! Backups in an object store: a directory or a bucket of S3.
//!
//! Responsible for:
//! - copying snapshots, the archive and the journal of a running engine to a store, on a schedule (`run`, `schedule`);
//! - removing old backups and the remains of failed uploads (`retention`);
//! - refusing the start of a server whose store has the backups of another data directory (`start`);
//! - restoring the state of a data directory after any event between a backup and the end of the copied journal (`restore`), atomically
//!   (`new_directory`).
//!
//! # Content of a backup
//!
//! A *backup* is a snapshot, the archive as it was at the end of this snapshot, and the journal after the snapshot. Its *manifest*
//! (`manifest`) lists them. The journal of the newest backup grows: each run appends the new events to its manifest. The archive of a
//! backup is not newer than the end of the snapshot. So a start on these files with the journal cut after event N restores exactly the
//! state after event N. A newer archive would contain edits and deletes after N.
//!
//! Files are stored as *parts*, which are objects named by their SHA-256. So an object that exists is complete, and equal parts of two
//! backups are stored once. The manifest is written last: a backup is visible only when all of its parts are stored. Objects are written
//! once, except that a longer manifest replaces a shorter one.
//!
//! # Several histories
//!
//! After a restore to event N, the server writes another event N+1 than the one in the backups. A process continues a backup of an earlier
//! process only if its own journal still has the last copied events, byte for byte. Otherwise it begins a new backup beside the old ones.
//! If an event is in several backups, a restore uses the one that was begun last.
//!
//! # Clusters
//!
//! The journal of a cluster is its log: the pieces are segments of its records, including heartbeats. All nodes may use the same place.
//! Only the sequencer copies; the other nodes only check the age of the newest backup. A manifest belongs to the epoch in which it was
//! written, and its name contains this epoch, so two nodes never write the same manifest. A new sequencer writes the newest manifest again
//! under its own name, and continues it. A replaced sequencer that does not know it yet does no harm: its additions are in the log, too. No
//! node removes an object that may belong to the run of another node, that is, an object without a manifest that is younger than a day. The
//! newest backup is the one with the last record, because the clocks of two nodes may be hours apart.

#[cfg(feature = "backup")]
pub mod cluster;
#[cfg(feature = "backup")]
mod counted_event;
#[cfg(feature = "backup")]
mod error;
pub mod figures;
#[cfg(feature = "backup")]
pub(crate) mod manifest;
#[cfg(feature = "backup")]
pub(crate) mod new_directory;
#[cfg(feature = "backup")]
pub(crate) mod parts;
#[cfg(feature = "backup")]
pub(crate) mod restore;
#[cfg(feature = "backup")]
mod retention;
#[cfg(feature = "backup")]
pub mod run;
#[cfg(feature = "backup")]
mod s3;
#[cfg(feature = "backup")]
pub mod schedule;
#[cfg(feature = "backup")]
pub(crate) mod start;
#[cfg(feature = "backup")]
pub mod store;
pub mod url;

use std::time::Duration;

use crate::backup::url::BackupUrl;

#[cfg(feature = "backup")]
pub use error::BackupError;

/// Maximum bytes of an object in a store.
#[cfg(feature = "backup")]
const OBJECT_BYTES_MAX: u64 = 64 << 20;

/// The options of backups.
#[derive(Clone, Debug)]
pub struct BackupOptions {
    /// The store, and the place in it.
    pub to: BackupUrl,
    /// Time between the starts of two runs.
    pub every: Duration,
    /// Time span in which every moment can be restored.
    pub keep: Duration,
    /// Age of the newest backup after which a run begins another one, if anything was written.
    pub begin_every: Duration,
}
