//! What operators ask: snapshots, verified and rebuilt feeds.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};
use testkit::eventually;
use tidewire::clock::{ManualClock, SystemClock, UnixMicros};
use tidewire::config::EngineConfig;
use tidewire::engine::{Engine, StorageConfig};
use tidewire::recovery::RecoveryProgress;

use crate::program::Program;
use crate::server::Server;
use testkit::world::{NEWEST, config, draft, edge, id, ids};

#[tokio::test]
async fn an_inbox_is_verified_against_a_rebuilt_one() {
    let engine = Engine::start(config(2, testkit::world::above(100)));
    engine.follow(vec![edge("ann", "bob"), edge("ann", "cas")]).await.unwrap();
    for nth in 0..10 {
        engine.publish(draft(if nth % 2 == 0 { "bob" } else { "cas" }, "1"), true).await.unwrap();
        engine.feed(&id("ann"), NEWEST).await.unwrap();
    }
    let verdict = engine.verify_feed(&id("ann"), false).await.unwrap();
    assert!(verdict.is_good());
    assert_eq!((verdict.entries, verdict.rebuilt, verdict.stale), (10, 10, 0));
    // Posts of a source not followed any more stay until a page meets them, and count as stale.
    engine.unfollow(id("ann"), id("bob")).await.unwrap();
    let verdict = engine.verify_feed(&id("ann"), true).await.unwrap();
    assert!(verdict.is_good());
    assert_eq!((verdict.entries, verdict.rebuilt, verdict.stale), (10, 5, 5));
    let verdict = engine.verify_feed(&id("ann"), false).await.unwrap();
    assert_eq!((verdict.entries, verdict.rebuilt, verdict.stale), (5, 5, 0));
    assert_eq!(ids(&engine.feed(&id("ann"), NEWEST).await.unwrap()).len(), 5);
    engine.shutdown();
}

#[tokio::test]
async fn posts_published_during_a_verification_cause_no_false_alarm() {
    let engine = Engine::start(config(2, testkit::world::above(100)));
    engine.follow(vec![edge("ann", "bob"), edge("cas", "bob"), edge("dan", "bob")]).await.unwrap();
    let publishing = engine.clone();
    let publisher = tokio::spawn(async move {
        for _ in 0..3_000 {
            publishing.publish(draft("bob", "1"), false).await.unwrap();
        }
    });
    while !publisher.is_finished() {
        for reader in ["ann", "cas", "dan"] {
            let verdict = engine.verify_feed(&id(reader), false).await.unwrap();
            assert!(verdict.is_good(), "{verdict:?}");
        }
    }
    publisher.await.unwrap();
    engine.shutdown();
}

#[test]
fn operators_can_inspect_a_server_over_http() {
    let server = Server::start(EngineConfig::default());
    let followed = server.send("PUT", "/v1/users/ann/following/bob", None, "");
    assert_eq!(followed.status, 201);
    server.post("/v1/posts?wait=delivered", &json!({"author": "bob", "body": 1}));
    let verdict = server.send("POST", "/v1/users/ann/feed/verify", None, "");
    assert_eq!((verdict.status, &verdict.json()["good"], &verdict.json()["entries"]), (200, &json!(true), &json!(1)));
    assert_eq!(server.send("POST", "/v1/users/ann/feed/rebuild", None, "").json()["rebuilt"], json!(1));
    assert_eq!(server.send("POST", "/v1/users/nobody/feed/verify", None, "").status, 404);
    // Nor for what is no user.
    server.post("/v1/posts?wait=delivered", &json!({"author": "bob", "body": 2, "tags": ["tea"], "topic": "42"}));
    for (source, what) in
        ["tag:tea", "topic:42"].into_iter().flat_map(|source| [(source, "verify"), (source, "rebuild")])
    {
        let refused = server.send("POST", &format!("/v1/users/{source}/feed/{what}"), None, "");
        assert_eq!((refused.status, &refused.json()["code"]), (404, &json!("unknown_source")), "{source} {what}");
    }
    let stats = server.get("/v1/stats").json();
    assert_eq!(
        (&stats["wakes"], &stats["recovery"]),
        (&json!(1), &Value::Null),
        "only ann woke, and nothing was recovered"
    );
    let refused = server.send("POST", "/v1/snapshots", None, "");
    assert_eq!((refused.status, &refused.json()["code"]), (409, &json!("no_data_directory")));
    assert_eq!(server.send("POST", "/v1/snapshots?x=1", None, "").status, 400);
}

