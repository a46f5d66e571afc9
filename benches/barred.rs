//! Measures pages of feeds in which every post has a blocker: the time of a page, and the time that another reader of its shard waits.
//!
//! `cargo bench --bench barred`: reposts of one post with a muted tag, and reposts that the reader's rules exclude.
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

mod common;

use std::time::{Duration, Instant};

use common::{NEWEST, config, draft, follow_all, id, median, runtime, size};
use tidewire::engine::Engine;
use tidewire::feed::celebrity::CelebrityPolicy;
use tidewire::feed::event::MuteOrBlock;
use tidewire::feed::post::Draft;
use tidewire::feed::rules::RulesPatch;
use tidewire::id::{PostId, SourceId};
use tokio::task::JoinSet;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Number of fans. The reader follows them, and they repost.
const FANS: usize = 80;

fn main() {
    runtime().block_on(async {
        let muted = world(size(8_000, 80), true).await;
        assert!(muted.silence(id("reader"), id("tag:spam"), MuteOrBlock::Mute, true).await.unwrap());
        measure("of a muted tag", &muted).await;
        let off = world(size(2_000, 80), false).await;
        let rules = RulesPatch { reposts: Some(false), ..RulesPatch::default() };
        off.change_rules(id("reader"), rules).await.unwrap();
        measure("where the rules leave out reposts", &off).await;
    });
}

/// Creates a reader and a neighbour on one shard. The reader's fans repost one post, `reposts` times in total.
async fn world(reposts: usize, are_tagged: bool) -> Engine {
    let mut one_shard = config(300, CelebrityPolicy::PullAll);
    one_shard.shards = common::some(1);
    let engine = Engine::start(one_shard);
    let fan = |nth: usize| id(&format!("fan{}", nth % FANS));
    let edges = (0..FANS).map(|nth| (id("reader"), fan(nth))).chain([(id("neighbour"), id("star"))]);
    follow_all(&engine, edges).await;
    engine.publish(Draft { id: Some(PostId(1)), ..draft(&id("star")) }, true).await.unwrap();
    for some in (0..reposts).collect::<Vec<_>>().chunks(500) {
        let mut under_way = JoinSet::new();
        for nth in some {
            let tags = if are_tagged { vec![SourceId::tag("spam").unwrap()] } else { Vec::new() };
            let repost = Draft { repost_of: Some(PostId(1)), tags, ..draft(&fan(*nth)) };
            let engine = engine.clone();
            under_way.spawn(async move { engine.publish(repost, true).await.unwrap() });
        }
        while under_way.join_next().await.is_some() {}
    }
    engine
}

async fn measure(what: &str, engine: &Engine) {
    // The first page wakes the reader.
    for reader in ["reader", "neighbour"] {
        engine.feed(&id(reader), NEWEST).await.unwrap();
    }
    let (mut pages, mut waits) = (Vec::new(), Vec::new());
    for _ in 0..size(5, 1) {
        let (slow, began) = (engine.clone(), Instant::now());
        let page = tokio::spawn(async move { slow.feed(&id("reader"), NEWEST).await.unwrap().page.items.len() });
        tokio::task::yield_now().await;
        let mut longest = Duration::ZERO;
        while !page.is_finished() {
            let asked = Instant::now();
            engine.feed(&id("neighbour"), NEWEST).await.unwrap();
            longest = longest.max(asked.elapsed());
        }
        assert_eq!(page.await.unwrap(), 0, "all is barred");
        pages.push(began.elapsed().as_secs_f64() * 1e3);
        waits.push(longest.as_secs_f64() * 1e3);
    }
    println!(
        "reposts {what}: a page {:.1} ms, a neighbour waits {:.1} ms at most; medians",
        median(pages),
        median(waits)
    );
    engine.shutdown();
}
