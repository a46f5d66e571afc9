//! The progress of an import, shown on the terminal.

use indicatif::ProgressBar;

/// The progress of the sender of an import.
pub(crate) struct Progress {
    bar: ProgressBar,
    what: &'static str,
    done: usize,
}

impl Progress {
    /// Shows the number of finished items on `bar`. `what` names the items.
    pub(crate) fn new(bar: ProgressBar, what: &'static str) -> Self {
        Self { bar, what, done: 0 }
    }

    /// Adds finished items and the file bytes of these items.
    pub(crate) fn add(&mut self, count: usize, bytes: u64) {
        self.done += count;
        self.bar.inc(bytes);
        self.bar.set_message(format!("{} {}", self.done, self.what));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completed_items_are_counted_and_advance_the_progress_bar() {
        let bar = ProgressBar::with_draw_target(Some(10), indicatif::ProgressDrawTarget::hidden());
        let mut progress = Progress::new(bar.clone(), "edges");
        progress.add(3, 1);
        progress.add(0, 4);
        progress.add(2, 1);
        assert_eq!((bar.message(), bar.position()), ("5 edges".to_owned(), 6));
    }
}
