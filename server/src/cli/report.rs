//! The summary of an import: what was created, and which lines were refused.

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use serde_json::json;

use crate::cli::terminal;

/// Maximum number of refused lines that are listed.
const LISTED_MAX: usize = 100;

/// How a report is printed and judged.
pub(crate) struct Form {
    /// True if any refused line makes the exit code a failure.
    pub(crate) is_strict: bool,
    /// True for lines of JSON.
    pub(crate) is_json: bool,
    /// False if the import stopped before the end of the file.
    pub(crate) is_whole: bool,
}

/// The counters of an import and its refused lines.
#[derive(Debug)]
pub struct Report {
    began: Instant,
    /// Number of items that were created.
    pub created: usize,
    /// Number of items that existed before.
    pub existing: usize,
    refused: usize,
    listed: Vec<(u64, String)>,
}

impl Report {
    /// Starts the report and its timer.
    pub fn begin() -> Self {
        Self { began: Instant::now(), created: 0, existing: 0, refused: 0, listed: Vec::new() }
    }

    /// Records a refused line.
    pub fn refuse(&mut self, line: u64, why: impl Into<String>) {
        self.refused += 1;
        self.listed.push((line, why.into()));
        // Lines are refused here and by the server, out of order: keep those with the smallest numbers, in bounded memory.
        if self.listed.len() >= 2 * LISTED_MAX {
            self.listed.sort_unstable();
            self.listed.truncate(LISTED_MAX);
        }
    }

    /// Returns the number of items that exist now, created by this import or before.
    pub fn done(&self) -> usize {
        self.created + self.existing
    }

    /// Returns the number of refused lines.
    pub fn refused(&self) -> usize {
        self.refused
    }

    /// Adds the counters of another part of the import.
    pub fn add(&mut self, other: Self) {
        self.created += other.created;
        self.existing += other.existing;
        let unlisted = other.refused - other.listed.len();
        for (line, why) in other.listed {
            self.refuse(line, why);
        }
        self.refused += unlisted;
    }

    /// Prints the refused lines and the summary. The exit code is a failure if all lines were refused, if the form is strict and any was, or
    /// if there were none.
    pub(crate) fn print(mut self, what: &str, file: &Path, form: &Form) -> ExitCode {
        self.listed.sort_unstable();
        self.listed.truncate(LISTED_MAX);
        let done = self.done();
        if done + self.refused == 0 && form.is_whole {
            terminal::warn(&format!("{} has no {what}", file.display()));
        }
        if form.is_json {
            self.print_json(what, form.is_whole);
        } else if done + self.refused > 0 {
            self.print_text(what, form.is_whole);
        }
        let is_failure = done == 0 || (form.is_strict && self.refused > 0);
        if is_failure { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }

    fn print_text(&self, what: &str, is_whole: bool) {
        for (line, why) in &self.listed {
            terminal::warn(&format!("line {line}: {why}"));
        }
        if self.refused > self.listed.len() {
            terminal::warn(&format!("… and {} more refused lines", self.refused - self.listed.len()));
        }
        let seconds = self.began.elapsed().as_secs_f64();
        terminal::print_line(&format!(
            "{}{} {what} created, {} existing, {} lines refused, in {seconds:.1} s ({:.0}/s)",
            if is_whole { "" } else { "stopped early: " },
            self.created,
            self.existing,
            self.refused,
            self.done() as f64 / seconds.max(0.001),
        ));
    }

    fn print_json(&self, what: &str, is_whole: bool) {
        self.listed.iter().for_each(|(line, why)| terminal::print_json(&json!({"line": line, "refused": why})));
        terminal::print_json(&json!({
            "imported": what,
            "complete": is_whole,
            "created": self.created,
            "existing": self.existing,
            "refused": self.refused,
            "seconds": (self.began.elapsed().as_secs_f64() * 1_000.0).round() / 1_000.0,
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_refused_lines_are_kept_and_all_counted() {
        let mut all = Report::begin();
        for part in 0..4 {
            let mut report = Report::begin();
            (0..500).rev().for_each(|line| report.refuse(line * 4 + part, "why"));
            all.add(report);
        }
        assert_eq!(all.refused(), 2_000);
        all.listed.sort_unstable();
        let first: Vec<u64> = all.listed.iter().take(LISTED_MAX).map(|(line, _)| *line).collect();
        assert!(first.into_iter().eq(0..LISTED_MAX as u64));
    }
}
