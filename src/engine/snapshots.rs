//! The engine's interface for snapshots and the journal.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use crossbeam_channel::Sender;
use tokio::sync::oneshot::{self, error::TryRecvError};

use crate::engine::Engine;
use crate::error::Error;
use crate::limits::SNAPSHOT_REQUESTS_MAX;
use crate::runtime::message::{CompletedSnapshot, Reply, SnapshotTaken};
use crate::storage::disk_use::StoredBytes;
use crate::storage::journal::writer::JournalFigures;

/// The period after which a refused snapshot request is repeated.
const RETRY_PERIOD: Duration = Duration::from_millis(100);

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

    pub(super) fn ask_snapshotter(&self) -> Result<oneshot::Receiver<Result<CompletedSnapshot, Error>>, Error> {
        let snapshotter = self.inner.snapshotter.lock();
        let snapshotter = snapshotter.as_ref().ok_or(Error::NoDataDirectory)?;
        let (reply, answer) = oneshot::channel();
        match snapshotter.requests.try_send(reply) {
            Ok(()) => Ok(answer),
            Err(_) => Err(self.inner.shared.overloaded("snapshot", SNAPSHOT_REQUESTS_MAX)),
        }
    }

    /// Returns the snapshots that are stored, newest first.
    pub fn snapshots(&self) -> Vec<SnapshotTaken> {
        self.inner.shared.snapshots.lock().clone()
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
}
