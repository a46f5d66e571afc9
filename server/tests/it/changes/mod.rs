//! The stream of changes: order and completeness beside writers, filters, bounds, refusals.

mod begin_again;
mod consumer;
mod erased;
mod kills;
mod missed;
#[cfg(feature = "cluster")]
mod nodes;
mod refusals;
mod retained;
mod slow;

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::{eventually, reached};
use tidewire::clock::{Clock, SystemClock};
use tidewire::config::EngineConfig;
use tidewire::engine::{Engine, StorageConfig};
use tidewire::recovery::RecoveryProgress;
use tidewire::storage::files::memory::MemoryFiles;

use crate::server::Server;
use consumer::Consumer;

/// A server with a journal in memory.
fn server() -> Server {
    with(EngineConfig::default())
}

fn with(config: EngineConfig) -> Server {
    stored(config, &StorageConfig::default())
}

fn stored(config: EngineConfig, storage: &StorageConfig) -> Server {
    timed(config, storage, Arc::new(SystemClock))
}

fn timed(config: EngineConfig, storage: &StorageConfig, clock: Arc<dyn Clock>) -> Server {
    let (files, progress) = (Arc::new(MemoryFiles::default()), RecoveryProgress::default());
    Server::of(Engine::open_on(config, files, None, None, storage, clock, &progress).unwrap().0)
}

/// A server with this data directory.
fn on_directory(directory: &Path) -> Server {
    Server::of(Engine::open_directory(EngineConfig::default(), directory).unwrap())
}

/// Returns the place after a message, as the parameters of a request.
fn place_of(message: &Value) -> String {
    let reader = message["reader"].as_str().map_or(String::new(), |reader| format!("&after_reader={reader}"));
    format!("{}{reader}", message["sequence"])
}

/// Reads lines after a sequence until there are none, in answers of at most `limit` events.
fn lines(server: &Server, after: u64, limit: u64, types: &str) -> Vec<Value> {
    let (mut after, mut all) = (after.to_string(), Vec::new());
    loop {
        let answer = server.get(&format!("/v1/changes?after={after}&limit={limit}{types}"));
        assert_eq!((answer.status, answer.header("content-type")), (200, "application/x-ndjson"), "{}", answer.text);
        let mut found: Vec<Value> = answer.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let reached = found.pop().unwrap();
        assert_eq!((&reached["type"], &reached["more"]), (&json!("reached"), &Value::Null));
        // Places between events are no events.
        found.retain(|message| message["more"] != true);
        assert!(found.len() as u64 <= limit, "{} of at most {limit}", found.len());
        let is_over = (found.len() as u64) < limit;
        after = place_of(&reached);
        all.append(&mut found);
        if is_over {
            return all;
        }
    }
}

fn published(server: &Server, author: &str, body: &Value) -> String {
    let answer = server.post("/v1/posts", &json!({"author": author, "body": body}));
    assert_eq!(answer.status, 201, "{}", answer.text);
    answer.json()["id"].as_str().unwrap().to_owned()
}

/// What a writer was answered, in short, as the stream should have it.
fn write(server: &Server, writer: usize, count: usize) -> Vec<String> {
    let (name, mut done) = (format!("writer-{writer}"), Vec::new());
    for nth in 0..count {
        let id = published(server, &name, &json!({"nth": nth}));
        done.push(format!("published {id}"));
        match nth % 4 {
            0 => {
                assert_eq!(server.send("DELETE", &format!("/v1/posts/{id}"), None, "").status, 204);
                done.push(format!("deleted {id}"));
            }
            1 => {
                let edge = format!("/v1/users/{name}/following/source-{nth}");
                assert_eq!(server.json("PUT", &edge, &json!({})).status, 201);
                done.push(format!("followed {name} source-{nth}"));
            }
            2 => {
                assert_eq!(server.json("PATCH", &format!("/v1/posts/{id}"), &json!({"body": nth})).status, 200);
                done.push(format!("edited {id}"));
            }
            _ => {}
        }
    }
    done
}

/// Returns an event as the writers write it down.
fn short(event: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let parts = match event["type"].as_str().unwrap() {
        "published" => vec![text(&event["post"]["id"])],
        "followed" => vec![text(&event["follows"][0]["follower"]), text(&event["follows"][0]["source"])],
        _ => vec![text(&event["id"])],
    };
    format!("{} {}", event["type"].as_str().unwrap(), parts.join(" "))
}

