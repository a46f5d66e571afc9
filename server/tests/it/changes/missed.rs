//! What sleeping readers have missed.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::{DEADLINE, eventually};
use tidewire::clock::{Clock, ManualClock, SystemClock};
use tidewire::config::EngineConfig;
use tidewire::engine::StorageConfig;

use super::consumer::Consumer;
use super::{lines, on_directory, published, server, timed, with};
use crate::server::Server;
use testkit::test_servers::program;
use testkit::world::{above, some};

fn follow(server: &Server, reader: &str, source: &str) {
    assert_eq!(server.json("PUT", &format!("/v1/users/{reader}/following/{source}"), &json!({})).status, 201);
}

fn notify(server: &Server, reader: &str, on: bool) {
    let answer = server.json("PATCH", &format!("/v1/users/{reader}/rules"), &json!({"notify": on}));
    assert_eq!((answer.status, &answer.json()["notify"]), (200, &json!(on)), "{}", answer.text);
}

/// Who has missed which post, by which sources.
fn missed(server: &Server, after: u64) -> BTreeSet<(String, String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let of = |message: &Value| {
        assert_eq!(message["reason"], "asleep", "{message}");
        (text(&message["reader"]), text(&message["post"]["id"]), message["via"].to_string())
    };
    let found = lines(server, after, 1_000, "&types=missed");
    found.iter().filter(|message| message["type"] == "missed").map(of).collect()
}

fn has_missed(reader: &str, post: &str, via: &[&str]) -> (String, String, String) {
    (reader.to_owned(), post.to_owned(), json!(via).to_string())
}

#[test]
fn only_sleeping_subscribed_readers_whose_feed_has_the_post_missed_it() {
    for celebrity in [above(1), above(1_000)] {
        let server = with(EngineConfig { celebrity, ..EngineConfig::default() });
        for reader in ["ann", "awake", "muting", "quiet", "undecided"] {
            follow(&server, reader, "bob");
            notify(&server, reader, true);
        }
        follow(&server, "tagged", "tag:rust");
        notify(&server, "tagged", true);
        notify(&server, "bob", true);
        notify(&server, "undecided", false);
        follow(&server, "unasked", "bob");
        notify(&server, "stranger", true);
        assert_eq!(server.json("PUT", "/v1/users/muting/mutes/bob", &json!({})).status, 201);
        assert_eq!(server.json("PATCH", "/v1/users/quiet/rules", &json!({"replies": "none"})).status, 200);
        assert_eq!(server.get("/v1/users/awake/feed").status, 200);
        let first = published(&server, "bob", &json!(1));
        let answer = server.post("/v1/posts", &json!({"author": "bob", "body": 2, "reply_to": first}));
        let second = answer.json()["id"].as_str().unwrap().to_owned();
        let answer = server.post("/v1/posts", &json!({"author": "eve", "body": 3, "tags": ["rust"]}));
        let third = answer.json()["id"].as_str().unwrap().to_owned();
        // An own repost brings it to the reader, and nobody whom the reader follows.
        let repost = json!({"author": "ann", "body": 4, "repost_of": first});
        assert_eq!(server.post("/v1/posts", &repost).status, 201);
        let expected = [
            has_missed("ann", &first, &["bob"]),
            has_missed("quiet", &first, &["bob"]),
            has_missed("ann", &second, &["bob"]),
            has_missed("tagged", &third, &["tag:rust"]),
        ];
        assert_eq!(missed(&server, 0), expected.clone().into(), "{celebrity:?}");
        // Who has been there since has missed nothing.
        assert_eq!(server.get("/v1/users/ann/feed").status, 200);
        assert_eq!(server.send("DELETE", &format!("/v1/posts/{second}"), None, "").status, 204);
        assert_eq!(missed(&server, 0), [expected[1].clone(), expected[3].clone()].into());
    }
}

#[test]
fn notification_settings_survive_a_restart_and_do_not_change_the_feed() {
    let directory = tempfile::tempdir().unwrap();
    let server = on_directory(directory.path());
    for reader in ["ann", "cas", "dan"] {
        follow(&server, reader, "bob");
        notify(&server, reader, true);
    }
    notify(&server, "dan", false);
    let post = json!({"author": "bob", "body": 0});
    assert_eq!(server.post("/v1/posts?wait=delivered", &post).status, 201);
    let page = server.get("/v1/users/dan/feed").json();
    assert_eq!(server.post("/v1/snapshots", &json!({})).status, 201);
    notify(&server, "cas", false);
    drop(server);
    let server = on_directory(directory.path());
    let after = serde_json::from_str::<Value>(&server.get("/v1/changes").text).unwrap();
    // Delivered, since the client that polls below asks for the post.
    let post = server.post("/v1/posts?wait=delivered", &json!({"author": "bob", "body": 1})).json();
    let post = post["id"].as_str().unwrap();
    assert_eq!(missed(&server, after["sequence"].as_u64().unwrap()), [has_missed("ann", post, &["bob"])].into());
    // A client that polls is not asked to read its feed again because of this rule.
    notify(&server, "dan", true);
    let polled = server.get(&format!("/v1/users/dan/feed?after={}", page["newest"].as_str().unwrap())).json();
    assert_eq!((polled["gap"].clone(), polled["items"].as_array().unwrap().len()), (Value::Null, 1), "{polled}");
}

