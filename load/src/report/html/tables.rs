//! The tables of the page.

use super::super::{Case, Report, compare, figure};
use super::{row_head, wide};
use crate::report::escape::escaped;

pub(super) const COMPARED: &str = "Bars begin at zero. Beside each rival: how many times as much Tidewire does, or, where less is better, how many \
     times as much the rival takes.";
pub(super) const ROUNDS: &str =
    "A figure for each round. Cores are those that server and client used in the middle round.";

/// Returns a row for each design and a column for each case, with quantiles if the case has a main latency.
pub(super) fn headline(report: &Report) -> String {
    let cases = compare::cases(report);
    if cases.is_empty() {
        return String::new();
    }
    let heads: Vec<String> =
        cases.iter().map(|case| format!("<th scope=\"col\">{}</th>", escaped(&compare::label(case)))).collect();
    let rows: Vec<String> = compare::took_part(report)
        .map(|target| {
            let cells: Vec<String> = cases
                .iter()
                .map(|name| {
                    let is_best = compare::best(report, name) == Some(target.name.as_str());
                    target.cases.get(*name).map_or_else(|| none().to_owned(), |case| cell(name, case, is_best))
                })
                .collect();
            format!("<tr>{}{}</tr>\n", row_head(report, target), cells.concat())
        })
        .collect();
    let table = format!(
        "<table class=\"headline\"><thead><tr><th scope=\"col\">Design</th>{}</tr></thead>\n<tbody>{}</tbody></table>",
        heads.concat(),
        rows.concat()
    );
    let reported = [compare::once_note(report), compare::page_p99_note(report)];
    let sentences: String = reported.iter().flatten().map(|reported| format!(" {}", escaped(reported))).collect();
    format!(
        "<div class=\"card\">{}<p class=\"hint\"><span class=\"star\" aria-hidden=\"true\">★</span> the best of all. \
         Figures are medians of the rounds; below them, the median and the p99 of the latency.{}</p></div>\n",
        wide("Figures", &table),
        sentences
    )
}

fn none() -> &'static str {
    "<td class=\"none\">–</td>"
}

fn cell(name: &str, case: &Case, is_best: bool) -> String {
    let star = "<span class=\"star\" aria-hidden=\"true\">★</span><span class=\"unseen\">the best: </span>";
    let latency = compare::main_latency(name, case).map_or_else(String::new, |latency| {
        format!("<small>{} · {}</small>", figure::time_us(latency.p50_us), figure::time_us(latency.p99_us))
    });
    let (class, star) = if is_best { (" class=\"best\"", star) } else { ("", "") };
    format!("<td{class}>{star}<b>{}</b>{latency}</td>", figure::median(case))
}

/// Returns a card for each case: a bar for each design, its value, and the ratio.
pub(super) fn compared(report: &Report) -> String {
    let cards: Vec<String> = compare::cases(report).iter().map(|case| card(report, case)).collect();
    if cards.is_empty() { String::new() } else { format!("<div class=\"cards\">\n{}</div>\n", cards.concat()) }
}

fn card(report: &Report, name: &str) -> String {
    let ratios = compare::ratio_texts(report, name);
    let with_case = || compare::took_part(report).filter_map(|target| Some((target, target.cases.get(name)?)));
    let most = with_case().map(|(_, case)| case.median).filter(|median| median.is_finite()).fold(0.0, f64::max);
    let more = with_case().next().is_some_and(|(_, case)| compare::more_is_better(&case.unit));
    let rows: Vec<String> = with_case()
        .map(|(target, case)| {
            let share = if most > 0.0 && case.median.is_finite() { 100.0 * case.median / most } else { 0.0 };
            let ratio = ratios.iter().find(|ratio| ratio.rival == target.name);
            let (times, sentence) = ratio.map_or(("", ""), |ratio| (ratio.times.as_str(), ratio.sentence.as_str()));
            let own = if compare::is_own(target) { " class=\"own\"" } else { "" };
            format!(
                "<tr{own}><th scope=\"row\">{}</th><td class=\"bar\"><span style=\"inline-size:{share:.2}%\"></span></td>\
                 <td>{}</td><td class=\"times\" title=\"{}\">{}</td></tr>\n",
                escaped(&target.name),
                figure::median(case),
                escaped(sentence),
                times_sign(times)
            )
        })
        .collect();
    format!(
        "<article class=\"card\"><h3>{} <span class=\"hint\">{}</span></h3>\n<table class=\"bars\"><thead \
         class=\"unseen\"><tr><th scope=\"col\">Design</th><th scope=\"col\">Bar</th><th scope=\"col\">Figure</th>\
         <th scope=\"col\">Ratio</th></tr></thead>\n<tbody>{}</tbody></table></article>\n",
        escaped(&compare::label(name)),
        if more { "more is better" } else { "less is better" },
        rows.concat()
    )
}

fn times_sign(ratio: &str) -> String {
    ratio.replace('x', "×")
}

/// Returns all rounds of all cases in a collapsed section.
pub(super) fn rounds(report: &Report) -> String {
    let tables: Vec<String> = compare::cases(report)
        .iter()
        .map(|name| {
            let rows: Vec<String> = compare::took_part(report)
                .filter_map(|target| {
                    let case = target.cases.get(*name)?;
                    Some(format!("<tr>{}{}</tr>\n", row_head(report, target), round_cells(case)))
                })
                .collect();
            let label = compare::label(name);
            let table = format!(
                "<table><thead><tr><th scope=\"col\">Design</th><th scope=\"col\">Rounds</th><th scope=\"col\">Server</th>\
                 <th scope=\"col\">Client</th><th scope=\"col\">Late, p99</th><th scope=\"col\">Failed</th></tr></thead>\n\
                 <tbody>{}</tbody></table>",
                rows.concat()
            );
            format!("<details class=\"card\"><summary>{}</summary>{}</details>\n", escaped(&label), wide(&label, &table))
        })
        .collect();
    tables.concat()
}

fn round_cells(case: &Case) -> String {
    let rounds: Vec<String> = case.rounds.iter().map(|round| figure::of_unit(&case.unit, *round)).collect();
    let cores = |cores: f64| if cores > 0.0 { format!("{cores:.2} cores") } else { figure::NONE.to_owned() };
    format!(
        "<td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>",
        escaped(&rounds.join(", ")),
        cores(case.server_cores),
        cores(case.client_cores),
        case.late_p99_us.map_or_else(|| figure::NONE.to_owned(), figure::time_us),
        figure::count(case.failed)
    )
}
