//! Segments that stay for consumers after snapshots need them no longer: for a time, for registered consumers, and across erasures.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::world::{draft, edge, id};
use testkit::{cases, eventually, eventually_async, histories, stride};
use tidewire::clock::{Clock, ManualClock, SystemClock, UnixMicros};
use tidewire::config::EngineConfig;
use tidewire::engine::{ChangesError, Engine, StorageConfig};
use tidewire::feed::event::{Event, NewEdge};
use tidewire::feed::post::Body;
use tidewire::id::PostId;
use tidewire::limits::CHANGE_CONSUMERS_MAX;
use tidewire::recovery::RecoveryProgress;
use tidewire::storage::files::Files;
use tidewire::storage::files::faulty::{FaultyFiles, Plan};
use tidewire::storage::files::memory::MemoryFiles;
use tidewire::storage::journal::Durability;
use tidewire::storage::journal::writer::JournalOptions;
use tidewire::storage::log::LogError;
use tidewire::storage::sequence::Sequence;

use super::{lines, published};
use crate::server::{Answer, Server};

const HOUR: Duration = Duration::from_secs(3_600);
const ZOE: &str = "zoe-4f1c9a77";
const MARKER: &str = "words-of-zoe-8812";

/// An engine with small segments, its clock, and its files.
fn engine(change: impl FnOnce(&mut EngineConfig)) -> (Engine, Arc<ManualClock>, MemoryFiles) {
    let (files, progress) = (MemoryFiles::default(), RecoveryProgress::default());
    let journal = JournalOptions { segment_bytes: 1_000, ..JournalOptions::default() };
    let storage = StorageConfig { journal, ..StorageConfig::default() };
    let clock = Arc::new(ManualClock::new(SystemClock.now()));
    let mut config = EngineConfig::default();
    change(&mut config);
    let opened = Engine::open_on(config, Arc::new(files.clone()), None, None, &storage, clock.clone(), &progress);
    (opened.unwrap().0, clock, files)
}

fn server(change: impl FnOnce(&mut EngineConfig)) -> (Server, Arc<ManualClock>, MemoryFiles) {
    let (engine, clock, files) = engine(change);
    (Server::of(engine), clock, files)
}

/// Publishes and takes snapshots until the first segments of the journal are needed by no snapshot.
fn outgrow(server: &Server, author: &str) {
    for _ in 0..3 {
        (0..10).for_each(|nth| drop(published(server, author, &json!({"nth": nth}))));
        assert_eq!(server.post("/v1/snapshots", &json!({})).status, 201);
    }
}

/// Sets the position of a consumer.
fn set(server: &Server, name: &str, body: &Value) -> Answer {
    server.json("PUT", &format!("/v1/changes/consumers/{name}"), body)
}

/// The first event that can be read.
fn oldest(server: &Server) -> u64 {
    let answer = server.get("/v1/changes?after=0");
    assert_eq!((answer.status, answer.json()["code"].as_str()), (410, Some("gone")));
    answer.json()["oldest"].as_u64().unwrap()
}

#[test]
fn segments_are_kept_for_the_retention_time_and_then_removed() {
    let (server, clock, _) = server(|config| config.changes_retention = HOUR);
    outgrow(&server, "bob");
    clock.advance(HOUR - Duration::from_secs(1));
    outgrow(&server, "bob");
    assert_eq!(lines(&server, 0, 7, "&types=published").len(), 60, "all is there");
    let kept = |server: &Server| server.get("/v1/stats").json()["stored_bytes"]["changes"].as_u64().unwrap();
    eventually("it is measured", || kept(&server) > 1_000);
    clock.advance(Duration::from_secs(1));
    assert_eq!(server.post("/v1/snapshots", &json!({})).status, 201);
    let oldest = oldest(&server);
    let left = lines(&server, oldest, 7, "&types=published").len();
    assert!(left < 45 && left > 30, "{left} of 60, after {oldest}");
    // It needs no snapshot.
    clock.advance(HOUR);
    eventually("it is removed", || kept(&server) == 0);
}

