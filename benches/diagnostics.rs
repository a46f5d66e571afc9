//! Measures the cost of operator requests: a search for sources among many ids, and the figures of one sample of the history.
//!
//! `cargo bench --bench diagnostics -- SOURCES`
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

mod common;

use std::hint::black_box;
use std::time::{Duration, Instant};

use common::{config, follow_all, id, median, runtime, size, wake_all};
use tidewire::engine::{Engine, SourceSearch};
use tidewire::feed::celebrity::CelebrityPolicy;
use tidewire::id::SourceId;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let asked: Vec<usize> = std::env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    let sources = asked.first().copied().unwrap_or(size(1_000_000, 1_000));
    let engine = Engine::start(config(300, CelebrityPolicy::PushAll));
    runtime().block_on(async {
        let reader = |nth: usize| id(&format!("user{nth}"));
        follow_all(&engine, (0..sources).map(|nth| (reader(nth), id(&format!("author{}", nth % 1_000))))).await;
        let awake: Vec<SourceId> = (0..sources / 10).map(|nth| reader(nth * 10)).collect();
        wake_all(&engine, &awake).await;
    });
    println!("{} sources, {} awake", engine.shared().world.sources.len(), engine.shared().directory.len());
    for (prefix, what) in [("", "suggestions"), ("user777777", "one match"), ("user7", "a tenth"), ("u", "nearly all")]
    {
        let search = SourceSearch { prefix: prefix.to_owned(), kind: None, limit: 20 };
        let mut last = None;
        let took = timed(size(20, 2), || last = Some(engine.find_sources(&search)));
        let last = last.unwrap();
        println!("search {prefix:?} ({what}): {took:?}, {} examined, complete {}", last.examined, last.complete);
    }
    let shared = engine.shared();
    let parts: [(&str, &dyn Fn()); 4] = [
        ("queues and counts", &|| {
            black_box((engine.queues(), shared.directory.len(), shared.watchers.connections()));
        }),
        ("bytes of sources", &|| {
            let _ = black_box(shared.world.sources_bytes());
        }),
        ("bytes of posts and reposts", &|| {
            let _ = black_box((shared.world.posts.bytes(), shared.world.reposts.bytes()));
        }),
        ("resident bytes", &|| {
            let _ = black_box(std::fs::read_to_string("/proc/self/statm"));
        }),
    ];
    for (what, part) in parts {
        println!("sample, {what}: {:?}", timed(size(200, 2), part));
    }
    engine.shutdown();
}

/// Returns the median time of some runs.
fn timed(runs: usize, mut run: impl FnMut()) -> Duration {
    let one = |_| {
        let began = Instant::now();
        run();
        began.elapsed().as_secs_f64()
    };
    Duration::from_secs_f64(median((0..runs).map(one).collect()))
}