#[test]
fn a_consumer_that_closes_its_sending_side_receives_all_requested_lines() {
    const POSTS: u64 = 100;
    let server = server();
    for nth in 0..POSTS {
        published(&server, "bob", &json!(format!("{nth} {}", "x".repeat(20_000))));
    }
    let mut socket = testkit::connect(server.address());
    write!(socket, "GET /v1/changes?after=0&limit={POSTS} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    socket.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    assert_eq!(answer.matches("\"published\"").count() as u64, POSTS);
    assert!(answer.ends_with("\r\n0\r\n\r\n"), "it is complete");
}

#[test]
fn an_event_stream_ends_when_its_consumer_closes_the_sending_side() {
    let server = server();
    published(&server, "bob", &json!("one"));
    for limit in ["", "&limit=100"] {
        let mut socket = testkit::connect(server.address());
        let head = "Host: localhost\r\nAccept: text/event-stream";
        write!(socket, "GET /v1/changes?after=0{limit} HTTP/1.1\r\n{head}\r\n\r\n").unwrap();
        socket.shutdown(Shutdown::Write).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n0\r\n\r\n"), "{limit}: {answer}");
    }
}

#[test]
fn a_stream_has_all_acknowledged_events_of_eight_writers_in_order() {
    const WRITERS: usize = 8;
    let server = server();
    let mut consumer = Consumer::open(server.address(), "/v1/changes?after=0", None);
    let written: Vec<Vec<String>> = thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                scope.spawn({
                    let server = &server;
                    move || write(server, writer, 60)
                })
            })
            .collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    let count: usize = written.iter().map(Vec::len).sum();
    let mut streamed = Vec::new();
    while streamed.len() < count {
        streamed.push(consumer.next_change().expect("the stream goes on"));
    }
    let sequences: Vec<u64> = streamed.iter().map(|event| event["sequence"].as_u64().unwrap()).collect();
    assert!(sequences.is_sorted_by(|one, next| one < next), "{sequences:?}");
    // Each writer waits for its answers, so its own order is the order of the journal.
    let shorts: Vec<String> = streamed.iter().map(short).collect();
    for of_writer in &written {
        let found: Vec<&String> = shorts.iter().filter(|event| of_writer.contains(event)).collect();
        assert_eq!(found, of_writer.iter().collect::<Vec<_>>());
    }
    for limit in [1, 7, 1_000] {
        assert_eq!(lines(&server, 0, limit, ""), streamed, "answers of {limit}");
    }
    let middle = sequences[count / 2];
    assert_eq!(lines(&server, middle, 1_000, ""), streamed[count / 2 + 1..]);
}

#[test]
fn a_post_in_the_stream_equals_the_response_and_takes_one_line() {
    let server = server();
    let sent = "{\"author\":\"bob\",\"body\":{\"a\":\n\r\n [1,\n2]},\"tags\":[\"rust\"],\"topic\":\"42\"}";
    let answer = server.send("POST", "/v1/posts", Some("application/json"), sent);
    assert_eq!(answer.status, 201, "{}", answer.text);
    let found = lines(&server, 0, 10, "");
    assert_eq!((found.len(), &found[0]["post"]), (1, &answer.json()));
    let event = Consumer::open(server.address(), "/v1/changes?after=0", None).next_change();
    assert_eq!(event, Some(found[0].clone()));
}

