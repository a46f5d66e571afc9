//! A report as text for a terminal.
//!
//! Responsible for:
//! - aligned tables that fit the width of the terminal if possible;
//! - removing control characters from all text from outside.

use super::{Case, Latency, Report, compare, figure};

/// The layout of a report.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// Characters per line.
    pub width: usize,
    /// True if the terminal shows colours. The text is complete without them.
    pub colour: bool,
}

impl Default for Look {
    fn default() -> Self {
        Self { width: 100, colour: false }
    }
}

const BOLD: &str = "\x1b[1m";
const FAINT: &str = "\x1b[2m";
const WARNING: &str = "\x1b[33m";
const RESET: &str = "\x1b[0m";

/// The space between columns, and between groups of columns.
const GAP: &str = "  ";
const WIDE_GAP: &str = "    ";

/// Returns the whole report.
pub fn text(report: &Report, look: Look) -> String {
    let paint = Paint(look.colour);
    let mut lines = heading(report, look, paint);
    for table in tables(report) {
        lines.push(String::new());
        lines.extend(table.lines(look, paint));
    }
    lines.push(String::new());
    if compare::cases(report).iter().any(|case| compare::best(report, case).is_some()) {
        lines.push(paint.with(FAINT, "* the best of all"));
    }
    lines.extend(compare::once_note(report).iter().flat_map(|reported| wrapped("", reported, look.width)));
    lines.extend(ratios(report, look));
    lines.extend(compare::page_p99_note(report).iter().flat_map(|reported| wrapped("", reported, look.width)));
    lines.extend(left_out(report, look));
    lines.extend(warnings(report, look, paint));
    lines.iter().map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// Replaces control characters, including line feeds, by spaces, and collapses white space.
pub fn one_line(text: &str) -> String {
    let visible = text.chars().map(|character| if character.is_control() { ' ' } else { character });
    visible.collect::<String>().split_whitespace().collect::<Vec<_>>().join(" ")
}

#[derive(Clone, Copy)]
struct Paint(bool);

impl Paint {
    fn with(self, code: &str, text: &str) -> String {
        if self.0 { format!("{code}{text}{RESET}") } else { text.to_owned() }
    }
}

fn heading(report: &Report, look: Look, paint: Paint) -> Vec<String> {
    let machine = &report.machine;
    let memory = figure::bytes(machine.memory_bytes as f64);
    let place =
        format!("{}, {}, {} cores, {memory}, {}", report.when, machine.processor, machine.cores, machine.system);
    let mut lines = vec![paint.with(BOLD, &one_line(&report.title))];
    lines.extend(wrapped("", &place, look.width));
    lines
}

/// Columns under a common title, with a row for each design.
struct Group {
    title: String,
    heads: Vec<&'static str>,
    rows: Vec<Vec<String>>,
    /// The index of the row with the best first cell.
    best: Option<usize>,
}

struct Table {
    title: String,
    designs: Vec<String>,
    groups: Vec<Group>,
}

/// Returns the table of all cases, then a table of latencies for each case with several kinds of operations.
fn tables(report: &Report) -> Vec<Table> {
    let designs: Vec<String> = compare::took_part(report).map(|target| target.name.clone()).collect();
    if designs.is_empty() {
        return Vec::new();
    }
    let cases = compare::cases(report);
    let groups = cases.iter().map(|case| group(report, case)).collect();
    let mut tables = vec![Table { title: "design".to_owned(), designs: designs.clone(), groups }];
    for name in cases {
        let kinds = compare::kinds(report, name);
        if kinds.len() < 2 {
            continue;
        }
        let latencies = kinds.into_iter().map(|kind| {
            let latency = |case: &Case| case.latencies.get(&kind).cloned();
            let rows = rows(report, name, |case| quantiles(latency(case).as_ref()));
            Group { title: kind.label().to_owned(), heads: vec!["p50", "p99"], rows, best: None }
        });
        let title = compare::label(name);
        tables.push(Table { title, designs: designs.clone(), groups: latencies.collect() });
    }
    tables
}

fn group(report: &Report, name: &str) -> Group {
    let with_latency = compare::took_part(report)
        .filter_map(|target| target.cases.get(name))
        .any(|case| compare::main_latency(name, case).is_some());
    let best = compare::best(report, name);
    let rows = rows(report, name, |case| {
        let mut cells = vec![figure::median(case)];
        if with_latency {
            cells.extend(quantiles(compare::main_latency(name, case)));
        }
        cells
    });
    Group {
        title: compare::label(name),
        heads: if with_latency { vec!["median", "p50", "p99"] } else { vec!["median"] },
        rows,
        best: compare::took_part(report).position(|target| Some(target.name.as_str()) == best),
    }
}

fn rows(report: &Report, name: &str, cells: impl Fn(&Case) -> Vec<String>) -> Vec<Vec<String>> {
    compare::took_part(report).map(|target| target.cases.get(name).map(&cells).unwrap_or_default()).collect()
}

fn quantiles(latency: Option<&Latency>) -> Vec<String> {
    latency.map(|latency| vec![figure::time_us(latency.p50_us), figure::time_us(latency.p99_us)]).unwrap_or_default()
}

impl Group {
    fn cell(&self, row: usize, column: usize) -> &str {
        self.rows.get(row).and_then(|cells| cells.get(column)).map_or(figure::NONE, String::as_str)
    }

    /// Returns the star behind the best cell, or spaces of the same width.
    fn star(&self, column: usize, row: usize) -> &'static str {
        match (column, self.best) {
            (0, Some(best)) if best == row => " *",
            (0, Some(_)) => "  ",
            _ => "",
        }
    }

    fn widths(&self) -> Vec<usize> {
        let column = |(column, head): (usize, &&str)| {
            let cells = (0..self.rows.len()).map(|row| length(self.cell(row, column)));
            cells.max().unwrap_or(0).max(length(head)) + self.star(column, usize::MAX).len()
        };
        let mut widths: Vec<usize> = self.heads.iter().enumerate().map(column).collect();
        // A long title makes the last column wider, so that it does not run into the next title.
        let all = widths.iter().sum::<usize>() + GAP.len() * (widths.len() - 1);
        if let Some(last) = widths.last_mut() {
            *last += length(&self.title).saturating_sub(all);
        }
        widths
    }

    fn width(&self) -> usize {
        let widths = self.widths();
        widths.iter().sum::<usize>() + GAP.len() * (widths.len() - 1)
    }

    fn heads(&self) -> String {
        let columns = self.widths().into_iter().zip(&self.heads).enumerate();
        let cells = columns.map(|(column, (width, head))| {
            let star = self.star(column, usize::MAX);
            format!("{head:>0$}{star}", width - star.len())
        });
        cells.collect::<Vec<_>>().join(GAP)
    }

    fn row(&self, row: usize, paint: Paint) -> String {
        let cells = self.widths().into_iter().enumerate().map(|(column, width)| {
            let star = self.star(column, row);
            let text = format!("{:>1$}{star}", self.cell(row, column), width - star.len());
            if column == 0 && self.best == Some(row) { paint.with(BOLD, &text) } else { text }
        });
        cells.collect::<Vec<_>>().join(GAP)
    }
}

