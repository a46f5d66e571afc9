//! How far an import has come, for whoever watches it.
//!
//! Responsible for:
//! - one count for all senders, and a bar over the bytes of what is done, not of what was read ahead.
//!
//! Not responsible for:
//! - what was refused and why (`cli::report`).

use indicatif::ProgressBar;
use parking_lot::Mutex;

/// What all senders of an import did together.
pub(crate) struct Progress {
    bar: ProgressBar,
    what: &'static str,
    done: Mutex<usize>,
}

impl Progress {
    /// Shows on `bar` how much of `what` is done.
    pub(crate) fn new(bar: ProgressBar, what: &'static str) -> Self {
        Self { bar, what, done: Mutex::default() }
    }

    /// Adds what is done, and the bytes of the file that it came from.
    pub(crate) fn add(&self, count: usize, bytes: u64) {
        // Held while it is shown: a smaller count must not follow a greater.
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
