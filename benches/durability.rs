//! Measures acknowledged publishes per second: by durability policy and number of clients, around one popular post, beside a snapshot, and
//! beside follows with a backfill of archived posts.
//!
//! `cargo bench --bench durability -- [DIRECTORY] [PART]`: on the disk of that directory [default: the directory of temporary files]; only
//! the part `policies`, `popular`, `snapshot` or `backfill` [default: all].
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

mod common;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{config, draft, id, median, runtime, size};
use hdrhistogram::Histogram;
use tidewire::clock::SystemClock;
use tidewire::engine::{Engine, StorageConfig};
use tidewire::feed::celebrity::CelebrityPolicy;
use tidewire::feed::event::NewEdge;
use tidewire::feed::post::Draft;
use tidewire::id::{PostId, SourceId};
use tidewire::recovery::RecoveryProgress;
use tidewire::storage::files::faulty::{FaultyFiles, Plan};
use tidewire::storage::files::memory::MemoryFiles;
use tidewire::storage::journal::Durability;
use tidewire::storage::journal::writer::JournalOptions;
use tokio::task::JoinSet;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const POLICIES: [(&str, Durability); 3] =
    [("always", Durability::Always), ("everysec", Durability::EverySecond), ("no", Durability::Never)];

const CLIENTS: [usize; 3] = [1, 64, 1_000];

const PARTS: [&str; 4] = ["policies", "popular", "snapshot", "backfill"];

/// Changes the nth draft of a client so that it refers to a post.
type Change = fn(usize, Draft, PostId) -> Draft;

/// The kinds of posts around one popular post: a name, and the change of the nth draft of a client.
const AROUND: [(&str, Change); 4] = [
    ("plain posts", |_, draft, _| draft),
    ("replies to one", |_, draft, post| Draft { reply_to: Some(post), ..draft }),
    ("reposts of one", |_, draft, post| Draft { repost_of: Some(post), ..draft }),
    ("half replies to one", |nth, draft, post| Draft { reply_to: (nth % 2 == 0).then_some(post), ..draft }),
];

fn main() {
    let asked: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let (parts, places): (Vec<_>, Vec<_>) = asked.into_iter().partition(|asked| PARTS.contains(&asked.as_str()));
    let place = places.first().map_or_else(std::env::temp_dir, PathBuf::from);
    let is_asked = |part: &str| parts.is_empty() || parts.iter().any(|asked| asked == part);
    runtime().block_on(async {
        if is_asked("policies") {
            policies(&place).await;
        }
        if is_asked("popular") {
            around_a_popular_post(&place).await;
        }
        if is_asked("snapshot") {
            beside_a_snapshot(&place).await;
        }
        if is_asked("backfill") {
            beside_backfills(&place).await;
        }
    });
}

fn open(directory: &Path, durability: Durability) -> Engine {
    let journal = JournalOptions { durability, ..JournalOptions::default() };
    let storage = StorageConfig { directory: directory.to_owned(), journal, ..StorageConfig::default() };
    let mut config = config(300, CelebrityPolicy::Above(std::num::NonZeroU64::new(1_000).unwrap()));
    // Archiving is not part of this measurement.
    config.outbox_posts = common::some(1 << 40);
    Engine::open(config, &storage, Arc::new(SystemClock), &RecoveryProgress::default()).unwrap().0
}

/// Runs clients in a closed loop of publishes. Returns publishes per second and latencies in nanoseconds.
async fn load(engine: &Engine, clients: usize, time: Duration) -> (f64, Histogram<u64>) {
    load_of(engine, clients, time, |_, draft| draft).await
}

