//! The readers of the change stream, for erasures that are about to remove the journal.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::Clock;

/// The readers of the change stream of one engine. A client that reads all posts in pages counts as one, since it
/// continues with the changes.
pub(crate) struct ChangeReaders {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    open: usize,
    /// The monotonic time at which a reader last ended.
    ended_at: Option<Duration>,
}

/// An open reader. It ends when this is dropped.
pub(crate) struct OpenReader(Arc<ChangeReaders>);

impl ChangeReaders {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { clock, state: Mutex::default() })
    }

    /// Counts a reader that begins.
    pub(crate) fn begin(readers: &Arc<Self>) -> OpenReader {
        readers.state.lock().open += 1;
        OpenReader(Arc::clone(readers))
    }

    /// Returns true if a reader is open, or ended at most this time ago.
    pub(crate) fn any_within(&self, time: Duration) -> bool {
        let state = self.state.lock();
        state.open > 0 || state.ended_at.is_some_and(|at| self.clock.monotonic().saturating_sub(at) <= time)
    }
}

impl Drop for OpenReader {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.open -= 1;
        state.ended_at = Some(self.0.clock.monotonic());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{ManualClock, UnixMicros};

    #[test]
    fn a_reader_counts_while_it_is_open_and_for_a_time_afterwards() {
        let clock = Arc::new(ManualClock::new(UnixMicros(0)));
        let readers = ChangeReaders::new(Arc::clone(&clock) as Arc<dyn Clock>);
        let second = Duration::from_secs(1);
        assert!(!readers.any_within(second));
        let (one, other) = (ChangeReaders::begin(&readers), ChangeReaders::begin(&readers));
        drop(one);
        clock.advance(2 * second);
        assert!(readers.any_within(second), "the other is open");
        drop(other);
        clock.advance(second);
        assert!(readers.any_within(second));
        clock.advance(Duration::from_micros(1));
        assert!(!readers.any_within(second));
    }
}
