//! How posts reach those who follow: pushed, pulled, skipped, rebuilt.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, ThreadId};
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use parking_lot::{Condvar, Mutex};
use serde_json::{Value, json};
use testkit::{OnDrop, eventually, in_time};
use tidewire::clock::{Clock, SystemClock, UnixMicros};
use tidewire::config::EngineConfig;
use tidewire::engine::Engine;
use tidewire::feed::celebrity::CelebrityPolicy;
use tidewire::limits::SLICE_RECIPIENTS_MAX;
use tidewire::storage::journal::MemoryJournal;

use super::{all, feed, figure, follow_all, numbers, timed, walk};
use crate::personal::{bodies, follow, posts, publish};
use crate::program::Program;
use crate::server::Server;
use testkit::world::{NEWEST, SENSITIVE, above, all_asleep, config, draft, edge, id, some};

/// The clock of the machine, which on demand holds up the threads of the engine's shards: then nothing is delivered.
#[derive(Default)]
pub struct HoldingClock {
    /// Those that read pages before there was a server, whose threads are of the same kind.
    shards: Mutex<HashSet<ThreadId>>,
    knows_shards: AtomicBool,
    is_held: Mutex<bool>,
    let_go: Condvar,
    waiting: AtomicUsize,
}

impl HoldingClock {
    fn hold(&self, held: bool) {
        *self.is_held.lock() = held;
        self.let_go.notify_all();
    }
}

impl Clock for HoldingClock {
    fn now(&self) -> UnixMicros {
        let me = thread::current();
        if !self.knows_shards.load(Ordering::SeqCst) && me.name().is_some_and(|name| name.contains("arbiter")) {
            self.shards.lock().insert(me.id());
        }
        if self.shards.lock().contains(&me.id()) {
            let mut is_held = self.is_held.lock();
            self.waiting.fetch_add(1, Ordering::SeqCst);
            self.let_go.wait_while(&mut is_held, |is_held| *is_held);
            self.waiting.fetch_sub(1, Ordering::SeqCst);
        }
        SystemClock.now()
    }

    fn monotonic(&self) -> Duration {
        SystemClock.monotonic()
    }
}

/// An engine with one shard, on which so many followers of `big` are awake.
pub fn crowded_engine(followers: usize) -> (Engine, Arc<HoldingClock>) {
    let clock = Arc::<HoldingClock>::default();
    let held = Arc::clone(&clock) as Arc<dyn Clock>;
    let engine = Engine::start_with(config(1, CelebrityPolicy::PushAll), MemoryJournal::default(), held);
    let crowd: Vec<String> = (0..followers).map(|nth| format!("f{nth}")).collect();
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        engine.follow(crowd.iter().map(|follower| edge(follower, "big")).collect()).await.unwrap();
        join_all(crowd.iter().map(|follower| async { engine.feed(&id(follower), NEWEST).await.unwrap() })).await
    });
    clock.knows_shards.store(true, Ordering::SeqCst);
    (engine, clock)
}

/// A server with such an engine.
fn crowded(followers: usize) -> (Server, Arc<HoldingClock>) {
    let (engine, clock) = crowded_engine(followers);
    (Server::of(engine), clock)
}

/// Does something while the shard of a server is held up.
pub fn while_held<T>(server: &Server, clock: &HoldingClock, act: impl FnOnce() -> T) -> T {
    thread::scope(|scope| {
        clock.hold(true);
        let held = OnDrop(|| clock.hold(false));
        // Pages look at the clock on their shard's thread.
        let page = scope.spawn(|| server.get(&feed("f0")).status);
        eventually("the shard is held up", || clock.waiting.load(Ordering::SeqCst) > 0);
        let done = act();
        drop(held);
        assert_eq!(page.join().unwrap(), 200);
        done
    })
}

#[test]
fn r1_a_post_is_on_the_page_of_its_author_and_readable_by_everyone() {
    let server = Server::start(EngineConfig::default());
    let published = posts(&server, "bob", 1..=3);
    let page = server.get("/v1/users/bob/posts").json();
    let ids: Vec<&Value> = page["items"].as_array().unwrap().iter().map(|item| &item["post"]["id"]).collect();
    assert_eq!(ids, published.iter().rev().collect::<Vec<_>>(), "newest first, for someone who follows nobody");
    assert_eq!(bodies(&server, "/v1/users/cas/posts"), [0; 0]);
    for (post, body) in published.iter().zip(1..) {
        assert_eq!(server.get(&format!("/v1/posts/{post}")).json()["body"], json!(body));
    }
}

