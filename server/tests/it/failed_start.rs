//! What the real program says when it cannot start: one line of the log in JSON, or plain text.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::cli::ran;
use crate::program::Program;

/// Starts a server that ends by itself. Returns its exit code and what it said.
fn start(data: &Path, flags: &[&str]) -> (Option<i32>, String) {
    let (status, log) = Program::spawn(data, flags).ended();
    (status.code(), log)
}

/// Starts it with a log in JSON. Returns its exit code and the messages of level ERROR.
fn errors(data: &Path, flags: &[&str]) -> (Option<i32>, Vec<String>) {
    let (code, log) = start(data, &[flags, &["--log-format", "json"]].concat());
    assert!(!log.contains("finishing requests in progress"), "{log}");
    (code, errors_of(&log))
}

/// The messages of level ERROR in a log that is JSON in all its lines.
fn errors_of(log: &str) -> Vec<String> {
    let parsed = |line: &str| serde_json::from_str::<Value>(line).unwrap_or_else(|_| panic!("no JSON: {line}"));
    let errors = log.lines().map(parsed).filter(|line| line["level"] == "ERROR");
    errors.map(|line| line["message"].as_str().unwrap().to_owned()).collect()
}

/// Makes a data directory that no server can start with, and returns the file that is in the way.
fn damage(data: &Path) -> String {
    Program::start(data, &[]).kill();
    let journal = fs::read_dir(data).unwrap().map(|entry| entry.unwrap().path());
    let journal = journal.filter(|file| file.to_string_lossy().contains("journal")).min().expect("a segment");
    fs::write(&journal, "this is something else ".repeat(10)).unwrap();
    journal.display().to_string()
}

#[test]
fn an_unrecoverable_state_is_logged_as_one_json_error() {
    let directory = tempfile::tempdir().unwrap();
    let damaged = damage(directory.path());
    let (code, errors) = errors(directory.path(), &[]);
    assert_eq!(code, Some(1), "{errors:?}");
    assert!(errors.len() == 1 && errors[0].contains(&damaged), "{errors:?}");
}

#[test]
fn an_unrecoverable_state_is_reported_once_as_text() {
    let directory = tempfile::tempdir().unwrap();
    let damaged = damage(directory.path());
    let (code, log) = start(directory.path(), &[]);
    assert!(code == Some(1) && log.matches(&damaged).count() == 1, "{log}");
    assert!(log.contains("stopping the server: the state cannot be recovered"), "{log}");
    assert!(log.lines().last().is_some_and(|line| line.starts_with("error: ") && line.contains(&damaged)), "{log}");
}

#[test]
fn invalid_settings_are_logged_as_one_json_error() {
    let directory = tempfile::tempdir().unwrap();
    let (code, errors) = errors(directory.path(), &["--access", "missing.toml"]);
    assert_eq!(code, Some(1), "{errors:?}");
    assert!(errors.len() == 1 && errors[0].contains("cannot read the access file missing.toml"), "{errors:?}");

    let mut reachable = Command::new(env!("CARGO_BIN_EXE_tidewire"));
    reachable.args(["serve", "--listen", "0.0.0.0:0", "--log-format", "json", "--data-dir"]).arg(directory.path());
    let ran = ran(&mut reachable);
    let errors = errors_of(&ran.err);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(errors.len() == 1 && errors[0].contains("name a file with keys by --access FILE"), "{}", ran.err);
}

#[test]
fn an_invalid_settings_file_is_reported_in_the_log_format_of_the_flags() {
    let directory = tempfile::tempdir().unwrap();
    let broken = directory.path().join("broken.toml");
    fs::write(&broken, "log-format = \"json\"\noutbox-post = 10").unwrap();
    let file = broken.to_str().unwrap();
    let (code, log) = start(directory.path(), &["--config", file]);
    assert_eq!(code, Some(1), "{log}");
    assert!(log.starts_with("error: ") && log.contains(file) && log.contains("outbox-posts"), "{log}");
    let (code, errors) = errors(directory.path(), &["--config", file]);
    assert_eq!(code, Some(1), "{errors:?}");
    assert!(errors.len() == 1 && errors[0].contains(file) && errors[0].contains("outbox-posts"), "{errors:?}");
}
