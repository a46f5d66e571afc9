//! Push or pull where cost decides.

use std::sync::Arc;
use std::time::Duration;

use tidewire::clock::{ManualClock, UnixMicros};
use tidewire::config::EngineConfig;
use tidewire::engine::Engine;
use tidewire::feed::celebrity::{CelebrityPolicy, CostModel};
use tidewire::storage::files::memory::MemoryFiles;
use tidewire::storage::journal::{Durability, MemoryJournal};

use testkit::histories::{open_with, storage};
use testkit::world::{NEWEST, SENSITIVE, config, draft, edge, flapping, id, ids};

const START: UnixMicros = UnixMicros(1_795_168_800_000_000);

fn engine(model: CostModel) -> (Engine, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new(START));
    let config = config(2, CelebrityPolicy::ByCost(model));
    (Engine::start_with(config, MemoryJournal::default(), Arc::clone(&clock) as Arc<_>), clock)
}

async fn publish(engine: &Engine, author: &str, posts: usize) {
    for _ in 0..posts {
        engine.publish(draft(author, "1"), true).await.unwrap();
    }
}

async fn read(engine: &Engine, reader: &str, pages: usize) {
    for _ in 0..pages {
        engine.feed(&id(reader), NEWEST).await.unwrap();
    }
}

fn is_pulled(engine: &Engine, source: &str) -> bool {
    engine.source(&id(source)).unwrap().celebrity
}

#[tokio::test]
async fn route_changes_due_within_a_period_are_applied_together() {
    let (engine, clock) = engine(CostModel { change_period: Duration::from_secs(10), ..SENSITIVE });
    let sources = ["bob", "cas", "dan"];
    engine.follow(sources.map(|source| edge("ann", source)).into()).await.unwrap();
    read(&engine, "ann", 1).await;
    let sides = || sources.map(|source| is_pulled(&engine, source));
    let epoch = || engine.shared().world.pulled_epoch();
    let before = epoch();
    publish(&engine, "bob", 2).await;
    assert_eq!((sides(), epoch()), ([true, false, false], before + 1), "the first change is made at once");
    clock.advance(Duration::from_secs(9));
    publish(&engine, "cas", 4).await;
    publish(&engine, "dan", 4).await;
    assert_eq!((sides(), epoch()), ([true, false, false], before + 1));
    clock.advance(Duration::from_secs(2));
    publish(&engine, "bob", 1).await;
    assert_eq!((sides(), epoch()), ([true, true, true], before + 2));
    engine.shutdown();
}

#[tokio::test]
async fn a_source_keeps_its_route_after_a_restart_without_rates() {
    let (files, storage) = (MemoryFiles::default(), storage(Durability::Always, 1_000));
    let open = || {
        let clock = Arc::new(ManualClock::new(START));
        let config = EngineConfig { ..config(2, CelebrityPolicy::ByCost(SENSITIVE)) };
        open_with(config, files.clone(), &storage, clock).unwrap().0
    };
    let engine = open();
    engine.follow(vec![edge("ann", "bob"), edge("ann", "cas")]).await.unwrap();
    read(&engine, "ann", 1).await;
    publish(&engine, "bob", 4).await;
    publish(&engine, "cas", 1).await;
    engine.snapshot().await.unwrap();
    engine.shutdown();
    let engine = open();
    assert_eq!(["bob", "cas"].map(|source| is_pulled(&engine, source)), [true, false]);
    let cost = engine.source(&id("bob")).unwrap().cost;
    assert_eq!((cost.push_us_per_hour, cost.pull_us_per_hour), (0.0, 0.0));
    publish(&engine, "bob", 1).await;
    assert!(is_pulled(&engine, "bob"), "nothing is known yet");
    read(&engine, "ann", 4).await;
    publish(&engine, "bob", 1).await;
    assert!(!is_pulled(&engine, "bob"), "four pages cost more than two posts");
    engine.shutdown();
}

/// Half of the posts are pushed, half are pulled, and the sources are listed for pages and let go of again.
#[tokio::test]
async fn a_feed_stays_complete_during_frequent_route_changes() {
    let engine = Engine::start(EngineConfig { inbox_posts: testkit::world::some(30), ..config(1, flapping()) });
    engine.follow(vec![edge("ann", "bob"), edge("ann", "cas")]).await.unwrap();
    let (mut newest, mut sides) = (Vec::new(), Vec::new());
    for nth in 0..200 {
        read(&engine, "ann", 1).await;
        let author = if nth % 3 == 0 { "bob" } else { "cas" };
        newest.insert(0, engine.publish(draft(author, "1"), true).await.unwrap().post.id());
        newest.truncate(20);
        sides.push(is_pulled(&engine, "cas"));
        assert_eq!(ids(&engine.feed(&id("ann"), NEWEST).await.unwrap()), newest);
    }
    let changes = sides.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!(changes > 60, "{changes} changes");
    engine.shutdown();
}
