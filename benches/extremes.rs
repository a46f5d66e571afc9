//! Measures extremes: millions of posts for one reader, a reader with the maximum number of follows, and far more readers than may be
//! awake. It reports their pages, and the pages of other readers on the same shard.
//!
//! `cargo bench --bench extremes -- PARTS` with `flood`, `follows`, `awake` and `shelved`. `shelved` is the flood with a data directory. It
//! takes minutes, and a measurement runs it only on request.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::disallowed_methods, missing_docs)]

mod common;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use common::{
    NEWEST, config, follow_all, histogram, id, measuring, print_latency, publish, read_steadily, resident_bytes, size,
    some, wake_all,
};
use hdrhistogram::Histogram;
use tidewire::clock::SystemClock;
use tidewire::config::EngineConfig;
use tidewire::engine::{Engine, StorageConfig};
use tidewire::error::Error;
use tidewire::feed::celebrity::CelebrityPolicy;
use tidewire::feed::post::{Body, Draft};
use tidewire::id::SourceId;
use tidewire::recovery::RecoveryProgress;
use tidewire::runtime::message::InboxTotals;
use tokio::runtime::{Handle, Runtime};
use tokio::task::{JoinHandle, JoinSet};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const PARTS: [&str; 4] = ["flood", "shelved", "follows", "awake"];

const INBOX_POSTS: usize = 300;

/// Number of concurrent publishes.
const PUBLISHERS: usize = 64;

/// Number of clients that read in a closed loop while readers wake and fall asleep.
const CLIENTS: usize = 16;

fn main() {
    let asked: Vec<String> = std::env::args().skip(1).filter(|asked| PARTS.contains(&asked.as_str())).collect();
    let wants = |part: &str| {
        if asked.is_empty() { part != "shelved" || !measuring() } else { asked.iter().any(|asked| asked == part) }
    };
    // On a shared runtime, neighbours would wait for the tasks of the crowd before their requests reach the engine.
    let (runtime, crowd) = (threads(), threads());
    runtime.block_on(async {
        let crowd = crowd.handle();
        // The flood is first: the allocator reuses free memory of earlier parts, and this would hide the growth.
        if wants("flood") {
            flood("flood in memory", Engine::start(config(INBOX_POSTS, CelebrityPolicy::PushAll)), crowd).await;
        }
        if wants("shelved") {
            let directory = tempfile::tempdir().unwrap();
            flood("flood with a data directory", open(directory.path()), crowd).await;
        }
        if wants("follows") {
            follows(crowd).await;
        }
        if wants("awake") {
            awake(crowd).await;
        }
    });
}

fn threads() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap()
}

/// Opens an engine on a data directory, with less memory than all posts need.
fn open(directory: &Path) -> Engine {
    let storage = StorageConfig { directory: directory.to_owned(), ..StorageConfig::default() };
    let config = EngineConfig {
        store_bytes_max: 1 << 30,
        outbox_posts: some(size(1_000, 2)),
        ..config(INBOX_POSTS, CelebrityPolicy::PushAll)
    };
    Engine::open(config, &storage, Arc::new(SystemClock), &RecoveryProgress::default()).unwrap().0
}

fn named(name: &str, count: usize) -> Arc<[SourceId]> {
    (0..count).map(|nth| id(&format!("{name}{nth}"))).collect()
}

/// Returns edges from each reader to `each` of the authors; most readers follow different ones.
fn edges(readers: &[SourceId], authors: &[SourceId], each: usize) -> impl Iterator<Item = (SourceId, SourceId)> {
    readers.iter().enumerate().flat_map(move |(nth, reader)| {
        (0..each).map(move |n| (reader.clone(), authors[(nth * 7 + n) % authors.len()].clone()))
    })
}

/// Creates readers on the shard of `reader` who follow other authors, and wakes them.
async fn neighbours(engine: &Engine, reader: &SourceId) -> Vec<SourceId> {
    let (candidates, authors) = (named("n", size(2_000, 40)), named("a", 50));
    follow_all(engine, edges(&candidates, &authors, 20)).await;
    for author in authors.iter().cycle().take(size(500, 50)) {
        publish(engine, author, true).await;
    }
    let shard = shard_of(engine, reader);
    let near: Vec<SourceId> =
        candidates.iter().filter(|candidate| shard_of(engine, candidate) == shard).cloned().collect();
    wake_all(engine, &near).await;
    near
}

fn shard_of(engine: &Engine, reader: &SourceId) -> usize {
    let world = &engine.shared().world;
    world.sharding.shard_of(world.sources.get(reader).unwrap().slot)
}

