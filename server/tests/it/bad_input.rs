//! Malformed requests: each with its exact status and code.

use std::io::{ErrorKind, Read as _, Write as _};

use serde_json::json;
use tidewire::config::EngineConfig;
use tidewire::feed::cursor;
use tidewire::feed::position::Position;

use crate::server::{Answer, Server};

fn server() -> Server {
    Server::start(EngineConfig::default())
}

fn check(answer: &Answer, what: &str, status: u16, code: &str, field: Option<&str>) {
    let problem = answer.json();
    assert_eq!((answer.status, problem["code"].as_str()), (status, Some(code)), "{what}: {}", answer.text);
    assert_eq!(answer.header("content-type"), "application/problem+json", "{what}");
    assert_eq!(problem["status"], status, "{what}");
    for member in ["type", "title", "detail"] {
        assert!(problem[member].as_str().is_some_and(|text| !text.is_empty()), "{what}: {member}");
    }
    assert_eq!(problem["field"].as_str(), field, "{what}: {}", answer.text);
}

#[test]
fn bad_paths_and_parameters_are_refused() {
    let server = server();
    let long = "x".repeat(129);
    let edge_cursor = cursor::encode_edge(tidewire::clock::UnixMicros(5));
    let feed_cursor = cursor::encode(Position::MAX);
    let cases: &[(&str, String, u16, &str, Option<&str>)] = &[
        ("GET", "/nothing".into(), 404, "not_found", None),
        ("GET", "/v1/nothing".into(), 404, "not_found", None),
        ("GET", "/v1/posts/0".into(), 404, "unknown_post", None),
        ("GET", "/v1/posts/abc".into(), 400, "invalid_path", Some("id")),
        ("GET", "/v1/posts/-1".into(), 400, "invalid_path", Some("id")),
        ("GET", "/v1/posts/007".into(), 400, "invalid_path", Some("id")),
        ("GET", "/v1/posts/18446744073709551616".into(), 400, "invalid_path", Some("id")),
        ("GET", "/v1/posts/1?x=1".into(), 400, "unknown_parameter", Some("x")),
        ("PATCH", "/v1/posts/1".into(), 415, "unsupported_media_type", None),
        ("DELETE", "/v1/posts/x".into(), 400, "invalid_path", Some("id")),
        ("DELETE", "/v1/posts/1?wait=later".into(), 400, "invalid_parameter", Some("wait")),
        ("GET", "/v1/users/a%20b/feed".into(), 400, "invalid_path", Some("user")),
        ("GET", "/v1/users/%C3%A9/feed".into(), 400, "invalid_path", Some("user")),
        ("GET", "/v1/users/a%2Fb/feed".into(), 400, "invalid_path", Some("user")),
        ("GET", "/v1/users/a%00/feed".into(), 400, "invalid_path", Some("user")),
        ("GET", "/v1/users/%2e%2e/feed".into(), 400, "invalid_path", Some("user")),
        ("PUT", "/v1/users/a/following/.".into(), 400, "invalid_path", Some("source")),
        ("PUT", "/v1/users/a/following/%2E%2E".into(), 400, "invalid_path", Some("source")),
        ("PUT", "/v1/users/a/lists/%2e/members/b".into(), 400, "invalid_path", Some("name")),
        ("PUT", "/v1/users/a/lists/near/members/%2e%2e".into(), 400, "invalid_path", Some("source")),
        ("GET", format!("/v1/users/{long}/feed"), 400, "invalid_path", Some("user")),
        ("GET", "/v1/users/a/feed?limit=0".into(), 400, "invalid_parameter", Some("limit")),
        ("GET", "/v1/users/a/feed?limit=101".into(), 400, "invalid_parameter", Some("limit")),
        ("GET", "/v1/users/a/feed?limit=-1".into(), 400, "invalid_parameter", Some("limit")),
        ("GET", "/v1/users/a/feed?limit=ten".into(), 400, "invalid_parameter", Some("limit")),
        ("GET", "/v1/users/a/feed?limit=".into(), 400, "invalid_parameter", Some("limit")),
        ("GET", "/v1/users/a/feed?limit=1&limit=2".into(), 400, "invalid_parameter", Some("limit")),
        ("GET", "/v1/users/a/feed?before=x".into(), 400, "invalid_parameter", Some("before")),
        ("GET", format!("/v1/users/a/feed?after={edge_cursor}"), 400, "invalid_parameter", Some("after")),
        ("GET", format!("/v1/users/a/feed?after={feed_cursor}A"), 400, "invalid_parameter", Some("after")),
        (
            "GET",
            format!("/v1/users/a/feed?before={feed_cursor}&after={feed_cursor}"),
            400,
            "invalid_parameter",
            Some("after"),
        ),
        ("GET", "/v1/users/a/feed?fields=body".into(), 400, "invalid_parameter", Some("fields")),
        ("GET", "/v1/users/a/feed?cursor=x".into(), 400, "unknown_parameter", Some("cursor")),
        ("GET", "/v1/users/a/posts?page=2".into(), 400, "unknown_parameter", Some("page")),
        ("GET", format!("/v1/users/a/following?cursor={feed_cursor}"), 400, "invalid_parameter", Some("cursor")),
        ("GET", "/v1/users/a/followers?before=x".into(), 400, "unknown_parameter", Some("before")),
        ("PUT", "/v1/users/a/following/a".into(), 422, "self_follow", None),
        ("PUT", "/v1/users/tag:a/following/b".into(), 422, "not_a_user", None),
        ("PUT", "/v1/users/a/following/b%20c".into(), 400, "invalid_path", Some("source")),
        ("PUT", "/v1/users/a/following/b?wait=x".into(), 400, "invalid_parameter", Some("wait")),
        ("GET", "/v1/users/nobody".into(), 404, "unknown_source", None),
        ("GET", "/healthz?verbose=1".into(), 400, "unknown_parameter", Some("verbose")),
    ];
    for (method, path, status, code, field) in cases {
        let field = if *code == "self_follow" || *code == "not_a_user" { None } else { *field };
        check(&server.send(method, path, None, ""), &format!("{method} {path}"), *status, code, field);
    }
}