impl Table {
    /// Puts as many groups as fit side by side, and the others below them.
    fn lines(&self, look: Look, paint: Paint) -> Vec<String> {
        let names = self.designs.iter().map(|name| length(name)).chain([length(&self.title)]).max().unwrap_or(0);
        let mut lines = Vec::new();
        let mut rest = self.groups.as_slice();
        while !rest.is_empty() {
            let mut width = names;
            let fitting = rest.iter().take_while(|group| {
                width += WIDE_GAP.len() + group.width();
                width <= look.width
            });
            let (these, others) = rest.split_at(fitting.count().max(1));
            rest = others;
            let line = |first: &str, cells: Vec<String>| format!("{first:<names$}{WIDE_GAP}{}", cells.join(WIDE_GAP));
            if !lines.is_empty() {
                lines.push(String::new());
            }
            let titles = these.iter().map(|group| format!("{:^1$}", group.title, group.width())).collect();
            lines.push(line(&self.title, titles));
            lines.push(paint.with(FAINT, &line("", these.iter().map(Group::heads).collect())));
            for (row, name) in self.designs.iter().enumerate() {
                lines.push(line(name, these.iter().map(|group| group.row(row, paint)).collect()));
            }
        }
        lines
    }
}

fn ratios(report: &Report, look: Look) -> Vec<String> {
    let cases = compare::cases(report);
    let of_case = |case| compare::all_ratio_texts(report, case).map(move |ratios| (case, ratios));
    let ratios = cases.into_iter().flat_map(of_case).filter_map(|(case, ratios)| {
        let sentence = ratios.first()?.sentence.clone();
        // Only the first ratio is a full sentence: `Tidewire is 23.4x redis_list, 34.6x redis_zset`.
        let is_times = sentence.starts_with("Tidewire");
        let others = ratios.iter().skip(1).map(|other| match is_times {
            true => format!("{} {}", other.times, other.rival),
            false => format!("{} {}", other.rival, other.times),
        });
        Some((compare::label(case), std::iter::once(sentence).chain(others).collect::<Vec<_>>().join(", ")))
    });
    let ratios: Vec<(String, String)> = ratios.collect();
    let labels = ratios.iter().map(|(label, _)| length(label)).max().unwrap_or(0);
    let mut lines = if ratios.is_empty() { Vec::new() } else { vec![String::new()] };
    for (label, sentence) in ratios {
        lines.extend(wrapped(&format!("{label:<labels$}{GAP}"), &sentence, look.width));
    }
    lines
}

