//! Syncing behind the writer's back: the policy `everysec`.
//!
//! Responsible for:
//! - one thread that syncs once a second what was written, and what is known to be synced;
//! - holding writers up when a sync is late, and for good after one failed.
//!
//! Not responsible for:
//! - what is written (`storage::journal::writer`).

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::latency::Latency;
use crate::storage::files::AppendFile;
use crate::storage::journal::Sequence;

/// Time between two syncs.
const PERIOD: Duration = Duration::from_secs(1);

/// How long a sync may take before writers wait for it.
const LATE: Duration = Duration::from_secs(2);

/// What the writer and the syncing thread share.
#[derive(Default)]
pub(super) struct SyncState {
    state: Mutex<State>,
    changed: Condvar,
    /// How long syncs took.
    pub(super) latency: Latency,
}

#[derive(Default)]
struct State {
    file: Option<Arc<dyn AppendFile>>,
    written: Sequence,
    synced: Sequence,
    /// Since when a sync is under way.
    syncing: Option<Instant>,
    failed: Option<String>,
    stopped: bool,
}

impl SyncState {
    /// Notes that everything up to `written` is in `file`, or in files synced before it.
    pub(super) fn wrote(&self, file: &Arc<dyn AppendFile>, written: Sequence) {
        let mut state = self.state.lock();
        state.file = Some(Arc::clone(file));
        state.written = written;
    }

    /// The last event known to survive power loss.
    pub(super) fn synced(&self) -> Sequence {
        self.state.lock().synced
    }

    /// Syncs what was written up to now.
    pub(super) fn sync(&self) -> Result<(), String> {
        let mut state = self.state.lock();
        // A failed sync tells only one of its callers: this one must not overlook that it failed for another.
        while state.syncing.is_some() {
            self.changed.wait(&mut state);
        }
        if let Some(cause) = &state.failed {
            return Err(cause.clone());
        }
        let (Some(file), written) = (state.file.clone(), state.written) else { return Ok(()) };
        if state.synced >= written {
            return Ok(());
        }
        state.syncing = Some(Instant::now());
        drop(state);
        let began = Instant::now();
        let outcome = file.sync();
        self.latency.record(began.elapsed());
        let mut state = self.state.lock();
        state.syncing = None;
        match &outcome {
            Ok(()) => state.synced = state.synced.max(written),
            Err(cause) => state.failed = Some(cause.to_string()),
        }
        self.changed.notify_all();
        outcome.map_err(|cause| cause.to_string())
    }

    /// Why nothing can be known to be kept any more, if so.
    pub(super) fn failure(&self) -> Option<String> {
        self.state.lock().failed.clone()
    }

    /// Lets every later sync fail.
    pub(super) fn fail(&self, cause: &str) {
        self.state.lock().failed.get_or_insert_with(|| cause.to_owned());
    }

    /// Waits while a sync is late.
    pub(super) fn keep_pace(&self) -> Result<(), String> {
        let mut state = self.state.lock();
        while state.syncing.is_some_and(|since| since.elapsed() > LATE) {
            self.changed.wait(&mut state);
        }
        state.failed.clone().map_or(Ok(()), Err)
    }

    /// Starts the thread that syncs once a second, until [`SyncState::stop`].
    pub(super) fn start(self: &Arc<Self>) -> std::io::Result<JoinHandle<()>> {
        let state = Arc::clone(self);
        thread::Builder::new().name("tidewire-sync".to_owned()).spawn(move || {
            while state.pause() {
                // The writer meets a failure with its next commit.
                let _ = state.sync();
            }
        })
    }

    fn pause(&self) -> bool {
        let mut state = self.state.lock();
        let until = Instant::now() + PERIOD;
        while !state.stopped {
            if self.changed.wait_until(&mut state, until).timed_out() {
                return true;
            }
        }
        false
    }

    /// Ends the thread.
    pub(super) fn stop(&self) {
        self.state.lock().stopped = true;
        self.changed.notify_all();
    }
}
