//! The real program with few open files, and more idle connections than it may have: writes go on, and the log stays short.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::json;

use crate::program::Program;

const GET: &[u8] = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";

fn publish(program: &Program, body: &str) -> (u16, String) {
    let post = program.agent.post(format!("{}/v1/posts", program.url)).content_type("application/json");
    let mut answer = post.send(body).unwrap();
    (answer.status().as_u16(), answer.body_mut().read_to_string().unwrap())
}

#[test]
fn idle_connections_leave_file_descriptors_for_the_next_segment() {
    const FILES: usize = 300;
    const SEGMENT_BYTES: usize = 64 << 20;
    let directory = tempfile::tempdir().unwrap();
    let program = Program::with_files(directory.path(), FILES, &["--durability", "no"]);
    // The longest post there may be.
    let body = json!({"author": "ann", "body": "x".repeat(65_000)}).to_string();
    assert_eq!(publish(&program, &body).0, 201);
    let idle: Vec<TcpStream> = (0..FILES + 100)
        .map(|_| {
            let mut socket = testkit::connect(program.address);
            socket.write_all(GET).unwrap();
            socket
        })
        .collect();
    for nth in 0..=SEGMENT_BYTES / 65_000 {
        let (status, answer) = publish(&program, &body);
        assert_eq!(status, 201, "the {nth}th: {answer}");
    }
    let segments = std::fs::read_dir(directory.path()).unwrap();
    let is_segment = |name: &str| name.starts_with("journal-");
    assert!(segments.filter(|entry| is_segment(entry.as_ref().unwrap().file_name().to_str().unwrap())).count() >= 2);
    // Who comes now comes in as well.
    let mut late = testkit::connect(program.address);
    late.write_all(GET).unwrap();
    let mut status = [0; 12];
    late.read_exact(&mut status).unwrap();
    assert_eq!(&status, b"HTTP/1.1 200");
    drop(idle);
    program.signal("TERM");
    let (_, log) = program.ended();
    assert!(log.lines().count() < 30, "{log}");
}

#[test]
fn an_authenticated_idle_connection_survives_a_flood_of_others() {
    const FILES: usize = 300;
    let directory = tempfile::tempdir().unwrap();
    let program = Program::with_files(directory.path(), FILES, &[]);
    let mut kept = testkit::connect(program.address);
    let body = r#"{"author":"ann","body":1}"#;
    let head = "POST /v1/posts HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json";
    let post = format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let mut idle = Vec::new();
    for nth in 0..3 {
        kept.write_all(post.as_bytes()).unwrap();
        let (mut answer, mut bytes) = (Vec::new(), [0; 4_096]);
        while !answer.ends_with(b"}") {
            let read = kept.read(&mut bytes).unwrap();
            assert!(read > 0, "it was ended before the {nth}th");
            answer.extend_from_slice(&bytes[..read]);
        }
        assert!(answer.starts_with(b"HTTP/1.1 201 "));
        // Each of these is idle for less long.
        for _ in 0..FILES {
            let mut socket = testkit::connect(program.address);
            socket.write_all(GET).unwrap();
            assert!(socket.read(&mut bytes).unwrap() > 0);
            idle.push(socket);
        }
    }
}

#[test]
fn invalid_connections_are_counted_and_logged_rarely() {
    const MALFORMED: usize = 300;
    let directory = tempfile::tempdir().unwrap();
    let program = Program::start(directory.path(), &[]);
    for _ in 0..MALFORMED {
        let mut socket = testkit::connect(program.address);
        socket.write_all(b"no\0thing\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer);
        assert!(answer.starts_with(b"HTTP/1.1 400 "));
    }
    let metrics = program.agent.get(format!("{}/metrics", program.url)).call().unwrap().into_body().read_to_string();
    program.signal("TERM");
    let (_, log) = program.ended();
    let lines: Vec<_> =
        log.lines().filter(|line| line.contains("invalid") || line.contains("connections failed")).collect();
    assert!(lines.len() <= 2, "{} lines: {}", lines.len(), lines[0]);
    let counted = format!("tidewire_connections_failed_total{{kind=\"http\"}} {MALFORMED}\n");
    assert!(metrics.as_ref().unwrap().contains(&counted), "{metrics:?}");
}