fn left_out(report: &Report, look: Look) -> Vec<String> {
    let left_out = report.targets.iter().filter_map(|target| Some((target, target.left_out.as_deref()?)));
    let lines: Vec<String> = left_out
        .flat_map(|(target, why)| wrapped(&format!("Left out: {}{GAP}", target.name), why, look.width))
        .collect();
    if lines.is_empty() { lines } else { std::iter::once(String::new()).chain(lines).collect() }
}

fn warnings(report: &Report, look: Look, paint: Paint) -> Vec<String> {
    let mut lines = vec![String::new()];
    if report.warnings.is_empty() {
        lines.push("No check found a problem with these figures.".to_owned());
        return lines;
    }
    lines.push(paint.with(WARNING, "WARNING: these figures may be wrong."));
    for warning in &report.warnings {
        lines.extend(wrapped("  ! ", warning, look.width).iter().map(|line| paint.with(WARNING, line)));
    }
    lines
}

/// Wraps words into lines: the first line begins with `start`, the others are indented below it. Longer words are cut.
fn wrapped(start: &str, text: &str, width: usize) -> Vec<String> {
    // Each line has at least 16 characters for text, however narrow the terminal is.
    let columns = width.saturating_sub(length(start)).max(16);
    let mut lines = vec![String::new()];
    for word in one_line(text).split(' ') {
        let mut word: Vec<char> = word.chars().collect();
        loop {
            let used = lines.last().map_or(0, |line| length(line));
            let space = usize::from(used > 0);
            if used + space + word.len() > columns && used > 0 {
                lines.push(String::new());
                continue;
            }
            let cut = word.len().min(columns);
            let rest = word.split_off(cut);
            if let Some(line) = lines.last_mut() {
                line.extend(std::iter::repeat_n(' ', space).chain(word));
            }
            if rest.is_empty() {
                break;
            }
            word = rest;
            lines.push(String::new());
        }
    }
    let blank = " ".repeat(length(start));
    lines.iter().enumerate().map(|(at, line)| format!("{}{line}", if at == 0 { start } else { &blank })).collect()
}

/// Returns the width of a text in columns. All characters in names and numbers are one column wide.
fn length(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests;
