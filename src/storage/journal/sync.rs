//! Syncing in the background, for the durability policy `everysec`.
//!
//! Responsible for:
//! - one thread that syncs the written events once a second, and the record of what is synced;
//! - blocking the writer while a sync is late, and rejecting all writes after a sync has failed.
//!
//! Not responsible for:
//! - writing events (`storage::journal::writer`).

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::latency::Latency;
use crate::storage::files::AppendFile;
use crate::storage::journal::Sequence;
use crate::storage::journal::committed::CommittedMark;

/// Time between two syncs.
const PERIOD: Duration = Duration::from_secs(1);

/// Duration of a sync after which the writer waits for it.
const LATE: Duration = Duration::from_secs(2);

/// The state that the writer and the syncing thread share.
#[derive(Default)]
pub(super) struct SyncState {
    state: Mutex<State>,
    changed: Condvar,
    /// Duration of the syncs.
    pub(super) latency: Latency,
    /// The last event that is known to survive a power loss, for threads that wait for the next.
    pub(super) durable: CommittedMark,
}

#[derive(Default)]
struct State {
    file: Option<Arc<dyn AppendFile>>,
    written: Sequence,
    synced: Sequence,
    /// The start of the sync that is running, if one is.
    syncing: Option<Instant>,
    failed: Option<String>,
    stopped: bool,
}

impl SyncState {
    /// Records that all events up to `written` are in `file`, or in files that were synced before it.
    pub(super) fn note_written(&self, file: &Arc<dyn AppendFile>, written: Sequence) {
        let mut state = self.state.lock();
        state.file = Some(Arc::clone(file));
        state.written = written;
    }

    /// The last event that is known to survive a power loss.
    pub(super) fn synced(&self) -> Sequence {
        self.state.lock().synced
    }

    /// Syncs all events that were written until now.
    pub(super) fn sync(&self) -> Result<(), String> {
        let mut state = self.state.lock();
        // The error of a sync is returned to one caller only. So this call waits for a running sync and then checks for a failure of it.
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
            Ok(()) => {
                state.synced = state.synced.max(written);
                // Under the lock, since two threads sync: the mark must not move back.
                self.durable.publish(state.synced);
            }
            Err(cause) => state.failed = Some(cause.to_string()),
        }
        self.changed.notify_all();
        outcome.map_err(|cause| cause.to_string())
    }

    /// The cause of the first failed sync, if there was one. After it the content on disk is unknown.
    pub(super) fn failure(&self) -> Option<String> {
        self.state.lock().failed.clone()
    }

    /// Returns true after the first failed sync.
    pub(super) fn has_failed(&self) -> bool {
        self.state.lock().failed.is_some()
    }

    /// Makes every later sync fail with `cause`.
    pub(super) fn fail(&self, cause: &str) {
        self.state.lock().failed.get_or_insert_with(|| cause.to_owned());
    }

    /// Blocks while a sync is late.
    pub(super) fn wait_if_late(&self) -> Result<(), String> {
        let mut state = self.state.lock();
        while state.syncing.is_some_and(|since| since.elapsed() > LATE) {
            self.changed.wait(&mut state);
        }
        state.failed.clone().map_or(Ok(()), Err)
    }

    /// Starts the thread that syncs once a second, until [`SyncState::stop`] is called.
    pub(super) fn start(self: &Arc<Self>) -> std::io::Result<JoinHandle<()>> {
        let state = Arc::clone(self);
        thread::Builder::new().name("tidewire-sync".to_owned()).spawn(move || {
            while state.pause() {
                // The next commit of the writer returns the error.
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

    /// Stops the syncing thread.
    pub(super) fn stop(&self) {
        self.state.lock().stopped = true;
        self.changed.notify_all();
    }
}
