//! Consumers that stop reading.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::json;
use tidewire::config::EngineConfig;
use tidewire::engine::Engine;
use tidewire_server::http::middleware::pace::Pace;
use tidewire_server::http::state::HttpState;
use tokio::net::TcpSocket;

use super::consumer::Consumer;
use super::published;
use crate::server::Server;
use testkit::DEADLINE;

/// Returns the value of a metric.
fn metric(server: &Server, line: &str) -> u64 {
    let metrics = server.get("/metrics").text;
    let found = metrics.lines().find_map(|found| found.strip_prefix(line)?.strip_prefix(' '));
    found.unwrap_or_else(|| panic!("{line}: {metrics}")).parse().unwrap()
}

/// Sends a request of a client that reads nothing, and whose system takes little.
fn stalled(server: &Server, path: &str) -> TcpStream {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut stalled = runtime.block_on(async {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4 * 1024).unwrap();
        socket.connect(server.address()).await.unwrap().into_std().unwrap()
    });
    stalled.set_nonblocking(false).unwrap();
    let head = format!("Host: {}\r\nAccept: text/event-stream", server.address());
    write!(stalled, "GET {path} HTTP/1.1\r\n{head}\r\n\r\n").unwrap();
    stalled
}

#[test]
#[ignore = "takes 10 s until a consumer counts as slow"]
#[allow(clippy::disallowed_methods, reason = "it is the pace of posts that is tested")]
fn a_stalled_consumer_counts_as_slow_whether_server_or_kernel_detects_it() {
    let soon = Duration::from_secs(2);
    for (by, pace, pause_ms) in [
        // So slowly that the socket is full for two seconds before the server has nowhere to put another one.
        ("the server", Pace { stall_max: soon, ..Pace::default() }, 700),
        // Other systems have no such timeout.
        #[cfg(any(target_os = "linux", target_os = "android"))]
        ("the system", Pace { unacknowledged_max: soon, stall_max: 2 * DEADLINE, ..Pace::default() }, 20),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let engine = Engine::open_directory(EngineConfig::default(), directory.path()).unwrap();
        let server = Server::serving(HttpState { pace, ..HttpState::from(engine.clone()) }, engine);
        let _stalled = stalled(&server, "/v1/changes?after=0");
        let ended = |reason| metric(&server, &format!(r#"tidewire_change_streams_ended_total{{reason="{reason}"}}"#));
        let (body, began) = (json!("x".repeat(20_000)), Instant::now());
        for nth in 0.. {
            published(&server, "bob", &body);
            std::thread::sleep(Duration::from_millis(if nth < 10 { 0 } else { pause_ms }));
            if ended("slow") + ended("client") > 0 {
                break;
            }
            assert!(began.elapsed() < DEADLINE, "the stalled consumer is cut off by {by}");
        }
        assert_eq!((ended("slow"), ended("client")), (1, 0), "by {by}");
    }
}

#[test]
#[ignore = "takes 6 s until a consumer counts as slow"]
fn a_stalled_consumer_uses_little_memory_is_cut_off_and_delays_no_other() {
    const POSTS: usize = 400;
    let directory = tempfile::tempdir().unwrap();
    let engine = Engine::open_directory(EngineConfig::default(), directory.path()).unwrap();
    let pace = Pace { stall_max: Duration::from_secs(2), ..Pace::default() };
    let server = Server::serving(HttpState { pace, ..HttpState::from(engine.clone()) }, engine);
    let mut stalled = stalled(&server, "/v1/changes?after=0");
    let mut consumer = Consumer::open(server.address(), "/v1/changes?after=0&types=published", None);
    let body = json!("x".repeat(60_000));
    for _ in 0..POSTS {
        published(&server, "bob", &body);
        assert_eq!(consumer.next_change().unwrap()["post"]["body"], body);
    }
    let began = Instant::now();
    while metric(&server, r#"tidewire_change_streams_ended_total{reason="slow"}"#) == 0 {
        assert!(began.elapsed() < DEADLINE, "the stalled consumer is cut off: {}", server.get("/metrics").text);
    }
    assert_eq!(metric(&server, "tidewire_change_streams"), 1, "its place is free");
    // The other one has read everything. What is left is what the server has read for the stalled one: the buffers of its socket, some pieces.
    let to_stalled = metric(&server, "tidewire_change_bytes_sent_total") - (POSTS * 60_000) as u64;
    assert!(
        to_stalled < 4 << 20,
        "{to_stalled} bytes of {} were read for a consumer that takes nothing",
        POSTS * 60_000
    );
    let mut rest = Vec::new();
    let _ = stalled.read_to_end(&mut rest);
    assert!(rest.len() < 4 << 20, "{} bytes were on their way", rest.len());
}
