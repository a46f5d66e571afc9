//! The program itself: what it refuses to start with, the file while it changes, and the tools that make keys.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::access::tokens::{self, SERVER_KEY, bearer};
use crate::program::Program;
use testkit::eventually;

fn run(arguments: &[&str]) -> Output {
    testkit::output(Command::new(env!("CARGO_BIN_EXE_tidewire")).args(arguments))
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn the_server_refuses_public_addresses_without_keys() {
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
fn an_invalid_access_file_is_refused_at_the_start() {
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
    eventually(&format!("{expected} for {credential}"), || status(program, credential) == expected);
}

#[test]
#[ignore = "takes 6 s until the program has read the file"]
fn a_changed_access_file_applies_and_an_invalid_one_is_ignored() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("access.toml");
    fs::write(&file, tokens::file()).unwrap();
    let program = Program::start(&directory.path().join("data"), &["--access", path(&file)]);
    assert_eq!((status(&program, SERVER_KEY), status(&program, &tokens::token("ann"))), (200, 200));
    assert_eq!(program.get("/v1/users/ann/feed").unwrap().0, 401);

    let added = run(&["key", "another"]);
    let (entry, printed) = (said(&added), String::from_utf8(added.stdout).unwrap());
    let key = printed.strip_suffix('\n').unwrap();
    assert!(!key.contains([' ', '\n']), "`> key` must write nothing else: {key}");
    assert!(!entry.contains(key), "`2>> access.toml` must not write the key: {entry}");
    assert_eq!(status(&program, key), 401);
    fs::write(&file, format!("{}\n{entry}", tokens::file())).unwrap();
    wait_for(&program, key, 200);
    assert_eq!(status(&program, SERVER_KEY), 200);

    fs::write(&file, format!("{entry}\n[[server-key]]\nname = \"broken\"")).unwrap();
    eventually("the broken file is noticed", || program.said("the previous keys remain valid") == 1);
    assert_eq!((status(&program, key), status(&program, SERVER_KEY)), (200, 200), "as before");

    fs::write(&file, &entry).unwrap();
    wait_for(&program, SERVER_KEY, 401);
    assert_eq!((status(&program, key), status(&program, &tokens::token("ann"))), (200, 401));
    program.kill();
}

#[test]
#[ignore = "takes 6 s until the program has read the file"]
fn a_file_repaired_with_equal_time_and_length_is_loaded_and_logged() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("access.toml");
    fs::write(&file, tokens::file()).unwrap();
    let program = Program::start(&directory.path().join("data"), &["--access", path(&file)]);
    let added = run(&["key", "another"]);
    let (entry, key) = (said(&added), String::from_utf8(added.stdout).unwrap());
    let repaired = format!("{}\n{entry}", tokens::file());
    fs::write(&file, repaired.replace("sha256", "sha512")).unwrap();
    eventually("the broken file is noticed", || program.said("the previous keys remain valid") == 1);
    assert_eq!((status(&program, SERVER_KEY), status(&program, key.trim())), (200, 401), "as before");

    let (modified, beside) = (fs::metadata(&file).unwrap().modified().unwrap(), directory.path().join("beside"));
    fs::write(&beside, repaired).unwrap();
    fs::File::options().write(true).open(&beside).unwrap().set_modified(modified).unwrap();
    fs::rename(&beside, &file).unwrap();
    wait_for(&program, key.trim(), 200);
    program.signal("TERM");
    let (_, log) = program.ended();
    assert_eq!(log.matches("the previous keys remain valid").count(), 1, "{log}");
    let again = format!("the access file {} can be used again", file.display());
    assert!(log.contains("ERROR") && log.matches(&again).count() == 1, "{log}");
}

#[test]
fn a_key_printed_as_json_is_one_document_and_its_entry_works() {
    let directory = tempfile::tempdir().unwrap();
    let (file, key_file) = (directory.path().join("access.toml"), directory.path().join("key"));
    let made = run(&["key", "reader", "--scope", "read", "--json"]);
    assert_eq!((made.status.code(), made.stderr.as_slice()), (Some(0), &b""[..]), "the key is in the document alone");
    let document: Value = serde_json::from_slice(&made.stdout).unwrap();
    let [name, key, entry] = ["name", "key", "entry"].map(|field| document[field].as_str().unwrap());
    assert_eq!((document.as_object().unwrap().len(), name), (3, "reader"));
    assert!(!entry.contains(key), "{entry}");
    fs::write(&file, entry).unwrap();
    fs::write(&key_file, key).unwrap();
    let program = Program::start(&directory.path().join("data"), &["--access", path(&file)]);
    let stats = run(&["stats", "--server", &program.url, "--key-file", path(&key_file)]);
    assert_eq!(stats.status.code(), Some(0), "{}", said(&stats));
    let written = run(&["follow", "ann", "bob", "--server", &program.url, "--key-file", path(&key_file)]);
    assert_eq!(written.status.code(), Some(5), "it is for reading: {}", said(&written));
    program.kill();
}

