//! Terminal output: the only module that prints.
#![expect(clippy::print_stderr, reason = "this is what the module is for")]

use std::error::Error;
use std::fs::{self, OpenOptions};
use std::io::{self, BufWriter, IsTerminal, Write, stderr, stdout};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

/// The text of an error with all causes in the chain.
pub use tidewire::error_text::error_text as message_of;

/// Prints a line of the result to standard output.
pub fn print_line(line: &str) {
    // If the reader has closed a pipe, `println!` would panic.
    let _ = writeln!(stdout(), "{line}");
}

/// Prints and flushes a line of the result. Returns false if the reader has closed the pipe.
pub fn try_print_line(line: &str) -> bool {
    let mut out = stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).is_ok()
}

/// Prints a JSON document as a line of the result.
pub fn print_json(document: &Value) {
    print_line(&document.to_string());
}

/// Prints the error of a check as a JSON document if `json`, because it is the result of the check. The exit code is 1.
///
/// # Errors
/// Returns the error if `json` is false.
pub fn verdict(json: bool, outcome: Result<ExitCode, Box<dyn Error>>) -> Result<ExitCode, Box<dyn Error>> {
    match outcome {
        Err(cause) if json => {
            print_json(&json!({"good": false, "error": message_of(&*cause)}));
            Ok(ExitCode::FAILURE)
        }
        outcome => outcome,
    }
}

/// Returns true if output to this stream may have colours: on a terminal, unless `NO_COLOR` is set or `CLICOLOR` is 0. `CLICOLOR_FORCE`
/// enables them also in files and pipes.
pub fn is_coloured(stream: &impl IsTerminal) -> bool {
    use anstyle_query::{clicolor, clicolor_force, no_color, term_supports_color};
    let is_wanted =
        clicolor().unwrap_or(true) && stream.is_terminal() && (clicolor() == Some(true) || term_supports_color());
    !no_color() && (clicolor_force() || is_wanted)
}

/// Returns a buffered standard output, for results of many lines.
pub fn output() -> Box<dyn Write> {
    Box::new(BufWriter::with_capacity(1 << 16, stdout()))
}

/// Opens the output: a new file, an existing device or pipe, or the standard output.
pub fn create(out: &Path) -> Result<Box<dyn Write>, String> {
    if out == Path::new("-") {
        return Ok(output());
    }
    let is_device = fs::metadata(out).is_ok_and(|there| !there.is_file());
    let opened = OpenOptions::new().write(true).create_new(!is_device).open(out);
    opened.map(|file| Box::new(BufWriter::with_capacity(1 << 16, file)) as Box<dyn Write>).map_err(|cause| {
        let hint = if cause.kind() == io::ErrorKind::AlreadyExists { "; files are not overwritten" } else { "" };
        format!("cannot create {}: {cause}{hint}", out.display())
    })
}

/// Returns true if writing failed because the reader closed the pipe, as in `… | head`. This is not a failure.
pub fn is_enough(outcome: &io::Result<()>) -> bool {
    outcome.as_ref().is_err_and(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}

/// Prints a line to standard error, apart from the result.
pub fn warn(line: &str) {
    eprintln!("{line}");
}

/// Prints the error of a failed command, with all causes in the chain.
pub fn fail(error: &dyn Error) {
    eprintln!("error: {}", message_of(error));
}

/// Reports a usage error. Returns exit code 2.
pub fn refuse(why: &str) -> ExitCode {
    eprintln!("error: {why}");
    ExitCode::from(2)
}

/// Creates a progress bar over `bytes`, or a spinner if they are unknown. It is hidden if standard error is not a terminal.
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