#[test]
fn without_retention_and_consumers_no_segments_are_kept() {
    let (server, _, files) = server(|_| {});
    outgrow(&server, "bob");
    assert!(oldest(&server) > 10);
    assert!(!files.list().unwrap().iter().any(|name| name.starts_with("changes-")));
}

#[test]
fn a_registered_consumer_retains_only_unprocessed_events() {
    let (server, _, _) = server(|_| {});
    let begun = set(&server, "search", &json!({}));
    assert_eq!((begun.status, begun.json()), (200, json!({"name": "search", "sequence": 0, "behind": 0})));
    outgrow(&server, "bob");
    let all = lines(&server, 0, 1_000, "");
    let last = all.last().unwrap()["sequence"].as_u64().unwrap();
    assert_eq!(last, 30);
    let of_consumer = server.get("/v1/changes?consumer=search&types=published");
    assert_eq!((of_consumer.status, of_consumer.text.lines().count()), (200, 31));
    let listed = json!({"items": [{"name": "search", "sequence": 0, "behind": 30}]});
    assert_eq!(server.get("/v1/changes/consumers").json(), listed);
    let metrics = server.get("/metrics").text;
    assert!(metrics.contains("tidewire_change_consumer_behind{consumer=\"search\"} 30\n"), "{metrics}");
    // A second one that is up to date takes nothing from the first.
    assert_eq!(set(&server, "push", &json!({"sequence": 30})).json()["behind"], 0);
    outgrow(&server, "bob");
    assert_eq!(lines(&server, 0, 1_000, "").len(), 60);
    assert_eq!(
        set(&server, "search", &json!({"sequence": 25})).json(),
        json!({"name": "search", "sequence": 25, "behind": 35})
    );
    outgrow(&server, "bob");
    let oldest = oldest(&server);
    assert!(oldest <= 25 && oldest > 5, "{oldest}");
    let of_consumer = server.get("/v1/changes?consumer=search&limit=1").text;
    assert!(of_consumer.starts_with("{\"sequence\":26,"), "{of_consumer}");
    // A consumer may go back to the oldest event that is stored, and not further.
    assert_eq!(set(&server, "search", &json!({"sequence": oldest})).status, 200);
    let refused = set(&server, "search", &json!({"sequence": oldest - 1}));
    assert_eq!((refused.status, refused.json()["oldest"].as_u64()), (410, Some(oldest)));
    for removed in ["search", "push", "search"] {
        assert_eq!(server.ask("DELETE", &format!("/v1/changes/consumers/{removed}"), &[], "").status, 204);
    }
    assert_eq!(server.get("/v1/changes/consumers").json(), json!({"items": []}));
    outgrow(&server, "bob");
    assert!(self::oldest(&server) > 60);
}

#[test]
fn a_consumer_that_never_returns_retains_at_most_the_limit() {
    const LIMIT: u64 = 3_000;
    let (server, _, files) = server(|config| config.changes_retention_bytes = LIMIT);
    assert_eq!(set(&server, "gone", &json!({})).status, 200);
    for _ in 0..5 {
        outgrow(&server, "bob");
        let at_one_moment = files.forked();
        let retained = at_one_moment.list().unwrap().into_iter().filter(|name| name.starts_with("changes-"));
        let bytes: usize = retained.map(|name| at_one_moment.content(&name).len()).sum();
        assert!(bytes as u64 <= LIMIT, "{bytes}");
    }
    assert!(oldest(&server) > 50);
    assert_eq!(server.get("/v1/changes?consumer=gone").status, 410);
}

