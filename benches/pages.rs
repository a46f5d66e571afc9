//! Measures pages on one thread and on two, and pages beside saturated deliveries.
//!
//! `cargo bench --bench pages -- PARTS` with `threads`, `deliveries` and `one` (a single thread, for a profiler).
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::disallowed_methods, missing_docs)]

mod common;

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{
    NEWEST, config, draft, follow_all, histogram, id, median, power_law, print_latency, publish, read_steadily,
    runtime, size, wake_all,
};
use tidewire::engine::Engine;
use tidewire::error::Error;
use tidewire::feed::celebrity::CelebrityPolicy;
use tidewire::id::SourceId;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const PARTS: [&str; 3] = ["threads", "deliveries", "one"];

/// Readers of one thread: more readers than share a lock.
const READERS: usize = 4_096;

fn main() {
    let asked: Vec<String> = std::env::args().skip(1).filter(|asked| PARTS.contains(&asked.as_str())).collect();
    let wants = |part: &str| (asked.is_empty() && part != "one") || asked.iter().any(|asked| asked == part);
    if wants("threads") {
        threads();
    }
    if wants("deliveries") {
        beside_deliveries();
    }
    if wants("one") {
        one_thread();
    }
}

fn named(name: &str, count: usize) -> Vec<SourceId> {
    (0..count).map(|nth| id(&format!("{name}{nth}"))).collect()
}

/// Creates two groups of readers. Each reader follows 100 sources and 5 celebrities. Both groups follow the same sources, or they have none
/// in common.
async fn world(engine: &Engine, readers: usize, is_common: bool) -> [Vec<SourceId>; 2] {
    let groups = [named("r", readers), named("s", readers)];
    for (nth, group) in groups.iter().enumerate() {
        let kind = if is_common { 0 } else { nth };
        let (authors, stars) = (named(&format!("a{kind}-"), 200), named(&format!("star{kind}-"), 5));
        let edges = group.iter().enumerate().flat_map(|(nth, reader)| {
            let own = (0..100).map(move |n| (nth * 13 + n) % 200);
            let followed = own.map(|n| authors[n].clone()).chain(stars.iter().cloned());
            followed.map(|source| (reader.clone(), source)).collect::<Vec<_>>()
        });
        follow_all(engine, edges).await;
        for nth in 0..200 * size(10, 1) {
            publish(engine, &authors[nth % 200], true).await;
            if nth % 40 == 0 {
                publish(engine, &stars[nth / 40 % 5], true).await;
            }
        }
        wake_all(engine, group).await;
    }
    groups
}

/// Starts an engine that pulls only the celebrities: all readers of a group (or of both groups) follow them, and half as many follow each
/// other source.
fn engine(readers: usize, is_common: bool) -> Engine {
    let followers = readers as u64 * if is_common { 2 } else { 1 };
    Engine::start(config(300, CelebrityPolicy::Above(NonZeroU64::new(followers - 1).unwrap())))
}

/// Returns the pages per second of all threads. Each thread reads the pages of its readers one after the other.
fn pages_per_second(engine: &Engine, of_threads: &[&[SourceId]], time: Duration) -> f64 {
    let (is_over, pages, began) = (AtomicBool::new(false), AtomicU64::new(0), Instant::now());
    std::thread::scope(|scope| {
        for readers in of_threads {
            let (is_over, pages) = (&is_over, &pages);
            scope.spawn(move || {
                runtime().block_on(async {
                    let mut nth = 0;
                    while !is_over.load(Ordering::Relaxed) {
                        let page = engine.feed(&readers[nth * 7_919 % readers.len()], NEWEST).await.unwrap();
                        assert_eq!(page.page.items.len(), 20);
                        nth += 1;
                    }
                    pages.fetch_add(nth as u64, Ordering::Relaxed);
                });
            });
        }
        std::thread::sleep(time);
        is_over.store(true, Ordering::Relaxed);
    });
    pages.into_inner() as f64 / began.elapsed().as_secs_f64()
}

fn threads() {
    let (readers, time) = (size(READERS, 20), Duration::from_millis(size(700, 5) as u64));
    for is_common in [false, true] {
        let engine = engine(readers, is_common);
        let [first, second] = runtime().block_on(world(&engine, readers, is_common));
        let own = if is_common { "own readers, the same sources" } else { "own readers, own sources" };
        compare(&engine, own, [&first, &second], time);
        if is_common {
            compare(&engine, "the same 500 readers", [&first[..size(500, 20)]; 2], time);
        }
        engine.shutdown();
    }
}

