//! The table of requirements: each row has a test of its own over HTTP, or a reason why it has none.

use std::collections::BTreeMap;

/// Where tests over HTTP are.
const SOURCES: [(&str, &str); 8] = [
    ("preferences", include_str!("preferences.rs")),
    ("delivery", include_str!("delivery.rs")),
    ("late", include_str!("late.rs")),
    ("live", include_str!("live.rs")),
    ("pages", include_str!("pages.rs")),
    ("polling", include_str!("polling.rs")),
    ("second_level", include_str!("second_level.rs")),
    ("trouble", include_str!("trouble.rs")),
];

/// What the engine does not do yet.
const NOT_BUILT: [(&str, &str); 1] =
    [("n11", "push or pull is decided by the plain threshold, which r3 and r19 test; by cost it is not")];

/// The names of tests: functions that an attribute right above makes one.
fn tests(source: &'static str) -> impl Iterator<Item = &'static str> {
    let lines = source.lines().zip(source.lines().skip(1));
    let is_test = |line: &str| line.starts_with("#[test]") || line.starts_with("#[tokio::test");
    lines.filter(move |(above, _)| is_test(above)).filter_map(|(_, line)| {
        let name = line.trim_start_matches("async ").strip_prefix("fn ")?;
        name.split_once('(').map(|(name, _)| name)
    })
}

#[test]
fn every_row_has_a_test_over_http_or_a_reason_why_not() {
    let rows: Vec<String> =
        (1..=26).map(|nth| format!("r{nth}")).chain((1..=12).map(|nth| format!("n{nth}"))).collect();
    let not_built = BTreeMap::from(NOT_BUILT);
    let mut tested: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (file, source) in SOURCES {
        for test in tests(source) {
            let (row, promise) = test.split_once('_').unwrap_or((test, ""));
            assert!(rows.iter().any(|known| known == row), "{file}::{test} is named by no row");
            assert!(promise.len() > 10, "{file}::{test} does not say what it promises");
            tested.entry(row).or_default().push(test);
        }
    }
    for row in &rows {
        let row = row.as_str();
        let (has_test, reason) = (tested.contains_key(row), not_built.get(row));
        assert!(has_test || reason.is_some(), "{row} has no test");
        assert!(!has_test || reason.is_none(), "{row} has a test, and counts as not built: {reason:?}");
    }
    assert!(not_built.keys().all(|row| rows.iter().any(|known| known == row)));
}

#[test]
fn a_function_that_is_no_test_covers_no_row() {
    let source =
        "#[test]\nfn r1_this() {}\n\nfn r2_helper() {}\n#[tokio::test(flavor = \"x\")]\nasync fn r3_that() {}\n";
    assert_eq!(tests(source).collect::<Vec<_>>(), ["r1_this", "r3_that"]);
}