#[test]
fn an_invalid_consumer_position_is_refused_and_changes_nothing() {
    let (server, _, _) = server(|_| {});
    published(&server, "bob", &json!(1));
    assert_eq!(set(&server, "search", &json!({"sequence": 1})).status, 200);
    for (name, body, status, code) in [
        ("search", json!({"sequence": 2}), 400, "sequence_in_future"),
        ("search", json!({"sequence": -1}), 400, "invalid_field"),
        ("search", json!({"sequence": null}), 400, "invalid_field"),
        ("search", json!({"after": 1}), 400, "unknown_field"),
        ("se%20arch", json!({}), 400, "invalid_path"),
        ("..", json!({}), 400, "invalid_path"),
    ] {
        let refused = set(&server, name, &body);
        assert_eq!((refused.status, refused.json()["code"].as_str()), (status, Some(code)), "{name} {body}");
    }
    for (query, status, code) in [
        ("consumer=nobody", 404, "unknown_consumer"),
        ("consumer=search&after=0", 400, "invalid_parameter"),
        ("consumer=gone", 404, "unknown_consumer"),
        ("consumer=", 400, "invalid_parameter"),
    ] {
        let refused = server.get(&format!("/v1/changes?{query}"));
        assert_eq!((refused.status, refused.json()["code"].as_str()), (status, Some(code)), "{query}");
    }
    assert_eq!(server.send("PUT", "/v1/changes/consumers/search", None, "{}").status, 415);
    // A client that comes back goes on where it is, though its consumer was removed.
    let back = [("accept", "text/event-stream"), ("last-event-id", "1")];
    assert_eq!(server.ask("HEAD", "/v1/changes?consumer=gone", &back, "").status, 200);
    assert_eq!(server.ask("HEAD", "/v1/changes?consumer=search", &[], "").status, 200);
    for nth in 1..CHANGE_CONSUMERS_MAX {
        assert_eq!(set(&server, &format!("c{nth}"), &json!({})).status, 200);
    }
    let refused = set(&server, "more", &json!({}));
    assert_eq!((refused.status, refused.json()["code"].as_str()), (422, Some("too_many")));
    assert_eq!(set(&server, "search", &json!({"sequence": 0})).status, 200, "it is one of them");
}

#[test]
fn an_erasure_disconnects_no_consumer_of_retained_segments() {
    let (server, clock, files) = server(|config| {
        config.changes_retention = HOUR;
        config.erasure_grace = HOUR;
    });
    let of_zoe = published(&server, ZOE, &json!(MARKER));
    outgrow(&server, "ann");
    let edited = server.json("PATCH", &format!("/v1/posts/{of_zoe}"), &json!({"body": format!("{MARKER} again")}));
    assert_eq!(edited.status, 200);
    let follows = json!({"follows": [{"follower": "ann", "source": ZOE}, {"follower": "ann", "source": "bob"}]});
    assert_eq!(server.post("/v1/follows", &follows).status, 200);
    let holding = |text: &str| -> Vec<String> {
        let files = files.forked();
        let has = |name: &String| files.content(name).windows(text.len()).any(|part| part == text.as_bytes());
        files.list().unwrap().into_iter().filter(has).collect()
    };
    assert!(!holding(MARKER).is_empty());
    // A reader of changes, for whom an erasure would wait an hour of this clock.
    assert_eq!(server.get("/v1/changes?after=0&limit=1").status, 200);
    assert_eq!(server.ask("DELETE", &format!("/v1/users/{ZOE}"), &[], "").status, 202);
    eventually("the erasure ends", || server.engine.erasures().count == 0);
    assert_eq!(holding(MARKER), [""; 0]);
    assert!(holding(ZOE).iter().all(|name| name.starts_with("changes-")), "{:?}", holding(ZOE));
    let all = lines(&server, 0, 1_000, "");
    let told = |name: &str| -> Vec<&Value> { all.iter().filter(|change| change["type"] == name).collect() };
    assert_eq!(told("published").len(), 30);
    assert_eq!((told("edited").len(), told("deleted")[0]["id"].as_str()), (0, Some(&*of_zoe)));
    assert_eq!(told("followed")[0]["follows"].as_array().unwrap().len(), 1);
    assert_eq!(told("erased")[0]["user"], ZOE);
    // The id comes to an end as well.
    clock.advance(HOUR);
    outgrow(&server, "ann");
    assert_eq!(holding(ZOE), [""; 0]);
}