#[test]
fn wrong_methods_are_refused() {
    let server = server();
    for (method, path, allow) in [
        ("PUT", "/v1/posts", "POST, GET, HEAD"),
        ("POST", "/v1/posts/1", "GET, HEAD, PATCH, DELETE"),
        ("GET", "/v1/follows", "POST"),
        ("DELETE", "/v1/users/a/feed", "GET, HEAD"),
        ("POST", "/v1/users/a/following/b", "PUT, DELETE"),
        ("BREW", "/v1/stats", "GET, HEAD"),
    ] {
        let answer = server.send(method, path, None, "");
        check(&answer, &format!("{method} {path}"), 405, "method_not_allowed", None);
        assert_eq!(answer.header("allow"), allow, "{method} {path}");
    }
}

#[test]
fn bad_posts_are_refused() {
    let server = server();
    let string_of = |bytes: usize| format!("\"{}\"", "x".repeat(bytes - 2));
    let post = |fields: &str| format!(r#"{{"author":"a","body":1{fields}}}"#);
    let with_body = |body: &str| format!(r#"{{"author":"a","body":{body}}}"#);
    let tags = |count: usize| format!(r#","tags":{}"#, json!((0..count).map(|n| n.to_string()).collect::<Vec<_>>()));
    let long_tag = format!(r#","tags":["{}"]"#, "x".repeat(129));
    let far = r#","published_at":"2999-01-01T00:00:00Z""#;
    let cases: Vec<(String, u16, &str, Option<&str>)> = vec![
        (String::new(), 400, "invalid_json", None),
        ("{".into(), 400, "invalid_json", None),
        ("[]".into(), 400, "invalid_field", Some(".")),
        ("null".into(), 400, "invalid_field", Some(".")),
        (r#"["a",1]"#.into(), 400, "invalid_field", Some(".")),
        (post("") + "x", 400, "invalid_json", None),
        ("{\"author\":\"a\",\"body\":\"\u{0}\"}".into(), 400, "invalid_json", None),
        (r#"{"body":1}"#.into(), 400, "missing_field", Some("author")),
        (r#"{"author":"a"}"#.into(), 400, "missing_field", Some("body")),
        (r#"{"author":7,"body":1}"#.into(), 400, "invalid_field", Some("author")),
        (r#"{"author":"","body":1}"#.into(), 400, "invalid_field", Some("author")),
        (r#"{"author":"a b","body":1}"#.into(), 400, "invalid_field", Some("author")),
        (r#"{"author":"..","body":1}"#.into(), 400, "invalid_field", Some("author")),
        (r#"{"author":"tag:a","body":1}"#.into(), 422, "not_a_user", None),
        (post(r#","author":"b""#), 400, "duplicate_field", Some("author")),
        (post(r#","colour":1"#), 400, "unknown_field", Some("colour")),
        (post(r#","col`our":1"#), 400, "unknown_field", Some("col`our")),
        (post(r#","id":7"#), 400, "invalid_field", Some("id")),
        (post(r#","id":"-7""#), 400, "invalid_field", Some("id")),
        (post(r#","id":"18446744073709551616""#), 400, "invalid_field", Some("id")),
        (post(r#","published_at":"yesterday""#), 400, "invalid_field", Some("published_at")),
        (post(r#","published_at":1700000000"#), 400, "invalid_field", Some("published_at")),
        (post(r#","published_at":"2026-01-01T00:00:00+01""#), 400, "invalid_field", Some("published_at")),
        (post(far), 422, "published_in_future", Some("published_at")),
        (post(r#","kind":"song""#), 400, "invalid_field", Some("kind")),
        (post(r#","kind":7"#), 400, "invalid_field", Some("kind")),
        (post(r#","kind":{"ad":null}"#), 400, "invalid_field", Some("kind")),
        (post(r#","tags":"rust""#), 400, "invalid_field", Some("tags")),
        (post(r#","tags":[7]"#), 400, "invalid_field", Some("tags[0]")),
        (post(r#","tags":["ok","not/ok"]"#), 400, "invalid_field", Some("tags[1]")),
        (post(r#","tags":[""]"#), 400, "invalid_field", Some("tags[0]")),
        (post(&long_tag), 400, "invalid_field", Some("tags[0]")),
        (post(&tags(17)), 400, "invalid_field", Some("tags")),
        (post(r#","topic":"a/b""#), 400, "invalid_field", Some("topic")),
        (post(r#","repost_of":5"#), 400, "invalid_field", Some("repost_of")),
        (post(r#","reply_to":"x""#), 400, "invalid_field", Some("reply_to")),
        (with_body(&"9".repeat(4_301)), 422, "unportable_body", Some("body")),
        (with_body(r#"{"n":1e400}"#), 422, "unportable_body", Some("body")),
        (with_body(r#"{"a":[{"b":1,"\u0062":2}]}"#), 422, "unportable_body", Some("body")),
        (with_body(r#"["\ud800"]"#), 422, "unportable_body", Some("body")),
        (with_body(&string_of(65_537)), 413, "body_too_large", Some("body")),
        (with_body(&string_of(99_000)), 413, "body_too_large", None),
        (with_body(&("[".repeat(65) + &"]".repeat(65))), 400, "invalid_field", Some("body")),
        (with_body(&"[".repeat(60_000)), 400, "invalid_json", None),
    ];
    for (body, status, code, field) in cases {
        let what: String = body.chars().take(80).collect();
        let answer = server.send("POST", "/v1/posts", Some("application/json"), body);
        check(&answer, &what, status, code, field);
    }
    let not_utf8 = server.send("POST", "/v1/posts", Some("application/json"), b"{\"author\":\"a\",\"body\":\"\xff\"}");
    check(&not_utf8, "not UTF-8", 400, "invalid_json", None);
    assert_eq!(server.get("/v1/stats").json()["posts"], 0, "nothing of a refused request was done");

    for good in [with_body(&string_of(65_536)), post(&tags(16)), with_body(&("[".repeat(64) + &"]".repeat(64)))] {
        let answer = server.send("POST", "/v1/posts", Some("application/json; charset=utf-8"), good);
        assert_eq!(answer.status, 201, "{}", answer.text);
    }
}

#[test]
fn bad_changes_of_posts_are_refused() {
    let server = server();
    server.post("/v1/posts", &json!({"id": "1", "author": "a", "body": 1}));
    for (path, body, status, code, field) in [
        ("/v1/posts/1", "{}", 400, "missing_field", Some("body")),
        ("/v1/posts/1", r#"{"hidden":"yes"}"#, 400, "invalid_field", Some("hidden")),
        ("/v1/posts/1", r#"{"body":2,"hidden":null}"#, 400, "invalid_field", Some("hidden")),
        ("/v1/posts/1", r#"{"author":"b"}"#, 400, "unknown_field", Some("author")),
        ("/v1/posts/1", r#"{"body":{"a":1,"a":1}}"#, 422, "unportable_body", Some("body")),
        ("/v1/posts/1", r#"{"body":-1e309}"#, 422, "unportable_body", Some("body")),
        ("/v1/posts/2", r#"{"hidden":true}"#, 404, "unknown_post", None),
    ] {
        check(&server.send("PATCH", path, Some("application/json"), body), body, status, code, field);
    }
}

#[test]
fn duplicate_fields_are_refused() {
    let server = server();
    server.post("/v1/posts", &json!({"id": "1", "author": "a", "body": 1}));
    for (method, path, body, field) in [
        ("POST", "/v1/posts", r#"{"author":"a","body":1,"body":1}"#, "body"),
        ("POST", "/v1/posts", r#"{"author":"a","\u0061uthor":"b","body":1}"#, "author"),
        ("PATCH", "/v1/posts/1", r#"{"hidden":true,"hidden":false}"#, "hidden"),
        ("POST", "/v1/follows", r#"{"follows":[],"follows":[]}"#, "follows"),
        ("POST", "/v1/follows", r#"{"follows":[{"follower":"a","source":"b","source":"c"}]}"#, "follows[0].source"),
        ("PUT", "/v1/users/a/following/b", r#"{"hidden":true,"hidden":false}"#, "hidden"),
        ("PATCH", "/v1/users/a/rules", r#"{"reposts":true,"reposts":false}"#, "reposts"),
        ("POST", "/v1/users/a/revoke", r#"{"not_before":null,"not_before":null}"#, "not_before"),
    ] {
        let answer = server.send(method, path, Some("application/json"), body);
        check(&answer, &format!("{method} {path} {body}"), 400, "duplicate_field", Some(field));
    }
}

#[test]
fn a_body_is_served_byte_for_byte_as_sent() {
    let server = server();
    let body = "{ \"b\" :1.50,\"a\":[ 1e2 ,-0, 0.10,\"\\u0061\\/\\ud83d\\ude00\", 18446744073709551615],\n\t\"\":{}}";
    let sent = format!(r#"{{"id":"7","author":"a","body":  {body} }}"#);
    let answer = server.send("POST", "/v1/posts", Some("application/json"), sent);
    assert_eq!(answer.status, 201, "{}", answer.text);
    server.send("PUT", "/v1/users/r/following/a", None, "");
    for path in ["/v1/posts/7", "/v1/users/a/posts", "/v1/users/r/feed"] {
        let text = server.get(path).text;
        assert!(text.contains(&format!("\"body\":{body}")), "{path}: {text}");
    }
}

#[test]
fn wrong_content_types_are_refused() {
    let server = server();
    let body = r#"{"author":"a","body":1}"#;
    for content_type in [None, Some("text/plain"), Some("application/xml"), Some("application/jsonp"), Some("")] {
        let answer = server.send("POST", "/v1/posts", content_type, body);
        check(&answer, &format!("{content_type:?}"), 415, "unsupported_media_type", None);
    }
}

#[test]
fn bad_follows_are_refused() {
    let server = server();
    let edge = json!({"follower": "a", "source": "b"});
    let many = |count: usize| json!({"follows": vec![edge.clone(); count]}).to_string();
    for (body, field, code) in [
        ("{}".to_owned(), "follows", "missing_field"),
        (r#"{"follows":{}}"#.into(), "follows", "invalid_field"),
        (r#"{"follows":[["a","b"]]}"#.into(), "follows[0]", "invalid_field"),
        (r#"{"follows":[{"follower":"a"}]}"#.into(), "follows[0].source", "missing_field"),
        (r#"{"follows":[{"follower":"a","source":"b c"}]}"#.into(), "follows[0].source", "invalid_field"),
        (r#"{"follows":[{"follower":"a","source":".."}]}"#.into(), "follows[0].source", "invalid_field"),
        (r#"{"follows":[{"follower":"a","source":"b","since":1}]}"#.into(), "follows[0].since", "unknown_field"),
        (r#"{"follows":[],"x":1}"#.into(), "x", "unknown_field"),
        (many(10_001), "follows", "invalid_field"),
    ] {
        let what: String = body.chars().take(80).collect();
        let answer = server.send("POST", "/v1/follows", Some("application/json"), body);
        check(&answer, &what, 400, code, Some(field));
    }
    assert_eq!(server.send("POST", "/v1/follows", Some("application/json"), many(10_000)).status, 200);
    let huge = format!(r#"{{"follows":[{}]}}"#, " ".repeat(4_000_000));
    let answer = server.send("POST", "/v1/follows", Some("application/json"), huge);
    check(&answer, "a huge request", 413, "body_too_large", None);
    let long = format!(r#"{{"{}":1}}"#, "ä".repeat(100_000));
    let answer = server.send("POST", "/v1/follows", Some("application/json"), long);
    check(&answer, "a long name of a field", 400, "unknown_field", Some(&format!("{}…", "ä".repeat(300))));
    assert!(answer.text.len() < 3_000, "{} bytes say so", answer.text.len());
    let option = server.send("PUT", "/v1/users/a/following/c", Some("application/json"), r#"{"colour":1}"#);
    check(&option, "an unknown option", 400, "unknown_field", Some("colour"));
}

/// What the server says to raw bytes until it ends the connection, as it must.
fn raw(server: &Server, bytes: &[u8]) -> String {
    let mut stream = testkit::connect(server.address());
    // It may have answered and ended the connection before it has read all.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let ended = stream.read_to_end(&mut answer);
    // What it did not read makes it a reset.
    assert!(!matches!(ended, Err(cause) if cause.kind() == ErrorKind::WouldBlock), "still open after {bytes:?}");
    String::from_utf8_lossy(&answer).into_owned()
}

/// A post, of which what its head leaves open decides where it ends, and a request behind it.
fn smuggling(head: &str, body: &str) -> Vec<u8> {
    let behind = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let head = format!("POST /v1/posts HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{head}");
    format!("{head}\r\n\r\n{body}{behind}").into_bytes()
}

const POST: &str = r#"{"author":"ann","body":1}"#;

#[test]
fn a_request_with_ambiguous_length_is_refused_with_the_bytes_behind_it() {
    let server = server();
    let chunked = format!("{:x}\r\n{POST}\r\n0\r\n\r\n", POST.len());
    let length = POST.len();
    for (head, body) in [
        (format!("Content-Length: {length}\r\nTransfer-Encoding: chunked"), chunked.as_str()),
        (format!("Transfer-Encoding: chunked\r\nContent-Length: {length}"), &chunked),
        (format!("Content-Length: {length}\r\nContent-Length: 5"), POST),
        (format!("Content-Length: {length}\r\nContent-Length: {length}"), POST),
        (format!("Content-Length: {length}, {length}"), POST),
        (format!("Content-Length: +{length}"), POST),
        ("Content-Length: -1".to_owned(), POST),
        ("Content-Length: 0x19".to_owned(), POST),
        (format!("Content-Length : {length}"), POST),
        (format!("Content-Length:\r\n {length}"), POST),
        ("Transfer-Encoding: xchunked".to_owned(), &chunked),
        ("Transfer-Encoding: chunked, identity".to_owned(), &chunked),
        ("Transfer-Encoding: gzip, chunked".to_owned(), &chunked),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity".to_owned(), &chunked),
        ("Transfer-Encoding:\r\n chunked".to_owned(), &chunked),
        ("Transfer-Encoding: chunked".to_owned(), "zz\r\n"),
        ("Transfer-Encoding: chunked".to_owned(), "10000000000000001\r\n{\r\n0\r\n\r\n"),
        ("Transfer-Encoding: chunked".to_owned(), "1;a\nb\r\n{\r\n0\r\n\r\n"),
        ("Transfer-Encoding: chunked".to_owned(), "1\r\n{0\r\n\r\n"),
    ] {
        let answer = raw(&server, &smuggling(&head, body));
        assert!(answer.starts_with("HTTP/1.1 400 "), "{head:?} {body:?}: {answer}");
        assert_eq!(answer.matches("HTTP/1.").count(), 1, "{head:?} {body:?}: {answer}");
    }
    let old = smuggling("Transfer-Encoding: chunked\r\nConnection: keep-alive", &chunked);
    let answer = raw(&server, &String::from_utf8(old).unwrap().replacen("HTTP/1.1", "HTTP/1.0", 1).into_bytes());
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.matches("HTTP/1.").count() == 1, "{answer}");
    assert_eq!(server.get("/v1/stats").json()["posts"], 0);

    let good = smuggling("Transfer-Encoding: chunked", &chunked);
    let good = String::from_utf8(good).unwrap().replace("localhost\r\n\r\n", "localhost\r\nConnection: close\r\n\r\n");
    let answer = raw(&server, good.as_bytes());
    assert!(answer.starts_with("HTTP/1.1 201 ") && answer.contains("HTTP/1.1 200 "), "{answer}");
}

#[test]
fn bytes_that_are_not_http_are_refused() {
    let server = server();
    let long =
        |name: &str| format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\n{name}: {}\r\n\r\n", "x".repeat(1 << 20));
    let many = format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\n{}\r\n", "x: y\r\n".repeat(1_000));
    let far = format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "x".repeat(1 << 20));
    for bytes in [
        "\0\0\0\0\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n",
        "GET /healthz HTTP/1.1\r\nHost: localhost\r\nx: a\rb\r\n\r\n",
        "GET /healthz HTTP/1.1\r\nHost: localhost\r\nx: a\0b\r\n\r\n",
        &long("x"),
        &many,
        &far,
    ] {
        let answer = raw(&server, bytes.as_bytes());
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
    }
    assert_eq!(server.get("/healthz").status, 200);
}