#[test]
fn r2_a_post_is_acknowledged_before_it_is_delivered_and_is_then_pushed_to_every_follower() {
    let followers = 50;
    let (server, clock) = crowded(followers);
    while_held(&server, &clock, || {
        let answer = server.post("/v1/posts", &json!({"author": "big", "body": 1}));
        assert_eq!(answer.status, 201, "its followers do not delay the author");
        let stats = server.get("/v1/stats").json();
        assert_eq!((&stats["published"], &stats["deliveries"]), (&json!(1), &json!(0)), "nobody has it yet");
        assert_eq!(bodies(&server, "/v1/users/big/posts"), [1]);
    });
    publish(&server, "big", 2, &json!({}));
    assert_eq!(figure(&server, "deliveries"), 2 * followers as u64);
    assert_eq!(figure(&server, "inboxes/entries"), 2 * followers as u64);
    (0..followers).for_each(|nth| assert_eq!(bodies(&server, &feed(&format!("f{nth}"))), [2, 1]));
}

#[test]
fn r3_posts_of_a_celebrity_are_not_pushed_and_are_merged_on_read() {
    let server = Server::start(config(2, above(2)));
    follow_all(&server, [("ann", "star"), ("eve", "star"), ("fay", "star"), ("ann", "bob")]);
    ["ann", "eve", "fay"].iter().for_each(|reader| assert_eq!(bodies(&server, &feed(reader)), [0; 0]));
    publish(&server, "star", 1, &json!({}));
    publish(&server, "bob", 2, &json!({}));
    publish(&server, "star", 3, &json!({}));
    let is_celebrity = |source: &str| server.get(&format!("/v1/users/{source}")).json()["celebrity"].clone();
    assert_eq!((is_celebrity("star"), is_celebrity("bob")), (json!(true), json!(false)));
    assert_eq!((figure(&server, "deliveries"), figure(&server, "inboxes/entries")), (1, 1), "of bob to ann");
    assert_eq!(bodies(&server, &feed("ann")), [3, 2, 1]);
    assert_eq!(bodies(&server, &feed("eve")), [3, 1]);
}

#[test]
fn r4_sleeping_followers_are_skipped_and_readers_fall_asleep_after_the_active_window() {
    let window = Duration::from_secs(60);
    let (server, clock) = timed(EngineConfig { active_window: window, ..config(2, CelebrityPolicy::PushAll) });
    follow_all(&server, [("ann", "bob"), ("eve", "bob")]);
    let is_active = |reader: &str| server.get(&format!("/v1/users/{reader}")).json()["active"] == json!(true);
    server.get(&feed("ann"));
    assert!(is_active("ann") && !is_active("eve"));
    publish(&server, "bob", 1, &json!({}));
    assert_eq!(figure(&server, "deliveries"), 1, "to ann alone");
    clock.advance(2 * window);
    tokio::runtime::Runtime::new().unwrap().block_on(all_asleep(&server.engine));
    assert!(!is_active("ann"));
    publish(&server, "bob", 2, &json!({}));
    let figures = ["deliveries", "inboxes/count", "inboxes/entries", "sleeps"].map(|name| figure(&server, name));
    assert_eq!(figures, [1, 0, 0, 1], "who sleeps costs nothing");
    assert_eq!(bodies(&server, &feed("ann")), [2, 1]);
}

#[test]
fn r5_a_returning_reader_gets_a_complete_feed_with_the_first_response() {
    let window = Duration::from_secs(60);
    let (server, clock) = timed(EngineConfig { active_window: window, ..config(2, above(2)) });
    let celebrity = [("eve", "star"), ("fay", "star"), ("ann", "star")];
    follow_all(&server, celebrity.into_iter().chain([("ann", "bob"), ("ann", "tag:tea")]));
    server.get(&feed("ann"));
    for round in 0..3 {
        clock.advance(2 * window);
        tokio::runtime::Runtime::new().unwrap().block_on(all_asleep(&server.engine));
        for nth in 0..5 {
            let body = 20 * round + 4 * nth;
            publish(&server, "bob", body, &json!({}));
            publish(&server, "star", body + 1, &json!({}));
            publish(&server, "cas", body + 2, &json!({"tags": ["tea"]}));
            publish(&server, "ann", body + 3, &json!({}));
        }
        let expected: Vec<u64> = (0..20 * (round + 1)).rev().collect();
        let path = format!("{}?limit=100", feed("ann"));
        // Whoever comes at the same time waits for the inbox and is shown no half of it.
        let first = thread::scope(|scope| {
            let reads = [(); 4].map(|()| scope.spawn(|| bodies(&server, &path)));
            reads.map(|read| read.join().unwrap())
        });
        first.iter().for_each(|first| assert_eq!(*first, expected));
        assert_eq!(figure(&server, "wakes"), round + 2);
    }
}

