//! More than may be under way: refused at once and told so, and nothing else suffers.

use std::convert::Infallible;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use serde_json::{Value, json};
use socket2::SockRef;
use testkit::{DEADLINE, eventually, eventually_async, reached};
use tidewire::clock::SystemClock;
use tidewire::config::EngineConfig;
use tidewire::engine::Engine;
use tidewire::error::Error;
use tidewire::feed::event::Event;
use tidewire::feed::page::Range;
use tidewire::feed::post::{Body, Draft};
use tidewire::id::SourceId;
use tidewire::limits::{COMMAND_QUEUE_BYTES_MAX, REQUEST_BYTES_MAX};
use tidewire::state::reader::PageRequest;
use tidewire::storage::journal::{Committed, Journal, JournalError, MemoryJournal};
use tidewire::storage::sequence::Sequence;
use tidewire_server::http::admission::{Admission, AdmissionLimits};
use tidewire_server::http::middleware::pace::Pace;
use tidewire_server::http::state::HttpState;
use tokio::time::timeout;

use crate::access::tokens::{SERVER_KEY, access, bearer, token};
use crate::server::{Answer, Server};

fn limited(limits: AdmissionLimits) -> Server {
    let engine = Engine::start(EngineConfig::default());
    Server::serving(patient(limits, &engine), engine)
}

/// What bounds how much is under way, and not how slowly it comes and goes.
fn patient(limits: AdmissionLimits, engine: &Engine) -> HttpState {
    let pace = Pace {
        body_time: DEADLINE,
        body_time_max: DEADLINE,
        stall_max: DEADLINE,
        unacknowledged_max: DEADLINE,
        ..Pace::default()
    };
    HttpState { admission: Admission::new(limits), pace, ..HttpState::from(engine.clone()) }
}

/// Starts two servers on one engine and one admission. The first demands this pace, and cuts off the slow client of a test. The second serves
/// the other clients: on a busy machine none of them could keep such a pace.
fn paced(pace: Pace) -> (Server, Server) {
    let engine = Engine::start(EngineConfig::default());
    let state = patient(AdmissionLimits::default(), &engine);
    let admission = Arc::clone(&state.admission);
    let strict = HttpState { pace, admission, ..HttpState::from(engine.clone()) };
    (Server::serving(strict, engine.clone()), Server::serving(state, engine))
}

/// A client that has sent the head of a publish, which says that its body has so many bytes, and not the body.
fn slow_publish(server: &Server, bytes: usize) -> TcpStream {
    slow_publish_as(server, bytes, "")
}

/// The same, with a header more.
fn slow_publish_as(server: &Server, bytes: usize, header: &str) -> TcpStream {
    let mut socket = testkit::connect(server.address());
    let head = "POST /v1/posts HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json";
    socket.write_all(format!("{head}\r\n{header}Content-Length: {bytes}\r\n\r\n{{").as_bytes()).unwrap();
    socket
}

fn publish(server: &Server) -> Answer {
    server.post("/v1/posts", &json!({"author": "bob", "body": 1}))
}

pub fn under_way(server: &Server, gate: &str) -> u64 {
    server.get("/v1/stats").json()["admission"][gate]["under_way"].as_u64().unwrap()
}

/// Waits until so much is under way.
pub fn wait_for(server: &Server, gate: &str, expected: u64) {
    eventually(&format!("requests under way at {gate}"), || reached(&under_way(server, gate), &expected));
}

pub fn is_refused(answer: &Answer) -> bool {
    let problem: Value = answer.json();
    let is_told = problem["code"] == "overloaded" && answer.header("content-type") == "application/problem+json";
    let is_soon = ["1", "2", "3"].contains(&answer.header("retry-after"));
    answer.status == 503 && is_told && is_soon && !answer.header("x-request-id").is_empty()
}

/// A journal that keeps nothing before it may.
struct Stuck {
    memory: MemoryJournal,
    may: Receiver<()>,
}

impl Journal for Stuck {
    type Received = Infallible;

    fn append(&mut self, event: &Event) -> Result<Sequence, JournalError> {
        self.memory.append(event)
    }

    fn pending_bytes(&self) -> usize {
        self.memory.pending_bytes()
    }

    fn commit(&mut self) -> Result<Committed, JournalError> {
        // Until the other end is gone.
        let _ = self.may.recv();
        self.memory.commit()
    }

    fn sync(&mut self) -> Result<(), JournalError> {
        self.memory.sync()
    }

    fn last(&self) -> Sequence {
        self.memory.last()
    }

    fn close(&mut self) -> Result<(), JournalError> {
        self.memory.close()
    }
}

