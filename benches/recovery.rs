//! Measures the size and the duration of a snapshot, and the duration of a restart with and without it.
//!
//! `cargo bench --bench recovery -- READERS POSTS [DIRECTORY]`
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{config, follow_all, id, resident_bytes, runtime, size, wake_all};
use tidewire::clock::SystemClock;
use tidewire::engine::{Engine, StorageConfig};
use tidewire::feed::celebrity::CelebrityPolicy;
use tidewire::feed::post::{Body, Draft};
use tidewire::id::SourceId;
use tidewire::recovery::RecoveryProgress;
use tidewire::runtime::background::snapshotter::SnapshotOptions;
use tidewire::storage::journal::Durability;
use tidewire::storage::journal::writer::JournalOptions;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const INBOX_POSTS: usize = 300;

/// Number of authors that a reader follows, and of the posts of each author: enough to fill the inbox.
const FOLLOWED: usize = 4;
const POSTS_EACH: usize = 100;

fn main() {
    let asked: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let number = |nth: usize| asked.get(nth).and_then(|text| text.parse::<usize>().ok());
    let readers = number(0).unwrap_or(size(100_000, 100));
    let posts = number(1).unwrap_or(size(10_000_000, 1_000));
    let place = asked.get(2).map_or_else(std::env::temp_dir, PathBuf::from);
    let directory = tempfile::tempdir_in(place).unwrap();
    runtime().block_on(fill(&storage(directory.path(), false), readers, posts));
    restart(&storage(directory.path(), true), "with a snapshot");
    restart(&storage(directory.path(), false), "with a compressed snapshot");
    drop_snapshots(directory.path());
    restart(&storage(directory.path(), false), "without a snapshot");
}

fn storage(directory: &Path, compress: bool) -> StorageConfig {
    let never = Duration::from_secs(1 << 30);
    StorageConfig {
        directory: directory.to_owned(),
        journal: JournalOptions { durability: Durability::Never, ..JournalOptions::default() },
        snapshots: SnapshotOptions { interval: never, journal_bytes: u64::MAX, compress, ..SnapshotOptions::default() },
        ..StorageConfig::default()
    }
}

fn open(storage: &StorageConfig) -> Engine {
    let mut config = config(INBOX_POSTS, CelebrityPolicy::PushAll);
    config.outbox_posts = common::some(1 << 40);
    Engine::open(config, storage, Arc::new(SystemClock), &RecoveryProgress::default()).unwrap().0
}

async fn fill(storage: &StorageConfig, readers: usize, posts: usize) {
    let engine = open(storage);
    let followed_authors = (readers / 50).max(FOLLOWED);
    let readers: Vec<SourceId> = (0..readers).map(|n| id(&format!("r{n}"))).collect();
    let author = |n: usize| id(&format!("a{n}"));
    let edges = readers.iter().enumerate().flat_map(|(n, reader)| {
        (0..FOLLOWED).map(move |m| (reader.clone(), author((n * 7 + m * 13) % followed_authors)))
    });
    follow_all(&engine, edges).await;
    wake_all(&engine, &readers).await;
    // Nobody follows the authors of the remaining posts.
    let authors = (posts / POSTS_EACH).max(followed_authors);
    let authors: Vec<SourceId> = (0..authors).map(author).collect();
    let mut publishing = tokio::task::JoinSet::new();
    for nth in 0..posts {
        let (engine, author) = (engine.clone(), authors[nth % authors.len()].clone());
        let body = body(nth);
        publishing.spawn(async move {
            let draft = Draft::new(author, body);
            while engine.publish(draft.clone(), false).await.is_err_and(|refused| refused.is_temporary()) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        if publishing.len() >= 2_000 {
            publishing.join_next().await.unwrap().unwrap();
        }
    }
    while publishing.join_next().await.is_some() {}
    while engine.queues().iter().any(|queue| queue.depth > 0) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let totals = engine.inbox_totals().await;
    println!(
        "{} posts, {} edges, {} inboxes with {} entries on average, {:.0} MB resident",
        engine.shared().world.posts.len(),
        engine.shared().world.edges(),
        totals.inboxes,
        totals.entries / totals.inboxes.max(1),
        resident_bytes() / 1e6
    );
    snapshot(&engine, storage).await;
    end(engine);
}

/// Stops an engine and waits until its memory is released, so that this work does not slow the next engine.
fn end(engine: Engine) {
    let world = Arc::clone(&engine.shared().world);
    engine.shutdown();
    drop(engine);
    while Arc::strong_count(&world) > 1 {
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

/// Returns a body of about a hundred bytes that do not repeat.
fn body(nth: usize) -> Body {
    const WORDS: [&str; 8] = ["tide", "wire", "harbour", "lantern", "signal", "gull", "mooring", "estuary"];
    let mut random = fastrand::Rng::with_seed(nth as u64);
    let mut text = format!("{nth}");
    while text.len() < 100 {
        text += &format!(" {}{}", WORDS[random.usize(0..8)], random.u16(..));
    }
    Body::new(&format!("{{\"text\":\"{text}\"}}")).unwrap()
}

async fn snapshot(engine: &Engine, storage: &StorageConfig) {
    let began = Instant::now();
    let taken = engine.snapshot().await.unwrap();
    let (took, bytes) = (began.elapsed().as_secs_f64(), taken.bytes as f64 / 1e6);
    let how = if storage.snapshots.compress { "zstd" } else { "plain" };
    println!("snapshot, {how}: {bytes:.1} MB in {took:.2} s, {:.0} MB/s", bytes / took);
}

fn restart(storage: &StorageConfig, how: &str) {
    let snapshot_bytes: u64 = files(&storage.directory, "snapshot-").map(|(_, bytes)| bytes).max().unwrap_or(0);
    let began = Instant::now();
    let mut config = config(INBOX_POSTS, CelebrityPolicy::PushAll);
    config.outbox_posts = common::some(1 << 40);
    let opened = Engine::open(config, storage, Arc::new(SystemClock), &RecoveryProgress::default());
    let (engine, report) = opened.unwrap();
    let took = began.elapsed().as_secs_f64();
    println!(
        "restart {how}: {took:.2} s, {:.0} MB of snapshot ({:.0} MB/s), {} events ({:.2} M/s), {} active readers",
        snapshot_bytes as f64 / 1e6,
        snapshot_bytes as f64 / 1e6 / took,
        report.events,
        report.events as f64 / 1e6 / took,
        engine.shared().directory.len()
    );
    if storage.snapshots.compress {
        // The next restart reads this compressed snapshot. It replaces the first one, which has the same sequence.
        runtime().block_on(snapshot(&engine, storage));
    }
    end(engine);
}

fn drop_snapshots(directory: &Path) {
    for (path, _) in files(directory, "snapshot-") {
        fs::remove_file(path).unwrap();
    }
}

fn files(directory: &Path, prefix: &'static str) -> impl Iterator<Item = (PathBuf, u64)> {
    let entries = fs::read_dir(directory).unwrap().map(Result::unwrap);
    let named = entries.filter(move |entry| entry.file_name().to_string_lossy().starts_with(prefix));
    named.map(|entry| (entry.path(), entry.metadata().unwrap().len()))
}
