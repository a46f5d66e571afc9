//! Acknowledged publishes per second by durability policy and number of clients, and beside a snapshot.
//!
//! `cargo bench --bench durability -- [DIRECTORY]`: on the disk of that directory, by default that of temporary files.
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
use tidewire::feed::policy::Policy;
use tidewire::id::SourceId;
use tidewire::storage::journal::Durability;
use tidewire::storage::journal::writer::JournalOptions;
use tidewire::storage::recovery::Progress;
use tokio::task::JoinSet;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const POLICIES: [(&str, Durability); 3] =
    [("always", Durability::Always), ("everysec", Durability::EverySecond), ("no", Durability::Never)];

const CLIENTS: [usize; 3] = [1, 64, 1_000];

fn main() {
    let asked = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let place = asked.map_or_else(std::env::temp_dir, PathBuf::from);
    runtime().block_on(async {
        policies(&place).await;
        beside_a_snapshot(&place).await;
    });
}

fn open(directory: &Path, durability: Durability) -> Engine {
    let journal = JournalOptions { durability, ..JournalOptions::default() };
    let storage = StorageConfig { directory: directory.to_owned(), journal, ..StorageConfig::default() };
    let mut config = config(300, Policy::Above(std::num::NonZeroU64::new(1_000).unwrap()));
    // What goes to the archive has its own price: it is left out here.
    config.outbox_posts = common::some(1 << 40);
    Engine::open(config, &storage, Arc::new(SystemClock), &Progress::default()).unwrap().0
}

/// Clients that publish, each again as soon as it is answered. Returns publishes per second and latencies in nanoseconds.
async fn load(engine: &Engine, clients: usize, time: Duration) -> (f64, Histogram<u64>) {
    let mut working = JoinSet::new();
    let began = Instant::now();
    for client in 0..clients {
        let (engine, author): (_, SourceId) = (engine.clone(), id(&format!("a{client}")));
        working.spawn(async move {
            let mut latencies = Histogram::<u64>::new(3).unwrap();
            while began.elapsed() < time {
                let asked = Instant::now();
                engine.publish(draft(&author), false).await.unwrap();
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

/// The same load with no snapshot and with one after the other, in turns.
async fn beside_a_snapshot(place: &Path) {
    let time = Duration::from_millis(size(1_500, 10) as u64);
    for (name, durability) in POLICIES {
        let directory = tempfile::tempdir_in(place).unwrap();
        let engine = open(directory.path(), durability);
        // Something to write in each snapshot.
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
