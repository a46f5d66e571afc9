//! What an import did, and which lines were refused.

use std::process::ExitCode;
use std::time::Instant;

use crate::cli::terminal;

/// Refused lines that are listed.
const LISTED_MAX: usize = 100;

/// What an import did.
#[derive(Debug)]
pub struct Report {
    began: Instant,
    /// What was new.
    pub created: usize,
    /// What was there before.
    pub existing: usize,
    refused: usize,
    listed: Vec<(u64, String)>,
}

impl Report {
    /// The report of an import that begins now.
    pub fn begin() -> Self {
        Self { began: Instant::now(), created: 0, existing: 0, refused: 0, listed: Vec::new() }
    }

    /// Notes a refused line.
    pub fn refuse(&mut self, line: u64, why: impl Into<String>) {
        self.refused += 1;
        self.listed.push((line, why.into()));
        // Lines are answered out of order: keep the first by number, and never many more than are listed.
        if self.listed.len() >= 2 * LISTED_MAX {
            self.listed.sort_unstable();
            self.listed.truncate(LISTED_MAX);
        }
    }

    /// How many are there now, new or not.
    pub fn done(&self) -> usize {
        self.created + self.existing
    }

    /// How many lines were refused.
    pub fn refused(&self) -> usize {
        self.refused
    }

    /// Adds what another part of the import did.
    pub fn add(&mut self, other: Self) {
        self.created += other.created;
        self.existing += other.existing;
        let unlisted = other.refused - other.listed.len();
        for (line, why) in other.listed {
            self.refuse(line, why);
        }
        self.refused += unlisted;
    }

    /// Prints it. The exit code is a failure if a line was refused.
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
        terminal::say(&format!(
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
