//! Shows the progress of a run.

use std::io::{self, IsTerminal as _, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::terminal::one_line;

/// Number of parts of the bar: enough that it moves in every tick of a long step.
const PARTS: u64 = 1_000;

/// The progress of consecutive steps.
pub struct Progress {
    shown: Shown,
}

enum Shown {
    Bar(ProgressBar),
    /// The output for lines, and the current step.
    Lines(Mutex<Lines>),
}

struct Lines {
    to: Box<dyn Write + Send>,
    step: String,
}

impl Default for Progress {
    fn default() -> Self {
        Self::new()
    }
}

impl Progress {
    /// Shows the progress on standard error: as a bar on a terminal, otherwise one line per step.
    pub fn new() -> Self {
        if !io::stderr().is_terminal() {
            return Self::lines(Box::new(io::stderr()));
        }
        let bar = ProgressBar::with_draw_target(Some(PARTS), ProgressDrawTarget::stderr());
        // The template is a constant. If it were wrong, only the style of the bar would suffer.
        let template = "{spinner} {prefix} {wide_bar:.cyan/dim} {msg} {elapsed:>4}";
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        bar.set_style(style.progress_chars("━╸─"));
        bar.enable_steady_tick(Duration::from_millis(200));
        Self { shown: Shown::Bar(bar) }
    }

    /// Writes lines to any output.
    pub fn lines(to: Box<dyn Write + Send>) -> Self {
        Self { shown: Shown::Lines(Mutex::new(Lines { to, step: String::new() })) }
    }

    /// Starts a step: the design, and the work on it.
    pub fn step(&self, target: &str, what: &str) {
        let step = one_line(&format!("{target}: {what}"));
        match &self.shown {
            Shown::Bar(bar) => {
                bar.reset_elapsed();
                bar.set_position(0);
                bar.set_message("");
                bar.set_prefix(step);
            }
            Shown::Lines(lines) => lines.lock().unwrap_or_else(PoisonError::into_inner).step = step,
        }
    }

    /// Updates the progress of the step, 0 to 1, and its latest result. Plain lines do not show it.
    pub fn tick(&self, fraction: f64, figure: &str) {
        if let Shown::Bar(bar) = &self.shown {
            bar.set_position((fraction.clamp(0.0, 1.0) * PARTS as f64) as u64);
            bar.set_message(one_line(figure));
        }
    }

    /// Ends the step with its result, which stays on the screen.
    pub fn done(&self, figure: &str) {
        match &self.shown {
            Shown::Bar(bar) => bar.println(format!("{}: {}", bar.prefix(), one_line(figure))),
            Shown::Lines(lines) => {
                let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
                let line = format!("{}: {}", lines.step, one_line(figure));
                lines.write(&line);
            }
        }
    }
}

impl Lines {
    fn write(&mut self, line: &str) {
        // The reader of a pipe may have closed it; the run continues.
        let _ = writeln!(self.to, "{line}");
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Shown::Bar(bar) = &self.shown {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn without_a_terminal_every_completed_step_is_a_line() {
        let written = Shared::default();
        let progress = Progress::lines(Box::new(written.clone()));
        progress.step("redis_list", "page, round 1 of 3");
        progress.tick(0.5, "12.9 k/s");
        progress.done("13.2 k/s");
        progress.step("redis_list", "page,\nround 2 of 3");
        progress.done("13.1 k/s");
        let expected = "redis_list: page, round 1 of 3: 13.2 k/s\nredis_list: page, round 2 of 3: 13.1 k/s\n";
        assert_eq!(String::from_utf8(written.0.lock().unwrap().clone()).unwrap(), expected);
    }

    #[test]
    fn a_closed_output_does_not_end_the_run() {
        struct Gone;
        impl Write for Gone {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let progress = Progress::lines(Box::new(Gone));
        progress.step("a", "b");
        progress.done("c");
    }
}