#[test]
fn a_filtered_stream_has_only_the_requested_types_and_reports_its_position() {
    let server = server();
    let id = published(&server, "bob", &json!(1));
    assert_eq!(server.json("PUT", "/v1/users/ann/following/bob", &json!({})).status, 201);
    assert_eq!(server.json("PUT", "/v1/users/ann/blocks/cas", &json!({})).status, 201);
    assert_eq!(server.send("DELETE", &format!("/v1/posts/{id}"), None, "").status, 204);
    let types = |types: &str| -> Vec<String> {
        let found = lines(&server, 0, 100, &format!("&types={types}"));
        found.iter().map(|event| event["type"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(types("published,deleted"), ["published", "deleted"]);
    assert_eq!(types("followed"), ["followed"]);
    assert_eq!(types("blocked,muted"), ["blocked"]);
    let none = server.get("/v1/changes?after=0&types=erased").text;
    let last = lines(&server, 0, 100, "").last().unwrap()["sequence"].clone();
    assert_eq!(none, format!("{{\"sequence\":{last},\"type\":\"reached\"}}\n"));
    // A stream that stays connected says it too, or its consumer would fall behind what the journal keeps.
    let server = with(EngineConfig { live_heartbeat: Duration::from_millis(50), ..EngineConfig::default() });
    let mut consumer = Consumer::open(server.address(), "/v1/changes?after=0&types=erased", None);
    published(&server, "bob", &json!(1));
    let last = lines(&server, 0, 100, "").last().unwrap()["sequence"].clone();
    let expected = json!({"sequence": last, "type": "reached"});
    eventually("the stream says how far it is", || reached(&consumer.next(), &expected));
}

#[test]
fn a_filtered_stream_reports_its_position_while_nothing_matches() {
    let heartbeat = Duration::from_millis(1);
    let server = with(EngineConfig { live_heartbeat: heartbeat, ..EngineConfig::default() });
    for batch in 0..5 {
        let posts: Vec<Value> = (0..1_000).map(|nth| json!({"author": "bob", "body": batch * 1_000 + nth})).collect();
        assert_eq!(server.post("/v1/posts/batch", &json!({"posts": posts})).status, 200);
    }
    eventually("a line comes before the last one", || {
        let text = server.get("/v1/changes?after=0&types=erased").text;
        let mut found: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(found.pop(), Some(json!({"sequence": 5_000, "type": "reached"})));
        let is_beat = |line: &Value| {
            *line == json!({"sequence": line["sequence"], "type": "reached", "more": true})
                && line["sequence"].as_u64().unwrap() <= 5_000
        };
        assert!(found.iter().all(is_beat), "{text}");
        !found.is_empty()
    });
}

#[test]
fn a_stream_without_a_place_begins_now_and_resumes_by_last_event_id() {
    let directory = tempfile::tempdir().unwrap();
    let server = on_directory(directory.path());
    published(&server, "bob", &json!("before"));
    let mut consumer = Consumer::open(server.address(), "/v1/changes", None);
    for header in ["200 ok", "content-type: text/event-stream", "cache-control: no-store", "vary: accept"] {
        assert!(consumer.head.contains(header), "{}", consumer.head);
    }
    let begun = consumer.next();
    assert_eq!(begun["type"], "reached");
    assert_eq!(server.get("/v1/changes").text, format!("{begun}\n"), "lines that begin now are none");
    let bodies = |consumer: &mut Consumer, count: usize| -> Vec<Value> {
        (0..count).map(|_| consumer.next_change().unwrap()["post"]["body"].clone()).collect()
    };
    (0..3).for_each(|nth| drop(published(&server, "bob", &json!(nth))));
    assert_eq!(bodies(&mut consumer, 2), [json!(0), json!(1)]);
    let last = consumer.last_id.clone();
    drop((consumer, server));
    // The server has restarted meanwhile.
    let server = on_directory(directory.path());
    (3..5).for_each(|nth| drop(published(&server, "bob", &json!(nth))));
    // The address still names where the first connection began.
    let mut resumed =
        Consumer::open(server.address(), &format!("/v1/changes?after={}", begun["sequence"]), Some(&last));
    assert_eq!(bodies(&mut resumed, 3), [json!(2), json!(3), json!(4)]);
}

#[test]
fn a_request_that_removes_one_edge_is_an_unfollow_however_it_was_sent() {
    let server = server();
    let edge = |source: &str| json!({"follower": "ann", "source": source});
    let send = |body: &Value| assert_eq!(server.post("/v1/follows", body).status, 200, "{body}");
    send(&json!({"follows": [edge("a"), edge("b"), edge("c"), edge("d")]}));
    send(&json!({"unfollows": [edge("a"), edge("a"), edge("missing")]}));
    send(&json!({"unfollows": [edge("b"), edge("c")]}));
    send(&json!({"unfollows": [edge("a")]}));
    send(&json!({"follows": [edge("e")], "unfollows": [edge("d")]}));
    let types: Vec<_> =
        lines(&server, 0, 100, "").iter().map(|line| line["type"].as_str().unwrap().to_owned()).collect();
    assert_eq!(types, ["followed", "unfollowed", "follows_changed", "follows_changed"]);
}

#[test]
fn a_stream_ends_when_the_server_stops() {
    let server = server();
    let mut consumer = Consumer::open(server.address(), "/v1/changes?after=0", None);
    published(&server, "bob", &json!(1));
    assert!(consumer.next_change().is_some());
    drop(server);
    assert!(consumer.ends_in_order(), "the server does not wait for the stream until it cuts it off");
}
