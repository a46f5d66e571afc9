//! The main results as Markdown, for a README.

use super::terminal::one_line;
use super::{Report, compare, figure};

/// Returns the table and a line with its source.
pub fn table(report: &Report) -> String {
    let cases = compare::cases(report);
    let mut lines = Vec::new();
    let heads: Vec<String> = cases.iter().map(|case| compare::label(case)).collect();
    lines.push(row("design", &heads));
    lines.push(format!("|---|{}", "---:|".repeat(cases.len())));
    for target in compare::took_part(report) {
        let cells: Vec<String> = cases
            .iter()
            .map(|name| {
                let Some(case) = target.cases.get(*name) else { return figure::NONE.to_owned() };
                let mut text = figure::median(case);
                if compare::best(report, name) == Some(target.name.as_str()) {
                    text = format!("**{text}**");
                }
                match compare::ratio_texts(report, name).into_iter().find(|ratio| ratio.rival == target.name) {
                    Some(ratio) => format!("{text} ({})", ratio.times),
                    None => text,
                }
            })
            .collect();
        lines.push(row(&format!("`{}`", target.name), &cells));
    }
    lines.push(String::new());
    lines.extend(sources(report));
    lines.join("\n") + "\n"
}

fn sources(report: &Report) -> Vec<String> {
    let machine = &report.machine;
    let reported = [compare::once_note(report), compare::page_p99_note(report)];
    let sentences: String = reported.iter().flatten().map(|reported| format!(" {}", escaped(reported))).collect();
    let mut lines = vec![format!(
        "Measured {} on {} ({} cores, {}, {}) by `{}`. In brackets: how many times as good Tidewire is.{}",
        escaped(report.when.get(..10).unwrap_or(&report.when)),
        escaped(&machine.processor),
        machine.cores,
        figure::bytes(machine.memory_bytes as f64),
        escaped(&machine.system),
        one_line(&report.command).replace('`', "'"),
        sentences,
    )];
    let left_out = report.targets.iter().filter_map(|target| Some((target, target.left_out.as_deref()?)));
    lines.extend(left_out.map(|(target, why)| format!("\nLeft out: `{}`, since {}.", target.name, escaped(why))));
    let warnings = &report.warnings;
    if !warnings.is_empty() {
        lines.push(String::from("\nProblems with these figures:\n"));
        lines.extend(warnings.iter().map(|warning| format!("- {}", escaped(warning))));
    }
    lines
}

fn row(first: &str, cells: &[String]) -> String {
    format!("| {first} | {} |", cells.join(" | "))
}

/// Escapes text for Markdown, also within a table.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in one_line(text).chars() {
        match character {
            '<' => escaped.push_str("&lt;"),
            '&' => escaped.push_str("&amp;"),
            '|' | '*' | '`' | '[' | ']' | '\\' => escaped.extend(['\\', character]),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn the_sample_report_has_the_expected_table() {
        let expected = "\
| design | Deliveries | Feed pages | Own pages | Mixed | Memory of an inbox |
|---|---:|---:|---:|---:|---:|
| `tidewire_http` | **6.28 M/s** | **79.3 k/s** | **92.1 k/s** | **61.0 k/s** | 4.7 KB |
| `redis_list` | 268 k/s (23.4x) | 13.2 k/s (6.0x) | 15.3 k/s (6.0x) | 10.2 k/s (6.0x) | 13.2 KB (2.8x) |
| `redis_zset` | 181 k/s (34.6x) | 10.6 k/s (7.5x) | 12.3 k/s (7.5x) | 8.13 k/s (7.5x) | 31.0 KB (6.6x) |
| `mariadb_push` | 34.5 k/s (182x) | 1.32 k/s (60.0x) | 1.53 k/s (60.0x) | 1.02 k/s (60.0x) | 22.4 KB (4.8x) |
| `mariadb_pull` | – | 881/s (90.0x) | 1.02 k/s (90.0x) | 678/s (90.0x) | **610 B** (0.13x) |

Measured 2026-11-21 on Intel(R) Xeon(R) Processor (2 cores, 25.0 GB, Linux 6.1.0) by `tidewire-load compare --seed 42 \
--users 10000 --rounds 5`. In brackets: how many times as good Tidewire is. Measured once, not in rounds: Memory of an inbox. The p99 of \
Tidewire's feed pages is equal to or better than that of redis_list, redis_zset, mariadb_push, mariadb_pull (equal: within \
5 %).

Left out: `valkey_list`, since there is no program valkey-server.

Problems with these figures:

- Noise, since rounds lie far apart; as a share of their median. Deliveries: mariadb_push 41 %.
- Too few samples behind a p99. Mixed: mariadb_pull follow (812).
";
        assert_eq!(table(&sample::report()), expected);
    }

    #[test]
    fn external_text_cannot_break_the_table_or_inject_markup() {
        let mut report = sample::report();
        report.command = "x `whoami`\n| y".to_owned();
        report.warnings = vec!["a | b <script>\n# c".to_owned()];
        let text = table(&report);
        assert!(text.contains("by `x 'whoami' | y`"), "{text}");
        assert!(text.contains("- a \\| b &lt;script> # c"), "{text}");
    }
}