/// Does the same with the drafts that `change` returns.
async fn load_of(
    engine: &Engine,
    clients: usize,
    time: Duration,
    change: impl Fn(usize, Draft) -> Draft + Copy + Send + 'static,
) -> (f64, Histogram<u64>) {
    let mut working = JoinSet::new();
    let began = Instant::now();
    for client in 0..clients {
        let (engine, author): (_, SourceId) = (engine.clone(), id(&format!("a{client}")));
        working.spawn(async move {
            let mut latencies = Histogram::<u64>::new(3).unwrap();
            for nth in client.. {
                if began.elapsed() >= time {
                    break;
                }
                let asked = Instant::now();
                let draft = change(nth, draft(&author));
                // On a busy machine the fan-out may lag behind. The latency includes the time of the retries.
                while let Err(refused) = engine.publish(draft.clone(), false).await {
                    assert!(refused.is_temporary(), "{refused}");
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                latencies.record(asked.elapsed().as_nanos() as u64).unwrap();
            }
            latencies
        });
    }
    let mut all = Histogram::<u64>::new(3).unwrap();
    while let Some(latencies) = working.join_next().await {
        all.add(latencies.unwrap()).unwrap();
    }
    (all.len() as f64 / began.elapsed().as_secs_f64(), all)
}

fn micros(latencies: &Histogram<u64>, quantile: f64) -> f64 {
    latencies.value_at_quantile(quantile) as f64 / 1e3
}

async fn policies(place: &Path) {
    let time = Duration::from_millis(size(1_500, 10) as u64);
    let mut rows: Vec<(String, Vec<f64>, Histogram<u64>)> = Vec::new();
    for round in 0..size(3, 1) {
        for (nth, (name, durability)) in POLICIES.into_iter().enumerate() {
            for (mth, clients) in CLIENTS.into_iter().enumerate() {
                let directory = tempfile::tempdir_in(place).unwrap();
                let engine = open(directory.path(), durability);
                let (rate, latencies) = load(&engine, clients, time).await;
                engine.shutdown();
                if round == 0 {
                    let name = format!("{name}, {clients} clients");
                    rows.push((name, Vec::new(), Histogram::new(3).unwrap()));
                }
                let row = &mut rows[nth * CLIENTS.len() + mth];
                row.1.push(rate);
                row.2.add(latencies).unwrap();
            }
        }
    }
    for (name, rates, latencies) in rows {
        let (p50, p99) = (micros(&latencies, 0.5), micros(&latencies, 0.99));
        println!("{name}: {:.0} publishes/s, p50 {p50:.0} us, p99 {p99:.0} us", median(rates));
    }
}

/// Measures posts that refer to one post, and plain posts, in turns: on the disk, and with 5 ms for each sync.
async fn around_a_popular_post(place: &Path) {
    let time = Duration::from_millis(size(1_500, 10) as u64);
    for is_slow in [false, true] {
        let mut rows = AROUND.map(|(name, _)| (name, Vec::new(), Histogram::<u64>::new(3).unwrap()));
        for _ in 0..size(3, 1) {
            for ((_, change), row) in AROUND.iter().zip(&mut rows) {
                let directory = tempfile::tempdir_in(place).unwrap();
                let engine = if is_slow { open_slow() } else { open(directory.path(), Durability::Always) };
                let (change, popular) = (*change, engine.publish(draft(&id("star")), false).await.unwrap().post.id());
                let (rate, latencies) =
                    load_of(&engine, 512, time, move |nth, draft| change(nth, draft, popular)).await;
                engine.shutdown();
                row.1.push(rate);
                row.2.add(latencies).unwrap();
            }
        }
        let disk = if is_slow { "5 ms for each sync" } else { "the disk" };
        for (name, rates, latencies) in rows {
            let (p50, p99) = (micros(&latencies, 0.5), micros(&latencies, 0.99));
            println!("{disk}, 512 clients, {name}: {:.0} publishes/s, p50 {p50:.0} us, p99 {p99:.0} us", median(rates));
        }
    }
}

/// Opens an engine on files in memory, with 5 ms for each sync.
fn open_slow() -> Engine {
    let plan = Plan { sync_takes: Duration::from_millis(5), ..Plan::default() };
    let files = Arc::new(FaultyFiles::new(MemoryFiles::default(), plan));
    let config = config(300, CelebrityPolicy::Above(std::num::NonZeroU64::new(1_000).unwrap()));
    let (storage, progress) = (StorageConfig::default(), RecoveryProgress::default());
    Engine::open_on(config, files, None, None, &storage, Arc::new(SystemClock), &progress).unwrap().0
}

/// Measures plain posts alone, and beside one client whose follows each bring 10,000 posts, most of them archived.
async fn beside_backfills(place: &Path) {
    let (time, backfill) = (Duration::from_millis(size(2_000, 10) as u64), size(10_000, 100));
    let directory = tempfile::tempdir_in(place).unwrap();
    let storage = StorageConfig { directory: directory.path().to_owned(), ..StorageConfig::default() };
    let config = config(300, CelebrityPolicy::Above(std::num::NonZeroU64::new(1_000).unwrap()));
    let engine = Engine::open(config, &storage, Arc::new(SystemClock), &RecoveryProgress::default()).unwrap().0;
    let mut publishing = JoinSet::new();
    for _ in 0..64 {
        let engine = engine.clone();
        publishing.spawn(async move {
            for _ in 0..backfill * 2 / 64 {
                engine.publish(draft(&id("star")), false).await.unwrap();
            }
        });
    }
    while publishing.join_next().await.is_some() {}
    let mut rates = [Vec::new(), Vec::new()];
    let mut follows = 0;
    for turn in 0..size(6, 2) {
        let stop = Arc::new(AtomicBool::new(turn % 2 == 0));
        let (following, stopped) = (engine.clone(), Arc::clone(&stop));
        let followed = tokio::spawn(async move {
            let mut followed = 0;
            while !stopped.load(Ordering::Relaxed) {
                let follower = id(&format!("r{turn}-{followed}"));
                let edge = NewEdge { backfill: Some(backfill), ..NewEdge::new(follower, id("star")) };
                following.follow(vec![edge]).await.unwrap();
                followed += 1;
            }
            followed
        });
        let (rate, _) = load(&engine, 8, time).await;
        stop.store(true, Ordering::Relaxed);
        follows += followed.await.unwrap();
        rates[turn % 2].push(rate);
    }
    let [alone, beside] = rates.map(median);
    println!(
        "always, 8 clients: {alone:.0} publishes/s; beside {follows} follows with {backfill} earlier posts: {beside:.0}"
    );
    engine.shutdown();
}

/// Measures the same load without snapshots and with continuous snapshots, in turns.
async fn beside_a_snapshot(place: &Path) {
    let time = Duration::from_millis(size(1_500, 10) as u64);
    for (name, durability) in POLICIES {
        let directory = tempfile::tempdir_in(place).unwrap();
        let engine = open(directory.path(), durability);
        // The snapshots need some content.
        load(&engine, 1_000, Duration::from_millis(size(4_000, 10) as u64)).await;
        let mut both = [Histogram::<u64>::new(3).unwrap(), Histogram::new(3).unwrap()];
        let mut rates = [Vec::new(), Vec::new()];
        let mut taken = 0;
        for turn in 0..size(6, 2) {
            let stop = Arc::new(AtomicBool::new(turn % 2 == 0));
            let (snapshots, stopped) = (engine.clone(), Arc::clone(&stop));
            let taking = tokio::spawn(async move {
                let mut taken = 0;
                while !stopped.load(Ordering::Relaxed) {
                    snapshots.snapshot().await.unwrap();
                    taken += 1;
                }
                taken
            });
            let (rate, latencies) = load(&engine, 64, time).await;
            stop.store(true, Ordering::Relaxed);
            taken += taking.await.unwrap();
            both[turn % 2].add(latencies).unwrap();
            rates[turn % 2].push(rate);
        }
        let [without, with] = both.map(|latencies| (micros(&latencies, 0.5), micros(&latencies, 0.99)));
        let [rate_without, rate_with] = rates.map(median);
        println!(
            "{name}, 64 clients: {rate_without:.0} publishes/s, p50 {:.0}, p99 {:.0} us; beside {taken} snapshots of \
             {} posts: {rate_with:.0} publishes/s, p50 {:.0}, p99 {:.0} us; p99 ratio {:.1}",
            without.0,
            without.1,
            engine.shared().world.posts.len(),
            with.0,
            with.1,
            with.1 / without.1
        );
        engine.shutdown();
    }
}