#[test]
fn consumers_need_a_data_directory() {
    let server = Server::start(EngineConfig::default());
    let refused = |answer: &Answer| answer.status == 409 && answer.json()["code"] == "no_data_directory";
    assert!(refused(&set(&server, "search", &json!({}))));
    assert!(refused(&server.get("/v1/changes?consumer=search")));
    assert!(refused(&server.ask("DELETE", "/v1/changes/consumers/search", &[], "")));
}

/// Reads all changes after the first one that can be read, and returns the sequence of that.
fn read_all(engine: &Engine, what: &str) -> u64 {
    let first = match engine.changes(Sequence(0)) {
        Err(ChangesError::Log(LogError::Deleted { first, .. })) => first.0,
        opened => opened.map(|_| 1).unwrap(),
    };
    let (mut changes, mut next) = (engine.changes(Sequence(first - 1)).unwrap(), first);
    while changes.sequence() < changes.end() {
        for (sequence, _) in changes.next(Duration::ZERO).unwrap() {
            assert_eq!(sequence.0, next, "{what}");
            next += 1;
        }
    }
    assert_eq!(next, engine.last_change().unwrap().0 + 1, "{what}");
    first
}

#[tokio::test]
async fn a_crash_at_any_write_leaves_no_gap_in_retained_events() {
    let config = || EngineConfig { changes_retention: HOUR, ..EngineConfig::default() };
    let storage = || histories::storage(Durability::Always, 1_000);
    let open = |files: &dyn Fn() -> Arc<dyn Files>| {
        let (clock, progress) = (Arc::new(SystemClock), RecoveryProgress::default());
        Engine::open_on(config(), files(), None, None, &storage(), clock, &progress).map(|opened| opened.0)
    };
    let write = async |engine: &Engine| {
        for round in 0..3 {
            for nth in 0..8 {
                let _ = engine.publish(draft("bob", &format!("\"{round} {nth}\"")), false).await;
            }
            let _ = engine.snapshot().await;
        }
    };
    let (memory, mut kept_all) = (MemoryFiles::default(), 0);
    let counted = FaultyFiles::new(memory, Plan::default());
    let engine = open(&|| Arc::new(counted.clone())).unwrap();
    write(&engine).await;
    let total = counted.operations();
    engine.shutdown();
    for at in (1..=total).step_by(stride(11)) {
        for power in [None, Some(at)] {
            let (memory, what) = (MemoryFiles::default(), format!("{at} of {total}, power {power:?}"));
            let faulty = FaultyFiles::new(memory.clone(), Plan { die_at: Some(at), ..Plan::default() });
            if let Ok(engine) = open(&|| Arc::new(faulty.clone())) {
                write(&engine).await;
                engine.shutdown();
            }
            let left = memory.forked();
            power.into_iter().for_each(|seed| left.lose_power(&mut fastrand::Rng::with_seed(seed)));
            let engine = open(&|| Arc::new(left.clone())).unwrap();
            kept_all += usize::from(read_all(&engine, &what) == 1);
            write(&engine).await;
            read_all(&engine, &what);
            engine.shutdown();
        }
    }
    assert!(kept_all > 2, "{kept_all}");
}

/// What a consumer of all changes knows.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Copy {
    after: Sequence,
    posts: BTreeMap<PostId, (String, String)>,
    follows: BTreeSet<(String, String)>,
}

impl Copy {
    /// Reads up to the present end.
    fn read(&mut self, engine: &Engine) {
        let mut changes = engine.changes(self.after).unwrap();
        while changes.sequence() < changes.end() {
            for (_, event) in changes.next(Duration::ZERO).unwrap() {
                self.apply(&event);
            }
        }
        self.after = changes.sequence();
    }

    fn follow(&mut self, edges: &[NewEdge]) {
        self.follows.extend(edges.iter().map(|edge| (edge.follower.to_string(), edge.source.to_string())));
    }

