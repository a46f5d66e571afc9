//! The summary of an import: the created items, and the refused lines.

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use serde_json::json;

use crate::cli::terminal;

/// Maximum number of refused lines in the summary.
const LISTED_MAX: usize = 100;

/// The output form of a report, and the rules of its exit code.
pub(crate) struct Form {
    /// True if any refused line makes the exit code a failure.
    pub(crate) is_strict: bool,
    /// True for lines of JSON.
    pub(crate) is_json: bool,
    /// False if the import stopped before the end of the file.
    pub(crate) is_whole: bool,
    /// True if nothing was sent.
    pub(crate) is_dry_run: bool,
}

/// The counters of an import and its refused lines.
#[derive(Debug)]
pub struct Report {
    began: Instant,
    /// Number of items that were created, or that would be sent.
    pub created: usize,
    /// Number of items that existed before.
    pub existing: usize,
    refused: usize,
    listed: Vec<(u64, String)>,
    /// Notes, with the number of their lines.
    notes: Vec<(&'static str, usize)>,
}

impl Report {
    /// Starts the report and its timer.
    pub fn begin() -> Self {
        Self { began: Instant::now(), created: 0, existing: 0, refused: 0, listed: Vec::new(), notes: Vec::new() }
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

    /// Counts a line with a note, which is not an error.
    pub fn note(&mut self, what: &'static str) {
        self.add_note(what, 1);
    }

    fn add_note(&mut self, what: &'static str, lines: usize) {
        match self.notes.iter_mut().find(|(known, _)| *known == what) {
            Some((_, count)) => *count += lines,
            None => self.notes.push((what, lines)),
        }
    }

    /// Returns the notes, each with its number of lines.
    pub fn notes(&self) -> &[(&'static str, usize)] {
        &self.notes
    }

    /// Returns the number of items that exist now, created by this import or earlier.
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
        other.notes.into_iter().for_each(|(what, lines)| self.add_note(what, lines));
    }

    /// Prints the refused lines and the summary. The exit code is a failure if all lines were refused, if the form is strict and any line
    /// was refused, or if the file has no lines.
    pub(crate) fn print(mut self, what: &str, file: &Path, form: &Form) -> ExitCode {
        self.listed.sort_unstable();
        self.listed.truncate(LISTED_MAX);
        let done = self.done();
        if done + self.refused == 0 && form.is_whole {
            terminal::warn(&format!("{} has no {what}", file.display()));
        }
        if form.is_json {
            self.print_json(what, form);
        } else if done + self.refused > 0 {
            self.print_text(what, form);
        }
        let is_failure = done == 0 || (form.is_strict && self.refused > 0);
        if is_failure { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }

    fn print_text(&self, what: &str, form: &Form) {
        for (line, why) in &self.listed {
            terminal::warn(&format!("line {line}: {why}"));
        }
        if self.refused > self.listed.len() {
            terminal::warn(&format!("… and {} more refused lines", self.refused - self.listed.len()));
        }
        for (note, lines) in &self.notes {
            terminal::warn(&format!("{lines} {}: {note}", if *lines == 1 { "line" } else { "lines" }));
        }
        let (created, existing, refused) = (self.created, self.existing, self.refused);
        let seconds = self.began.elapsed().as_secs_f64();
        let rate = self.done() as f64 / seconds.max(0.001);
        let stopped = if form.is_whole { "" } else { "stopped early: " };
        let lines = if refused == 1 { "line" } else { "lines" };
        let what = if created == 1 { what.trim_end_matches('s') } else { what };
        terminal::print_line(&match form.is_dry_run {
            true => format!("{stopped}would send {created} {what}, {refused} {lines} refused; nothing was sent"),
            false => format!(
                "{stopped}{created} {what} created, {existing} existing, {refused} {lines} refused, in {seconds:.1} s ({rate:.0}/s)"
            ),
        });
    }

    fn print_json(&self, what: &str, form: &Form) {
        self.listed.iter().for_each(|(line, why)| terminal::print_json(&json!({"line": line, "refused": why})));
        self.notes.iter().for_each(|(note, lines)| terminal::print_json(&json!({"note": note, "lines": lines})));
        let (created, existing, refused, complete) = (self.created, self.existing, self.refused, form.is_whole);
        let seconds = (self.began.elapsed().as_secs_f64() * 1_000.0).round() / 1_000.0;
        terminal::print_json(&match form.is_dry_run {
            true => json!({"checked": what, "complete": complete, "would_send": created, "refused": refused}),
            false => json!({
                "imported": what,
                "complete": complete,
                "created": created,
                "existing": existing,
                "refused": refused,
                "seconds": seconds,
            }),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_refused_lines_are_listed_and_all_are_counted() {
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
