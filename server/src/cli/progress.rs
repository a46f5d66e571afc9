//! The progress of an import, shown on the terminal.
//!
//! Responsible for:
//! - one count for all senders, and a bar over the bytes of the input that are done, not of those that were read ahead.
//!
//! Not responsible for:
//! - which lines were refused and why (`cli::report`).

use indicatif::ProgressBar;
use parking_lot::Mutex;

/// The combined progress of all senders of an import.
pub(crate) struct Progress {
    bar: ProgressBar,
    what: &'static str,
    done: Mutex<usize>,
}

impl Progress {
    /// Shows on `bar` how many items of `what` are done.
    pub(crate) fn new(bar: ProgressBar, what: &'static str) -> Self {
        Self { bar, what, done: Mutex::default() }
    }

    /// Adds finished items and the bytes of the file that they came from.
    pub(crate) fn add(&self, count: usize, bytes: u64) {
        // The lock is held while the message is set, so that the displayed count never decreases.
        let mut done = self.done.lock();
        *done += count;
        self.bar.inc(bytes);
        self.bar.set_message(format!("{} {}", *done, self.what));
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn shown(bar: &ProgressBar) -> usize {
        bar.message().split(' ').next().and_then(|count| count.parse().ok()).unwrap_or(0)
    }

    #[test]
    fn the_count_of_all_senders_never_falls_and_ends_at_all() {
        let bar = ProgressBar::with_draw_target(Some(4_000), indicatif::ProgressDrawTarget::hidden());
        let progress = Progress::new(bar.clone(), "edges");
        let mut before = 0;
        thread::scope(|scope| {
            let senders: Vec<_> = (0..4).map(|_| scope.spawn(|| (0..1_000).for_each(|_| progress.add(3, 1)))).collect();
            while !senders.iter().all(thread::ScopedJoinHandle::is_finished) {
                let now = shown(&bar);
                assert!(now >= before, "{now} after {before}");
                before = now;
            }
        });
        assert_eq!((bar.message(), bar.position()), ("12000 edges".to_owned(), 4_000));
    }
}
