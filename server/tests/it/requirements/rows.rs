//! Each requirement is shown by one test, which is named after it (`r13_…`) and which the table in docs/requirements.md names.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// How many requirements of each kind there are.
const ROWS: [(char, usize); 3] = [('R', 26), ('N', 12), ('P', 10)];

/// Where the tests are that may show one.
const TESTS: [&str; 2] = ["server/tests/it", "tests/it"];

/// A requirement on clients or packages is shown by steps of this script, which need other programs.
const SUITE: &str = ".ci/full";

/// What shows each requirement: tests as `FILE::NAME`, steps as `.ci/full NAME...`.
type ShownBy = BTreeMap<String, Vec<String>>;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// What the table names. Its rows are lines such as `| R1 | promise | [`name`](../file) |`.
fn named(table: &str) -> ShownBy {
    let mut named = ShownBy::new();
    for line in table.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let ["", id, promise, link, ""] = cells[..] else { continue };
        let link = link.strip_prefix("[`").and_then(|link| link.strip_suffix(')'));
        let Some((name, file)) = link.and_then(|link| link.split_once("`](../")) else { continue };
        assert!(promise.ends_with('.'), "{id} does not say in a sentence what is promised");
        let shown_by = if file == SUITE { name.to_owned() } else { format!("{file}::{name}") };
        named.entry(id.to_owned()).or_default().push(shown_by);
    }
    named
}

/// The names of tests: functions behind an attribute that makes one, whatever other attributes there are.
fn tests(source: &str) -> Vec<&str> {
    let (mut names, mut is_test) = (Vec::new(), false);
    for line in source.lines().map(str::trim_start) {
        is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
        if let Some(function) = line.trim_start_matches("async ").strip_prefix("fn ")
            && std::mem::take(&mut is_test)
        {
            names.push(function.split(['(', '<']).next().unwrap());
        }
    }
    names
}

/// The requirement that a test is named after.
fn id_of(test: &str) -> Option<String> {
    let (id, _) = test.split_once('_')?;
    let number = id.strip_prefix(['r', 'n', 'p'])?;
    number.parse::<usize>().is_ok().then(|| id.to_uppercase())
}

/// Collects the tests in a folder that are named after a requirement.
fn collect(folder: &Path, found: &mut ShownBy) {
    for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            collect(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let (source, file) = (fs::read_to_string(&path).unwrap(), path.strip_prefix(repository()).unwrap());
            for test in tests(&source) {
                let Some(id) = id_of(test) else { continue };
                found.entry(id).or_default().push(format!("{}::{test}", file.display()));
            }
        }
    }
}

#[test]
fn each_requirement_has_the_tests_that_the_table_names() {
    let read = |file: &str| fs::read_to_string(repository().join(file)).unwrap();
    let (named, suite) = (named(&read("docs/requirements.md")), read(SUITE));
    let mut found = ShownBy::new();
    TESTS.iter().for_each(|folder| collect(&repository().join(folder), &mut found));
    let is_step = |name: &str| suite.lines().any(|line| line.starts_with(&format!("{name} ")));
    let are_steps = |one: &&String| one.strip_prefix(".ci/full ").is_some_and(|names| names.split(' ').all(is_step));
    for (id, shown_by) in &named {
        found.entry(id.clone()).or_default().extend(shown_by.iter().filter(are_steps).cloned());
    }
    let rows = ROWS.iter().flat_map(|(kind, count)| (1..=*count).map(move |nth| format!("{kind}{nth}")));
    let ids: BTreeSet<String> = rows.chain(named.keys().cloned()).chain(found.keys().cloned()).collect();
    for id in ids {
        let [named, found] = [&named, &found].map(|shown_by| shown_by.get(&id).map_or(&[][..], Vec::as_slice));
        assert!(
            named.len() == 1 && named == found,
            "{id} must be shown by one test: docs/requirements.md names {named:?}, and named after it are {found:?}"
        );
    }
}

#[test]
fn tests_are_found_behind_any_attributes_and_other_functions_are_ignored() {
    let source = "#[test]\nfn r1_this() {}\n\nfn r2_helper() {}\n#[ignore = \"why\"]\n#[tokio::test(flavor = \"x\")]\n\
        #[cfg(unix)]\nasync fn r3_that() {}\n    #[cfg_attr(\n    #[test]\n    #[ignore]\n    fn n4_there(text: &str) {}\n";
    assert_eq!(tests(source), ["r1_this", "r3_that", "n4_there"]);
    assert_eq!(
        ["r13_this", "p99_us", "reads_go_on", "r_1"].map(|name| id_of(name).unwrap_or_default()),
        ["R13", "P99", "", ""]
    );
}
