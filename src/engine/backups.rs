//! The engine's interface for backups of a running engine.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::clock::Timestamp;
use crate::engine::Engine;
use crate::error::Error;
use crate::runtime::message::{CompletedSnapshot, SnapshotTaken};
use crate::storage::archive::ArchiveSnapshot;
use crate::storage::files::Files;
use crate::storage::sequence::Sequence;

/// A snapshot, with the archive as it was at the end of the snapshot. A start from both, and from the journal after the
/// snapshot at least up to `through`, has the state after the last event of that journal.
#[derive(Debug)]
pub struct BackupBase {
    /// The snapshot file.
    pub snapshot: SnapshotTaken,
    /// Neither the snapshot nor the archive contains an effect of an event after this one.
    pub through: Sequence,
    /// The last logical instant that was issued up to this event.
    pub last_instant: Timestamp,
    /// The archive with the effects of the events up to `through`, if anything was archived.
    pub archive: Option<Arc<dyn ArchiveSnapshot>>,
}

impl Engine {
    /// Takes a snapshot for a backup. Blocks the calling thread until it is done.
    ///
    /// # Errors
    /// Fails for the same reasons as [`Engine::snapshot`].
    pub fn backup_base(&self) -> Result<BackupBase, Error> {
        let done = self.ask_snapshotter()?.blocking_recv().unwrap_or(Err(Error::ShuttingDown));
        let CompletedSnapshot { taken: snapshot, end } = done?;
        let archive = end.archive.filter(|_| end.has_archived);
        Ok(BackupBase { snapshot, through: end.last, last_instant: end.last_instant, archive })
    }

    /// Keeps the journal after `backed_up`, which is the last event that a backup has. The snapshotter removes older segments as usual, and
    /// newer ones that no snapshot needs only if they take too many bytes. With `None` it keeps nothing for backups.
    pub fn keep_journal_after(&self, backed_up: Option<Sequence>) {
        self.inner.shared.backed_up.store(backed_up.map_or(u64::MAX, |event| event.0), Ordering::Relaxed);
    }

    /// Returns true if an erasure waits for a backup of the journal before it removes the journal. It waits for a limited time.
    pub fn wants_backup(&self) -> bool {
        let shared = &self.inner.shared;
        shared.backup_wanted.load(Ordering::Relaxed) > shared.backed_up.load(Ordering::Relaxed)
    }

    /// Returns the files of the data directory, if there is one.
    pub fn data_files(&self) -> Option<Arc<dyn Files>> {
        self.inner.snapshotter.lock().as_ref().map(|snapshotter| Arc::clone(&snapshotter.files))
    }
}
