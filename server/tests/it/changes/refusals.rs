//! Requests for changes that are refused, and what says why.

use serde_json::json;
use testkit::{DEADLINE, eventually};
use tidewire::config::EngineConfig;
use tidewire::engine::{Engine, Erasing, StorageConfig};
use tidewire::id::SourceId;
use tidewire::storage::journal::writer::JournalOptions;

use super::consumer::Consumer;
use super::erased::with_grace;
use super::{lines, published, server, stored};
use crate::server::Server;

#[test]
fn an_invalid_request_is_refused_by_its_wrong_parameter() {
    let server = server();
    published(&server, "bob", &json!(1));
    for (query, code, field) in [
        ("after=x", "invalid_parameter", "after"),
        ("after=-1", "invalid_parameter", "after"),
        ("after=99999999999999999999", "invalid_parameter", "after"),
        ("after=2", "sequence_in_future", "after"),
        ("after=18446744073709551615", "sequence_in_future", "after"),
        ("limit=0", "invalid_parameter", "limit"),
        ("limit=100001", "invalid_parameter", "limit"),
        ("types=published,likes", "invalid_parameter", "types"),
        ("types=", "invalid_parameter", "types"),
        ("after=0&types=missed&after_reader=", "invalid_parameter", "after_reader"),
        ("after=0&types=missed&after_reader=a%20b", "invalid_parameter", "after_reader"),
        ("after=0&types=missed&after_reader=%00", "invalid_parameter", "after_reader"),
        ("after=0&types=missed&after_reader=..", "invalid_parameter", "after_reader"),
        (&format!("after=0&types=missed&after_reader={}", "a".repeat(129)), "invalid_parameter", "after_reader"),
        ("after=0&types=missed&after_reader=ann&after_reader=bob", "invalid_parameter", "after_reader"),
        ("types=missed&after_reader=ann", "invalid_parameter", "after_reader"),
        ("after=0&after_reader=ann", "invalid_parameter", "after_reader"),
        ("after=0&types=published&after_reader=ann", "invalid_parameter", "after_reader"),
        ("after=0-ann&types=missed", "invalid_parameter", "after"),
        ("from=1", "unknown_parameter", "from"),
    ] {
        let refused = server.get(&format!("/v1/changes?{query}"));
        let problem = refused.json();
        assert_eq!(
            (refused.status, &problem["code"], &problem["field"]),
            (400, &json!(code), &json!(field)),
            "{query}"
        );
    }
    assert_eq!(server.get("/v1/changes?after=2").json()["newest"], 1);
    let unknown = server.get("/v1/changes?types=likes").json()["detail"].clone();
    assert!(
        unknown.as_str().unwrap().contains("\"likes\" is not a type of event; the types are published,"),
        "{unknown}"
    );
    assert_eq!(server.get("/v1/changes?after=1&limit=100000").status, 200);
    let long = format!("1-{}", "a".repeat(129));
    for place in ["x", "-1", "-", "1-", "-ann", "1-a b", "1-..", "x-ann", "1-\u{e4}", "1 -ann", &long] {
        let mut refused = Consumer::open(server.address(), "/v1/changes?types=missed&after=0", Some(place));
        // Without a word, it would begin at the end.
        assert!(refused.head.starts_with("http/1.1 400 "), "{place}: {}", refused.head);
        assert!(refused.body().contains(r#""field":"Last-Event-ID""#), "{place}");
    }
    let mut refused = Consumer::open(server.address(), "/v1/changes?after=0&lastEventId=x", None);
    assert!(refused.body().contains(r#""field":"lastEventId""#), "{}", refused.head);
    // Lines have no ids.
    assert_eq!(server.get("/v1/changes?lastEventId=1").json()["code"], "unknown_parameter");
    let mut refused = Consumer::open(server.address(), "/v1/changes?types=published", Some("1-ann"));
    assert!(refused.head.starts_with("http/1.1 400 ") && refused.body().contains("Last-Event-ID"), "{}", refused.head);
    // The header, or the parameter for clients that cannot set it, replaces the other parameters.
    let path = "/v1/changes?types=missed&after=0&after_reader=ann";
    for (place, first) in [
        ("1-bob", json!({"sequence": 1, "type": "reached", "reader": "bob"})),
        ("1", json!({"sequence": 1, "type": "reached"})),
    ] {
        assert_eq!(Consumer::open(server.address(), path, Some(place)).next(), first);
        let path = format!("{path}&lastEventId={place}");
        assert_eq!(Consumer::open(server.address(), &path, Some("")).next(), first, "an empty header names nothing");
    }
}

#[test]
fn an_engine_in_memory_has_no_changes() {
    let server = Server::of(Engine::start(EngineConfig::default()));
    let refused = server.get("/v1/changes?after=0");
    assert_eq!((refused.status, &refused.json()["code"]), (409, &json!("no_data_directory")));
}

#[test]
fn removed_events_are_answered_with_gone_and_the_oldest_place() {
    let journal = JournalOptions { segment_bytes: 500, ..JournalOptions::default() };
    let server = stored(EngineConfig::default(), &StorageConfig { journal, ..StorageConfig::default() });
    for nth in 0..30 {
        published(&server, "bob", &json!(nth));
        if nth % 10 == 9 {
            assert_eq!(server.post("/v1/snapshots", &json!({})).status, 201);
        }
    }
    let gone = server.get("/v1/changes?after=0");
    let problem = gone.json();
    let oldest = problem["oldest"].as_u64().unwrap();
    assert_eq!((gone.status, &problem["code"], &problem["field"]), (410, &json!("gone"), &json!("after")));
    assert!((1..=20).contains(&oldest), "{problem}");
    assert_eq!(server.get(&format!("/v1/changes?after={}", oldest - 1)).status, 410);
    let found = lines(&server, oldest, 100, "");
    let bodies: Vec<u64> = found.iter().map(|event| event["post"]["body"].as_u64().unwrap()).collect();
    assert_eq!(bodies.last(), Some(&29));
    assert!(bodies.is_sorted_by(|one, next| one + 1 == *next) && found[0]["sequence"] == oldest + 1, "{bodies:?}");
    let resumed = Consumer::open(server.address(), "/v1/changes", Some("0"));
    assert!(resumed.head.starts_with("http/1.1 410 gone"), "{}", resumed.head);
}

#[test]
fn an_erased_user_is_named_only_until_the_journal_is_truncated() {
    const ZOE: &str = "zoe-4f1c9a77";
    let directory = tempfile::tempdir().unwrap();
    // The erasure waits for the consumer, which has to learn of it.
    let (server, clock) = with_grace(directory.path(), DEADLINE);
    published(&server, ZOE, &json!("words of zoe"));
    assert_eq!(server.json("PUT", &format!("/v1/users/ann/following/{ZOE}"), &json!({})).status, 201);
    let mut consumer = Consumer::open(server.address(), "/v1/changes?after=0", None);
    let erasing = || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(server.engine.erase(SourceId::new(ZOE).unwrap())).unwrap()
    };
    assert_eq!(erasing(), Erasing::UnderWay);
    // A consumer that keeps up learns whom to forget.
    loop {
        let event = consumer.next_change().unwrap();
        if event["type"] == "erased" {
            assert_eq!(event["user"], ZOE);
            break;
        }
    }
    eventually("the erasure ends", || {
        clock.advance(DEADLINE);
        erasing() != Erasing::UnderWay
    });
    published(&server, "ann", &json!("after"));
    let gone = server.get("/v1/changes?after=0");
    assert_eq!(gone.status, 410, "{}", gone.text);
    let oldest = gone.json()["oldest"].clone();
    let left = server.get(&format!("/v1/changes?after={oldest}")).text;
    assert!(left.contains("after") && !left.contains(ZOE) && !left.contains("words of zoe"), "{left}");
}

#[test]
fn a_stream_above_the_limit_is_refused_until_one_ends() {
    let server = server();
    let mut streams: Vec<Consumer> =
        (0..16).map(|_| Consumer::open(server.address(), "/v1/changes?after=0", None)).collect();
    let refused = server.get("/v1/changes?after=0");
    assert_eq!((refused.status, &refused.json()["code"]), (503, &json!("overloaded")));
    let metrics = server.get("/metrics").text;
    for line in
        ["tidewire_change_streams 16", "tidewire_change_streams_limit 16", "tidewire_change_streams_refused_total 1"]
    {
        assert!(metrics.lines().any(|found| found == line), "{line}: {metrics}");
    }
    streams.pop();
    eventually("a stream that has ended gives way", || server.get("/v1/changes?after=0").status == 200);
}