/// A server whose writes are under way until what comes with it is dropped.
pub fn stuck(limits: AdmissionLimits) -> (Server, Sender<()>) {
    let (let_go, may) = mpsc::channel();
    let journal = Stuck { memory: MemoryJournal::default(), may };
    let engine = Engine::start_with(EngineConfig::default(), journal, Arc::new(SystemClock));
    let state = HttpState { admission: Admission::new(limits), ..HttpState::from(engine.clone()) };
    (Server::serving(state, engine), let_go)
}

/// A client that waits for the answer to a publish.
pub fn begun_publish(server: &Server) -> TcpStream {
    let body = r#"{"author":"ann","body":1}"#;
    let mut socket = testkit::connect(server.address());
    let head = "POST /v1/posts HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json";
    socket.write_all(format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).as_bytes()).unwrap();
    socket
}

/// The first line of what a client is answered.
pub fn status(mut socket: &TcpStream) -> u16 {
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    let mut head = [0; 12];
    socket.read_exact(&mut head).unwrap();
    let head = String::from_utf8_lossy(&head).into_owned();
    head.strip_prefix("HTTP/1.1 ").and_then(|status| status.parse().ok()).expect(&head)
}

#[test]
fn writes_above_their_limit_are_refused_while_reads_continue() {
    let (server, let_go) = stuck(AdmissionLimits { writes: 2, ..AdmissionLimits::default() });
    let under_way = [(); 2].map(|()| begun_publish(&server));
    wait_for(&server, "writes", 2);
    let refused = publish(&server);
    assert!(is_refused(&refused), "{refused:?}");
    assert_eq!(server.get("/v1/users/bob/feed").status, 200);
    assert_eq!(server.get("/healthz").status, 200);
    // Those that were let in are served as if nothing had happened.
    drop(let_go);
    assert_eq!(under_way.map(|socket| status(&socket)), [201, 201]);
    wait_for(&server, "writes", 0);
    assert_eq!(publish(&server).status, 201);
    assert_eq!(server.get("/v1/stats").json()["admission"]["writes"]["refused"], 1);
}

#[test]
fn a_connection_reset_before_the_answer_is_counted_as_client_gone() {
    let (server, let_go) = stuck(AdmissionLimits::default());
    let waiting = begun_publish(&server);
    wait_for(&server, "writes", 1);
    let gone = "tidewire_http_requests_total{operation=\"publish\",status=\"client_gone\"} 1\n";
    assert!(!server.get("/metrics").text.contains(gone));
    // Without this, the system says only that nothing more is sent.
    SockRef::from(&waiting).set_linger(Some(Duration::ZERO)).unwrap();
    drop(waiting);
    wait_for(&server, "writes", 0);
    let metrics = server.get("/metrics").text;
    assert!(metrics.contains(gone), "{metrics}");
    drop(let_go);
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
fn an_oversized_body_uses_no_body_bytes() {
    // There is none for even a small one.
    let server = limited(AdmissionLimits { write_bytes: 10, ..AdmissionLimits::default() });
    let larges = [REQUEST_BYTES_MAX + 1, usize::MAX / 2].map(|bytes| slow_publish(&server, bytes));
    assert_eq!(larges.map(|socket| status(&socket)), [413, 413]);
    assert!(is_refused(&publish(&server)));
    assert_eq!(server.get("/v1/stats").json()["admission"]["write_bytes"]["refused"], 1);
}

#[test]
fn many_slow_senders_do_not_block_others() {
    let server = limited(AdmissionLimits { writes: 2, ..AdmissionLimits::default() });
    let slow: Vec<TcpStream> = (0..200).map(|_| slow_publish(&server, 60_000)).collect();
    wait_for(&server, "write_bytes", 200 * 60_000);
    assert_eq!(under_way(&server, "writes"), 0, "what is not there yet is no work");
    for _ in 0..50 {
        assert_eq!(publish(&server).status, 201);
        assert_eq!(server.get("/v1/users/bob/feed").status, 200);
    }
    drop(slow);
    wait_for(&server, "write_bytes", 0);
}

#[test]
fn a_user_that_sends_slowly_uses_at_most_its_share() {
    let engine = Engine::start(EngineConfig::default());
    let limits = AdmissionLimits { write_bytes: 64 << 20, ..AdmissionLimits::default() };
    let state = HttpState { access: Arc::new(access()), ..patient(limits, &engine) };
    let server = Server::serving(state, engine);
    let publish = |user: &str| {
        let headers = [("authorization", bearer(&token(user))), ("content-type", "application/json".to_owned())];
        let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
        server.ask("POST", "/v1/posts", &headers, json!({"author": user, "body": 1}).to_string())
    };
    let authorization = format!("Authorization: {}\r\n", bearer(&token("ann")));
    let slow: Vec<TcpStream> = (0..60).map(|_| slow_publish_as(&server, REQUEST_BYTES_MAX, &authorization)).collect();
    let taken = || server.ask("GET", "/metrics", &[("authorization", &bearer(SERVER_KEY))], "").text;
    let expected = format!("tidewire_admission_under_way{{gate=\"write_bytes\"}} {}\n", 51 * REQUEST_BYTES_MAX);
    eventually("her share is taken", || {
        let taken = taken();
        if taken.contains(&expected) { Ok(()) } else { Err(taken) }
    });
    assert_eq!(publish("bob").status, 201);
    let refused = (0..20).map(|_| publish("ann")).find(|answer| answer.status != 201);
    assert_eq!(refused.map(|answer| answer.status), None, "the rest of her share is hers");
    let one_more = slow_publish_as(&server, REQUEST_BYTES_MAX, &authorization);
    assert_eq!(status(&one_more), 503);
    drop(slow);
}

#[test]
fn a_body_that_arrives_too_slowly_is_refused_and_its_connection_closed() {
    let (strict, server) =
        paced(Pace { body_time: Duration::from_millis(30), body_time_max: 2 * DEADLINE, ..Pace::default() });
    let mut slow = slow_publish(&strict, 100);
    let mut answer = String::new();
    slow.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("body_timeout"), "{answer}");
    assert!(answer.to_ascii_lowercase().contains("connection: close"), "{answer}");
    wait_for(&server, "write_bytes", 0);
    assert_eq!(publish(&server).status, 201);
}

