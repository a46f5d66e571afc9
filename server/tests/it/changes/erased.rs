//! Consumers that are a little behind when a user is erased.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::eventually;
use tidewire::clock::{Clock, ManualClock, SystemClock, UnixMicros};
use tidewire::config::EngineConfig;
use tidewire::engine::{Engine, StorageConfig};
use tidewire::limits::CHANGE_READERS_RETURN_MAX;
use tidewire::recovery::RecoveryProgress;

use super::consumer::Consumer;
use super::published;
use crate::erasure::holding;
use crate::program::Program;
use crate::server::Server;

const ZOE: &str = "zoe-4f1c9a77";
const MARKER: &str = "words-of-zoe-8812";
const GRACE: Duration = Duration::from_secs(3_600);

fn segments(directory: &Path) -> usize {
    let names = std::fs::read_dir(directory).unwrap().map(|file| file.unwrap().file_name());
    names.filter(|name| name.to_string_lossy().starts_with("journal-")).count()
}

/// A clock that counts how often erasures look at it.
pub struct ErasureClock {
    clock: ManualClock,
    looks: AtomicUsize,
}

impl ErasureClock {
    pub fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    /// Waits until the erasure has looked at the clock, and goes on to do so: it waits.
    fn looks_on(&self) {
        let before = self.looks.load(Ordering::Relaxed);
        // More than it looks at once.
        eventually("the erasure waits", || self.looks.load(Ordering::Relaxed) > before + 10);
    }
}

impl Clock for ErasureClock {
    fn now(&self) -> UnixMicros {
        self.clock.now()
    }

    fn monotonic(&self) -> Duration {
        let is_of_erasure = thread::current().name().is_some_and(|name| name.contains("eraser"));
        self.looks.fetch_add(usize::from(is_of_erasure), Ordering::Relaxed);
        self.clock.monotonic()
    }
}

/// A server whose erasures wait for readers of changes that are behind.
pub fn with_grace(directory: &Path, grace: Duration) -> (Server, Arc<ErasureClock>) {
    let config = EngineConfig { erasure_grace: grace, ..EngineConfig::default() };
    let storage = StorageConfig { directory: directory.to_owned(), ..StorageConfig::default() };
    // Of the grace time as much passes as the test says, however slow the machine is.
    let clock = Arc::new(ErasureClock { clock: ManualClock::new(SystemClock.now()), looks: AtomicUsize::new(0) });
    let engine = Engine::open(config, &storage, clock.clone(), &RecoveryProgress::default()).unwrap().0;
    (Server::of(engine), clock)
}

/// Reads the events after a place up to now, each with its type.
fn read_on(server: &Server, after: &str) -> Vec<Value> {
    let answer = server.get(&format!("/v1/changes?after={after}"));
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn of_type<'a>(events: &'a [Value], wanted: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["type"] == wanted).collect()
}

#[test]
fn a_consumer_slightly_behind_continues_across_an_erasure_and_receives_it() {
    let directory = tempfile::tempdir().unwrap();
    let (server, clock) = with_grace(directory.path(), GRACE);
    published(&server, ZOE, &json!(MARKER));
    published(&server, "ann", &json!("before"));
    let mut consumer = Consumer::open(server.address(), "/v1/changes?after=0", None);
    consumer.next_change().unwrap();
    let place = consumer.last_id.clone();
    // It breaks off, and all that follows is accepted without it.
    drop(consumer);
    assert_eq!(server.ask("DELETE", &format!("/v1/users/{ZOE}"), &[], "").status, 202);
    eventually("the erasure comes to its new segment", || segments(directory.path()) > 1);
    let events = read_on(&server, &place);
    assert_eq!(of_type(&events, "published").len(), 1, "{events:?}");
    assert_eq!(of_type(&events, "erased")[0]["user"], ZOE, "{events:?}");
    assert_eq!(of_type(&events, "deleted").len(), 1, "{events:?}");
    let place = events.last().unwrap()["sequence"].to_string();
    published(&server, "ann", &json!("meanwhile"));
    assert_eq!(server.engine.erasures().count, 1);
    eventually("the erasure ends", || {
        clock.advance(GRACE);
        server.engine.erasures().count == 0
    });
    assert_eq!(holding(directory.path(), &[ZOE, MARKER]), [""; 0], "complete");
    // It was not connected when the journal was cut.
    published(&server, "ann", &json!("after"));
    let bodies: Vec<Value> =
        of_type(&read_on(&server, &place), "published").iter().map(|event| event["post"]["body"].clone()).collect();
    assert_eq!(bodies, ["meanwhile", "after"]);
    assert_eq!(server.get("/v1/changes?after=0").status, 410, "what named the user is gone");
}

