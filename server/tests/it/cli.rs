//! The commands that call a server, as people and scripts run them: the real program, its output and its exit codes.

mod completions;
mod config;
mod import;
pub mod openssl;
mod watch;

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tidewire::config::EngineConfig;

use crate::access::tokens::{SERVER_KEY, access};
use crate::server::Server;
use crate::tools::Ran;

/// The program without variables of the environment, with this server.
pub fn program(server: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidewire"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("TIDEWIRE_")) {
        command.env_remove(name);
    }
    for name in [
        "COLUMNS",
        "NO_COLOR",
        "CLICOLOR",
        "CLICOLOR_FORCE",
        "HTTP_PROXY",
        "http_proxy",
        "HTTPS_PROXY",
        "https_proxy",
        "ALL_PROXY",
        "all_proxy",
    ] {
        command.env_remove(name);
    }
    command.env("TIDEWIRE_SERVER", server).stdin(Stdio::null());
    command
}

pub fn ran(command: &mut Command) -> Ran {
    let output = testkit::output(command);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
}

fn run(server: &Server, words: &[&str]) -> Ran {
    ran(program(&server.url("")).args(words))
}

#[track_caller]
fn good(server: &Server, words: &[&str]) -> String {
    let ran = run(server, words);
    assert_eq!(ran.code, 0, "{words:?}: {}{}", ran.out, ran.err);
    ran.out
}

#[track_caller]
fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|cause| panic!("{line}: {cause}"))).collect()
}

fn server() -> Server {
    Server::start(EngineConfig::default())
}