#[test]
fn r6_an_inbox_is_capped_by_count_and_age_and_drops_the_oldest_first() {
    let day = Duration::from_secs(24 * 3_600);
    let settings =
        EngineConfig { inbox_posts: some(5), inbox_age: Some(2 * day), ..config(1, CelebrityPolicy::PushAll) };
    let (server, clock) = timed(settings);
    follow(&server, "ann", "bob");
    server.get(&feed("ann"));
    let published = posts(&server, "bob", 1..=12);
    assert_eq!((figure(&server, "inboxes/entries"), figure(&server, "deliveries")), (5, 12));
    let floor = || server.send("POST", "/v1/users/ann/feed/verify", None, "").json()["floor"].clone();
    let items = walk(&server, &feed("ann"), 100);
    let cursor_of = |post: &str| items.iter().find(|item| item["post"]["id"] == post).unwrap()["cursor"].clone();
    assert_eq!(floor(), cursor_of(&published[6]), "the newest five are above it");
    clock.advance(3 * day);
    publish(&server, "bob", 13, &json!({}));
    assert_eq!(bodies(&server, &format!("{}?limit=1", feed("ann"))), [13]);
    assert_eq!(figure(&server, "inboxes/entries"), 1, "the others are too old");
    assert_eq!(all(&server, "ann"), (1..=13).rev().collect::<Vec<_>>(), "and can still be reached");
}

#[test]
fn r7_a_post_that_is_delivered_twice_appears_once() {
    let server = Server::start(config(2, CelebrityPolicy::PushAll));
    follow_all(&server, [("ann", "bob"), ("ann", "tag:tea"), ("ann", "topic:42")]);
    server.get(&feed("ann"));
    let post = json!({"id": "7", "author": "bob", "body": 1, "tags": ["tea"], "topic": "42"});
    for expected in [201, 200, 200] {
        assert_eq!(server.post("/v1/posts?wait=delivered", &post).status, expected);
    }
    assert_eq!(figure(&server, "deliveries"), 1);
    assert_eq!(figure(&server, "inboxes/entries"), 1);
    assert_eq!(bodies(&server, &feed("ann")), [1]);
    assert_eq!(bodies(&server, "/v1/users/bob/posts"), [1]);
}

#[test]
fn r8_big_fanouts_alternate_with_small_ones_and_continue_after_a_crash() {
    small_fanouts_pass_a_big_one();
    a_crash_in_the_middle_of_a_fanout_loses_nobody();
}

fn small_fanouts_pass_a_big_one() {
    let (followers, burst) = (2 * SLICE_RECIPIENTS_MAX + 200, 100);
    let (server, clock) = crowded(followers);
    follow(&server, "ann", "small");
    server.get(&feed("ann"));
    let deliveries = || server.engine.shared().counters.deliveries.get();
    // The same thread answers each once it is delivered. They come in the order of these answers, however late this thread looks.
    let mut answered = FuturesUnordered::new();
    while_held(&server, &clock, || {
        for body in 0..burst - 1 {
            assert_eq!(server.post("/v1/posts", &json!({"author": "big", "body": body})).status, 201);
        }
        for (author, body) in [("big", burst - 1), ("small", 7)] {
            let published = server.engine.publish(draft(author, &body.to_string()), true);
            answered.push(published.map(move |answer| answer.map(|_| author)));
        }
        assert_eq!(answered.next().now_or_never(), None, "both are asked for");
        eventually("both are accepted", || server.get("/v1/stats").json()["published"] == json!(burst + 1));
        assert_eq!(deliveries(), 0, "all of it is still to be delivered");
    });
    let first = in_time("a post is delivered", answered.next());
    let first = tokio::runtime::Runtime::new().unwrap().block_on(first);
    let whole = burst * followers as u64;
    assert_eq!(first, Some(Ok("small")), "a small author waited for all {whole} deliveries of a huge one");
    publish(&server, "big", burst, &json!({}));
    eventually("all is delivered", || deliveries() == whole + followers as u64 + 1);
    let expected: Vec<u64> = (0..=burst).rev().collect();
    for nth in [0, 1, SLICE_RECIPIENTS_MAX, followers - 1] {
        assert_eq!(all(&server, &format!("f{nth}")), expected, "f{nth}");
    }
    assert_eq!(all(&server, "ann"), [7]);
}