/// Readers who follow bob and wish to know what they miss, by ascending id, which is not the order in which the server gets to know them.
fn many_readers(server: &Server, count: usize) -> Vec<String> {
    let mut readers: Vec<String> = (0..count).map(|nth| format!("r{}", (nth * 7) % count)).collect();
    for reader in &readers {
        follow(server, reader, "bob");
        notify(server, reader, true);
    }
    readers.sort();
    readers
}

/// Who is named for a post, in the order of the messages.
fn named(messages: &[Value]) -> Vec<&str> {
    messages.iter().filter(|message| message["type"] == "missed").map(|one| one["reader"].as_str().unwrap()).collect()
}

#[test]
fn a_consumer_that_stores_only_sequences_receives_the_readers_of_a_post_again() {
    let server = server();
    let readers = many_readers(&server, 50);
    let before = lines(&server, 0, 10_000, "").last().unwrap()["sequence"].as_u64().unwrap();
    let posts = [published(&server, "bob", &json!(1)), published(&server, "bob", &json!(2))];
    let mut consumer =
        Consumer::open(server.address(), &format!("/v1/changes?after={before}&types=missed,published"), None);
    let (mut after, mut seen) = (before.to_string(), BTreeSet::new());
    // It dies after some messages, again and again, and knows only the last sequence.
    for life in 1..2_000_usize {
        for _ in 0..life.min(70) {
            let Some(message) = consumer.next_change() else { break };
            let sequence = message["sequence"].as_u64().unwrap();
            let is_of = |nth: usize| message["post"]["id"] == posts[nth];
            if message["type"] == "missed" {
                assert_eq!(sequence, if is_of(0) { before } else { before + 1 }, "{message}");
                seen.insert((message["reader"].to_string(), message["post"]["id"].to_string()));
            } else {
                assert_eq!(sequence, if is_of(0) { before + 1 } else { before + 2 }, "{message}");
            }
            after = sequence.to_string();
            if sequence == before + 2 {
                break;
            }
        }
        if after == (before + 2).to_string() {
            break;
        }
        consumer = Consumer::open(server.address(), "/v1/changes?types=missed,published", Some(&after));
    }
    assert_eq!(seen.len(), 2 * readers.len());
}

#[test]
fn a_consumer_that_is_cut_off_after_some_readers_reaches_the_last_reader_of_each_post() {
    let server = server();
    let readers = many_readers(&server, 50);
    let before = lines(&server, 0, 10_000, "").last().unwrap()["sequence"].as_u64().unwrap();
    let posts = [published(&server, "bob", &json!(1)), published(&server, "bob", &json!(2))];
    for some in [1_usize, 3, 49, 50, 51] {
        let (mut place, mut all, path) = (before.to_string(), Vec::new(), "/v1/changes?types=missed,published&after=0");
        while all.len() < 102 {
            let mut consumer = Consumer::open(server.address(), path, Some(&place));
            for _ in 0..some.min(102 - all.len()) {
                all.push(consumer.next_change().unwrap());
            }
            place = consumer.last_id;
        }
        for (post, found) in posts.iter().zip(all.chunks(51)) {
            assert_eq!(named(found), readers, "{some} at a time");
            assert!(found[..50].iter().all(|message| message["post"]["id"] == post.as_str()));
            assert_eq!((&found[50]["type"], &found[50]["post"]["id"]), (&json!("published"), &json!(post)));
        }
        // As lines, the limit counts readers.
        let found = lines(&server, before, some as u64, "&types=missed,published");
        assert_eq!(found, all, "{some} at a time");
    }
    let within = format!("/v1/changes?types=missed&after={before}&after_reader={}&limit=1", readers[20]);
    let answer = server.get(&within).text;
    let last: Value = serde_json::from_str(answer.lines().last().unwrap()).unwrap();
    assert_eq!(last, json!({"sequence": before, "type": "reached", "reader": readers[21]}));
}

