//! More than may be under way: refused at once and told so, and nothing else suffers.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tidewire::api::Api;
use tidewire::api::admission::{Admission, AdmissionLimits};
use tidewire::config::EngineConfig;
use tidewire::engine::Engine;

use crate::server::{Answer, Server};

const PATIENCE: Duration = Duration::from_secs(20);

fn limited(limits: AdmissionLimits) -> Server {
    let engine = Engine::start(EngineConfig::default());
    let mut api = Api::from(engine.clone());
    api.admission = Admission::new(limits);
    Server::serving(api, engine)
}

/// A client that has sent the head of a publish, which says that its body has so many bytes, and not the body.
fn slow_publish(server: &Server, bytes: usize) -> TcpStream {
    let mut socket = TcpStream::connect(server.address()).unwrap();
    let head = "POST /v1/posts HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json";
    socket.write_all(format!("{head}\r\nContent-Length: {bytes}\r\n\r\n{{").as_bytes()).unwrap();
    socket
}

fn publish(server: &Server) -> Answer {
    server.post("/v1/posts", &json!({"author": "bob", "body": 1}))
}

fn under_way(server: &Server, gate: &str) -> u64 {
    server.get("/v1/stats").json()["admission"][gate]["under_way"].as_u64().unwrap()
}

/// Waits until so much is under way.
fn wait_for(server: &Server, gate: &str, expected: u64) {
    let began = Instant::now();
    while under_way(server, gate) != expected {
        assert!(began.elapsed() < PATIENCE, "{gate}: {} under way, not {expected}", under_way(server, gate));
        std::thread::yield_now();
    }
}

fn is_refused(answer: &Answer) -> bool {
    let problem: Value = answer.json();
    let is_told = problem["code"] == "overloaded" && answer.header("content-type") == "application/problem+json";
    answer.status == 503 && is_told && answer.header("retry-after") == "1" && !answer.header("x-request-id").is_empty()
}

#[test]
fn writes_past_their_limit_are_refused_while_reads_go_on() {
    let server = limited(AdmissionLimits { writes: 2, ..AdmissionLimits::default() });
    let rest = br#""author":"ann","body":1}"#;
    let mut slow = [(); 2].map(|()| slow_publish(&server, 1 + rest.len()));
    wait_for(&server, "writes", 2);
    let refused = publish(&server);
    assert!(is_refused(&refused), "{refused:?}");
    assert_eq!(server.get("/v1/users/bob/feed").status, 200);
    assert_eq!(server.get("/healthz").status, 200);
    // Those that were let in are served as if nothing had happened.
    for socket in &mut slow {
        socket.write_all(rest).unwrap();
        let mut answer = [0; 12];
        socket.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 201", "{}", String::from_utf8_lossy(&answer));
    }
    wait_for(&server, "writes", 0);
    assert_eq!(publish(&server).status, 201);
    assert_eq!(server.get("/v1/stats").json()["admission"]["writes"]["refused"], 1);
}

#[test]
fn bodies_are_bounded_by_the_bytes_they_announce() {
    let server = limited(AdmissionLimits { write_bytes: 10_000, ..AdmissionLimits::default() });
    let slow = slow_publish(&server, 9_990);
    wait_for(&server, "write_bytes", 9_990);
    assert!(is_refused(&publish(&server)));
    // One that goes gives back what it had taken, though it never sent it.
    slow.shutdown(Shutdown::Both).unwrap();
    wait_for(&server, "write_bytes", 0);
    assert_eq!(publish(&server).status, 201);
}

#[test]
fn a_body_larger_than_any_takes_no_room() {
    let server = limited(AdmissionLimits { write_bytes: 100_000, ..AdmissionLimits::default() });
    let larges: Vec<TcpStream> = (0..3).map(|_| slow_publish(&server, usize::MAX / 2)).collect();
    for mut socket in larges {
        let mut answer = [0; 12];
        socket.read_exact(&mut answer).unwrap();
        assert!([&b"HTTP/1.1 413"[..], b"HTTP/1.1 503"].contains(&&answer[..]), "{}", String::from_utf8_lossy(&answer));
    }
    wait_for(&server, "write_bytes", 0);
    assert_eq!(publish(&server).status, 201);
}

#[test]
fn many_slow_senders_leave_others_alone() {
    let server = limited(AdmissionLimits::default());
    let slow: Vec<TcpStream> = (0..200).map(|_| slow_publish(&server, 60_000)).collect();
    wait_for(&server, "writes", 200);
    for _ in 0..50 {
        assert_eq!(publish(&server).status, 201);
        assert_eq!(server.get("/v1/users/bob/feed").status, 200);
    }
    drop(slow);
    wait_for(&server, "writes", 0);
}

#[test]
fn a_request_that_claims_to_become_a_websocket_is_refused_whatever_its_length() {
    let server = limited(AdmissionLimits { writes: 1, ..AdmissionLimits::default() });
    for connection in ["", "Connection: Upgrade\r\n"] {
        let mut socket = TcpStream::connect(server.address()).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let body = r#"{"author":"ann","body":1}"#;
        let head = "POST /v1/posts HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nUpgrade: websocket";
        let request = format!("{head}\r\n{connection}Content-Length: {}\r\n\r\n{body}", body.len());
        socket.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("invalid_upgrade"), "{answer}");
        wait_for(&server, "writes", 0);
    }
    assert_eq!(publish(&server).status, 201);
}

#[test]
fn what_has_no_body_takes_no_room_of_bodies() {
    let server = limited(AdmissionLimits { write_bytes: 100, ..AdmissionLimits::default() });
    assert_eq!(server.send("DELETE", "/v1/users/ann/following/bob", None, "").status, 204);
    assert!(is_refused(&server.post("/v1/posts", &json!({"author": "bob", "body": "x".repeat(200)}))));
}