fn write(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    fs::write(path, bytes).unwrap();
}

/// An engine on a data directory.
fn open(directory: &Path) -> Engine {
    let storage = StorageConfig { directory: directory.to_owned(), ..StorageConfig::default() };
    Engine::open(EngineConfig::default(), &storage, Arc::new(SystemClock), &RecoveryProgress::default()).unwrap().0
}

/// What a server that starts on the directory says of it.
fn recovery(directory: &Path, flags: &[&str]) -> Value {
    let program = Program::start(directory, flags);
    let (status, stats) = program.get("/v1/stats").unwrap();
    program.kill();
    assert_eq!(status, 200);
    stats["recovery"].clone()
}

#[tokio::test]
async fn statistics_report_the_findings_of_the_last_start() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let nothing = json!({"snapshot": null, "skipped": [], "events": 0, "cut": null, "lost": []});
    assert_eq!(recovery(path, &[]), nothing);

    let engine = open(path);
    let mut snapshots = Vec::new();
    for _ in 0..3 {
        engine.publish(draft("bob", "1"), true).await.unwrap();
        snapshots.push(engine.snapshot().await.unwrap());
    }
    engine.publish(draft("bob", "1"), true).await.unwrap();
    engine.shutdown();
    write(&path.join(&snapshots[2].file), |bytes| bytes.truncate(100));
    let segment = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    let segment = segment.filter(|path| path.extension().is_some_and(|kind| kind == "log")).max().unwrap();
    let good_bytes = fs::metadata(&segment).unwrap().len();
    write(&segment, |bytes| bytes.extend([7; 5]));
    let found = recovery(path, &[]);
    assert_eq!((&found["snapshot"], &found["events"]), (&json!(snapshots[1].sequence), &json!(2)), "{found}");
    let skipped = found["skipped"].as_array().unwrap();
    assert!(skipped.len() == 1 && skipped[0].as_str().unwrap().contains(&snapshots[2].file), "{found}");
    assert_eq!(found["cut"], json!({"segment": segment, "after_byte": good_bytes, "bytes": 5, "whole_events": 0}));
    assert_eq!(found["lost"], json!([]));
}

#[tokio::test]
async fn statistics_list_the_losses_of_a_repair() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    for _ in 0..3 {
        engine.publish(draft("bob", "1"), true).await.unwrap();
    }
    engine.shutdown();
    let segment = directory.path().join("journal-00000000000000000001.log");
    write(&segment, |bytes| bytes[70] ^= 1);
    let found = recovery(directory.path(), &["--repair"]);
    assert_eq!(found["events"], json!(2), "{found}");
    let lost = &found["lost"][0];
    assert_eq!((&lost["from"], &lost["through"], found["lost"].as_array().unwrap().len()), (&json!(1), &json!(1), 1));
    assert!(lost["segment"].as_str().unwrap().contains(segment.to_str().unwrap()), "{found}");
    assert!(lost["reason"].as_str().unwrap().contains("checksum"), "{found}");
}

#[tokio::test]
async fn a_snapshot_is_taken_on_demand() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    engine.publish(draft("bob", "1"), true).await.unwrap();
    engine.shutdown();
    let program = Program::start(directory.path(), &[]);
    let answer = program.agent.post(format!("{}/v1/snapshots", program.url)).send_empty().unwrap();
    assert_eq!(answer.status(), 201);
    let taken: Value = serde_json::from_str(&answer.into_body().read_to_string().unwrap()).unwrap();
    assert_eq!((&taken["sequence"], &taken["file"]), (&json!(1), &json!("snapshot-00000000000000000001.tide")));
    let bytes = fs::metadata(directory.path().join("snapshot-00000000000000000001.tide")).unwrap().len();
    assert_eq!(taken["bytes"], json!(bytes));
    assert!(taken["taken_at"].as_str().unwrap().starts_with("20"), "{taken}");
    let mut told = program.get("/v1/stats").unwrap().1["snapshots"].take();
    assert!(told[0].as_object_mut().unwrap().remove("age_seconds").is_some());
    assert_eq!(told, json!([taken]));
    program.kill();
    assert_eq!(recovery(directory.path(), &[])["snapshot"], json!(1));
}

