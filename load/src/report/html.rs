//! A report as one self-contained page: no scripts, no fonts, no network.
//!
//! Responsible for:
//! - all data of a run, for people: results, plots, servers, settings, warnings;
//! - escaping all text from outside.

mod plots;
mod tables;

use std::path::Path;

use super::escape::escaped;
use super::file::{self, WriteError};
use super::{Report, TargetReport, compare, figure};

const STYLE: &str = include_str!("html/page.css");

/// The logo of the project, for the page and the browser tab.
const MARK: &str = "<svg viewBox=\"0 0 32 32\" width=\"28\" height=\"28\" aria-hidden=\"true\"><rect width=\"32\" \
                    height=\"32\" rx=\"8\"/><path d=\"M5 13q5.5-6 11 0t11 0M5 21q5.5-6 11 0t11 0\"/></svg>";
const ICON: &str = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 32 32'%3E%3Crect width='32' \
                    height='32' rx='8' fill='%230b6e82'/%3E%3Cpath d='M5 13q5.5-6 11 0t11 0M5 21q5.5-6 11 0t11 0' \
                    fill='none' stroke='%23fff' stroke-width='3' stroke-linecap='round'/%3E%3C/svg%3E";

/// Returns the whole page.
pub fn page(report: &Report) -> String {
    let sections = [
        warnings(report),
        section("figures", "Figures", "", &tables::headline(report)),
        section("compared", "Side by side", tables::COMPARED, &tables::compared(report)),
        section("latencies", "Latency", plots::LATENCIES, &plots::latencies(report)),
        section("over-time", "Over time", plots::OVER_TIME, &plots::over_time(report)),
        section("rounds", "Every round", tables::ROUNDS, &tables::rounds(report)),
        section("servers", "Designs", SERVERS, &servers(report)),
        section("run", "This run", "", &run(report)),
    ];
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n\
         <link rel=\"icon\" href=\"{ICON}\">\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <a class=\"skip\" href=\"#figures\">Skip to the figures</a>\n{header}<main>\n{sections}</main>\n</body>\n</html>\n",
        title = escaped(&report.title),
        header = header(report),
        sections = sections.concat(),
    )
}

/// Writes the page to a file and replaces an existing one.
///
/// # Errors
/// If it cannot be written. The error names the file.
pub fn write(report: &Report, path: &Path) -> Result<(), WriteError> {
    file::replace(path, &page(report))
}

/// Returns a section of the page, or an empty string if it has no content.
fn section(id: &str, title: &str, hint: &str, content: &str) -> String {
    if content.is_empty() {
        return String::new();
    }
    let hint = if hint.is_empty() { String::new() } else { format!("<p class=\"hint\">{hint}</p>\n") };
    format!(
        "<section id=\"{id}\" aria-labelledby=\"{id}-head\">\n<h2 id=\"{id}-head\">{title}</h2>\n{hint}{content}</section>\n"
    )
}

/// Wraps wide content in a scrollable region, which can be focused for the keyboard.
fn wide(label: &str, content: &str) -> String {
    format!("<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"{}\">{content}</div>\n", escaped(label))
}

fn header(report: &Report) -> String {
    let machine = &report.machine;
    let facts = [
        report.when.clone(),
        machine.processor.clone(),
        format!("{} cores", machine.cores),
        figure::bytes(machine.memory_bytes as f64),
        machine.system.clone(),
    ];
    let facts: Vec<String> = facts.iter().map(|fact| format!("<li>{}</li>", escaped(fact))).collect();
    format!(
        "<header class=\"top\">\n<p class=\"brand\">{MARK} Tidewire <span>measured</span></p>\n<h1>{}</h1>\n\
         <ul class=\"meta\">{}</ul>\n</header>\n",
        escaped(&report.title),
        facts.concat()
    )
}

fn warnings(report: &Report) -> String {
    if report.warnings.is_empty() {
        return "<p class=\"note good\">No check found a problem with these figures: noise between rounds, the \
                client's share of the processors, other programs, numbers of samples, failures.</p>\n"
            .to_owned();
    }
    let items: Vec<String> = report.warnings.iter().map(|warning| format!("<li>{}</li>", escaped(warning))).collect();
    format!(
        "<section class=\"note bad\" aria-labelledby=\"warnings-head\">\n<h2 id=\"warnings-head\">These figures may be \
         wrong</h2>\n<ul>{}</ul>\n</section>\n",
        items.concat()
    )
}

const SERVERS: &str = "Versions and settings. Answers were checked against a naive model before anything was timed.";

fn servers(report: &Report) -> String {
    let cards: Vec<String> = report.targets.iter().enumerate().map(|(at, target)| server(at, target)).collect();
    if cards.is_empty() { String::new() } else { format!("<div class=\"cards\">\n{}</div>\n", cards.concat()) }
}

fn server(at: usize, target: &TargetReport) -> String {
    let name = format!("{}{}", super::plot::swatch(at), escaped(&target.name));
    if let Some(why) = &target.left_out {
        return format!(
            "<article class=\"card out\"><h3>{name}</h3><p><strong>Left out:</strong> {}</p></article>\n",
            escaped(why)
        );
    }
    let lines: Vec<String> = target.settings.iter().map(|line| format!("<li>{}</li>", escaped(line))).collect();
    format!(
        "<article class=\"card\"><h3>{name}</h3><p class=\"hint\">{} pages checked, all right</p>\
         <ul class=\"code\">{}</ul></article>\n",
        figure::count(target.pages_checked as u64),
        lines.concat()
    )
}

