//! Spans of requests, as a collector gets them from the real program. A binary of its own, since it alone needs the feature `otel`:
//! `cargo test --features otel --test trace`.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, missing_docs, unreachable_pub, reason = "tests")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// How long anything may take that has to come.
const PATIENCE: Duration = Duration::from_secs(60);

const TRACE: [u8; 16] =
    [0x4b, 0xf9, 0x2f, 0x35, 0x77, 0xb3, 0x4d, 0xa6, 0xa3, 0xce, 0x92, 0x9d, 0x0e, 0x0e, 0x47, 0x36];
const PARENT: [u8; 8] = [0x00, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7];
const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// What was posted to a collector: paths and bodies.
struct Collector {
    url: String,
    posted: Receiver<(String, Vec<u8>)>,
}

impl Collector {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (tell, posted) = channel();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let tell = tell.clone();
                thread::spawn(move || collect(stream.unwrap(), &tell));
            }
        });
        Self { url, posted }
    }
}

/// Takes requests of one connection, until it ends.
fn collect(stream: TcpStream, tell: &Sender<(String, Vec<u8>)>) {
    let (mut answers, mut requests) = (stream.try_clone().unwrap(), BufReader::new(stream));
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if requests.read_line(&mut head).unwrap_or(0) == 0 {
                return;
            }
        }
        let length =
            head.to_lowercase().split("content-length: ").nth(1).unwrap().lines().next().unwrap().parse().unwrap();
        let mut body = vec![0; length];
        requests.read_exact(&mut body).unwrap();
        let path = head.split(' ').nth(1).unwrap().to_owned();
        let _ = tell.send((path, body));
        answers
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n")
            .unwrap();
    }
}

struct Program {
    child: Child,
    url: String,
    _data: tempfile::TempDir,
}

impl Program {
    fn start(collector: &str, environment: &[(&str, &str)]) -> Self {
        let data = tempfile::tempdir().unwrap();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidewire"));
        command.args(["serve", "--listen", &address.to_string(), "--data-dir"]).arg(data.path());
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", collector).envs(environment.iter().copied());
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let program = Self { child, url: format!("http://{address}"), _data: data };
        let began = Instant::now();
        while program.status("/readyz") != Some(200) {
            assert!(began.elapsed() < PATIENCE, "the server starts");
            thread::sleep(Duration::from_millis(20));
        }
        program
    }

    fn status(&self, path: &str) -> Option<u16> {
        let agent = ureq::Agent::config_builder().http_status_as_error(false).build().new_agent();
        let request = agent.get(format!("{}{path}", self.url)).header("traceparent", TRACEPARENT);
        request.header("x-request-id", "its-own-id").call().ok().map(|answer| answer.status().as_u16())
    }

    fn stop(mut self) {
        assert!(Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap().success());
        let began = Instant::now();
        while self.child.try_wait().unwrap().is_none() {
            assert!(began.elapsed() < PATIENCE, "the server stops");
            thread::sleep(Duration::from_millis(20));
        }
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It has ended already, unless a test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn has(body: &[u8], part: &[u8]) -> bool {
    body.windows(part.len()).any(|window| window == part)
}

/// The batch that has the span of a page.
fn batch_with_a_page(collector: &Collector) -> Vec<u8> {
    loop {
        let (path, body) = collector.posted.recv_timeout(PATIENCE).expect("spans are sent");
        assert_eq!(path, "/v1/traces");
        if has(&body, b"read_feed") {
            return body;
        }
    }
}

#[test]
fn a_request_is_a_child_span_of_its_trace_header() {
    let collector = Collector::start();
    let program = Program::start(&collector.url, &[("OTEL_BSP_SCHEDULE_DELAY", "50")]);
    assert_eq!(program.status("/v1/users/ann/feed?limit=0"), Some(400));
    let batch = batch_with_a_page(&collector);
    for part in
        [&TRACE[..], &PARENT, b"its-own-id", b"/v1/users/{user}/feed", b"http.response.status_code", b"tidewire"]
    {
        assert!(has(&batch, part), "{part:?} is not in {:?}", batch.escape_ascii().to_string());
    }
    assert!(!has(&batch, b"ann"), "no span names a user");
    program.stop();
}

#[test]
fn pending_spans_are_sent_at_shutdown() {
    let collector = Collector::start();
    let program =
        Program::start(&collector.url, &[("OTEL_BSP_SCHEDULE_DELAY", "3600000"), ("OTEL_SERVICE_NAME", "feeds")]);
    assert_eq!(program.status("/v1/users/ann/feed"), Some(200));
    assert!(collector.posted.try_recv().is_err(), "an hour has not passed");
    program.stop();
    assert!(has(&batch_with_a_page(&collector), b"feeds"));
}

#[test]
fn an_unresponsive_collector_delays_nothing() {
    // It takes connections, and says nothing.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let small =
        [("OTEL_BSP_MAX_QUEUE_SIZE", "8"), ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4"), ("OTEL_BSP_SCHEDULE_DELAY", "1")];
    let program = Program::start(&url, &small);
    for _ in 0..100 {
        assert_eq!(program.status("/v1/users/ann/feed"), Some(200));
    }
    program.stop();
}
