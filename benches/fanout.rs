//! Measures deliveries per second through command processor, supervisor, couriers and inboxes, and the memory of inboxes.
//!
//! `cargo bench --bench fanout -- USERS INBOX_POSTS` for one row of the table.
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

mod common;

use std::time::Instant;

use common::{config, follow_all, id, median, power_law, publish, resident_bytes, runtime, size, wake_all};
use tidewire::engine::Engine;
use tidewire::feed::celebrity::CelebrityPolicy;
use tidewire::id::SourceId;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const MEAN_FANOUT: usize = 400;

fn main() {
    let asked: Vec<usize> = std::env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    let users = asked.first().copied().unwrap_or(size(100_000, 200));
    let inbox_posts = asked.get(1).copied().unwrap_or(300);
    runtime().block_on(measure(users, inbox_posts));
}

async fn measure(users: usize, inbox_posts: usize) {
    let fill = size(1, 0);
    let engine = Engine::start(config(inbox_posts, CelebrityPolicy::PushAll));
    let authors = (users / 50).max(4);
    let fanouts = power_law(authors, MEAN_FANOUT.min(users / 2), users / 4);
    let readers: Vec<SourceId> = (0..users).map(|n| id(&format!("r{n}"))).collect();
    let writers: Vec<SourceId> = (0..authors).map(|n| id(&format!("a{n}"))).collect();
    // A stride that shares no factor with the number of users spreads each author's followers over all of them.
    let stride = (users as f64 * 0.618) as usize | 1;
    let mut next = 0;
    let mut edges = Vec::new();
    for (author, fanout) in writers.iter().zip(&fanouts) {
        for _ in 0..*fanout {
            next = (next + stride) % users;
            edges.push((readers[next].clone(), author.clone()));
        }
    }
    // Everyone follows an author, so that everyone can be awake.
    edges.extend(readers.iter().enumerate().map(|(n, reader)| (reader.clone(), writers[n % authors].clone())));
    let edge_count = edges.len();
    follow_all(&engine, edges.into_iter()).await;
    let asleep = resident_bytes();
    wake_all(&engine, &readers).await;
    let awake = resident_bytes();
    let posts_per_round = (size(20_000_000, 2_000) / MEAN_FANOUT).max(1);
    if fill > 0 {
        // The number of rounds is limited by the memory of a small machine. The report has the average number of entries of an inbox.
        let rounds_to_fill = (users * inbox_posts).min(320_000_000) / 20_000_000 + 1;
        for _ in 0..rounds_to_fill {
            round(&engine, &writers, posts_per_round).await;
        }
    }
    let mut rates = Vec::new();
    for _ in 0..size(5, 1) {
        let before = engine.shared().counters.deliveries.get();
        let began = Instant::now();
        round(&engine, &writers, posts_per_round).await;
        let delivered = engine.shared().counters.deliveries.get() - before;
        rates.push(delivered as f64 / began.elapsed().as_secs_f64());
    }
    report(&engine, users, inbox_posts, edge_count, (asleep, awake), rates).await;
    engine.shutdown();
}

/// Publishes for all authors in turns, as fast as the engine accepts posts, and waits until all are delivered.
async fn round(engine: &Engine, writers: &[SourceId], posts: usize) {
    // Every author publishes equally often, in an order that mixes large and small ones.
    let mut nth = 0;
    for _ in 0..posts {
        nth = (nth + 7_919) % writers.len();
        publish(engine, &writers[nth], false).await;
    }
    // Couriers serve their jobs in turns, so all posts are delivered once no job is left.
    while engine.queues().iter().any(|queue| queue.depth > 0) {
        tokio::time::sleep(std::time::Duration::from_micros(200)).await;
    }
}

async fn report(
    engine: &Engine,
    users: usize,
    inbox_posts: usize,
    edges: usize,
    (asleep, awake): (f64, f64),
    rates: Vec<f64>,
) {
    let totals = engine.inbox_totals().await;
    println!("users {users}, inbox {inbox_posts}, edges {edges}, inbox entries {} on average", totals.entries / users);
    println!("deliveries/s: {:.2} M (median of {} rounds: {rates:.0?})", median(rates.clone()) / 1e6, rates.len());
    println!("an active reader with a near-empty inbox: {:.0} B resident", (awake - asleep) / users as f64);
    println!("an inbox entry, all of the inbox in: {:.1} B", totals.bytes as f64 / totals.entries.max(1) as f64);
    println!("resident after the rounds: {:.0} MB", resident_bytes() / 1e6);
}