    fn apply(&mut self, event: &Event) {
        match event {
            Event::Published { position, draft, .. } => {
                self.posts.insert(position.id, (draft.author.to_string(), draft.body.as_str().to_owned()));
            }
            Event::Edited { id, body: Some(body), .. } => {
                self.posts.entry(*id).and_modify(|post| body.as_str().clone_into(&mut post.1));
            }
            Event::Deleted { id, .. } => drop(self.posts.remove(id)),
            Event::Followed { edges, .. } => self.follow(edges),
            Event::FollowsChanged { follows, unfollows, .. } => {
                self.follow(follows);
                let gone = |edge: &(String, String)| {
                    unfollows.iter().any(|old| old.follower.as_str() == edge.0 && old.source.as_str() == edge.1)
                };
                self.follows.retain(|edge| !gone(edge));
            }
            Event::Unfollowed { follower, source, .. } => {
                self.follows.remove(&(follower.to_string(), source.to_string()));
            }
            Event::Erased { user, .. } => {
                self.posts.retain(|_, (author, _)| *author != user.as_str());
                self.follows.retain(|(follower, source)| *follower != user.as_str() && *source != user.as_str());
            }
            _ => {}
        }
    }
}

const USERS: [&str; 5] = ["ann", "bob", "cas", "dan", "eve"];

/// Writes something at random, and returns the post that was published.
async fn write(engine: &Engine, posts: &[PostId], random: &mut fastrand::Rng) -> Option<PostId> {
    let mut user = || random.choice(USERS).unwrap();
    let (one, other, third) = (user(), user(), user());
    let post = random.choice(posts.iter().copied());
    let body = format!("\"{}\"", random.u32(..));
    match (random.u8(0..12), post) {
        (0..=4, _) => return engine.publish(draft(one, &body), false).await.ok().map(|done| done.post.id()),
        (5, Some(post)) => drop(engine.edit(post, Some(Body::new(&body).unwrap()), None).await),
        (6, Some(post)) => drop(engine.delete(post).await),
        (7 | 8, _) => drop(engine.follow(vec![edge(one, other), edge(one, third)]).await),
        (9, _) => drop(engine.unfollow(id(one), id(other)).await),
        (10, _) => drop(engine.snapshot().await.unwrap()),
        (11, _) if random.u8(0..3) == 0 => {
            let _ = engine.erase(id(one)).await.unwrap();
            if random.bool() {
                eventually_async("the erasure ends", async || engine.erasures().count == 0).await;
            }
        }
        _ => {}
    }
    None
}

#[tokio::test]
async fn a_late_consumer_reconstructs_the_state_across_erasures() {
    for seed in 0..cases(30) {
        let random = &mut fastrand::Rng::with_seed(seed);
        let (engine, _, _) = engine(|config| config.changes_retention = HOUR);
        let (mut consumers, mut posts) = (vec![Copy::default(); 3], Vec::new());
        for _ in 0..150 {
            posts.extend(write(&engine, &posts, random).await);
            // The first never reads before the end.
            match random.u8(0..20) {
                0 => consumers[1].read(&engine),
                1..=5 => consumers[2].read(&engine),
                _ => {}
            }
        }
        eventually_async("the erasures end", async || engine.erasures().count == 0).await;
        consumers.iter_mut().for_each(|consumer| consumer.read(&engine));
        let mut expected = Copy { after: consumers[0].after, ..Copy::default() };
        for post in posts {
            if let Ok(found) = engine.post(post).await {
                expected.posts.insert(post, (found.author().id.to_string(), found.body().to_owned()));
            }
        }
        for user in USERS {
            let following = engine.following(&id(user), UnixMicros(i64::MAX), 100);
            expected.follows.extend(following.iter().map(|listed| (user.to_owned(), listed.id.to_string())));
        }
        for (nth, consumer) in consumers.iter().enumerate() {
            assert_eq!(consumer, &expected, "seed {seed}, consumer {nth}");
        }
        engine.shutdown();
    }
}