#[test]
fn a_key_is_added_only_to_an_access_file_that_stays_valid() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("access.toml");
    let add = |name| run(&["key", name, "--access", path(&file)]);
    let (first, second) = (add("one"), add("two"));
    assert_eq!((first.stderr.as_slice(), second.stderr.as_slice()), (&b""[..], &b""[..]));
    let before = fs::read_to_string(&file).unwrap();
    let taken = add("two");
    assert_eq!((taken.status.code(), taken.stdout.as_slice()), (Some(1), &b""[..]), "{}", said(&taken));
    assert!(said(&taken).contains("access.toml") && said(&taken).contains("two"), "{}", said(&taken));
    assert_eq!(fs::read_to_string(&file).unwrap(), before, "nothing is added");
    #[cfg(unix)]
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&file).unwrap().permissions()) & 0o777, 0o600);
    let program = Program::start(&directory.path().join("data"), &["--access", path(&file)]);
    for key in [first.stdout, second.stdout] {
        assert_eq!(status(&program, String::from_utf8(key).unwrap().trim()), 200);
    }
    program.kill();
}

#[test]
fn the_log_names_an_origin_whose_pages_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let options = ["--cors-origins", "https://known.example"];
    let program = Program::start(&directory.path().join("data"), &options);
    for (origin, expected) in [("https://known.example", 204), ("https://app.example", 405)] {
        let asked = program.agent.options(format!("{}/v1/posts", program.url)).header("origin", origin);
        let asked = asked.header("access-control-request-method", "POST").call().unwrap();
        assert_eq!(asked.status(), expected, "{origin}");
    }
    program.signal("TERM");
    let (_, log) = program.ended();
    assert!(log.contains("origin=\"https://app.example\"") && log.contains("--cors-origins"), "{log}");
    assert!(!log.contains("known.example"), "{log}");
}

#[test]
fn an_import_uses_its_key_file() {
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
    let without = run(&import);
    assert_eq!(without.status.code(), Some(5), "{}", said(&without));
    assert!(said(&without).contains("--key-file FILE"), "{}", said(&without));
    let output = run(&[&import[..], &["--key-file", path(&key)]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    program.kill();
}

#[test]
fn an_import_stops_when_its_key_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str, text: &str| {
        let file = directory.path().join(name);
        fs::write(&file, text).unwrap();
        file
    };
    let (file, wrong) = (at("access.toml", &tokens::file()), at("wrong", "tidewire_another-key\n"));
    let own = at("token", &tokens::token("ann"));
    let posts: String = (0..3_000).map(|nth| format!("{{\"author\":\"user-{nth}\",\"body\":1}}\n")).collect();
    let follows: String = (0..30_000).map(|nth| format!("user-{nth} bob\n")).collect();
    let (posts, follows) = (at("posts", &posts), at("follows", &follows));
    let program = Program::start(&directory.path().join("data"), &["--access", path(&file)]);
    for (what, lines, key, code) in [
        ("posts", &posts, &wrong, "invalid_token"),
        ("follows", &follows, &wrong, "invalid_token"),
        ("posts", &posts, &own, "forbidden"),
    ] {
        let output = run(&["import", what, path(lines), "--server", &program.url, "--key-file", path(key)]);
        assert_eq!(output.status.code(), Some(5), "{what}: {}", said(&output));
        assert!(said(&output).contains(code) && output.stdout.is_empty(), "{what}: {}", said(&output));
    }
    // Each of the senders is refused once for each import; they are 8 and 2.
    let metrics = program.agent.get(format!("{}/metrics", program.url)).header("authorization", bearer(SERVER_KEY));
    let metrics = metrics.call().unwrap().body_mut().read_to_string().unwrap();
    for (code, most) in [("invalid_token", 8 + 2), ("forbidden", 8)] {
        let series = format!("tidewire_http_refusals_total{{code=\"{code}\"}} ");
        let count: u64 = metrics.lines().find_map(|line| line.strip_prefix(&series)).unwrap().parse().unwrap();
        assert!((1..=most).contains(&count), "{code}: {count} requests were refused");
    }
    program.kill();
}

#[test]
fn both_kinds_of_keys_can_mint_tokens() {
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

#[test]
fn a_server_key_cannot_sign_tokens() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("backend.key");
    fs::write(&file, run(&["key", "backend"]).stdout).unwrap();
    let output = run(&["token", "ann", "--secret-file", path(&file)]);
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(1), &b""[..]), "{}", said(&output));
    let named = ["backend.key: this is a server key", "[[token-key]]"];
    assert!(named.iter().all(|part| said(&output).contains(part)), "{}", said(&output));
    let key = fs::read_to_string(&file).unwrap();
    assert!(!said(&output).contains(key.trim()), "the key is not printed");
}
