//! The mark up to which the events of a journal are committed, for threads that wait for the next one.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::storage::sequence::Sequence;

/// The last committed event. It costs its writer one atomic store and one atomic load, and a lock only while a reader waits.
#[derive(Default)]
pub struct CommittedMark {
    last: AtomicU64,
    /// The number of threads that wait, or are about to wait.
    waiting: AtomicUsize,
    /// Protects no data. A thread holds it from its last read of the mark until it waits, so that it misses no notification.
    lock: Mutex<()>,
    moved: Condvar,
}

impl CommittedMark {
    /// Returns the last committed event.
    pub fn last(&self) -> Sequence {
        Sequence(self.last.load(Ordering::SeqCst))
    }

    /// Sets the mark, and wakes all threads that wait for it. The caller makes sure that the mark never moves back.
    pub fn publish(&self, last: Sequence) {
        // Each side first writes its own value and then reads the other's, in one order for all. So at least one of them sees the other.
        self.last.store(last.0, Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            drop(self.lock.lock());
            self.moved.notify_all();
        }
    }

    /// Waits up to `wait` until the event `wanted` is committed, and returns the last committed event.
    pub fn wait_for(&self, wanted: Sequence, wait: Duration) -> Sequence {
        let last = self.last();
        if last >= wanted || wait.is_zero() {
            return last;
        }
        let until = Instant::now() + wait;
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut guard = self.lock.lock();
        while self.last() < wanted && !self.moved.wait_until(&mut guard, until).timed_out() {}
        drop(guard);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        self.last()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;

    #[test]
    fn waiting_threads_notice_every_step_of_the_mark() {
        const LAST: u64 = 20_000;
        let mark = Arc::new(CommittedMark::default());
        let waiting = [1, 2, 3].map(|_| {
            let mark = Arc::clone(&mark);
            thread::spawn(move || {
                let mut seen = Sequence(0);
                while seen.0 < LAST {
                    let last = mark.wait_for(seen.next(), Duration::from_secs(60));
                    assert!(last > seen, "no step after {seen} was noticed");
                    seen = last;
                }
            })
        });
        (1..=LAST).for_each(|last| mark.publish(Sequence(last)));
        waiting.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(mark.waiting.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn a_wait_times_out_without_a_step() {
        let mark = CommittedMark::default();
        mark.publish(Sequence(4));
        for (wanted, wait) in [(1, 60_000), (4, 60_000), (5, 0), (5, 1)] {
            assert_eq!(mark.wait_for(Sequence(wanted), Duration::from_millis(wait)), Sequence(4));
        }
    }
}