#[test]
fn a_place_within_a_post_is_independent_of_the_order_of_readers_in_memory() {
    let directory = tempfile::tempdir().unwrap();
    let server = on_directory(directory.path());
    let readers = many_readers(&server, 30);
    let before = lines(&server, 0, 10_000, "").last().unwrap()["sequence"].as_u64().unwrap();
    let post = published(&server, "bob", &json!(1));
    let path = "/v1/changes?types=missed";
    let mut consumer = Consumer::open(server.address(), path, Some(&before.to_string()));
    let mut all: Vec<Value> = (0..10).map(|_| consumer.next_change().unwrap()).collect();
    let place = consumer.last_id.clone();
    assert_eq!(place, format!("{before}-{}", readers[9]));
    drop(consumer);
    // A start from a snapshot assigns numbers to readers anew.
    assert_eq!(server.post("/v1/snapshots", &json!({})).status, 201);
    drop(server);
    let server = on_directory(directory.path());
    let mut consumer = Consumer::open(server.address(), path, Some(&place));
    all.extend((0..20).map(|_| consumer.next_change().unwrap()));
    assert_eq!(named(&all), readers);
    // Behind the last reader, the place is after the post.
    assert_eq!(consumer.next(), json!({"sequence": before + 1, "type": "reached"}));
    assert_eq!(consumer.last_id, (before + 1).to_string());
    assert!(all.iter().all(|message| message["post"]["id"] == post.as_str()));
}

#[test]
fn p4_changes_arrive_in_order_with_missed_readers_and_resume_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let server = on_directory(directory.path());
    follow(&server, "ann", "bob");
    notify(&server, "ann", true);
    let posts = [1, 2].map(|body| published(&server, "bob", &json!(body)));
    let path = "/v1/changes?after=0&types=published,deleted,missed";
    let next = |consumer: &mut Consumer| {
        let message = consumer.next_change().unwrap();
        let id = message.get("id").unwrap_or(&message["post"]["id"]);
        (message["type"].as_str().unwrap().to_owned(), id.as_str().unwrap().to_owned())
    };
    let mut consumer = Consumer::open(server.address(), path, None);
    let mut changes: Vec<_> = (0..2).map(|_| next(&mut consumer)).collect();
    let place = consumer.last_id.clone();
    drop((consumer, server));
    let server = on_directory(directory.path());
    assert_eq!(server.send("DELETE", &format!("/v1/posts/{}", posts[0]), None, "").status, 204);
    let mut consumer = Consumer::open(server.address(), path, Some(&place));
    changes.extend((0..3).map(|_| next(&mut consumer)));
    let [first, second] = &posts;
    let expected =
        [("missed", first), ("published", first), ("missed", second), ("published", second), ("deleted", first)];
    assert_eq!(changes, expected.map(|(kind, post)| (kind.to_owned(), post.clone())));
}

#[test]
#[ignore = "needs python3"]
fn the_example_webhook_sender_retries_missed_posts_until_accepted() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/webhook.py");
    let server = server();
    follow(&server, "ann", "bob");
    notify(&server, "ann", true);
    let hook = TcpListener::bind("127.0.0.1:0").unwrap();
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("place");
    std::fs::write(&place, "0").unwrap();
    let mut sender = Command::new(program("python3", "python3"))
        .arg(example)
        .args(["--server", &server.url(""), "--to", &format!("http://{}/hook", hook.local_addr().unwrap())])
        .arg("--place")
        .arg(&place)
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let id = published(&server, "bob", &json!(1));
    let began = std::time::Instant::now();
    // The first attempt fails.
    for status in ["503 Service Unavailable", "204 No Content"] {
        let (mut socket, _) = hook.accept().unwrap();
        socket.set_read_timeout(Some(DEADLINE)).unwrap();
        let (mut request, mut piece) = (Vec::new(), [0; 4_096]);
        let body = loop {
            let read = socket.read(&mut piece).unwrap();
            request.extend_from_slice(&piece[..read]);
            let text = String::from_utf8_lossy(&request).into_owned();
            if let Some((_, body)) = text.split_once("\r\n\r\n")
                && let Ok(message) = serde_json::from_str::<Value>(body)
            {
                break message;
            }
            assert!(read > 0 && began.elapsed() < DEADLINE, "{text}");
        };
        assert_eq!((&body["reader"], &body["post"]["id"]), (&json!("ann"), &json!(id)));
        write!(socket, "HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").unwrap();
    }
    let last = server.get("/v1/changes").text;
    let last = serde_json::from_str::<Value>(&last).unwrap()["sequence"].to_string();
    eventually("the sender writes down its place", || std::fs::read_to_string(&place).unwrap() == last);
    sender.kill().unwrap();
    sender.wait().unwrap();
}

