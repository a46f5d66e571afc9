//! No test of the gate depends on how fast the machine is: none waits for time to pass, and none judges by it.

use std::fs;
use std::path::Path;

use super::{code, rust_files};

/// Files with tests that wait for time to pass or read it without an attribute `ignore`, and why they may.
const TIMED_TESTS: &[(&str, &str)] = &[
    ("cluster/faulty_log.rs", "is a slow log: its readers wait as long as they are told"),
    ("it/concurrency.rs", "holds a thread until the test lets go of it"),
    ("backup/program.rs", "waits for backups in ignored tests"),
    ("cassandra/src/datacentre_tests.rs", BESIDE_SERVERS),
    ("cassandra/src/erasure_tests.rs", BESIDE_SERVERS),
    ("cassandra/src/fault_tests.rs", BESIDE_SERVERS),
    ("kafka/src/fault_tests.rs", BESIDE_SERVERS),
    ("kafka/src/tests.rs", BESIDE_SERVERS),
    ("tidy/waits.rs", "has these words"),
];

const BESIDE_SERVERS: &str = "helps ignored tests that run beside other servers";

/// The folder whose tests run only beside other programs.
const BESIDE_PROGRAMS: &str = "it/nodes";

/// What waits for time to pass.
const WAITS: [&str; 5] = ["thread::sleep(", "time::sleep(", " sleep(", "park_timeout(", "timeout(Duration::from_"];

/// What reads the time.
const READS: [&str; 2] = ["Instant::now()", "SystemTime::now()"];

/// What judges by it. A unit test may take the present time as the first of a series that it makes itself.
const JUDGES: [&str; 6] =
    [".elapsed()", "duration_since(", "Instant::now() +", "Instant::now() <", "Instant::now() >", "SystemTime::now()"];

/// Otherwise the tests of a file of their own would be taken for code.
#[test]
fn unit_test_files_have_a_cfg_test_attribute() {
    for (path, text) in ["src", "cassandra/src", "kafka/src", "server/src", "load/src"].into_iter().flat_map(rust_files)
    {
        let owns_folder = ["mod.rs", "lib.rs", "main.rs"].iter().any(|name| path.ends_with(name));
        let folder = if owns_folder { path.parent().unwrap().to_owned() } else { path.with_extension("") };
        for (before, line) in text.lines().zip(text.lines().skip(1)) {
            let name = line.trim_end_matches(';').rsplit_once("mod ").map(|(_, name)| name);
            let Some(name) = name.filter(|_| before.trim() == "#[cfg(test)]" && line.ends_with(';')) else { continue };
            let files = [folder.join(format!("{name}.rs")), folder.join(name).join("mod.rs")];
            let found = files.iter().find_map(|file| fs::read_to_string(file).ok());
            let found = found.unwrap_or_else(|| panic!("{}: no {name}", path.display()));
            assert!(
                found.contains("\n#![cfg(test)]\n"),
                "{name} of {} is only for tests, and does not say so",
                path.display()
            );
        }
    }
}

/// Returns the lines with one of the words that are in no ignored function, and their numbers.
fn lines_with<'a>(words: &'a [&str], text: &'a str) -> impl Iterator<Item = (usize, &'a str)> {
    // The indentation of the ignored function.
    let mut ignored = None;
    text.lines().enumerate().filter_map(move |(nth, line)| {
        let indentation = line.len() - line.trim_start().len();
        if line.trim_start().starts_with("#[ignore") {
            ignored = Some(indentation);
        } else if line.trim_start().starts_with('}') && ignored.is_some_and(|of| indentation <= of) {
            ignored = None;
        }
        let is_found = ignored.is_none() && words.iter().any(|word| line.contains(word));
        is_found.then_some((nth + 1, line))
    })
}

#[test]
fn tests_of_the_gate_neither_sleep_nor_read_the_time() {
    let mut found = Vec::new();
    let may = |path: &Path| TIMED_TESTS.iter().any(|(end, _)| path.ends_with(end));
    let is_apart = |path: &Path| path.ancestors().any(|folder| folder.ends_with(BESIDE_PROGRAMS));
    for (folder, is_of_tests) in [
        ("tests", true),
        ("server/tests/it", true),
        ("load/tests", true),
        ("src", false),
        ("server/src", false),
        ("load/src", false),
        ("cassandra/src", false),
        ("kafka/src", false),
    ] {
        for (path, text) in rust_files(folder).into_iter().filter(|(path, _)| !may(path) && !is_apart(path)) {
            let before = if is_of_tests { "" } else { code(&text) };
            let words = [&WAITS[..], if is_of_tests { &READS } else { &JUDGES }].concat();
            let lines = lines_with(&words, &text[before.len()..]);
            let first = before.lines().count();
            found.extend(lines.map(|(nth, line)| format!("{}:{}: {}", path.display(), first + nth, line.trim())));
        }
    }
    assert!(found.is_empty(), "use testkit::eventually, or a manual clock:\n{}", found.join("\n"));
}
