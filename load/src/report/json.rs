//! A report as JSON, for programs.

use std::path::Path;

use super::Report;
use super::file::{self, WriteError};

/// Returns the report as JSON with a line feed at the end. NaN and infinity become `null`.
pub fn text(report: &Report) -> String {
    // Serialization cannot fail: all keys are strings, and all values can be serialized.
    let pretty = serde_json::to_string_pretty(report).unwrap_or_default();
    joined(&pretty)
}

/// Writes the report to a file and replaces an existing one.
///
/// # Errors
/// If it cannot be written. The error names the file.
pub fn write(report: &Report, path: &Path) -> Result<(), WriteError> {
    file::replace(path, &text(report))
}

/// Joins the lines of every list of plain values: the points of a curve would be hundreds of lines.
///
/// JSON strings contain no line feeds, so a bracket at the end of a line is never part of a string.
fn joined(pretty: &str) -> String {
    let lines: Vec<&str> = pretty.lines().collect();
    let mut text = String::with_capacity(pretty.len());
    let mut at = 0;
    while let Some(line) = lines.get(at) {
        text.push_str(line);
        at += 1;
        if line.ends_with('[') {
            let is_plain = |value: &&&str| !value.trim_end_matches(',').ends_with(['[', '{', ']', '}']);
            let values = lines[at..].iter().take_while(is_plain).count();
            let end = lines.get(at + values).filter(|end| values > 0 && end.trim_start().starts_with(']'));
            if let Some(end) = end {
                let row: Vec<&str> = lines[at..at + values].iter().map(|value| value.trim()).collect();
                text.push_str(&row.join(" "));
                text.push_str(end.trim_start());
                at += values + 1;
            }
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::sample;
    use super::*;

    #[test]
    fn arrays_of_values_take_one_line_and_objects_several() {
        let value =
            serde_json::json!({"a": [1, 2.5, "[x", "{"], "b": [], "c": [[0.5, 1], [1, 2]], "d": [{"e": [null]}]});
        let expected = r#"{
  "a": [1, 2.5, "[x", "{"],
  "b": [],
  "c": [
    [0.5, 1],
    [1, 2]
  ],
  "d": [
    {
      "e": [null]
    }
  ]
}
"#;
        assert_eq!(joined(&serde_json::to_string_pretty(&value).unwrap()), expected);
    }

    #[test]
    fn the_text_is_deterministic_and_equals_the_report() {
        let report = sample::report();
        let text = text(&report);
        assert_eq!(text, super::text(&report));
        let read = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        assert!(read(&text) == read(&serde_json::to_string(&report).unwrap()), "{text}");
        assert!(text.lines().all(|line| line.len() < 200));
    }

    #[test]
    fn ratios_are_by_case_and_rival() {
        let read: Value = serde_json::from_str(&text(&sample::report())).unwrap();
        let rivals = |case: &str| read["ratios"][case].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(rivals("deliveries"), ["mariadb_push", "redis_list", "redis_zset"]);
        assert_eq!(rivals("memory").len(), 4);
        assert!((read["ratios"]["deliveries"]["redis_list"].as_f64().unwrap() - 23.4).abs() < 0.01);
    }

    #[test]
    fn numbers_that_are_not_finite_become_null() {
        let mut report = sample::report();
        report.ratios.get_mut("page").unwrap().insert("redis_list".to_owned(), f64::INFINITY);
        report.targets[0].cases.get_mut("page").unwrap().median = f64::NAN;
        let text = text(&report);
        let read: Value = serde_json::from_str(&text).unwrap();
        assert!(read["ratios"]["page"]["redis_list"].is_null());
        assert!(read["targets"][0]["cases"]["page"]["median"].is_null());
        assert!(!text.contains("NaN") && !text.contains("inf"));
    }

    #[test]
    fn a_failure_names_the_file() {
        let failure = write(&sample::report(), Path::new("/no/such/directory/out.json")).unwrap_err();
        assert!(failure.to_string().starts_with("failed to write /no/such/directory/out.json: "), "{failure}");
    }
}