#[test]
fn a_reader_who_watches_longer_than_the_active_window_misses_nothing() {
    let (window, clock) = (Duration::from_millis(80), Arc::new(ManualClock::new(SystemClock.now())));
    let (shards, live_history_ttl) = (some(1), Duration::from_millis(1));
    let config = EngineConfig { shards, active_window: window, live_history_ttl, ..EngineConfig::default() };
    let server = timed(config, &StorageConfig::default(), Arc::clone(&clock) as Arc<dyn Clock>);
    follow(&server, "ann", "bob");
    notify(&server, "ann", true);
    let is_awake = |reader: &str| server.get(&format!("/v1/users/{reader}")).json()["active"] == true;
    assert_eq!(server.get("/v1/users/bob/feed").status, 200);
    let mut watching = Consumer::open(server.address(), "/v1/users/ann/events", None);
    assert_eq!(watching.next()["type"], "hello");
    // All readers are looked at together.
    clock.advance(2 * window);
    eventually("bob goes to sleep", || !is_awake("bob"));
    let seen = published(&server, "bob", &json!("seen"));
    assert_eq!(watching.next()["item"]["post"]["id"], seen.as_str());
    drop(watching);
    eventually("ann goes to sleep", || {
        clock.advance(window);
        !is_awake("ann")
    });
    let unseen = published(&server, "bob", &json!("unseen"));
    assert_eq!(missed(&server, 0), [has_missed("ann", &unseen, &["bob"])].into());
}

#[test]
fn reading_the_unread_count_does_not_wake_a_reader() {
    let server = with(EngineConfig::default());
    follow(&server, "ann", "bob");
    notify(&server, "ann", true);
    let marker = |method: &str| match method {
        "GET" => server.get("/v1/users/ann/marker"),
        _ => {
            let newest = server.get("/v1/users/bob/posts").json()["items"][0]["cursor"].clone();
            server.json("PUT", "/v1/users/ann/marker", &json!({"cursor": newest}))
        }
    };
    let mut missed_so_far = BTreeSet::new();
    for method in ["GET", "PUT"] {
        let answer = marker(method);
        assert_eq!((answer.status, &answer.json()["unread"]), (200, &json!(0)), "{}", answer.text);
        let is_awake = server.get("/v1/users/ann").json()["active"].clone();
        assert_eq!((is_awake, server.get("/v1/stats").json()["active"].clone()), (json!(false), json!(0)), "{method}");
        // A marker is about what has been delivered.
        let answer = server.post("/v1/posts?wait=delivered", &json!({"author": "bob", "body": method}));
        let post = answer.json()["id"].as_str().unwrap().to_owned();
        missed_so_far.insert(has_missed("ann", &post, &["bob"]));
        assert_eq!(missed(&server, 0), missed_so_far, "{method}");
    }
    assert_eq!(marker("GET").json()["unread"], 1);
}

#[test]
fn posts_by_kept_sources_and_earlier_reposts_count_as_missed_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let server = on_directory(directory.path());
    for (reader, source) in [("keeps", "bob"), ("reposts", "cas"), ("left", "bob")] {
        follow(&server, reader, source);
        notify(&server, reader, true);
    }
    published(&server, "bob", &json!("before"));
    assert_eq!(server.send("DELETE", "/v1/users/keeps/following/bob?keep=true", None, "").status, 204);
    assert_eq!(server.send("DELETE", "/v1/users/left/following/bob", None, "").status, 204);
    for repost in [77, 78] {
        let repost = json!({"author": "cas", "body": 1, "repost_of": repost.to_string()});
        assert_eq!(server.post("/v1/posts", &repost).status, 201);
    }
    let check = |server: &Server, original: u64| {
        let after =
            serde_json::from_str::<Value>(&server.get("/v1/changes").text).unwrap()["sequence"].as_u64().unwrap();
        let late = json!({"author": "bob", "body": "late", "published_at": "2020-01-01T00:00:00Z"});
        let late = server.post("/v1/posts?wait=delivered", &late).json()["id"].as_str().unwrap().to_owned();
        let original = json!({"author": "dan", "body": 1, "id": original.to_string()});
        let answer = server.post("/v1/posts?wait=delivered", &original);
        assert_eq!(answer.status, 201, "{}", answer.text);
        let id = answer.json()["id"].as_str().unwrap().to_owned();
        let expected = [has_missed("keeps", &late, &["bob"]), has_missed("reposts", &id, &["cas"])];
        assert_eq!(missed(server, after), expected.into());
    };
    check(&server, 77);
    assert_eq!(server.send("POST", "/v1/snapshots", None, "").status, 201);
    drop(server);
    check(&on_directory(directory.path()), 78);
}
