//! The engine's interface for erasing users, for administrators of the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use crossbeam_channel::Sender;

use crate::engine::{Engine, Inner};
use crate::error::Error;
use crate::id::SourceId;
use crate::runtime::abort_on_exit::AbortOnExit;
use crate::runtime::background::eraser::Eraser;
pub use crate::runtime::message::Erasing;
use crate::runtime::message::{Command, CompletedSnapshot, Reply};

/// The engine's handle of its eraser. The eraser ends when the handle is dropped.
pub(super) struct EraserHandle {
    wake: Sender<()>,
    thread: JoinHandle<()>,
    pub(super) stopping: Arc<AtomicBool>,
}

/// The erasures in progress.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ErasuresUnderWay {
    /// The number of erasures.
    pub count: usize,
    /// Seconds since the oldest one began.
    pub oldest_seconds: Option<u64>,
}

impl Engine {
    /// Erases a user permanently. After the answer no reader sees any data of the user. The data on disk is removed in
    /// the background, and until then the id cannot be used.
    ///
    /// # Errors
    /// Fails if the id is not a user's, too many users are being erased, or for the same reasons as every write.
    pub async fn erase(&self, user: SourceId) -> Result<Erasing, Error> {
        let erasures = self.inner.shared.world.sources.erasures();
        let before = erasures.len();
        let erasing = self.command(|reply| Command::Erase { user, reply }).await?;
        // A repeated request for an erasure in progress does not wake the eraser, so that its retry delay stays in
        // effect.
        if erasures.len() == before {
            return Ok(erasing);
        }
        if let Some(eraser) = self.inner.eraser.lock().as_ref() {
            // The channel is full if the eraser has already been woken.
            let _ = eraser.wake.try_send(());
        }
        Ok(erasing)
    }

    /// Returns the erasures in progress.
    pub fn erasures(&self) -> ErasuresUnderWay {
        let shared = &self.inner.shared;
        let (erasures, now) = (shared.world.sources.erasures(), shared.clock.now());
        let seconds = |at| (now.0 - shared.clock_report.shown(at, now).0).max(0) as u64 / 1_000_000;
        ErasuresUnderWay { count: erasures.len(), oldest_seconds: erasures.oldest().map(seconds) }
    }

    /// Starts the eraser. It continues the erasures that an earlier process began.
    pub(super) fn start_eraser(&self, snapshotter: Option<Sender<Reply<CompletedSnapshot>>>, has_shared_log: bool) {
        let files = self.inner.snapshotter.lock().as_ref().map(|snapshotter| Arc::clone(&snapshotter.files));
        let (wake, woken) = crossbeam_channel::bounded(1);
        let stopping = Arc::<AtomicBool>::default();
        let eraser = Eraser {
            shared: Arc::clone(&self.inner.shared),
            commands: self.inner.commands.clone(),
            files,
            snapshotter,
            wake: woken,
            stopping: Arc::clone(&stopping),
            started: self.inner.shared.clock.monotonic(),
            has_shared_log,
        };
        let thread = thread::Builder::new().name("tidewire-eraser".to_owned()).spawn(move || {
            let _abort_on_exit = AbortOnExit("eraser");
            eraser.run();
        });
        let thread = thread.expect(super::start::THREADS);
        *self.inner.eraser.lock() = Some(EraserHandle { wake, thread, stopping });
    }
}

impl Inner {
    /// Stops the eraser. The next start continues the erasures in progress.
    pub(super) fn stop_eraser(&self) {
        if let Some(EraserHandle { wake, thread, stopping }) = self.eraser.lock().take() {
            stopping.store(true, Ordering::Relaxed);
            drop(wake);
            let _ = thread.join();
        }
    }
}
