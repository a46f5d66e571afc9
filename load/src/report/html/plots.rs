//! The plots of the page, each with a table of its data.

use super::super::plot::{self, Line, Words};
use super::super::{Case, Latency, Report, TargetReport, compare, figure};
use super::{row_head, wide};
use crate::operation::Kind;
use crate::report::escape::escaped;

pub(super) const LATENCIES: &str = "Time from the planned start of an operation until its end, in all rounds. Each step to \
                                    the right is a tenth of the operations before it: the further a line stays low, the fewer \
                                    operations waited.";
pub(super) const OVER_TIME: &str = "Each short interval of the last round: the rate of operations, or the p99 of the operations that ended in \
     it. A pause is a dip of the rate and a peak of the p99.";

/// Draws a plot for each case and kind of operation.
pub(super) fn latencies(report: &Report) -> String {
    let mut figures = Vec::new();
    for case in compare::cases(report) {
        for kind in compare::kinds(report, case) {
            figures.push(latency(report, case, kind, figures.len()));
        }
    }
    grid(&figures)
}

fn grid(figures: &[String]) -> String {
    if figures.is_empty() { String::new() } else { format!("<div class=\"plots\">\n{}</div>\n", figures.concat()) }
}

fn latency(report: &Report, name: &str, kind: Kind, number: usize) -> String {
    let of = |case: &Case| case.latencies.get(&kind).cloned();
    let shown: Vec<(usize, &TargetReport, Latency)> =
        shown(report, name).filter_map(|(at, target, case)| Some((at, target, of(case)?))).collect();
    let lines: Vec<Line> =
        shown.iter().map(|(at, _, latency)| Line { series: *at, points: latency.curve.clone() }).collect();
    let label = format!("{}: {}", compare::label(name), kind.label());
    let sentences: Vec<String> = shown
        .iter()
        .map(|(_, target, latency)| {
            let (p50, p99) = (figure::time_us(latency.p50_us), figure::time_us(latency.p99_us));
            format!("{}: half took at most {p50}, 99 in 100 at most {p99}.", target.name)
        })
        .collect();
    let words = Words {
        id: &format!("latency-{number}"),
        title: &format!("Latency, {label}"),
        description: &sentences.join(" "),
    };
    let rows: Vec<String> = shown
        .iter()
        .map(|(_, target, latency)| {
            let times = [latency.p50_us, latency.p90_us, latency.p99_us, latency.p999_us, latency.max_us];
            let cells: Vec<String> = times.iter().map(|time| format!("<td>{}</td>", figure::time_us(*time))).collect();
            let count = figure::count(latency.count);
            format!("<tr>{}{}<td>{count}</td></tr>\n", row_head(report, target), cells.concat())
        })
        .collect();
    let heads = ["p50", "p90", "p99", "p99.9", "max", "samples"];
    figure_of(&label, &plot::latencies(&words, &lines), &heads, &rows)
}

/// Draws a plot for each case with values over time.
pub(super) fn over_time(report: &Report) -> String {
    let cases = compare::cases(report);
    let figures: Vec<String> =
        cases.iter().enumerate().filter_map(|(number, case)| course(report, case, number)).collect();
    grid(&figures)
}

fn course(report: &Report, name: &str, number: usize) -> Option<String> {
    let shown: Vec<(usize, &TargetReport, &Case)> =
        shown(report, name).filter(|(_, _, case)| !case.over_time.is_empty()).collect();
    let unit = shown.first()?.2.unit.as_str();
    let lines: Vec<Line> =
        shown.iter().map(|(at, _, case)| Line { series: *at, points: points(case).collect() }).collect();
    let label = format!("{}: {}", compare::label(name), if unit == "us" { "p99" } else { unit });
    let mut rows = Vec::new();
    let mut sentences = Vec::new();
    for (_, target, case) in &shown {
        let values = || points(case).map(|(_, value)| value);
        let least = figure::of_unit(unit, values().reduce(f64::min).unwrap_or(f64::NAN));
        let most = figure::of_unit(unit, values().reduce(f64::max).unwrap_or(f64::NAN));
        sentences.push(format!("{}: between {least} and {most}.", target.name));
        let slowest = case.over_time.iter().map(|interval| interval.p99_us).fold(0.0, f64::max);
        let slowest = if slowest > 0.0 { figure::time_us(slowest) } else { figure::NONE.to_owned() };
        let head = row_head(report, target);
        rows.push(format!("<tr>{head}<td>{least}</td><td>{most}</td><td>{slowest}</td></tr>\n"));
    }
    let words = Words {
        id: &format!("course-{number}"),
        title: &format!("Over time, {label}"),
        description: &sentences.join(" "),
    };
    Some(figure_of(&label, &plot::over_time(&words, &lines, unit), &["least", "most", "worst p99"], &rows))
}

/// Returns times and values. A p99 of 0 means that no operation ended in the interval.
fn points(case: &Case) -> impl Iterator<Item = (f64, f64)> {
    let is_time = case.unit == "us";
    let points = case.over_time.iter().map(|interval| (interval.at_s, interval.value));
    points.filter(move |(_, value)| value.is_finite() && (*value > 0.0 || !is_time))
}

/// Returns the designs that have a case, with their indexes in the report.
fn shown<'a>(report: &'a Report, name: &'a str) -> impl Iterator<Item = (usize, &'a TargetReport, &'a Case)> {
    let took_part = report.targets.iter().enumerate().filter(|(_, target)| target.left_out.is_none());
    took_part.filter_map(move |(at, target)| Some((at, target, target.cases.get(name)?)))
}

fn figure_of(label: &str, plot: &str, heads: &[&str], rows: &[String]) -> String {
    let heads: Vec<String> = heads.iter().map(|head| format!("<th scope=\"col\">{head}</th>")).collect();
    let table = format!(
        "<table><thead><tr><th scope=\"col\">Design</th>{}</tr></thead>\n<tbody>{}</tbody></table>",
        heads.concat(),
        rows.concat()
    );
    let label = escaped(label);
    format!("<figure class=\"card\"><figcaption>{label}</figcaption>\n{plot}{}</figure>\n", wide(&label, &table))
}