#[tokio::test]
async fn commands_of_disconnected_clients_are_bounded_in_bytes() {
    let (server, let_go) = stuck(AdmissionLimits::default());
    let engine = &server.engine;
    let bytes = || engine.queues().into_iter().find(|queue| queue.name == "command_bytes").unwrap();
    let body = Body::new(&format!("\"{}\"", "x".repeat(60_000))).unwrap();
    let draft = Draft::new(SourceId::new("bob").unwrap(), body);
    // Each asks, and does not wait.
    let mut asked = (0..10_000).map(|_| timeout(Duration::ZERO, engine.publish(draft.clone(), false)));
    let refused = loop {
        match asked.next().expect("a bound").await {
            Err(_) => assert!(bytes().depth <= bytes().limit),
            Ok(answer) => break answer.unwrap_err(),
        }
    };
    assert_eq!(refused, Error::Overloaded { queue: "command_bytes", limit: COMMAND_QUEUE_BYTES_MAX });
    assert!(bytes().depth > bytes().limit - 70_000);
    let answer = server.post("/v1/posts", &json!({"author": "bob", "body": "x".repeat(60_000)}));
    assert!(is_refused(&answer), "{answer:?}");
    drop(let_go);
    eventually_async("no bytes are taken", async || bytes().depth == 0).await;
    engine.publish(draft, false).await.unwrap();
}

/// Publishes what makes a page of about 3 MB.
fn publish_large_page(server: &Server) {
    for _ in 0..50 {
        assert_eq!(server.post("/v1/posts", &json!({"author": "bob", "body": "x".repeat(60_000)})).status, 201);
    }
}

/// A client that asks for the page, and reads no more than how it was answered.
pub fn unread_page(server: &Server) -> (u16, TcpStream) {
    unread_page_of(server, "bob", "")
}

/// The same for the page of `user`, with a header more.
fn unread_page_of(server: &Server, user: &str, header: &str) -> (u16, TcpStream) {
    let mut socket = testkit::connect(server.address());
    let request = format!("GET /v1/users/{user}/posts?limit=50 HTTP/1.1\r\nHost: localhost\r\n{header}\r\n");
    socket.write_all(request.as_bytes()).unwrap();
    (status(&socket), socket)
}

#[test]
fn unread_responses_are_bounded_in_bytes_and_released_on_disconnect() {
    let limits = AdmissionLimits { reads: 1, response_bytes: 10_000_000, ..AdmissionLimits::default() };
    let server = limited(limits);
    publish_large_page(&server);
    let unread: Vec<_> = (0..1_000).map(|_| unread_page(&server)).filter(|(status, _)| *status != 503).collect();
    assert_eq!(unread.iter().map(|(status, _)| *status).collect::<Vec<_>>(), [200; 3]);
    assert!((9_000_000..=10_000_000).contains(&under_way(&server, "response_bytes")));
    // What is smaller goes on: reads are over once they are answered, whoever takes the answer.
    assert_eq!(server.get("/v1/users/bob/posts?limit=1").status, 200);
    assert_eq!(publish(&server).status, 201);
    drop(unread);
    wait_for(&server, "response_bytes", 0);
    assert_eq!(server.get("/v1/users/bob/posts?limit=50").json()["items"].as_array().unwrap().len(), 50);
    wait_for(&server, "response_bytes", 0);
}

