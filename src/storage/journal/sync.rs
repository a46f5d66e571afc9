//! Syncing in the background, for the durability policy `everysec`.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::clock::{Clock, SystemClock};
use crate::latency::Latency;
use crate::storage::files::AppendFile;
use crate::storage::journal::committed::CommittedMark;
use crate::storage::sequence::Sequence;

/// Time between two syncs.
const PERIOD: Duration = Duration::from_secs(1);

/// Duration of a sync after which the writer waits for it.
const LATE: Duration = Duration::from_secs(2);

/// The state that the writer and the syncing thread share.
pub(super) struct SyncState {
    clock: Arc<dyn Clock>,
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
    /// The start of the sync that is running, if one is, on the monotonic clock.
    syncing: Option<Duration>,
    failed: Option<String>,
    stopped: bool,
}

impl Default for SyncState {
    /// The state of a journal that syncs nothing in the background.
    fn default() -> Self {
        Self::new(Arc::new(SystemClock))
    }
}

impl SyncState {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            state: Mutex::default(),
            changed: Condvar::default(),
            latency: Latency::default(),
            durable: CommittedMark::default(),
        }
    }

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
        let began = self.clock.monotonic();
        state.syncing = Some(began);
        drop(state);
        let outcome = file.sync();
        self.latency.record(self.clock.monotonic().saturating_sub(began));
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
        while state.syncing.is_some_and(|since| self.clock.monotonic().saturating_sub(since) > LATE) {
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
        let until = self.clock.monotonic() + PERIOD;
        while !state.stopped {
            let left = until.saturating_sub(self.clock.monotonic());
            if left.is_zero() {
                return true;
            }
            // The clock of a test may show another time afterwards.
            self.changed.wait_for(&mut state, left);
        }
        false
    }

    /// Stops the syncing thread.
    pub(super) fn stop(&self) {
        self.state.lock().stopped = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::mpsc::{Receiver, Sender, channel};

    use testkit::{DEADLINE, OnDrop, eventually};

    use super::*;
    use crate::clock::{ManualClock, UnixMicros};

    /// A file whose syncs block until the test releases each of them.
    struct HeldFile(Mutex<Receiver<()>>);

    impl AppendFile for HeldFile {
        fn append(&self, _: &[u8]) -> io::Result<()> {
            Ok(())
        }

        fn cut(&self, _: u64) -> io::Result<()> {
            Ok(())
        }

        fn sync(&self) -> io::Result<()> {
            self.0.lock().recv_timeout(DEADLINE).map_err(io::Error::other)
        }
    }

    /// Returns a state with one written and unsynced event, its clock, and the sender that releases a sync.
    fn written() -> (SyncState, Arc<ManualClock>, Sender<()>) {
        let clock = Arc::new(ManualClock::new(UnixMicros(0)));
        let (state, (let_go, held)) = (SyncState::new(Arc::clone(&clock) as Arc<dyn Clock>), channel());
        state.note_written(&(Arc::new(HeldFile(Mutex::new(held))) as Arc<dyn AppendFile>), Sequence(1));
        (state, clock, let_go)
    }

    #[test]
    fn the_writer_waits_only_for_a_late_sync() {
        let (state, clock, let_go) = written();
        thread::scope(|scope| {
            let syncing = scope.spawn(|| state.sync());
            let ends = OnDrop(|| {
                let _ = let_go.send(());
            });
            eventually("the sync begins", || state.state.lock().syncing.is_some());
            clock.advance(LATE);
            state.wait_if_late().unwrap();
            clock.advance(Duration::from_micros(1));
            let (begins, has_begun) = channel();
            let writing = scope.spawn({
                let state = &state;
                move || {
                    begins.send(()).unwrap();
                    state.wait_if_late()
                }
            });
            has_begun.recv_timeout(DEADLINE).unwrap();
            for _ in 0..1_000 {
                assert!(!writing.is_finished(), "the sync goes on");
                thread::yield_now();
            }
            drop(ends);
            writing.join().unwrap().unwrap();
            syncing.join().unwrap().unwrap();
        });
        assert_eq!(state.synced(), Sequence(1));
    }

    #[test]
    fn the_next_sync_is_due_a_second_later_by_the_clock() {
        let (state, clock, let_go) = written();
        let state = Arc::new(state);
        let thread = state.start().unwrap();
        let ends = OnDrop(|| state.stop());
        let_go.send(()).unwrap();
        assert_eq!(state.synced(), Sequence(0), "the clock stands");
        // The thread may begin to wait only now.
        eventually("the event is synced", || {
            clock.advance(PERIOD);
            state.synced() == Sequence(1)
        });
        drop(ends);
        thread.join().unwrap();
    }
}