fn a_crash_in_the_middle_of_a_fanout_loses_nobody() {
    let directory = tempfile::tempdir().unwrap();
    let program = Program::start(directory.path(), &["--shards", "1"]);
    let crowd: Vec<String> = (0..SLICE_RECIPIENTS_MAX + 50).map(|nth| format!("f{nth}")).collect();
    let follows: Vec<Value> = crowd.iter().map(|follower| json!({"follower": follower, "source": "big"})).collect();
    let send = |program: &Program, path: &str, body: &Value| {
        let sent = program.agent.post(format!("{}{path}", program.url)).content_type("application/json");
        sent.send(body.to_string()).unwrap().status().as_u16()
    };
    assert_eq!(send(&program, "/v1/follows", &json!({"follows": follows})), 200);
    let read = |program: &Program, follower: &str| {
        let (status, page) = program.get(&format!("{}?limit=100", feed(follower))).unwrap();
        assert_eq!(status, 200, "{page}");
        numbers(page["items"].as_array().unwrap())
    };
    crowd.iter().for_each(|follower| assert_eq!(read(&program, follower), [0; 0]));
    for body in 0..40 {
        assert_eq!(send(&program, "/v1/posts", &json!({"author": "big", "body": body})), 201);
    }
    program.kill();
    let program = Program::start(directory.path(), &["--shards", "1"]);
    let expected: Vec<u64> = (0..40).rev().collect();
    let complete: BTreeSet<&String> = crowd.iter().filter(|follower| read(&program, follower) == expected).collect();
    assert_eq!(complete.len(), crowd.len(), "each has each post once, in order");
    program.kill();
}

#[test]
fn n11_the_cost_of_both_routes_decides_whether_a_source_is_pushed_or_pulled() {
    let (server, _) = timed(config(2, CelebrityPolicy::ByCost(SENSITIVE)));
    follow_all(&server, ["ann", "cas", "dan"].map(|reader| (reader, "bob")));
    let read = |reader: &str, pages: u64| (0..pages).for_each(|_| assert_eq!(server.get(&feed(reader)).status, 200));
    let post = |count: u64| (0..count).map(|body| publish(&server, "bob", body, &json!({}))).collect::<Vec<_>>();
    let bob = || server.get("/v1/users/bob").json();
    let is_pulled = || bob()["celebrity"] == json!(true);
    let mut published = post(2);
    assert!(!is_pulled(), "nobody reads, so to push costs nothing");
    read("ann", 4);
    read("cas", 4);
    published.extend(post(4));
    assert_eq!(figure(&server, "deliveries"), 2 * 4, "only those who read have an inbox");
    assert!(!is_pulled(), "six posts to two readers cost half as much again as eight pages, and no more");
    published.extend(post(1));
    assert!(is_pulled());
    let cost = bob()["cost"].clone();
    let [push, pull] = ["push_us_per_hour", "pull_us_per_hour"].map(|way| cost[way].as_f64().unwrap());
    assert!((push / pull - 14.0 / 8.0).abs() < 0.01, "{cost}");
    assert_eq!(cost["decided_by"], "cost");
    read("ann", 40);
    published.extend(post(1));
    assert!(!is_pulled(), "all these pages cost more than eight posts");
    let route = |post: &String| {
        let explanation = server.get(&format!("/v1/users/ann/feed/explain/{post}")).json();
        assert_eq!(explanation["cost"], bob()["cost"], "bob brings it");
        explanation["route"].clone()
    };
    let routes: Vec<Value> = published.iter().map(route).collect();
    let (push, pull) = ("push", "pull");
    assert_eq!(routes, [push, push, push, push, push, push, pull, push], "each post keeps the route it took");
    let plain = Server::start(config(1, above(2)));
    follow(&plain, "ann", "bob");
    assert_eq!(plain.get("/v1/users/bob").json()["cost"]["decided_by"], "followers", "the simple mode");
}