fn run(report: &Report) -> String {
    let settings: Vec<String> = report
        .settings
        .iter()
        .map(|(name, value)| format!("<div><dt>{}</dt><dd>{}</dd></div>", escaped(name), escaped(value)))
        .collect();
    let command = format!("<pre><code>{}</code></pre>", escaped(&report.command));
    format!(
        "<div class=\"card\">\n<h3>Repeat with</h3>\n{}<dl class=\"facts\">{}</dl>\n</div>\n",
        wide("The command", &command),
        settings.concat()
    )
}

/// Returns a design's name with its line style from the plots, as a row head.
fn row_head(report: &Report, target: &TargetReport) -> String {
    let at = report.targets.iter().position(|other| other.name == target.name).unwrap_or(0);
    let own = if compare::is_own(target) { " class=\"own\"" } else { "" };
    format!("<th scope=\"row\"{own}>{}{}</th>", super::plot::swatch(at), escaped(&target.name))
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn the_page_loads_no_external_resources() {
        let page = page(&sample::report());
        for foreign in ["<script", "src=", "@import", "url(", "https://"] {
            assert!(!page.contains(foreign), "the page has {foreign}");
        }
        // Names of XML namespaces are not addresses that a browser loads.
        let addresses = page.matches("http://").count();
        assert_eq!(addresses, page.matches("http://www.w3.org/2000/svg").count());
    }

    #[test]
    fn the_page_shows_every_part_of_the_report() {
        let page = page(&sample::report());
        let expected = [
            "<title>Tidewire beside Redis and MariaDB</title>",
            "2026-11-21T14:00:00Z",
            "Intel(R) Xeon(R) Processor",
            "Linux 6.1.0",
            "appendfsync everysec",
            "tidewire-load compare --seed 42 --users 10000 --rounds 5",
            "<dt>seed</dt><dd>42</dd>",
            "10,000 users, power law",
            "6.28 M/s",
            "23.4×",
            "2,000 pages checked",
            "there is no program valkey-server",
            "as a share of their median. Deliveries: mariadb_push 41 %",
            "prefers-color-scheme: dark",
        ];
        for text in expected {
            assert!(page.contains(text), "the page does not have {text}");
        }
    }

    #[test]
    fn external_text_is_escaped() {
        let evil = "<script>alert('x')</script>\"&\u{0}";
        let mut report = sample::report();
        report.title = evil.to_owned();
        report.when = evil.to_owned();
        report.command = evil.to_owned();
        report.machine.processor = evil.to_owned();
        report.machine.system = evil.to_owned();
        report.settings.insert(evil.to_owned(), evil.to_owned());
        report.warnings.push(evil.to_owned());
        report.targets[0].settings.push(evil.to_owned());
        report.targets[1].name = evil.to_owned();
        let case = report.targets[1].cases["page"].clone();
        report.targets[1].cases.insert(evil.to_owned(), case);
        report.targets[5].left_out = Some(evil.to_owned());
        let page = page(&report);
        assert!(!page.contains("<script"), "a script came in");
        assert!(page.contains("&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&quot;&amp;"));
    }

    #[test]
    fn every_drawing_has_title_and_description_and_ids_are_unique() {
        let page = page(&sample::report());
        let drawings = page.matches("role=\"img\"").count();
        assert!(drawings >= 8, "{drawings} drawings");
        assert_eq!(page.matches("<title id=").count(), drawings);
        assert_eq!(page.matches("<desc id=").count(), drawings);
        let mut ids: Vec<&str> =
            page.split(" id=\"").skip(1).filter_map(|rest| rest.split_once('"')).map(|(id, _)| id).collect();
        let all = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), all);
    }

    #[test]
    fn tags_are_closed() {
        let page = page(&sample::report());
        for tag in
            ["div", "section", "table", "tr", "td", "th", "ul", "li", "svg", "figure", "article", "dl", "p", "span"]
        {
            let opened = page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count();
            assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "{tag}");
        }
    }

    #[test]
    fn an_empty_report_is_a_valid_page() {
        let mut report = sample::report();
        report.targets.clear();
        report.ratios.clear();
        report.warnings.clear();
        let page = page(&report);
        assert!(page.contains("No check found a problem") && page.contains("This run") && !page.contains("Latency"));
    }

    #[test]
    fn the_sample_page_can_be_written_for_inspection() {
        // Writes the sample only if this variable is set.
        let kept = std::env::var_os("TIDEWIRE_SAMPLE_DIRECTORY").map(std::path::PathBuf::from);
        let passing = tempfile::tempdir().unwrap();
        let directory = kept.as_deref().unwrap_or(passing.path());
        let report = sample::report();
        write(&report, &directory.join("sample.html")).unwrap();
        file::replace(&directory.join("sample.svg"), &super::super::headline::headline(&report)).unwrap();
    }
}