/// Publishes for all authors in turns, as fast as the engine accepts posts. Returns the time until all posts are delivered.
fn publish_all(engine: &Engine, authors: &Arc<[SourceId]>, posts: usize, crowd: &Handle) -> JoinHandle<Duration> {
    let (engine, authors, next) = (engine.clone(), Arc::clone(authors), Arc::new(AtomicUsize::new(0)));
    crowd.spawn(async move {
        let began = Instant::now();
        let mut publishing = JoinSet::new();
        for _ in 0..PUBLISHERS {
            let (engine, authors, next) = (engine.clone(), Arc::clone(&authors), Arc::clone(&next));
            publishing.spawn(async move {
                let body = Body::new(r#"{"text":"one of many"}"#).unwrap();
                loop {
                    let nth = next.fetch_add(1, Ordering::Relaxed);
                    if nth >= posts {
                        return;
                    }
                    let draft = Draft::new(authors[nth % authors.len()].clone(), body.clone());
                    while let Err(cause) = engine.publish(draft.clone(), false).await {
                        assert!(matches!(cause, Error::Overloaded { .. }), "{cause}");
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                }
            });
        }
        publishing.join_all().await;
        while !engine.shared().open_fanouts.is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        began.elapsed()
    })
}

/// The memory and the content of an engine.
struct Footprint {
    inboxes: InboxTotals,
    posts_in_memory: usize,
    resident_bytes: f64,
}

impl Footprint {
    async fn of(engine: &Engine) -> Self {
        Self {
            inboxes: engine.inbox_totals().await,
            posts_in_memory: engine.shared().world.posts.len(),
            resident_bytes: resident_bytes(),
        }
    }
}

/// Measures many authors whose posts all go to one reader.
async fn flood(what: &str, engine: Engine, crowd: &Handle) {
    let (posts, reader, authors) = (size(5_000_000, 2_000), id("reader"), named("f", size(1_000, 20)));
    follow_all(&engine, authors.iter().map(|author| (reader.clone(), author.clone()))).await;
    let neighbours = neighbours(&engine, &reader).await;
    engine.feed(&reader, NEWEST).await.unwrap();
    let pages = size(5_000, 20);
    let alone = read_steadily(&engine, &neighbours, |nth| nth < pages).await;
    print_latency(&format!("{what}, neighbours alone"), &alone);

    let (before, refused_before) = (Footprint::of(&engine).await, engine.shared().counters.shed.get());
    let (mut backlog_most, mut resident_most) = (0_usize, before.resident_bytes);
    let flooding = publish_all(&engine, &authors, posts, crowd);
    let goes_on = |nth: usize| {
        backlog_most = backlog_most.max(engine.shared().open_fanouts.deliveries());
        if nth.is_multiple_of(100) {
            resident_most = resident_most.max(resident_bytes());
        }
        !flooding.is_finished()
    };
    let beside = read_steadily(&engine, &neighbours, goes_on).await;
    let took = flooding.await.unwrap().as_secs_f64();
    print_latency(&format!("{what}, neighbours beside it"), &beside);
    println!(
        "{what}: {posts} posts in {took:.1} s ({:.0} k/s), at most {backlog_most} deliveries due, {} refusals",
        posts as f64 / took / 1e3,
        engine.shared().counters.shed.get() - refused_before,
    );
    let after = Footprint::of(&engine).await;
    let (grown, most) = (after.resident_bytes - before.resident_bytes, resident_most.max(after.resident_bytes));
    println!(
        "{what}: {} entries more in inboxes, {} bytes; {} posts more in memory; {:.0} MB resident, {:.0} MB more, \
         {:.0} bytes a post; at most {:.0} MB",
        after.inboxes.entries.saturating_sub(before.inboxes.entries),
        after.inboxes.bytes.saturating_sub(before.inboxes.bytes),
        after.posts_in_memory.saturating_sub(before.posts_in_memory),
        after.resident_bytes / 1e6,
        grown / 1e6,
        grown / posts as f64,
        most / 1e6,
    );
    engine.shutdown();
}

/// Measures one reader who follows the default maximum of sources, and one with far more, as an operator may allow.
async fn follows(crowd: &Handle) {
    for sources in [size(EngineConfig::default().following_max, 50), size(100_000, 100)] {
        for (how, policy) in [("pushed", CelebrityPolicy::PushAll), ("pulled", CelebrityPolicy::PullAll)] {
            let engine = Engine::start(EngineConfig { following_max: sources, ..config(INBOX_POSTS, policy) });
            follow(&engine, &format!("{sources} sources, {how}"), sources, crowd).await;
            engine.shutdown();
        }
    }
}

async fn follow(engine: &Engine, what: &str, sources: usize, crowd: &Handle) {
    let (reader, authors) = (id("reader"), named("f", sources));
    follow_all(engine, authors.iter().map(|author| (reader.clone(), author.clone()))).await;
    let neighbours = neighbours(engine, &reader).await;
    publish_all(engine, &authors, 3 * sources, crowd).await.unwrap();
    let began = Instant::now();
    engine.feed(&reader, NEWEST).await.unwrap();
    println!("{what}: woken and answered in {:.1} ms", began.elapsed().as_secs_f64() * 1e3);

    let (pages, time) = (size(3_000, 20), Duration::from_millis(size(3_000, 10) as u64));
    let (own, ()) = read_beside(engine, &reader, crowd, tokio::time::sleep(time)).await;
    own.print(&format!("{what}, its pages alone"));
    let alone = read_steadily(engine, &neighbours, |nth| nth < pages).await;
    print_latency(&format!("{what}, neighbours alone"), &alone);
    let steadily = read_steadily(engine, &neighbours, |nth| nth < pages);
    let (own, beside) = read_beside(engine, &reader, crowd, steadily).await;
    own.print(&format!("{what}, its pages beside neighbours"));
    print_latency(&format!("{what}, neighbours beside it"), &beside);
}

/// The pages of one reader.
struct OwnPages {
    latencies: Histogram<u64>,
    partial: usize,
    left_out_most: usize,
    entries_least: usize,
}

impl OwnPages {
    fn print(&self, what: &str) {
        print_latency(what, &self.latencies);
        println!(
            "    {} of them partial, at most {} sources left out, at least {} entries",
            self.partial, self.left_out_most, self.entries_least
        );
    }
}

/// Reads the pages of one reader one after the other until `something` has ended.
async fn read_beside<T>(
    engine: &Engine,
    reader: &SourceId,
    crowd: &Handle,
    something: impl Future<Output = T>,
) -> (OwnPages, T) {
    let over = Arc::new(AtomicBool::new(false));
    let reading = crowd.spawn({
        let (engine, reader, over) = (engine.clone(), reader.clone(), Arc::clone(&over));
        async move {
            let mut own = OwnPages { latencies: histogram(), partial: 0, left_out_most: 0, entries_least: usize::MAX };
            loop {
                let asked = Instant::now();
                let page = engine.feed(&reader, NEWEST).await.unwrap();
                own.latencies.record(asked.elapsed().as_nanos() as u64).unwrap();
                own.partial += usize::from(!page.partial.is_empty());
                own.left_out_most = own.left_out_most.max(page.partial.len());
                own.entries_least = own.entries_least.min(page.page.items.len());
                if over.load(Ordering::Relaxed) {
                    return own;
                }
            }
        }
    });
    let outcome = something.await;
    over.store(true, Ordering::Relaxed);
    (reading.await.unwrap(), outcome)
}

/// Reads with ten times as many readers as may be awake at once, and then with a limit that is high enough for all.
async fn awake(crowd: &Handle) {
    let tenth = size(2_000, 50);
    let (readers, authors) = (named("r", 10 * tenth), named("a", size(1_000, 20)));
    // Each shard has an equal share of the limit, but not exactly an equal share of the readers. The higher limit has room to spare.
    for most in [tenth, 20 * tenth] {
        let settings = EngineConfig { active_readers_max: some(most), ..config(INBOX_POSTS, CelebrityPolicy::PushAll) };
        let engine = Engine::start(settings);
        follow_all(&engine, edges(&readers, &authors, size(50, 5))).await;
        publish_all(&engine, &authors, 20 * authors.len(), crowd).await.unwrap();
        wake_all(&engine, &readers).await;
        for in_turn in [true, false] {
            churn(&engine, &readers, in_turn, crowd).await;
        }
        engine.shutdown();
    }
}

/// Reads feeds of all readers with several clients, which wakes sleeping readers.
async fn churn(engine: &Engine, readers: &Arc<[SourceId]>, in_turn: bool, crowd: &Handle) {
    let (over, next) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let woken_before = engine.shared().counters.wakes.get();
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        let (engine, readers) = (engine.clone(), Arc::clone(readers));
        let (over, next) = (Arc::clone(&over), Arc::clone(&next));
        let reading = async move {
            let mut random = fastrand::Rng::with_seed(client as u64);
            let (mut latencies, mut refused) = (histogram(), 0);
            while !over.load(Ordering::Relaxed) {
                let turn = if in_turn { next.fetch_add(1, Ordering::Relaxed) } else { random.usize(..readers.len()) };
                let asked = Instant::now();
                match engine.feed(&readers[turn % readers.len()], NEWEST).await {
                    Ok(_) => latencies.record(asked.elapsed().as_nanos() as u64).unwrap(),
                    Err(Error::Overloaded { .. }) => refused += 1,
                    Err(other) => panic!("{other}"),
                }
            }
            (latencies, refused)
        };
        clients.spawn_on(reading, crowd);
    }
    let (time, began, mut awake_most) = (Duration::from_millis(size(3_000, 10) as u64), Instant::now(), 0_usize);
    while began.elapsed() < time {
        tokio::time::sleep(Duration::from_millis(1)).await;
        awake_most = awake_most.max(engine.shared().directory.len());
    }
    over.store(true, Ordering::Relaxed);
    let (mut pages, mut refused): (_, usize) = (histogram(), 0);
    for (latencies, of_client) in clients.join_all().await {
        pages.add(latencies).unwrap();
        refused += of_client;
    }
    let took = began.elapsed().as_secs_f64();
    let (may, how) = (engine.shared().config.active_readers_max, if in_turn { "in turn" } else { "at random" });
    let what = format!("{} readers, {may} may be awake, read {how}", readers.len());
    print_latency(&format!("{what}, {CLIENTS} clients"), &pages);
    println!(
        "{what}: {:.1} k pages/s, {} wake-ups, at most {awake_most} awake, {refused} refused",
        pages.len() as f64 / took / 1e3,
        engine.shared().counters.wakes.get() - woken_before,
    );
}