fn compare(engine: &Engine, what: &str, of_threads: [&[SourceId]; 2], time: Duration) {
    let (mut one, mut two) = (Vec::new(), Vec::new());
    let direct_before = engine.shared().counters.direct_pages.get();
    let before = engine.shared().counters.pages.get();
    for nth in 0..size(6, 2) {
        one.push(pages_per_second(engine, &of_threads[nth % 2..=nth % 2], time));
        two.push(pages_per_second(engine, &of_threads, time));
    }
    let counters = &engine.shared().counters;
    let direct = (counters.direct_pages.get() - direct_before) as f64 / (counters.pages.get() - before) as f64;
    let (one, two) = (median(one), median(two));
    println!(
        "{what}: {:.0} k pages/s on one thread, {:.0} k on two: {:.2} times; {:.1} % read directly",
        one / 1e3,
        two / 1e3,
        two / one,
        direct * 100.0
    );
}

/// Reads with one thread for some seconds.
fn one_thread() {
    let readers = size(READERS, 20);
    let engine = engine(readers, true);
    let [first, _] = runtime().block_on(world(&engine, readers, true));
    let rate = pages_per_second(&engine, &[&first], Duration::from_millis(size(5_000, 5) as u64));
    println!("one thread: {:.2} us a page", 1e6 / rate);
    engine.shutdown();
}

/// Measures 1,000 pages a second, and 100 posts a second to 50 followers each, while authors publish to 400 followers on average as fast as
/// the engine accepts posts.
fn beside_deliveries() {
    let threads = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
    let (runtime, publishers) = (threads(), threads());
    let users = size(100_000, 200);
    let engine = Engine::start(config(300, CelebrityPolicy::PushAll));
    let (readers, authors) = (named("r", users), named("a", users / 50));
    let fanouts = power_law(authors.len(), 400.min(users / 2), users / 4);
    let mut next = 0;
    let mut edges = Vec::new();
    for (author, fanout) in authors.iter().zip(&fanouts) {
        for _ in 0..*fanout {
            next = (next + ((users as f64 * 0.618) as usize | 1)) % users;
            edges.push((readers[next].clone(), author.clone()));
        }
    }
    edges
        .extend(readers.iter().enumerate().map(|(nth, reader)| (reader.clone(), authors[nth % authors.len()].clone())));
    let small = id("small");
    edges.extend(readers.iter().take(50).map(|reader| (reader.clone(), small.clone())));
    runtime.block_on(async {
        follow_all(&engine, edges.into_iter()).await;
        wake_all(&engine, &readers).await;
        for saturated in [false, true, true, true, true] {
            beside(&engine, &readers, &authors, &small, saturated.then(|| publishers.handle())).await;
        }
    });
    engine.shutdown();
}

async fn beside(
    engine: &Engine,
    readers: &[SourceId],
    authors: &[SourceId],
    small: &SourceId,
    publishers: Option<&tokio::runtime::Handle>,
) {
    let is_over = Arc::new(AtomicBool::new(false));
    let saturating = publishers.map(|handle| {
        let (engine, authors, is_over) = (engine.clone(), authors.to_vec(), Arc::clone(&is_over));
        handle.spawn(async move {
            let mut nth = 0;
            while !is_over.load(Ordering::Relaxed) {
                nth = (nth + 7_919) % authors.len();
                publish(&engine, &authors[nth], false).await;
            }
        })
    });
    let visible = tokio::spawn({
        let (engine, small, is_over) = (engine.clone(), small.clone(), Arc::clone(&is_over));
        async move {
            let mut latencies = histogram();
            while !is_over.load(Ordering::Relaxed) {
                let began = Instant::now();
                match engine.publish(draft(&small), true).await {
                    Ok(_) => latencies.record(began.elapsed().as_nanos() as u64).unwrap(),
                    Err(Error::Overloaded { .. }) => {}
                    Err(other) => panic!("{other}"),
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            latencies
        }
    });
    let counters = &engine.shared().counters;
    let before = (counters.deliveries.get(), counters.direct_pages.get(), Instant::now());
    let pages = read_steadily(engine, readers, |nth| nth < size(5_000, 20)).await;
    let delivered = (counters.deliveries.get() - before.0) as f64 / before.2.elapsed().as_secs_f64();
    let direct = counters.direct_pages.get() - before.1;
    is_over.store(true, Ordering::Relaxed);
    let what = if saturating.is_some() { "beside saturated deliveries" } else { "alone" };
    if let Some(saturating) = saturating {
        saturating.await.unwrap();
    }
    print_latency(&format!("1,000 pages/s {what}"), &pages);
    print_latency(
        &format!("    {:.2} M deliveries/s, {direct} pages read directly; small posts", delivered / 1e6),
        &visible.await.unwrap(),
    );
    while !engine.shared().open_fanouts.is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
