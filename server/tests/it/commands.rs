//! The program at a terminal: what it says, and in which order.

use std::fs;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use tidewire::clock::SystemClock;
use tidewire::config::EngineConfig;
use tidewire::engine::{Engine, StorageConfig};
use tidewire::recovery::RecoveryProgress;
use tidewire::storage::lock::DirectoryLock;

use testkit::test_servers::program;

fn serve_on(directory: &std::path::Path) -> Output {
    let mut serve = Command::new(env!("CARGO_BIN_EXE_tidewire"));
    serve.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(directory);
    testkit::output(&mut serve)
}

#[test]
fn an_unusable_data_directory_is_reported_before_serving() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "no directory").unwrap();
    let lock = DirectoryLock::take(directory.path()).unwrap();
    let no_directory = format!("{} is not a directory", file.display());
    for (unusable, why) in
        [(&*file, &*no_directory), (&*file.join("below"), &no_directory), (directory.path(), "is in use")]
    {
        let output = serve_on(unusable);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("error: ") && said.contains(unusable.to_str().unwrap()) && said.contains(why), "{said}");
        assert!(!said.contains("serving on"), "{said}");
    }
    drop(lock);
}

#[test]
fn a_foreign_data_directory_is_reported_before_serving() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for directory in [&one, &other] {
        let storage = StorageConfig { directory: directory.path().to_owned(), ..StorageConfig::default() };
        let (clock, progress) = (Arc::new(SystemClock), RecoveryProgress::default());
        Engine::open(EngineConfig::default(), &storage, clock, &progress).unwrap().0.shutdown();
    }
    for name in ["archive.redb", "archive.sums"] {
        fs::copy(other.path().join(name), one.path().join(name)).unwrap();
    }
    let output = serve_on(one.path());
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("archive.redb") && !said.contains("serving on"), "{said}");
}

#[test]
#[cfg(target_os = "linux")]
fn an_unwritable_data_directory_is_reported_before_serving() {
    let output = serve_on(std::path::Path::new("/proc/self"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("/proc/self") && !said.contains("serving on"), "{said}");
}

/// Runs the demo for a second in front of a terminal, and returns what it wrote there.
fn at_a_terminal(no_color: &str) -> String {
    let demo = format!("{} demo --seconds 1 --listen 127.0.0.1:0", env!("CARGO_BIN_EXE_tidewire"));
    let mut script = Command::new(program("script", "util-linux"));
    // For the child alone: the terminal is one that shows colours.
    script.args(["-qec", &demo, "/dev/null"]).env("NO_COLOR", no_color).env("TERM", "xterm").stdin(Stdio::null());
    let output = testkit::output(script.env_remove("TIDEWIRE_LOG_LEVEL"));
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Whether a text has a sequence that sets a colour or a weight.
fn is_coloured(text: &str) -> bool {
    let sequences = text.split("\u{1b}[").skip(1);
    sequences
        .filter_map(|rest| rest.find(|byte: char| byte.is_ascii_alphabetic()).map(|at| &rest[at..]))
        .any(|rest| rest.starts_with('m'))
}

#[test]
#[ignore = "needs script of util-linux"]
#[cfg(target_os = "linux")]
fn a_terminal_gets_colours_unless_no_color_is_set() {
    let usual = at_a_terminal("");
    assert!(usual.contains("serving on") && is_coloured(&usual), "{usual}");
    let plain = at_a_terminal("1");
    assert!(plain.contains("serving on") && !is_coloured(&plain), "{plain}");
}

#[test]
fn a_backup_of_a_directory_without_data_is_refused_and_changes_nothing() {
    let (directory, store) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(directory.path().join("notes.txt"), "mine").unwrap();
    let to = format!("file://{}", store.path().display());
    let back_up = |arguments: &[&str]| {
        testkit::output(Command::new(env!("CARGO_BIN_EXE_tidewire")).arg("backup").args(arguments).args(["--to", &to]))
    };
    let place = directory.path().to_str().unwrap();
    let below = format!("{place}/nowhere");
    for arguments in [&[place][..], &["--data-dir", place], &[&below]] {
        let output = back_up(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(&format!("{} is not a data directory", arguments.last().unwrap())), "{said}");
    }
    let names = |path: &std::path::Path| fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    let (left, stored): (Vec<_>, Vec<_>) = (names(directory.path()), names(store.path()));
    assert_eq!((left, stored), (vec!["notes.txt".into()], vec![]));
    let storage = StorageConfig { directory: directory.path().to_owned(), ..StorageConfig::default() };
    Engine::open(EngineConfig::default(), &storage, Arc::new(SystemClock), &RecoveryProgress::default())
        .unwrap()
        .0
        .shutdown();
    for arguments in [&[place][..], &["--data-dir", place]] {
        let output = back_up(arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!(back_up(&[place, "--data-dir", place]).status.code(), Some(2));
    assert_eq!(back_up(&[]).status.code(), Some(2));
}

#[test]
fn an_invalid_positive_number_is_refused_with_an_explanation() {
    for arguments in
        [&["feed", "ann", "--limit", "0"][..], &["serve", "--inbox-posts", "x"], &["serve", "--live-max=-1"]]
    {
        let output = testkit::output(Command::new(env!("CARGO_BIN_EXE_tidewire")).args(arguments));
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("expected a whole number from 1"), "{said}");
    }
}
