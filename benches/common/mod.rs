//! Sizes, worlds and output that all benchmarks share.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    missing_docs,
    unreachable_pub
)]

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tidewire::config::EngineConfig;
use tidewire::engine::Engine;
use tidewire::error::Error;
use tidewire::feed::celebrity::CelebrityPolicy;
use tidewire::feed::event::NewEdge;
use tidewire::feed::page::Range;
use tidewire::feed::post::{Body, Draft};
use tidewire::id::SourceId;
use tidewire::state::reader::PageRequest;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

/// Returns true in a measurement (`cargo bench`), and false in the small run of `cargo test`.
pub fn measuring() -> bool {
    std::env::args().any(|argument| argument == "--bench")
}

/// Returns the first size in a measurement, otherwise the second.
pub fn size(measured: usize, tested: usize) -> usize {
    if measuring() { measured } else { tested }
}

pub const NEWEST: PageRequest = PageRequest { range: Range::Newest, limit: 20 };

pub fn id(text: &str) -> SourceId {
    SourceId::new(text).unwrap()
}

pub fn draft(author: &SourceId) -> Draft {
    let body =
        Body::new(r#"{"text":"Just setting up an inbox, and a hundred bytes of text to go with it, more or less."}"#);
    Draft::new(author.clone(), body.unwrap())
}

pub fn some(count: usize) -> NonZeroUsize {
    NonZeroUsize::new(count).unwrap()
}

pub fn config(inbox_posts: usize, celebrity: CelebrityPolicy) -> EngineConfig {
    EngineConfig {
        shards: some(2),
        inbox_posts: some(inbox_posts),
        celebrity,
        active_readers_max: some(4_000_000),
        store_bytes_max: 64 << 30,
        ..EngineConfig::default()
    }
}

pub fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap()
}

/// Adds edges in batches.
pub async fn follow_all(engine: &Engine, edges: impl Iterator<Item = (SourceId, SourceId)>) {
    let edge = |(follower, source)| NewEdge::new(follower, source);
    let mut batch = Vec::with_capacity(10_000);
    for one in edges.map(edge) {
        batch.push(one);
        if batch.len() == 10_000 {
            engine.follow(std::mem::take(&mut batch)).await.unwrap();
        }
    }
    engine.follow(batch).await.unwrap();
}

/// Wakes all readers, many at a time.
pub async fn wake_all(engine: &Engine, readers: &[SourceId]) {
    let mut waking = JoinSet::new();
    for reader in readers {
        let (engine, reader) = (engine.clone(), reader.clone());
        waking.spawn(async move { engine.feed(&reader, NEWEST).await.map(drop) });
        if waking.len() >= 256 {
            waking.join_next().await.unwrap().unwrap().unwrap();
        }
    }
    while let Some(woken) = waking.join_next().await {
        woken.unwrap().unwrap();
    }
}

/// Reads pages of all readers in turns, 1,000 per second, while `goes_on` returns true for the number of the page. Each page is timed from
/// its intended start. Pages are read on the threads of the runtime; the calling thread does nothing else.
pub async fn read_steadily(
    engine: &Engine,
    readers: &[SourceId],
    mut goes_on: impl FnMut(usize) -> bool,
) -> Histogram<u64> {
    let (period, mut latencies, mut reading) = (Duration::from_micros(1_000), histogram(), JoinSet::new());
    let began = Instant::now();
    for nth in (0..).take_while(|nth| goes_on(*nth)) {
        let intended = began + period * nth as u32;
        // The runtime's timers have a resolution of milliseconds; this thread wakes with microsecond precision.
        std::thread::sleep(intended.saturating_duration_since(Instant::now()));
        let (engine, reader) = (engine.clone(), readers[nth * 7 % readers.len()].clone());
        reading.spawn(async move {
            engine.feed(&reader, NEWEST).await.unwrap();
            intended.elapsed()
        });
        while let Some(done) = reading.try_join_next() {
            latencies.record(done.unwrap().as_nanos() as u64).unwrap();
        }
    }
    while let Some(done) = reading.join_next().await {
        latencies.record(done.unwrap().as_nanos() as u64).unwrap();
    }
    latencies
}

/// Publishes a post, and retries while the engine is overloaded.
pub async fn publish(engine: &Engine, author: &SourceId, wait: bool) {
    loop {
        match engine.publish(draft(author), wait).await {
            Ok(_) => return,
            Err(Error::Overloaded { .. }) => tokio::time::sleep(Duration::from_millis(1)).await,
            Err(other) => panic!("{other}"),
        }
    }
}

/// Returns power-law follower counts with the mean `mean`: the n-th author has a share of n^-0.8.
pub fn power_law(authors: usize, mean: usize, most: usize) -> Vec<usize> {
    let share = |nth: usize| ((nth + 1) as f64).powf(-0.8);
    let total: f64 = (0..authors).map(share).sum();
    let scale = (authors * mean) as f64 / total;
    (0..authors).map(|nth| ((share(nth) * scale) as usize).clamp(1, most)).collect()
}

pub fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

pub fn resident_bytes() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    kib.and_then(|kib| kib.trim().trim_end_matches(" kB").parse::<f64>().ok()).unwrap_or(0.0) * 1_024.0
}

/// Creates a histogram of latencies in nanoseconds.
pub fn histogram() -> Histogram<u64> {
    Histogram::new(3).unwrap()
}

pub fn print_latency(what: &str, latencies: &Histogram<u64>) {
    let micros = |quantile| latencies.value_at_quantile(quantile) as f64 / 1_000.0;
    println!("{what}: p50 {:.1} us, p99 {:.1} us, n {}", micros(0.5), micros(0.99), latencies.len());
}

/// Returns the processor time that all threads of this process have used so far.
pub fn processor_time() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let of_task = |task: std::io::Result<std::fs::DirEntry>| {
        let statistics = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        statistics.split_whitespace().next()?.parse::<u64>().ok()
    };
    Duration::from_nanos(tasks.filter_map(of_task).sum::<u64>())
}
