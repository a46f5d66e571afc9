//! House rules that no compiler checks.

use std::fs;
use std::path::{Path, PathBuf};

const LINES_MAX: usize = 500;

fn rust_files(folder: &str) -> Vec<(PathBuf, String)> {
    fn walk(folder: &Path, files: &mut Vec<(PathBuf, String)>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, files);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                files.push((path, text));
            }
        }
    }
    let mut files = Vec::new();
    walk(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), &mut files);
    assert!(!files.is_empty());
    files
}

/// The part of a file before its unit tests.
fn code(text: &str) -> &str {
    let tests = ["#[cfg(test)]\nmod tests", "#[cfg(test)]\npub(crate) mod tests", "#![cfg(test)]"];
    tests.iter().filter_map(|start| text.find(start)).min().map_or(text, |start| &text[..start])
}

#[test]
fn files_are_short_and_say_what_they_are_for() {
    for folder in ["src", "tests", "benches", "server/src", "server/tests", "load", "fuzz/fuzz_targets"] {
        for (path, text) in rust_files(folder) {
            assert!(text.lines().count() <= LINES_MAX, "{} has over {LINES_MAX} lines", path.display());
            assert!(text.starts_with("//!"), "{} does not say what it is for", path.display());
        }
    }
}

#[test]
fn the_core_is_pure() {
    let impure = [
        "actix",
        "tokio",
        "std::fs",
        "std::net",
        "std::thread",
        "SystemTime",
        "dashmap",
        "parking_lot",
        "crate::state",
    ];
    for (path, text) in rust_files("src/feed") {
        for word in impure {
            let used = code(&text).lines().any(|line| !line.trim_start().starts_with("//") && line.contains(word));
            assert!(!used, "{} uses {word}", path.display());
        }
    }
}

#[test]
fn input_never_panics() {
    for (path, text) in ["src", "server/src", "load/src"].into_iter().flat_map(rust_files) {
        assert!(!code(&text).contains(".unwrap()"), "{} unwraps", path.display());
        let is_courier = path.ends_with("courier.rs");
        assert!(is_courier || !code(&text).contains("do_send("), "{} sends past a mailbox's limit", path.display());
    }
}

#[test]
fn every_option_is_in_the_readme() {
    let settings =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("server/src/cli/settings.rs")).unwrap();
    let readme = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    let variables: Vec<&str> = settings.split("env = \"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert!(variables.len() > 8);
    for variable in variables {
        let flag = format!("--{}", variable.trim_start_matches("TIDEWIRE_").to_lowercase().replace('_', "-"));
        assert!(readme.contains(variable) && readme.contains(&flag), "{variable} and {flag} are not documented");
    }
}
