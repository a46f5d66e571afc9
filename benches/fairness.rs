//! Measures the time until posts of small authors are in all inboxes, with and without a huge author beside them.
//!
//! `cargo bench --bench fairness -- FOLLOWERS_OF_THE_HUGE_ONE SHARDS INBOX_POSTS`: with full inboxes, which no longer grow. If the last
//! number is 0, the inboxes hold 300 posts and are empty at the start.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::disallowed_methods, missing_docs)]

mod common;

use std::time::{Duration, Instant};

use common::{config, draft, follow_all, histogram, id, print_latency, publish, size, wake_all};
use tidewire::config::EngineConfig;
use tidewire::engine::Engine;
use tidewire::feed::celebrity::CelebrityPolicy;
use tidewire::id::SourceId;
use tokio::task::JoinSet;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const SMALL_FANOUT: usize = 50;

fn main() {
    let asked: Vec<usize> = std::env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    let followers = asked.first().copied().unwrap_or(size(1_000_000, 100));
    let shards = common::some(asked.get(1).copied().unwrap_or(2));
    let inbox_posts = asked.get(2).copied().unwrap_or(size(30, 2));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
    runtime.block_on(async {
        let engine = Engine::start(EngineConfig {
            shards,
            ..config(if inbox_posts == 0 { 300 } else { inbox_posts }, CelebrityPolicy::PushAll)
        });
        let readers: Vec<SourceId> = (0..followers).map(|n| id(&format!("r{n}"))).collect();
        let huge = id("huge");
        follow_all(&engine, readers.iter().map(|reader| (reader.clone(), huge.clone()))).await;
        let small: Vec<SourceId> = (0..size(1_000, 5)).map(|n| id(&format!("a{n}"))).collect();
        let edges = small.iter().enumerate().flat_map(|(nth, author)| {
            let follower = |n: usize| readers[(nth * 1_009 + n * 7_919) % readers.len()].clone();
            (0..SMALL_FANOUT).map(|n| (follower(n), author.clone())).collect::<Vec<_>>()
        });
        follow_all(&engine, edges).await;
        wake_all(&engine, &readers).await;
        for _ in 0..2 * inbox_posts + 1 {
            publish(&engine, &huge, true).await;
        }
        for _ in 0..size(3, 1) {
            small_posts(&engine, &small, None).await;
            small_posts(&engine, &small, Some(&huge)).await;
        }
        engine.shutdown();
    });
}

/// Publishes for small authors at a steady rate, well below the maximum of deliveries. Each post is timed from its intended start.
async fn small_posts(engine: &Engine, small: &[SourceId], huge: Option<&SourceId>) {
    let beside = huge.cloned().map(|huge| {
        let engine = engine.clone();
        tokio::spawn(async move {
            let mut posts = 0;
            loop {
                publish(&engine, &huge, true).await;
                posts += 1;
                if posts > 10_000 {
                    return;
                }
            }
        })
    });
    let period = Duration::from_micros(1_000);
    let mut latencies = histogram();
    let mut waiting = JoinSet::new();
    let began = Instant::now();
    for nth in 0..size(6_000, 20) {
        let intended = began + period * nth as u32;
        // The runtime's timers have a resolution of milliseconds; this thread runs nothing else and wakes with microsecond precision.
        std::thread::sleep(intended.saturating_duration_since(Instant::now()));
        let (engine, post) = (engine.clone(), draft(&small[nth % small.len()]));
        waiting.spawn(async move {
            engine.publish(post, true).await.unwrap();
            intended.elapsed()
        });
        while let Some(done) = waiting.try_join_next() {
            latencies.record(done.unwrap().as_nanos() as u64).unwrap();
        }
    }
    while let Some(done) = waiting.join_next().await {
        latencies.record(done.unwrap().as_nanos() as u64).unwrap();
    }
    if let Some(beside) = beside {
        beside.abort();
    }
    print_latency(if huge.is_some() { "small authors beside a huge one" } else { "small authors alone" }, &latencies);
}
