//! Snapshots and the journal, as the engine's users ask for them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot::{self, error::TryRecvError};

use crate::engine::Engine;
use crate::error::Error;
use crate::limits::SNAPSHOT_REQUESTS_MAX;
use crate::runtime::message::SnapshotTaken;
use crate::storage::journal::writer::JournalFigures;

/// How often it is looked whether more snapshots may be asked for.
const ROOM_LOOK: Duration = Duration::from_millis(100);

impl Engine {
    /// Takes a snapshot.
    ///
    /// # Errors
    /// When there is no data directory, or the snapshot cannot be written.
    pub async fn snapshot(&self) -> Result<SnapshotTaken, Error> {
        self.ask_snapshotter()?.await.unwrap_or(Err(Error::ShuttingDown))
    }

    /// Takes a snapshot before a shutdown, when nobody else is served: as fast as it goes, and without waiting for room on a full disk.
    ///
    /// # Errors
    /// As [`Engine::snapshot`].
    pub async fn last_snapshot(&self) -> Result<SnapshotTaken, Error> {
        self.inner.stop_waiting();
        self.inner.snapshotter.lock().iter().for_each(|snapshotter| snapshotter.hurries.store(true, Ordering::Relaxed));
        loop {
            match self.snapshot().await {
                // Those who asked while one was being taken are first.
                Err(Error::Overloaded { .. }) => tokio::time::sleep(ROOM_LOOK).await,
                taken => return taken,
            }
        }
    }

    /// Takes a snapshot, on a thread that may wait.
    pub(super) fn snapshot_now(&self) -> Result<SnapshotTaken, Error> {
        let mut answer = self.ask_snapshotter()?;
        loop {
            match answer.try_recv() {
                Ok(taken) => return taken,
                Err(TryRecvError::Closed) => return Err(Error::ShuttingDown),
                Err(TryRecvError::Empty) => thread::park_timeout(Duration::from_millis(1)),
            }
        }
    }

    fn ask_snapshotter(&self) -> Result<oneshot::Receiver<Result<SnapshotTaken, Error>>, Error> {
        let snapshotter = self.inner.snapshotter.lock();
        let snapshotter = snapshotter.as_ref().ok_or(Error::NoDataDirectory)?;
        let (reply, answer) = oneshot::channel();
        match snapshotter.requests.try_send(reply) {
            Ok(()) => Ok(answer),
            Err(_) => Err(self.inner.shared.overloaded("snapshot", SNAPSHOT_REQUESTS_MAX)),
        }
    }

    /// The snapshots that are kept, newest first.
    pub fn snapshots(&self) -> Vec<SnapshotTaken> {
        self.inner.shared.snapshots.lock().clone()
    }

    /// Whether a start would have events to replay, since no snapshot has them.
    pub fn has_to_replay(&self) -> bool {
        let newest = self.inner.shared.snapshots.lock().first().map_or(0, |newest| newest.sequence.0);
        self.journal().is_some_and(|journal| journal.last.load(Ordering::Relaxed) > newest)
    }

    /// What is known of the journal, if there is one on disk.
    pub fn journal(&self) -> Option<Arc<JournalFigures>> {
        self.inner.snapshotter.lock().as_ref().map(|snapshotter| Arc::clone(&snapshotter.figures))
    }
}