#[test]
fn statistics_report_fanout_latency_by_number_of_followers() {
    let server = Server::start(EngineConfig { celebrity: testkit::world::above(20), ..EngineConfig::default() });
    let latency = || server.get("/v1/stats").json()["fanout_latency"].clone();
    let edges = |source: &'static str, count: usize| {
        (0..count).map(move |nth| json!({"follower": format!("f{nth}"), "source": source}))
    };
    let edges: Vec<Value> = edges("few", 3).chain(edges("tag:tea", 8)).chain(edges("many", 21)).collect();
    assert_eq!(server.post("/v1/follows", &json!({"follows": edges})).status, 200);
    let publish = |post: &Value| assert_eq!(server.post("/v1/posts?wait=delivered", post).status, 201);
    // Nobody has the one, and the other is pulled: there is nothing to time.
    publish(&json!({"author": "nobody", "body": 1}));
    publish(&json!({"author": "many", "body": 1}));
    assert_eq!(latency(), json!([]));
    for nth in 0..5 {
        publish(&json!({"author": "few", "body": nth}));
    }
    // The followers of all that it is pushed to.
    publish(&json!({"author": "few", "body": 5, "tags": ["tea"]}));
    let told = latency();
    let counts: Vec<_> = told.as_array().unwrap().iter().map(|of| (&of["followers"], &of["count"])).collect();
    assert_eq!(counts, [(&json!("1-9"), &json!(5)), (&json!("10-99"), &json!(1))]);
    for of in told.as_array().unwrap() {
        let [p50, p99, max] = ["p50_us", "p99_us", "max_us"].map(|figure| of[figure].as_u64().unwrap());
        assert!(p50 <= p99 && p99 <= max && 0 < max, "{told}");
    }
}

#[test]
fn statistics_count_each_post_once_from_the_start() {
    let server = Server::start(EngineConfig::default());
    let post = json!({"id": "7", "author": "bob", "body": 1});
    assert_eq!(server.post("/v1/posts", &post).status, 201);
    assert_eq!(server.post("/v1/posts", &post).status, 200);
    assert_eq!(server.post("/v1/posts", &json!({"author": "bob", "body": 1})).status, 201);
    assert_eq!(server.post("/v1/posts", &json!({"id": "7", "author": "bob", "body": 2})).status, 409);
    assert_eq!(server.get("/v1/stats").json()["published"], json!(2));
}

#[test]
#[ignore = "takes the 1 s until a server is one second old"]
fn statistics_report_the_uptime() {
    let began = Instant::now();
    let server = Server::start(EngineConfig::default());
    eventually("the server grows older", || {
        let age = server.get("/v1/stats").json()["uptime_seconds"].as_u64().unwrap();
        assert!(age <= began.elapsed().as_secs());
        age > 0
    });
}

#[test]
fn statistics_report_the_age_of_snapshots_and_the_request_limit() {
    let directory = tempfile::tempdir().unwrap();
    let storage = StorageConfig { directory: directory.path().to_owned(), ..StorageConfig::default() };
    let clock = Arc::new(ManualClock::new(UnixMicros(1_000_000_000)));
    let opened =
        Engine::open(EngineConfig::default(), &storage, Arc::clone(&clock) as Arc<_>, &RecoveryProgress::default());
    let server = Server::of(opened.unwrap().0);
    assert_eq!(server.send("POST", "/v1/snapshots", None, "").status, 201);
    let age = || server.get("/v1/stats").json()["snapshots"][0]["age_seconds"].clone();
    for (now, expected) in [(1_000_000_000, 0), (1_000_999_999, 0), (1_090_000_000, 90), (5, 0)] {
        clock.set(UnixMicros(now));
        assert_eq!(age(), json!(expected), "at {now}");
    }
    let queue = server.get("/v1/stats").json()["queues"]["snapshot"].clone();
    assert_eq!(queue, json!({"depth": 0, "limit": tidewire::limits::SNAPSHOT_REQUESTS_MAX}));
}
