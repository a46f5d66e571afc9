//! The summary of an import: what was created, and which lines were refused.

use std::process::ExitCode;
use std::time::Instant;

use crate::cli::terminal;

/// Maximum number of refused lines that are listed.
const LISTED_MAX: usize = 100;

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
        // Lines are answered out of order: keep those with the smallest numbers, in bounded memory.
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

    /// Prints the summary. The exit code is a failure if a line was refused.
    pub fn print(mut self, what: &str) -> ExitCode {
        self.listed.sort_unstable();
        self.listed.truncate(LISTED_MAX);
        for (line, why) in &self.listed {
            terminal::warn(&format!("line {line}: {why}"));
        }
        if self.refused > self.listed.len() {
            terminal::warn(&format!("… and {} more refused lines", self.refused - self.listed.len()));
        }
        let seconds = self.began.elapsed().as_secs_f64();
        let done = self.done();
        terminal::print_line(&format!(
            "{} {what} created, {} existing, {} lines refused, in {seconds:.1} s ({:.0}/s)",
            self.created,
            self.existing,
            self.refused,
            done as f64 / seconds.max(0.001),
        ));
        if self.refused == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
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
