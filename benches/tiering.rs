//! Measures accepted and refused publishes per second while memory is full and old posts go to the archive: alone, and beside continuous
//! snapshots.
//!
//! `cargo bench --bench tiering -- [STORE_MEGABYTES [PUBLISHES_PER_SECOND [DIRECTORY]]]`: at a rate, and at the maximum rate.
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

mod common;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use common::{config, id, median, runtime, size};
use tidewire::clock::SystemClock;
use tidewire::engine::{Engine, StorageConfig};
use tidewire::error::Error;
use tidewire::feed::celebrity::CelebrityPolicy;
use tidewire::feed::post::{Body, Draft};
use tidewire::recovery::RecoveryProgress;
use tidewire::runtime::background::snapshotter::SnapshotOptions;
use tokio::task::JoinSet;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const AUTHORS: usize = 1_000;
const CLIENTS: usize = 32;
const BODY_BYTES: usize = 900;

fn main() {
    let asked: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let number = |nth: usize| asked.get(nth).and_then(|text| text.parse::<usize>().ok());
    let store_bytes = number(0).map_or(size(96 << 20, 1 << 20), |megabytes| megabytes << 20);
    let rate = number(1).unwrap_or(4_000);
    let place = asked.get(2).map_or_else(std::env::temp_dir, PathBuf::from);
    for rate in [Some(rate), None] {
        let directory = tempfile::tempdir_in(&place).unwrap();
        runtime().block_on(run(directory.path(), store_bytes, rate));
    }
}

fn open(directory: &Path, store_bytes: usize) -> Engine {
    let never = Duration::from_secs(1 << 30);
    let snapshots = SnapshotOptions { interval: never, journal_bytes: u64::MAX, ..SnapshotOptions::default() };
    let storage = StorageConfig { directory: directory.to_owned(), snapshots, ..StorageConfig::default() };
    let mut config = config(300, CelebrityPolicy::PushAll);
    config.store_bytes_max = store_bytes;
    Engine::open(config, &storage, Arc::new(SystemClock), &RecoveryProgress::default()).unwrap().0
}

/// Numbers of accepted and refused publishes.
#[derive(Default)]
struct Counts {
    accepted: AtomicUsize,
    refused: AtomicUsize,
}

/// Publishes with several clients while `goes_on` returns true: in a closed loop, or at a rate if given. A millisecond after a refusal, a
/// client continues with its next post.
async fn load(
    engine: &Engine,
    rate: Option<usize>,
    goes_on: impl Fn(Duration) -> bool + Clone + Send + 'static,
) -> (Counts, Duration) {
    let (counts, began) = (Arc::new(Counts::default()), Instant::now());
    let mut working = JoinSet::new();
    for client in 0..CLIENTS {
        let (engine, counts, goes_on) = (engine.clone(), Arc::clone(&counts), goes_on.clone());
        working.spawn(async move {
            let text = "x".repeat(BODY_BYTES);
            let mut nth = 0;
            while goes_on(began.elapsed()) {
                if let Some(rate) = rate {
                    let due = began + Duration::from_secs_f64((nth * CLIENTS + client) as f64 / rate as f64);
                    tokio::time::sleep_until(due.into()).await;
                }
                nth += 1;
                let author = id(&format!("a{}", (nth * CLIENTS + client) % AUTHORS));
                let draft = Draft::new(author, Body::new(&format!("\"{nth} {text}\"")).unwrap());
                match engine.publish(draft, false).await {
                    Ok(_) => drop(counts.accepted.fetch_add(1, Ordering::Relaxed)),
                    Err(Error::Overloaded { .. }) => {
                        counts.refused.fetch_add(1, Ordering::Relaxed);
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                    Err(other) => panic!("{other}"),
                }
            }
        });
    }
    while let Some(ended) = working.join_next().await {
        ended.unwrap();
    }
    (Arc::into_inner(counts).unwrap(), began.elapsed())
}

async fn run(directory: &Path, store_bytes: usize, rate: Option<usize>) {
    let engine = open(directory, store_bytes);
    let world = Arc::clone(&engine.shared().world);
    // Publish until the first posts are archived.
    load(&engine, None, move |_| !world.has_archived()).await;
    let time = Duration::from_millis(size(6_000, 20) as u64);
    let mut rates = [Vec::new(), Vec::new()];
    let mut refused = [0, 0];
    let (mut taken, mut bytes, mut seconds) = (0, 0, 0.0);
    for turn in 0..size(6, 2) {
        let stop = Arc::new(AtomicBool::new(turn % 2 == 0));
        let (snapshots, stopped) = (engine.clone(), Arc::clone(&stop));
        let taking = tokio::spawn(async move {
            let (mut taken, began) = (Vec::new(), Instant::now());
            while !stopped.load(Ordering::Relaxed) {
                taken.push(snapshots.snapshot().await.unwrap().bytes);
            }
            (taken, began.elapsed())
        });
        let (counts, took) = load(&engine, rate, move |since| since < time).await;
        stop.store(true, Ordering::Relaxed);
        let (sizes, snapshots_took) = taking.await.unwrap();
        if turn % 2 == 1 {
            taken += sizes.len();
            bytes += sizes.iter().sum::<u64>();
            seconds += snapshots_took.as_secs_f64();
        }
        rates[turn % 2].push(counts.accepted.into_inner() as f64 / took.as_secs_f64());
        refused[turn % 2] += counts.refused.into_inner();
    }
    let [alone, beside] = rates.map(median);
    let how = rate.map_or("as fast as it goes".to_owned(), |rate| format!("at {rate}/s"));
    println!(
        "{how}: {alone:.0} accepted/s and {} refused alone; {beside:.0} accepted/s ({:.0} %) and {} refused beside {taken} \
         snapshots of {:.0} MB, {:.1} s each",
        refused[0],
        100.0 * beside / alone,
        refused[1],
        bytes as f64 / 1e6 / taken as f64,
        seconds / taken as f64
    );
    engine.shutdown();
}