#[tokio::test]
async fn a_user_that_reads_no_responses_uses_at_most_its_share() {
    let engine = Engine::start(EngineConfig::default());
    let limits = AdmissionLimits { response_bytes: 16 << 20, ..AdmissionLimits::default() };
    let body = Body::new(&format!("\"{}\"", "x".repeat(60_000))).unwrap();
    for user in ["ann", "bob"] {
        for _ in 0..50 {
            engine.publish(Draft::new(SourceId::new(user).unwrap(), body.clone()), false).await.unwrap();
        }
    }
    let state = HttpState { access: Arc::new(access()), ..patient(limits, &engine) };
    let server = Server::serving(state, engine);
    let ask = |user: &str| unread_page_of(&server, user, &format!("Authorization: {}\r\n", bearer(&token(user))));
    // A share is 4 MiB, of which a page takes 3.
    let (first, second, others) = (ask("ann"), ask("ann"), ask("bob"));
    assert_eq!([first.0, second.0, others.0], [200, 503, 200]);
    drop(first);
    eventually("her share is free again", || ask("ann").0 == 200);
}

#[test]
fn a_client_that_does_not_read_its_response_is_cut_off() {
    // Only `stall_max` ends this connection: the rate of pieces allows hours, and the system waits longer than the test.
    let (stall_max, unacknowledged_max) = (Duration::from_millis(50), 2 * DEADLINE);
    let pace = Pace { stall_max, unacknowledged_max, response_bytes_per_second: 1, ..Pace::default() };
    let (strict, server) = paced(pace);
    publish_large_page(&server);
    let (status, mut unread) = unread_page(&strict);
    assert_eq!(status, 200);
    wait_for(&server, "response_bytes", 0);
    let mut rest = Vec::new();
    // Reset or ended: either way without most of it.
    let _ = unread.read_to_end(&mut rest);
    assert!(rest.len() < 3_000_000, "{} bytes came", rest.len());
    assert_eq!(server.get("/v1/users/bob/posts?limit=50").json()["items"].as_array().unwrap().len(), 50);
}

#[test]
fn a_post_request_with_a_websocket_upgrade_is_refused() {
    let server = limited(AdmissionLimits { writes: 1, ..AdmissionLimits::default() });
    // Any of several such headers makes it one.
    for more in ["", "Connection: Upgrade\r\n", "Upgrade: h2c\r\n"] {
        let mut socket = testkit::connect(server.address());
        let body = r#"{"author":"ann","body":1}"#;
        let head = "POST /v1/posts HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json";
        let request = format!("{head}\r\n{more}Upgrade: websocket\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        socket.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("invalid_upgrade"), "{answer}");
        wait_for(&server, "writes", 0);
    }
    assert_eq!(publish(&server).status, 201);
}

#[test]
fn requests_without_body_use_no_body_bytes() {
    let server = limited(AdmissionLimits { write_bytes: 100, ..AdmissionLimits::default() });
    assert_eq!(server.send("DELETE", "/v1/users/ann/following/bob", None, "").status, 204);
    assert!(is_refused(&server.post("/v1/posts", &json!({"author": "bob", "body": "x".repeat(200)}))));
}

#[test]
fn sleeping_readers_are_refused_before_awake_ones() {
    let engine = Engine::start(EngineConfig::default());
    let limits = AdmissionLimits { wake_ups: 0, ..AdmissionLimits::default() };
    let state = HttpState { admission: Admission::new(limits), ..HttpState::from(engine.clone()) };
    let server = Server::serving(state, engine.clone());
    server.json("PUT", "/v1/users/ann/following/bob", &json!({}));
    server.json("PUT", "/v1/users/cas/following/bob", &json!({}));
    // She has read her feed, though not by this server.
    let (ann, newest) = (SourceId::new("ann").unwrap(), PageRequest { range: Range::Newest, limit: 1 });
    tokio::runtime::Runtime::new().unwrap().block_on(engine.feed(&ann, newest)).unwrap();
    assert_eq!(server.get("/v1/users/ann/feed").status, 200);
    assert!(is_refused(&server.get("/v1/users/cas/feed")));
    assert_eq!(server.get("/v1/stats").json()["admission"]["wake_ups"]["refused"], 1);
    assert_eq!(server.get("/v1/users/cas/posts").status, 200, "what wakes nobody goes on");
}