#[test]
fn an_erasure_after_a_start_waits_a_limited_time_for_returning_consumers() {
    let directory = tempfile::tempdir().unwrap();
    let (server, clock) = with_grace(directory.path(), GRACE);
    published(&server, ZOE, &json!(MARKER));
    let before = segments(directory.path());
    assert_eq!(server.ask("DELETE", &format!("/v1/users/{ZOE}"), &[], "").status, 202);
    eventually("the erasure comes to its new segment", || segments(directory.path()) > before);
    clock.advance(CHANGE_READERS_RETURN_MAX - Duration::from_millis(1));
    clock.looks_on();
    assert_eq!(server.engine.erasures().count, 1, "consumers may still come back");
    clock.advance(Duration::from_millis(1));
    eventually("the erasure ends", || server.engine.erasures().count == 0);
    assert_eq!(holding(directory.path(), &[ZOE, MARKER]), [""; 0]);
}

#[test]
fn a_registered_consumer_does_not_shorten_the_grace_time_of_others() {
    let directory = tempfile::tempdir().unwrap();
    let (server, clock) = with_grace(directory.path(), GRACE);
    published(&server, ZOE, &json!(MARKER));
    assert_eq!(server.json("PUT", "/v1/changes/consumers/push", &json!({})).status, 200);
    read_on(&server, "0");
    assert_eq!(server.ask("DELETE", &format!("/v1/users/{ZOE}"), &[], "").status, 202);
    eventually("the erasure comes to its new segment", || segments(directory.path()) > 1);
    clock.looks_on();
    assert_eq!(server.engine.erasures().count, 1, "the other may be behind");
    assert_eq!(of_type(&read_on(&server, "0"), "published").len(), 1);
    eventually("the erasure ends", || {
        clock.advance(GRACE);
        server.engine.erasures().count == 0
    });
    assert_eq!(holding(directory.path(), &[MARKER]), [""; 0]);
}

#[test]
fn an_erasure_that_waits_for_consumers_does_not_delay_shutdown() {
    let directory = tempfile::tempdir().unwrap();
    let (server, _clock) = with_grace(directory.path(), GRACE);
    published(&server, ZOE, &json!(MARKER));
    read_on(&server, "0");
    assert_eq!(server.ask("DELETE", &format!("/v1/users/{ZOE}"), &[], "").status, 202);
    eventually("the erasure comes to its new segment", || segments(directory.path()) > 1);
    // Snapshots meanwhile remove nothing that the consumer needs, nor what the next start needs to go on with the erasure.
    assert_eq!(server.post("/v1/snapshots", &json!({})).status, 201);
    assert_eq!(read_on(&server, "0").len(), 4, "published, erased, deleted, reached");
    drop(server);
    let (server, _clock) = with_grace(directory.path(), Duration::ZERO);
    eventually("the erasure ends", || server.engine.erasures().count == 0);
    assert_eq!(holding(directory.path(), &[ZOE, MARKER]), [""; 0]);
}

#[test]
fn a_consumer_continues_after_a_kill_while_an_erasure_waits_for_it() {
    let directory = tempfile::tempdir().unwrap();
    let start = |grace| Program::start(directory.path(), &["--erasure-grace", grace]);
    let publish = |program: &Program, author: &str, body: &str| {
        let post = json!({"author": author, "body": body}).to_string();
        let sent = program.agent.post(format!("{}/v1/posts", program.url)).content_type("application/json").send(post);
        assert_eq!(sent.unwrap().status(), 201);
    };
    let mut program = start("1h");
    publish(&program, ZOE, MARKER);
    let mut consumer = Consumer::open(program.address, "/v1/changes?after=0", None);
    assert_eq!(consumer.next_change().unwrap()["type"], "published");
    let place = consumer.last_id.clone();
    let erase = |program: &Program| {
        program.agent.delete(format!("{}/v1/users/{ZOE}", program.url)).call().unwrap().status().as_u16()
    };
    assert_eq!(erase(&program), 202);
    eventually("the erasure comes to its new segment", || segments(directory.path()) > 1);
    program.kill();
    program = start("1h");
    publish(&program, "ann", "after");
    let mut consumer = Consumer::open(program.address, "/v1/changes", Some(&place));
    assert!(consumer.head.starts_with("http/1.1 200"), "{}", consumer.head);
    let mut types = Vec::new();
    while types.last() != Some(&json!("published")) {
        types.push(consumer.next_change().unwrap()["type"].clone());
    }
    assert!(types.contains(&json!("erased")), "{types:?}");
    drop(consumer);
    assert_eq!(erase(&program), 202, "it waits for an hour");
    // The next process continues with the erasure, and waits for nobody.
    program.kill();
    program = start("0s");
    eventually("the erasure ends", || erase(&program) == 204);
    assert_eq!(holding(directory.path(), &[ZOE, MARKER]), [""; 0]);
}