#[test]
fn a_published_post_is_only_in_the_feeds_of_followers() {
    let server = server();
    assert_eq!(good(&server, &["follow", "ann", "bob", "tag:tea"]), "ann follows bob\nann follows tag:tea\n");
    assert_eq!(good(&server, &["follow", "ann", "bob"]), "ann follows bob already\n");
    assert_eq!(good(&server, &["publish", "bob", "hello", "--id", "7", "--wait"]), "published: post 7 of bob\n");
    assert_eq!(good(&server, &["publish", "bob", "hello", "--id", "7"]), "published before: post 7 of bob\n");
    good(
        &server,
        &["publish", "cas", "--body", r#"{"n":1}"#, "--id", "8", "--tag", "tea", "--reply-to", "7", "--wait"],
    );
    let feed = good(&server, &["feed", "ann"]);
    // Without the age, which depends on the machine.
    for part in ["cas · ", " · via tag:tea · answers 7 · #tea  8\n  {\"n\":1}\n", "bob · ", "  7\n  hello\n"] {
        assert!(feed.contains(part), "{feed}");
    }
    assert!(good(&server, &["feed", "dan"]).is_empty());
    assert_eq!(good(&server, &["unfollow", "ann", "tag:tea"]), "ann does not follow tag:tea any more\n");
    let entries = lines(&good(&server, &["feed", "ann", "--json"]));
    assert_eq!(entries.iter().map(|entry| &entry["post"]["id"]).collect::<Vec<_>>(), ["7"]);
    assert_eq!(lines(&good(&server, &["feed", "cas", "--posts", "--json"]))[0]["post"]["body"], json!({"n": 1}));
}

#[test]
fn a_feed_longer_than_a_page_is_printed_completely_and_can_be_continued() {
    let server = server();
    good(&server, &["follow", "ann", "bob"]);
    for id in 1..=230 {
        let at = format!("2026-01-01T00:{:02}:{:02}Z", id / 60, id % 60);
        let post = json!({"author": "bob", "body": {"text": "x"}, "id": id.to_string(), "published_at": at});
        assert_eq!(server.post("/v1/posts?wait=delivered", &post).status, 201);
    }
    let ids = |entries: &[Value]| -> Vec<u64> {
        entries.iter().map(|entry| entry["post"]["id"].as_str().unwrap().parse().unwrap()).collect()
    };
    let all = lines(&good(&server, &["feed", "ann", "--json", "--limit", "999"]));
    assert!(ids(&all).into_iter().eq((1..=230).rev()));
    let first = lines(&good(&server, &["feed", "ann", "--json", "-n", "120"]));
    assert!(ids(&first).into_iter().eq((111..=230).rev()));
    let cursor = first.last().unwrap()["cursor"].as_str().unwrap();
    let rest = lines(&good(&server, &["feed", "ann", "--json", "-n", "999", "--before", cursor]));
    assert!(ids(&rest).into_iter().eq((1..=110).rev()));
}

#[test]
fn an_empty_feed_is_explained_for_the_requested_view() {
    let server = server();
    good(&server, &["follow", "ann", "bob"]);
    good(&server, &["publish", "bob", "hello", "--wait"]);
    assert_eq!(server.send("PUT", "/v1/users/ann/lists/near/members/cas", None, "").status, 201);
    let cursor = lines(&good(&server, &["feed", "ann", "--json"]))[0]["cursor"].as_str().unwrap().to_owned();
    for (words, why) in [
        (vec!["cas"], "cas follows nobody who has published, or has hidden all posts"),
        (vec!["ann", "--posts"], "ann has neither published nor reposted"),
        (vec!["ann", "--list", "near"], "no member of the list near of ann has published, or ann has hidden all posts"),
        (vec!["ann", "--before", &cursor], "no entry is below this cursor"),
    ] {
        let ran = run(&server, &[&["feed"], &words[..]].concat());
        assert_eq!((ran.code, ran.out.as_str(), ran.err), (0, "", format!("nothing: {why}\n")), "{words:?}");
    }
}

#[test]
fn text_fits_the_width_and_cannot_control_the_terminal() {
    let server = server();
    good(&server, &["publish", "bob", &format!("{}\u{1b}[31m\nend", "word ".repeat(30)), "--wait"]);
    let wide = good(&server, &["feed", "bob", "--posts"]);
    assert_eq!(wide.lines().count(), 3, "{wide}");
    assert!(!wide.contains('\u{1b}'), "neither of the author nor of the program: {wide:?}");
    let narrow = ran(program(&server.url("")).args(["feed", "bob", "--posts"]).env("COLUMNS", "40")).out;
    assert!(narrow.lines().all(|line| line.chars().count() <= 40) && narrow.lines().count() > 5, "{narrow}");
    let styled = |name: &str, value: &str| {
        let out = ran(program(&server.url("")).args(["feed", "bob", "--posts"]).env(name, value)).out;
        out.contains("\u{1b}[")
    };
    assert!(styled("CLICOLOR_FORCE", "1") && !styled("CLICOLOR", "1") && !styled("NO_COLOR", "1"));
    let mut both = program(&server.url(""));
    both.args(["feed", "bob", "--posts"]).env("CLICOLOR_FORCE", "1").env("NO_COLOR", "1");
    assert!(!ran(&mut both).out.contains("\u{1b}["), "NO_COLOR wins");
}

#[test]
fn text_and_body_may_be_read_from_standard_input() {
    let server = server();
    let publish = |words: &[&str], input: &str| {
        let mut command = program(&server.url(""));
        let mut child = command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = testkit::output_of(child);
        assert!(output.status.success());
        serde_json::from_slice::<Value>(&output.stdout).unwrap()["body"].clone()
    };
    assert_eq!(publish(&["publish", "bob", "-", "--json"], "one\ntwo\n"), json!({"text": "one\ntwo"}));
    assert_eq!(publish(&["publish", "bob", "--body", "-", "--json"], "[1,\n2]\n"), json!([1, 2]));
    assert_eq!(run(&server, &["publish", "bob", "--body", "no json"]).code, 2);
    let ran = run(&server, &["publish", "bob", "--body", "no json", "--json"]);
    assert!(ran.code == 2 && lines(&ran.err)[0]["error"].is_string(), "{}", ran.err);
}

#[test]
fn explain_prints_why_a_post_is_in_a_feed_as_text_and_json() {
    let server = server();
    good(&server, &["follow", "ann", "bob"]);
    good(&server, &["publish", "bob", "hello", "--id", "7", "--wait"]);
    let said = good(&server, &["explain", "ann", "7"]);
    assert!(said.starts_with("post 7 is in the feed of ann\nbecause   ann follows bob\n"), "{said}");
    assert_eq!(server.send("PUT", "/v1/users/ann/mutes/bob", None, "").status, 201);
    let said = good(&server, &["explain", "ann", "7"]);
    assert!(
        said.starts_with("post 7 is not in the feed of ann\n") && said.contains("but       ann mutes bob"),
        "{said}"
    );
    assert!(good(&server, &["explain", "ann", "8"]).contains("no post has this id"));
    let json = &lines(&good(&server, &["explain", "ann", "7", "--json"]))[0];
    assert_eq!((&json["shown"], &json["blockers"][0]["kind"]), (&json!(false), &json!("muted")));
}

#[test]
fn statistics_are_printed_as_text_or_json() {
    let server = server();
    good(&server, &["publish", "bob", "hello", "--wait"]);
    let text = good(&server, &["stats"]);
    for part in ["published", "posts in memory", "up for", "iB"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let json = lines(&good(&server, &["stats", "--json"]));
    assert_eq!((json.len(), &json[0]["published"]), (1, &json!(1)));
}

#[test]
fn exit_codes_distinguish_kinds_of_failures() {
    let open = server();
    let guarded = Server::guarded(EngineConfig::default(), access());
    let nobody = "http://127.0.0.1:1";
    for (server, words, code, named) in [
        (open.url(""), "follow ann ann", 1, "itself"),
        (open.url(""), "publish bob", 2, "TEXT"),
        (open.url(""), "feed", 2, "USER"),
        (open.url(""), "feed ann --limit 0", 2, "limit"),
        (open.url(""), "feed ann --server ftp://a", 2, "https://feeds.example.org"),
        (open.url(""), "feed ann --server feeds.example.org", 2, "https://feeds.example.org"),
        (open.url(""), "feed ann --ca-file cert.pem", 1, "--ca-file is for https"),
        (nobody.to_owned(), "publish bob hello", 3, "no answer"),
        (nobody.to_owned(), "feed ann", 3, "no answer from http://127.0.0.1:1"),
        (nobody.to_owned(), "watch ann", 3, "no answer"),
        (open.url(""), "feed ann --list none", 4, "none"),
        (guarded.url(""), "feed ann", 5, "unauthenticated"),
        (guarded.url(""), "watch ann", 5, "unauthenticated"),
        (guarded.url(""), "feed ann", 5, "pass it with --key-file FILE, or set TIDEWIRE_KEY"),
        (guarded.url(""), "stats --json", 5, "pass it with --key-file FILE, or set TIDEWIRE_KEY"),
        (open.url(""), "feed ann --key-file missing", 1, "cannot read missing"),
        (open.url(""), "feed ann --key-file ../rustfmt.toml", 1, "rustfmt.toml has neither a key nor a token"),
    ] {
        let ran = ran(program(&server).args(words.split(' ')));
        assert_eq!(ran.code, code, "{words}: {}", ran.err);
        assert!(ran.err.contains(named) && ran.out.is_empty(), "{words}: {}", ran.err);
    }
    let ran = ran(program(&guarded.url("")).args(["feed", "ann", "--json"]));
    let error = &lines(&ran.err)[0];
    assert_eq!((ran.code, &error["code"], &error["status"]), (5, &json!("unauthenticated"), &json!(401)));
}

#[test]
fn a_lasting_refusal_is_reported_with_its_reason_and_as_overload_only_for_load() {
    for (status, refusal, said) in [
        (507, "disk_full", "still refuses after 1 attempt: no space left (disk_full), status 507"),
        (503, "recovering", "still refuses after 1 attempt: no space left (recovering), status 503"),
        (503, "overloaded", "is still overloaded after 1 attempt: no space left (overloaded), status 503"),
        (429, "rate_limited", "is still overloaded after 1 attempt: no space left (rate_limited), status 429"),
    ] {
        let body = json!({"code": refusal, "detail": "no space left"}).to_string();
        let head = format!("HTTP/1.1 {status} x\r\nRetry-After: 9\r\nContent-Length: {}", body.len());
        let server = watch::scripted(vec![format!("{head}\r\nConnection: close\r\n\r\n{body}")]);
        for words in ["publish bob hello", "watch ann"] {
            let ran = ran(program(&server).args(words.split(' ')).args(["--timeout", "5s", "--json"]));
            let error = &lines(&ran.err)[0];
            let read = (ran.code, &error["code"], &error["status"]);
            assert_eq!(read, (3, &json!(refusal), &json!(status)), "{words}: {}", ran.err);
            assert!(error["error"].as_str().unwrap().ends_with(said), "{words}: {}", ran.err);
        }
    }
}

#[test]
fn a_key_is_read_from_a_file_or_the_environment() {
    let server = Server::guarded(EngineConfig::default(), access());
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("key");
    fs::write(&file, format!("{SERVER_KEY}\n")).unwrap();
    let feed = |name: &str, value: &str, words: &[&str]| {
        ran(program(&server.url("")).args(["feed", "ann"]).args(words).env(name, value)).code
    };
    let file = file.to_str().unwrap();
    let refused = ran(program(&server.url("")).args(["feed", "ann"]).env("TIDEWIRE_KEY", "wrong"));
    assert!(!refused.err.contains("--key-file"), "a wrong key is not a missing one: {}", refused.err);
    assert_eq!(feed("NOTHING", "", &[]), 5);
    assert_eq!(feed("NOTHING", "", &["--key-file", file]), 0);
    assert_eq!(feed("TIDEWIRE_KEY_FILE", file, &[]), 0);
    assert_eq!(feed("TIDEWIRE_KEY", SERVER_KEY, &[]), 0);
    assert_eq!(feed("TIDEWIRE_KEY", "wrong", &[]), 5);
}

#[test]
fn a_request_to_an_unresponsive_server_times_out() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = format!("http://{}", listener.local_addr().unwrap());
    for (words, code) in [
        ("feed ann", 3),
        ("publish bob hello --id 7", 3),
        // It may have been published: a script must not publish it again.
        ("publish bob hello", 1),
        ("publish bob hello --json", 1),
        ("stats", 3),
        ("watch ann", 3),
    ] {
        let ran = ran(program(&silent).args(words.split(' ')).args(["--timeout", "300ms"]));
        assert!(ran.code == code && ran.err.contains("timeout"), "{words}: {}", ran.err);
        assert_eq!(ran.err.contains("the request may be done or not"), code == 1, "{words}: {}", ran.err);
        assert!(!words.contains("--json") || lines(&ran.err)[0]["code"] == "outcome_unknown", "{}", ran.err);
    }
}
