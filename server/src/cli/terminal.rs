//! Terminal output: the only module that prints.
#![expect(clippy::print_stderr, reason = "this is what the module is for")]

use std::error::Error;
use std::io::{self, BufWriter, IsTerminal as _, Write, stderr, stdout};
use std::process::ExitCode;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Prints a line of the result to standard output.
pub fn print_line(line: &str) {
    // The reader of a pipe may have closed it: `println!` would panic.
    let _ = writeln!(stdout(), "{line}");
}

/// Returns a buffered standard output, for results of many lines.
pub fn output() -> Box<dyn Write> {
    Box::new(BufWriter::with_capacity(1 << 16, stdout()))
}

/// Returns true if writing failed because the reader closed the pipe, as in `… | head`. This is not a failure.
pub fn is_enough(outcome: &io::Result<()>) -> bool {
    outcome.as_ref().is_err_and(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}

/// Prints a line to standard error, apart from the result.
pub fn warn(line: &str) {
    eprintln!("{line}");
}

/// Prints why a command failed, with all causes in the chain.
pub fn fail(error: &dyn Error) {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        // Skip a cause that the message already contains.
        let inner_message = inner.to_string();
        if !message.contains(&inner_message) {
            message = format!("{message}: {inner_message}");
        }
        cause = inner.source();
    }
    eprintln!("error: {message}");
}

/// Reports a usage error. Returns exit code 2.
pub fn refuse(why: &str) -> ExitCode {
    eprintln!("error: {why}");
    ExitCode::from(2)
}

/// Creates a progress bar over `bytes`, or a spinner if they are not known. It is hidden if standard error is not a terminal.
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

/// Creates a status line that is updated in place. It is hidden if standard error is not a terminal.
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
