//! The program itself: what it refuses to start with, the file while it changes, and the tools that make keys.
#![allow(clippy::disallowed_methods, reason = "a test's own threads may sleep")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use crate::access::tokens::{self, SERVER_KEY, bearer};
use crate::kill::Program;

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidewire")).args(arguments).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn nothing_is_served_to_others_without_keys() {
    let directory = tempfile::tempdir().unwrap();
    let data = path(directory.path());
    for arguments in [
        vec!["serve", "--listen", "0.0.0.0:0", "--data-dir", data],
        vec!["serve", "--listen", "[::]:0", "--data-dir", data],
        vec!["demo", "--listen", "0.0.0.0:0", "--seconds", "1"],
    ] {
        let output = run(&arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", said(&output));
        assert!(said(&output).contains("--access FILE"), "{}", said(&output));
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "nothing was begun");
}

#[test]
fn a_file_that_makes_no_sense_is_refused_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("access.toml");
    let start =
        || run(&["serve", "--listen", "127.0.0.1:0", "--data-dir", path(directory.path()), "--access", path(&file)]);
    let missing = start();
    assert_eq!(missing.status.code(), Some(1));
    assert!(said(&missing).contains(path(&file)), "{}", said(&missing));
    fs::write(&file, "[[server-key]]\nname = \"backend\"\nsha256 = \"12\"\n").unwrap();
    let wrong = start();
    assert_eq!(wrong.status.code(), Some(1));
    assert!(said(&wrong).contains(path(&file)) && said(&wrong).contains("backend"), "{}", said(&wrong));
}

fn status(program: &Program, credential: &str) -> u16 {
    let request = program.agent.get(format!("{}/v1/users/ann/feed", program.url));
    request.header("authorization", bearer(credential)).call().unwrap().status().as_u16()
}

fn wait_for(program: &Program, credential: &str, expected: u16) {
    let began = Instant::now();
    while status(program, credential) != expected {
        assert!(began.elapsed() < Duration::from_secs(60), "{expected} for {credential}");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn the_file_counts_as_it_is_now_and_a_broken_one_not_at_all() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("access.toml");
    fs::write(&file, tokens::file()).unwrap();
    let program = Program::start(&directory.path().join("data"), &["--access", path(&file)]);
    assert_eq!((status(&program, SERVER_KEY), status(&program, &tokens::token("ann"))), (200, 200));
    assert_eq!(program.get("/v1/users/ann/feed").unwrap().0, 401);

    let added = run(&["key", "another"]);
    let (told, entry) = (said(&added), String::from_utf8(added.stdout).unwrap());
    let key = told.lines().nth(1).unwrap();
    assert!(!entry.contains(key), "`>> access.toml` must not write the key: {entry}");
    assert_eq!(status(&program, key), 401);
    fs::write(&file, format!("{}\n{entry}", tokens::file())).unwrap();
    wait_for(&program, key, 200);
    assert_eq!(status(&program, SERVER_KEY), 200);

    fs::write(&file, format!("{entry}\n[[server-key]]\nname = \"broken\"")).unwrap();
    thread::sleep(Duration::from_millis(2_500));
    assert_eq!((status(&program, key), status(&program, SERVER_KEY)), (200, 200), "as before");

    fs::write(&file, &entry).unwrap();
    wait_for(&program, SERVER_KEY, 401);
    assert_eq!((status(&program, key), status(&program, &tokens::token("ann"))), (200, 401));
    program.kill();
}

#[test]
fn an_import_brings_its_key() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str, text: &str| {
        let file = directory.path().join(name);
        fs::write(&file, text).unwrap();
        file
    };
    let (file, key) = (at("access.toml", &tokens::file()), at("key", &format!("{SERVER_KEY}\n")));
    let follows = at("follows.txt", "ann bob\n");
    let program = Program::start(&directory.path().join("data"), &["--access", path(&file)]);
    let import = ["import", "follows", path(&follows), "--server", &program.url];
    assert_eq!(run(&import).status.code(), Some(1));
    let output = run(&[&import[..], &["--key-file", path(&key)]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    program.kill();
}

#[test]
fn tokens_are_minted_by_both_kinds_of_keys() {
    use base64::Engine as _;
    let directory = tempfile::tempdir().unwrap();
    let (file, secret) = (directory.path().join("access.toml"), directory.path().join("secret"));
    fs::write(&file, tokens::file()).unwrap();
    fs::write(&secret, base64::engine::general_purpose::STANDARD.encode(tokens::SECRET) + "\n").unwrap();
    let program = Program::start(&directory.path().join("data"), &["--access", path(&file)]);
    let mint = |arguments: &[&str]| {
        let output = run(&[&["token", "ann", "--secret-file", path(&secret)], arguments].concat());
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(status(&program, &mint(&[])), 200);
    let reading = mint(&["--scope", "read", "--expires", "10m"]);
    assert_eq!(status(&program, &reading), 200);
    let written = program.agent.put(format!("{}/v1/users/ann/following/bob", program.url));
    assert_eq!(written.header("authorization", bearer(&reading)).send_empty().unwrap().status(), 403);
    program.kill();
    for (arguments, code) in [
        (vec!["token", "ann"], 2),
        (vec!["token", "a b", "--secret-file", path(&secret)], 2),
        (vec!["token", "tag:tea", "--secret-file", path(&secret)], 2),
        (vec!["token", "ann", "--secret-file", path(&secret), "--expires", "0s"], 2),
        (vec!["token", "ann", "--secret-file", path(&secret), "--scope", "admin"], 2),
        (vec!["token", "ann", "--private-key", path(&secret)], 1),
        (vec!["token", "ann", "--secret-file", path(&file)], 1),
        (vec!["key", "a b"], 2),
    ] {
        assert_eq!(run(&arguments).status.code(), Some(code), "{arguments:?}");
    }
}
