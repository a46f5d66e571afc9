//! Measures reads: a page with and without the hop to the user actor, a wake-up, and a page by pull alone.
//!
//! `cargo bench --bench read`
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{NEWEST, config, follow_all, histogram, id, print_latency, publish, runtime, size, some};
use tidewire::clock::{Clock, SystemClock, UnixMicros};
use tidewire::config::EngineConfig;
use tidewire::engine::Engine;
use tidewire::feed::celebrity::CelebrityPolicy;
use tidewire::feed::inbox::Inbox;
use tidewire::id::SourceId;
use tidewire::state::read_clock::ReadClock;
use tidewire::state::reader::{PageStart, Reader};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const CELEBRITIES: usize = 5;

fn main() {
    runtime().block_on(async {
        pages_with_celebrities().await;
        waking().await;
        pages_by_pull().await;
    });
}

/// Creates readers who follow 100 sources and 5 celebrities each, and publishes the posts of these sources.
async fn world(engine: &Engine, readers: &[SourceId], sources: usize, posts_each: usize) {
    let authors: Vec<SourceId> = (0..sources.max(200)).map(|n| id(&format!("a{n}"))).collect();
    let stars: Vec<SourceId> = (0..CELEBRITIES).map(|n| id(&format!("star{n}"))).collect();
    let follows = readers.iter().enumerate().flat_map(|(nth, reader)| {
        let own = (0..sources).map(move |n| (nth * 13 + n) % sources.max(200));
        let followed = own.map(|n| authors[n].clone()).chain(stars.iter().cloned());
        followed.map(|source| (reader.clone(), source)).collect::<Vec<_>>()
    });
    follow_all(engine, follows).await;
    for nth in 0..posts_each * authors.len() {
        publish(engine, &authors[nth % authors.len()], false).await;
        if nth % 40 == 0 {
            publish(engine, &stars[nth / 40 % CELEBRITIES], false).await;
        }
    }
    publish(engine, &authors[0], true).await;
}

async fn pages_with_celebrities() {
    let readers: Vec<SourceId> = (0..size(2_000, 10)).map(|n| id(&format!("r{n}"))).collect();
    // Each ordinary author has about half of the readers as followers; the celebrities have all.
    let threshold = std::num::NonZeroU64::new(readers.len() as u64 - 1).unwrap();
    let engine = Engine::start(config(300, CelebrityPolicy::Above(threshold)));
    world(&engine, &readers, 100, size(30, 2)).await;
    common::wake_all(&engine, &readers).await;

    let shared = engine.shared();
    let mut direct: Vec<(Reader, Inbox)> = readers
        .iter()
        .map(|reader| {
            let mut reader = Reader::new(shared.world.sources.get(reader).unwrap());
            let mut inbox = Inbox::new(some(300));
            reader.rebuild(&mut inbox, &shared.world);
            (reader, inbox)
        })
        .collect();
    let (mut alone, mut through) = (histogram(), histogram());
    let time = ReadClock { clock: &*shared.clock, deadline: UnixMicros(i64::MAX) };
    for nth in 0..size(200_000, 50) {
        let at = nth * 7_919 % readers.len();
        let (reader, inbox) = &mut direct[at];
        let began = Instant::now();
        let start = PageStart::of(reader.source(), &shared.world);
        let page = reader.page(&start, inbox, &shared.world, NEWEST, time);
        alone.record(began.elapsed().as_nanos() as u64).unwrap();
        assert_eq!(page.items.len(), 20);
        drop(page);
        let began = Instant::now();
        let page = engine.feed(&readers[at], NEWEST).await.unwrap();
        through.record(began.elapsed().as_nanos() as u64).unwrap();
        assert_eq!(page.page.items.len(), 20);
    }
    print_latency("page of 20 with 5 celebrities, without the hop", &alone);
    print_latency("page of 20 with 5 celebrities, from the engine", &through);
    engine.shutdown();
}

async fn waking() {
    let readers: Vec<SourceId> = (0..size(2_000, 10)).map(|n| id(&format!("r{n}"))).collect();
    let engine = Engine::start(config(300, CelebrityPolicy::PushAll));
    world(&engine, &readers, 300, size(40, 2)).await;
    let (mut alone, mut through) = (histogram(), histogram());
    for reader in &readers {
        let source = engine.shared().world.sources.get(reader).unwrap();
        let began = Instant::now();
        let (mut rebuilt, mut inbox) = (Reader::new(source), Inbox::new(some(300)));
        rebuilt.rebuild(&mut inbox, &engine.shared().world);
        alone.record(began.elapsed().as_nanos() as u64).unwrap();
        assert_eq!(inbox.len(), 300);
        let began = Instant::now();
        let page = engine.feed(reader, NEWEST).await.unwrap();
        through.record(began.elapsed().as_nanos() as u64).unwrap();
        assert_eq!(page.page.items.len(), 20);
    }
    print_latency("wake-up with 305 sources, inbox of 300 rebuilt", &alone);
    print_latency("wake-up with 305 sources, asked to answered with a page", &through);
    engine.shutdown();
}

async fn pages_by_pull() {
    let readers: Vec<SourceId> = (0..size(500, 10)).map(|n| id(&format!("r{n}"))).collect();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let settings = EngineConfig { pull_budget: Duration::from_secs(9), ..config(300, CelebrityPolicy::PullAll) };
    let engine = Engine::start_with(settings, tidewire::storage::journal::MemoryJournal::default(), clock);
    world(&engine, &readers, 300, size(40, 2)).await;
    common::wake_all(&engine, &readers).await;
    let mut pulled = histogram();
    for nth in 0..size(20_000, 20) {
        let began = Instant::now();
        let page = engine.feed(&readers[nth * 31 % readers.len()], NEWEST).await.unwrap();
        pulled.record(began.elapsed().as_nanos() as u64).unwrap();
        assert_eq!(page.page.items.len(), 20);
    }
    print_latency("page of 20 by pull from 305 sources, from the engine", &pulled);
    engine.shutdown();
}
