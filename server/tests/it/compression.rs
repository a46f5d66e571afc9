//! Compressed answers, and compressed requests, which are refused.

use std::io::{Read as _, Write as _};
use std::num::NonZeroUsize;

use flate2::read::GzDecoder;
use flate2::{Compression, write::GzEncoder};
use serde_json::{Value, json};
use tidewire::config::EngineConfig;
use tidewire::engine::Engine;
use tidewire_server::http::admission::{Admission, AdmissionLimits};
use tidewire_server::http::state::HttpState;

use crate::server::Server;
use testkit::eventually;

fn server(compress_min_bytes: Option<usize>) -> Server {
    let engine = Engine::start(EngineConfig::default());
    let compress_min_bytes = compress_min_bytes.and_then(NonZeroUsize::new);
    Server::serving(HttpState { compress_min_bytes, ..HttpState::from(engine.clone()) }, engine)
}

/// The head, in lower case, and the body of an answer, as they are sent.
fn raw(server: &Server, request: &str, body: &[u8]) -> (String, Vec<u8>) {
    let mut socket = testkit::connect(server.address());
    let head = format!("{request}Host: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
    socket.write_all(head.as_bytes()).unwrap();
    socket.write_all(body).unwrap();
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    (String::from_utf8_lossy(&answer[..end]).to_lowercase(), answer[end + 4..].to_vec())
}

fn get(server: &Server, path: &str, accepted: &str) -> (String, Vec<u8>) {
    raw(server, &format!("GET {path} HTTP/1.1\r\nAccept-Encoding: {accepted}\r\n"), b"")
}

fn unpacked(packed: &[u8]) -> String {
    let mut text = String::new();
    GzDecoder::new(packed).read_to_string(&mut text).unwrap();
    text
}

fn length(head: &str) -> usize {
    head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap().parse().unwrap()
}

/// A reader with a page of about this many bytes.
fn publish(server: &Server, bytes: usize) {
    for nth in 0..bytes / 1_000 {
        let post = json!({"author": "bob", "body": {"text": format!("post {nth} {}", "word ".repeat(160))}});
        assert_eq!(server.post("/v1/posts?wait=delivered", &post).status, 201);
    }
}

#[test]
fn answers_above_the_minimum_size_are_compressed_if_the_client_accepts_it() {
    let server = server(Some(1_000));
    publish(&server, 100_000);
    let feeds = r#"{"users":["bob","bob"],"limit":100}"#;
    for (path, accepted, is_packed) in [
        ("/v1/users/bob/feed", "gzip", true),
        ("/v1/users/bob/posts?limit=100", "br, gzip;q=0.5", true),
        ("/v1/users/bob/feed", "br", false),
        ("/v1/users/bob/feed", "gzip;q=0", false),
        ("/v1/users/nobody/feed", "gzip", false),
        ("/v1/users/ann/rules", "gzip", false),
        ("/metrics", "gzip", true),
        ("/v1/changes", "gzip", false),
        ("/v1/users/bob/feed?what=1", "gzip", false),
    ] {
        let (head, body) = get(&server, path, accepted);
        let told = format!("{path} for {accepted}: {head}");
        assert_eq!(head.contains("content-encoding: gzip"), is_packed, "{told}");
        if is_packed {
            assert_eq!(length(&head), body.len(), "{told}");
            assert!(body.len() * 3 < unpacked(&body).len(), "{told}");
        }
        if path == "/v1/users/bob/feed" {
            assert!(head.contains("vary: accept-encoding") && head.contains("vary: authorization"), "{told}");
            let text = if is_packed { unpacked(&body) } else { String::from_utf8(body).unwrap() };
            assert_eq!(text, server.get(path).text, "{told}");
        }
    }
    let head = "POST /v1/feeds HTTP/1.1\r\nContent-Type: application/json\r\nAccept-Encoding: gzip\r\n";
    let (head, body) = raw(&server, head, feeds.as_bytes());
    assert!(head.contains("content-encoding: gzip"), "{head}");
    let answered: Value = serde_json::from_str(&unpacked(&body)).unwrap();
    assert_eq!(answered["feeds"][1]["items"].as_array().unwrap().len(), 100);
    // The tag is that of the text, however it was sent.
    let tag = |head: &str| head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap().replace("w/", "W/");
    let (packed, plain) = (get(&server, "/v1/users/bob/feed", "gzip").0, get(&server, "/v1/users/bob/feed", "").0);
    assert_eq!(tag(&packed), tag(&plain));
    let known = format!("gzip\r\nIf-None-Match: {}", tag(&packed));
    let (head, body) = get(&server, "/v1/users/bob/feed", &known);
    assert!(head.starts_with("http/1.1 304 ") && body.is_empty(), "{head}");
    assert!(!head.contains("content-encoding"), "{head}");
    let varies = |by: &str| head.lines().filter(|line| *line == format!("vary: {by}")).count();
    assert_eq!((varies("accept-encoding"), varies("authorization")), (1, 1), "{head}");
}

#[test]
fn a_response_counts_with_its_uncompressed_size() {
    let engine = Engine::start(EngineConfig::default());
    let limits = AdmissionLimits { response_bytes: 90_000, ..AdmissionLimits::default() };
    let compress_min_bytes = NonZeroUsize::new(1_000);
    let server = Server::serving(
        HttpState { compress_min_bytes, admission: Admission::new(limits), ..HttpState::from(engine.clone()) },
        engine,
    );
    publish(&server, 100_000);
    for (limit, status) in [(70, "http/1.1 200 "), (100, "http/1.1 503 ")] {
        let (head, body) = get(&server, &format!("/v1/users/bob/feed?limit={limit}"), "gzip");
        assert!(head.starts_with(status) && body.len() < 50_000, "{limit}: {head}");
    }
}

#[test]
fn by_default_only_built_in_files_are_compressed() {
    let server = server(None);
    publish(&server, 100_000);
    for path in ["/v1/users/bob/feed?limit=100", "/metrics", "/v1/changes?after=0"] {
        let (head, _) = get(&server, path, "gzip");
        assert!(!head.contains("content-encoding") && !head.contains("accept-encoding"), "{path}: {head}");
    }
    for path in ["/openapi.json", "/console/overview", "/docs/try.js", "/tidewire.js"] {
        let (head, body) = get(&server, path, "gzip, br");
        assert!(head.contains("content-encoding: gzip") && head.contains("vary: accept-encoding"), "{path}: {head}");
        assert_eq!((unpacked(&body), length(&head)), (server.get(path).text, body.len()), "{path}");
        let tag = head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap().replace("w/", "W/");
        let (known, nothing) = get(&server, path, &format!("gzip\r\nIf-None-Match: {tag}"));
        assert!(known.starts_with("http/1.1 304 ") && nothing.is_empty(), "{path}: {known}");
        assert!(!known.contains("content-encoding") && known.contains("vary: accept-encoding"), "{path}: {known}");
        let (head, plain) = get(&server, path, "identity");
        assert!(!head.contains("content-encoding") && head.contains("vary: accept-encoding"), "{path}: {head}");
        assert!(plain.len() > 2 * body.len(), "{path}: {} of {}", body.len(), plain.len());
    }
}

#[test]
fn event_streams_are_not_compressed() {
    let server = server(Some(1));
    let mut socket = testkit::connect(server.address());
    let head = "Host: localhost\r\nAccept: text/event-stream\r\nAccept-Encoding: gzip\r\n";
    socket.write_all(format!("GET /v1/users/ann/events HTTP/1.1\r\n{head}\r\n").as_bytes()).unwrap();
    let (mut answer, mut piece) = (String::new(), [0; 1_024]);
    eventually("the first event comes", || {
        let read = socket.read(&mut piece).unwrap();
        assert!(read > 0, "{answer}");
        answer.push_str(&String::from_utf8_lossy(&piece[..read]));
        answer.contains("hello")
    });
    assert!(!answer.to_lowercase().contains("content-encoding"), "{answer}");
}

#[test]
fn a_compressed_request_is_refused_without_effect() {
    let server = server(None);
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    packed.write_all(br#"{"author":"bob","body":1}"#).unwrap();
    let packed = packed.finish().unwrap();
    let plain = br#"{"author":"bob","body":1}"#;
    for (encoding, body, status) in
        [("gzip", &packed[..], 415), ("zstd", &packed, 415), ("gzip, identity", &packed, 415), ("Identity", plain, 201)]
    {
        let headers = [("content-type", "application/json"), ("content-encoding", encoding)];
        let answer = server.ask("POST", "/v1/posts", &headers, body);
        assert_eq!(answer.status, status, "{encoding}: {}", answer.text);
        if status == 415 {
            assert_eq!(answer.json()["code"], "unsupported_media_type");
            assert_eq!(answer.header("accept-encoding"), "identity");
        }
    }
    assert_eq!(server.get("/v1/users/bob/posts").json()["items"].as_array().unwrap().len(), 1);
}
