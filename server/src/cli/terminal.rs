//! The terminal: the one place that prints.
#![expect(clippy::print_stderr, reason = "this is what the module is for")]

use std::error::Error;
use std::io::{self, BufWriter, IsTerminal as _, Write, stderr, stdout};
use std::process::ExitCode;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Prints a line of the result.
pub fn say(line: &str) {
    // Whoever reads it may have enough: `println!` would panic.
    let _ = writeln!(stdout(), "{line}");
}

/// The standard output, for results of many lines.
pub fn output() -> Box<dyn Write> {
    Box::new(BufWriter::with_capacity(1 << 16, stdout()))
}

/// Whether writing ended because nobody reads any more, as in `… | head`: no failure.
pub fn is_enough(outcome: &io::Result<()>) -> bool {
    outcome.as_ref().is_err_and(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}

/// Prints a line beside the result.
pub fn warn(line: &str) {
    eprintln!("{line}");
}

/// Prints why a command failed, with all causes.
pub fn fail(error: &dyn Error) {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        // Many errors already name their cause.
        let inner_message = inner.to_string();
        if !message.contains(&inner_message) {
            message = format!("{message}: {inner_message}");
        }
        cause = inner.source();
    }
    eprintln!("error: {message}");
}

/// Says that a command makes no sense as it was given.
pub fn refuse(why: &str) -> ExitCode {
    eprintln!("error: {why}");
    ExitCode::from(2)
}

/// A bar over `bytes`, if they are known, shown only where a person watches.
pub fn progress(bytes: Option<u64>) -> ProgressBar {
    if !stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = bytes.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
    let template = match bytes {
        Some(_) => "{bar:40} {percent}% {msg} ({eta} left)",
        None => "{spinner} {bytes} {msg}",
    };
    bar.set_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// A line that changes, shown only where a person watches.
pub fn changing_line() -> ProgressBar {
    if !stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let line = ProgressBar::new_spinner();
    line.set_style(
        ProgressStyle::with_template("{spinner} {msg}").unwrap_or_else(|_| ProgressStyle::default_spinner()),
    );
    line
}
