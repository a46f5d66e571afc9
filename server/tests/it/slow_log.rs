//! What the log of the real program says of slow requests, and the ids by which they are found again.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::program::Program;

/// All requests are slow then.
const ALL: [&str; 2] = ["--slow-log", "0s"];

/// Starts a program that writes its log as JSON.
fn program(directory: &tempfile::TempDir, flags: &[&str]) -> Program {
    Program::start(directory.path(), &[flags, &["--log-format", "json"]].concat())
}

/// Reads a feed, by a request with this id. Returns the status of the answer, and its id.
fn ask(address: SocketAddr, id: &[u8]) -> (u16, Option<String>) {
    let mut socket = testkit::connect(address);
    let head = "GET /v1/users/ann/feed HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-Request-Id: ";
    socket.write_all(&[head.as_bytes(), id, b"\r\n\r\n"].concat()).unwrap();
    let mut answer = Vec::new();
    // What came before the connection ended, however it did.
    let _ = socket.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, _) = answer.split_once("\r\n\r\n").expect(&answer);
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect(head);
    let headers = head.lines().filter_map(|line| line.split_once(": "));
    let mut ids = headers.filter(|(name, _)| name.eq_ignore_ascii_case("x-request-id"));
    (status, ids.next().map(|(_, id)| id.to_owned()))
}

/// Stops the program, and returns what it told of slow reads of feeds.
fn told_by(program: Program) -> Vec<Value> {
    program.signal("TERM");
    let (status, log) = program.ended();
    assert!(status.success(), "{log}");
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line["message"] == "a slow request" && line["operation"] == "read_feed").collect()
}

#[test]
fn a_slow_request_is_logged_with_its_request_id() {
    let directory = tempfile::tempdir().unwrap();
    let program = program(&directory, &ALL);
    assert_eq!(ask(program.address, b"my-id-7"), (200, Some("my-id-7".to_owned())));
    let told = told_by(program);
    let [line] = &told[..] else { panic!("{told:?}") };
    let path = "/v1/users/ann/feed";
    let expected = json!({"level": "WARN", "method": "GET", "path": path, "status": 200, "request_id": "my-id-7"});
    for (name, expected) in expected.as_object().unwrap() {
        assert_eq!(&line[name], expected, "{name}: {line}");
    }
    assert!(line["took_ms"].is_u64(), "{line}");
}

#[test]
fn a_fast_request_is_not_logged() {
    for (flags, slow_ms) in [(&[][..], 1_000), (&["--slow-log", "1h"][..], 3_600_000)] {
        let directory = tempfile::tempdir().unwrap();
        let program = program(&directory, flags);
        assert_eq!(ask(program.address, b"my-id-7"), (200, Some("my-id-7".to_owned())), "{flags:?}");
        let told = told_by(program);
        // On a machine that is busy otherwise it may have been slow.
        assert!(told.iter().all(|line| line["took_ms"].as_u64() >= Some(slow_ms)), "{flags:?}: {told:?}");
    }
}

#[test]
fn an_invalid_request_id_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let program = program(&directory, &ALL);
    let (longest, too_long) = ("x".repeat(128), "x".repeat(129));
    let mut answered = Vec::new();
    for good in ["!", "my-id~7", &longest] {
        let (status, id) = ask(program.address, good.as_bytes());
        assert_eq!((status, id.as_deref()), (200, Some(good)));
        answered.extend(id);
    }
    for bad in ["my id 7", "my-id\t7", "", "my-id-\u{e9}", &too_long] {
        let (status, id) = ask(program.address, bad.as_bytes());
        let id = id.expect("a slow request has an id");
        let is_new = id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        assert!(status == 200 && is_new, "{bad:?}: {status} {id}");
        answered.push(id);
    }
    assert_eq!(ask(program.address, b"my-id\x017"), (400, None), "no header may have that");
    let told: Vec<Value> = told_by(program).into_iter().map(|mut line| line["request_id"].take()).collect();
    assert_eq!(json!(told), json!(answered), "each is in the log with the id of its answer");
}
