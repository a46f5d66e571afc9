//! The engine's interface for snapshots, backups and the journal.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use crossbeam_channel::Sender;
use tokio::sync::oneshot::{self, error::TryRecvError};

use crate::clock::Timestamp;
use crate::engine::Engine;
use crate::error::Error;
use crate::limits::SNAPSHOT_REQUESTS_MAX;
use crate::runtime::message::{CompletedSnapshot, Reply, SnapshotTaken};
use crate::storage::archive::ArchiveSnapshot;
use crate::storage::disk_use::StoredBytes;
use crate::storage::files::Files;
use crate::storage::journal::writer::JournalFigures;
use crate::storage::sequence::Sequence;

/// The period after which a refused snapshot request is repeated.
const RETRY_PERIOD: Duration = Duration::from_millis(100);

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
    /// Takes a snapshot.
    ///
    /// # Errors
    /// Fails if there is no data directory, or the snapshot cannot be written.
    pub async fn snapshot(&self) -> Result<SnapshotTaken, Error> {
        self.ask_snapshotter()?.await.unwrap_or(Err(Error::ShuttingDown)).map(|done| done.taken)
    }

    /// Takes a snapshot before a shutdown, when no requests are served: without pauses, and without waiting for free
    /// space on a full disk.
    ///
    /// # Errors
    /// Fails for the same reasons as [`Engine::snapshot`].
    pub async fn last_snapshot(&self) -> Result<SnapshotTaken, Error> {
        self.inner.stop_waiting();
        // The eraser may be rewriting segments for consumers of changes, and a snapshot would wait for that. The next
        // start continues the erasure.
        self.inner.eraser.lock().iter().for_each(|eraser| eraser.stopping.store(true, Ordering::Relaxed));
        self.inner
            .snapshotter
            .lock()
            .iter()
            .for_each(|snapshotter| snapshotter.without_pauses.store(true, Ordering::Relaxed));
        loop {
            match self.snapshot().await {
                // The queue of requests is full; earlier requests are answered first.
                Err(Error::Overloaded { .. }) => tokio::time::sleep(RETRY_PERIOD).await,
                taken => return taken,
            }
        }
    }

    /// Returns the snapshots that are stored, newest first.
    pub fn snapshots(&self) -> Vec<SnapshotTaken> {
        self.inner.shared.snapshots.lock().clone()
    }

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

    /// Returns true if a start would have to replay events of a journal of its own that no snapshot contains. The log
    /// of a cluster continues after a node has stopped, and leaving at once is worth more than a shorter start.
    pub fn has_to_replay(&self) -> bool {
        if self.inner.follows_shared_log {
            return false;
        }
        let newest = self.inner.shared.snapshots.lock().first().map_or(0, |newest| newest.sequence.0);
        self.journal().is_some_and(|journal| journal.committed.last().0 > newest)
    }

    /// Returns the figures of the journal, if it is on disk.
    pub fn journal(&self) -> Option<Arc<JournalFigures>> {
        self.inner.snapshotter.lock().as_ref().map(|snapshotter| Arc::clone(&snapshotter.figures))
    }

    /// Returns the free bytes of the disk with the data directory, as of about a second ago. None without a data
    /// directory, or if the system does not report them.
    pub fn disk_free_bytes(&self) -> Option<u64> {
        self.inner.snapshotter.lock().as_ref().and_then(|snapshotter| snapshotter.disk_use.free_bytes())
    }

    /// Returns the bytes of the files in the data directory, as of about a second ago. None without a data directory.
    pub fn stored_bytes(&self) -> Option<StoredBytes> {
        self.inner.snapshotter.lock().as_ref().map(|snapshotter| snapshotter.disk_use.stored_bytes())
    }

    /// Takes a snapshot, and blocks the calling thread until it is done.
    pub(super) fn snapshot_now(&self) -> Result<SnapshotTaken, Error> {
        let mut answer = self.ask_snapshotter()?;
        loop {
            match answer.try_recv() {
                Ok(done) => return done.map(|done| done.taken),
                Err(TryRecvError::Closed) => return Err(Error::ShuttingDown),
                Err(TryRecvError::Empty) => thread::park_timeout(Duration::from_millis(1)),
            }
        }
    }

    /// Returns the channel on which the snapshotter gets requests, if there is one.
    pub(super) fn snapshot_requests(&self) -> Option<Sender<Reply<CompletedSnapshot>>> {
        self.inner.snapshotter.lock().as_ref().map(|snapshotter| snapshotter.requests.clone())
    }

    fn ask_snapshotter(&self) -> Result<oneshot::Receiver<Result<CompletedSnapshot, Error>>, Error> {
        let snapshotter = self.inner.snapshotter.lock();
        let snapshotter = snapshotter.as_ref().ok_or(Error::NoDataDirectory)?;
        let (reply, answer) = oneshot::channel();
        match snapshotter.requests.try_send(reply) {
            Ok(()) => Ok(answer),
            Err(_) => Err(self.inner.shared.overloaded("snapshot", SNAPSHOT_REQUESTS_MAX)),
        }
    }
}
