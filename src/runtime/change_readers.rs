//! Whether somebody reads the changes, for erasures that are about to remove the journal.
//!
//! Responsible for:
//! - the number of open readers, and when the last one ended.
//!
//! Not responsible for:
//! - reading (`engine::changes`), how long an erasure waits (`runtime::background::eraser`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The readers of changes of one engine. Who reads all posts in pages is one as well, as it continues with the changes.
#[derive(Debug, Default)]
pub(crate) struct ChangeReaders {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    open: usize,
    ended_at: Option<Instant>,
}

/// An open reader. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct OpenReader(Arc<ChangeReaders>);

impl ChangeReaders {
    /// Counts a reader that begins.
    pub(crate) fn begin(readers: &Arc<Self>) -> OpenReader {
        readers.state.lock().open += 1;
        OpenReader(Arc::clone(readers))
    }

    /// Returns true if a reader is open, or was at most this time ago.
    pub(crate) fn any_within(&self, time: Duration) -> bool {
        let state = self.state.lock();
        state.open > 0 || state.ended_at.is_some_and(|at| at.elapsed() <= time)
    }
}

impl Drop for OpenReader {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.open -= 1;
        state.ended_at = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::eventually;

    #[test]
    fn a_reader_counts_while_it_is_open_and_some_time_after() {
        let readers = Arc::<ChangeReaders>::default();
        assert!(!readers.any_within(Duration::from_secs(3_600)));
        let (one, other) = (ChangeReaders::begin(&readers), ChangeReaders::begin(&readers));
        drop(one);
        assert!(readers.any_within(Duration::ZERO), "the other is open");
        drop(other);
        eventually("its time ends", || !readers.any_within(Duration::ZERO));
        assert!(readers.any_within(Duration::from_secs(3_600)));
    }
}
