//! A damaged page of the archive in the way of what is written to it: it holds back the sources on it, and no others.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use testkit::eventually_async;
use tidewire::clock::SystemClock;
use tidewire::config::EngineConfig;
use tidewire::engine::{Engine, StorageConfig};
use tidewire::feed::outbox::{OutboxQuery, Part};
use tidewire::feed::page::Range;
use tidewire::feed::position::{Direction, PositionRange};
use tidewire::recovery::RecoveryProgress;
use tidewire::state::reader::PageRequest;
use tidewire::storage::archive::{Archive, ArchiveError, RedbArchive};
use tidewire::storage::journal::Durability;

use testkit::histories::storage;
use testkit::world::{above, draft, id, patient, some};

const AUTHORS: [&str; 2] = ["bob", "carl"];
const PAGE_BYTES: usize = 4_096;

fn open(place: &Path) -> Engine {
    open_or_repair(place, false)
}

fn open_or_repair(place: &Path, repair: bool) -> Engine {
    let config = EngineConfig { outbox_posts: some(4), inbox_posts: some(10), celebrity: above(100), ..patient() };
    let storage = StorageConfig { directory: place.to_owned(), repair, ..storage(Durability::Never, 1 << 20) };
    Engine::open(config, &storage, Arc::new(SystemClock), &RecoveryProgress::default()).unwrap().0
}

fn in_memory(engine: &Engine, author: &str) -> usize {
    engine.shared().world.sources.get(&id(author)).unwrap().outbox().in_memory()
}

async fn publish(engine: &Engine, author: &str, count: usize) {
    for _ in 0..count {
        engine.publish(draft(author, &format!("\"of {author}\"")), false).await.unwrap();
    }
}

/// How many posts an author's own pages have, and how many they say they lack.
async fn served(engine: &Engine, author: &str) -> (usize, bool) {
    let (mut met, mut is_partial, mut range) = (0, false, Range::Newest);
    for read in 0.. {
        assert!(read < 200, "reading goes in circles");
        let page = engine.own_page(&id(author), PageRequest { range, limit: 100 }).await.unwrap();
        met += page.page.items.len();
        is_partial |= !page.partial.is_empty() || !page.page.unreadable.is_empty();
        let Some(next) = page.page.next else { break };
        range = Range::Before(next);
    }
    (met, is_partial)
}

/// Damages the page with the newest entries of bob's outbox, and nothing of carl's.
fn damage(place: &Path) {
    let path = place.join("archive.redb");
    let whole = fs::read(&path).unwrap();
    let (aside, sums) = (tempfile::tempdir().unwrap(), path.with_extension("sums"));
    let copy = aside.path().join("archive.redb");
    for page in (PAGE_BYTES..whole.len()).step_by(PAGE_BYTES) {
        let found = whole[page..page + PAGE_BYTES].windows(4).position(|bytes| bytes == b"\x03bob");
        let Some(at) = found else { continue };
        let mut damaged = whole.clone();
        damaged[page + at + 1] ^= 1;
        fs::write(&copy, &damaged).unwrap();
        fs::copy(&sums, copy.with_extension("sums")).unwrap();
        let Ok(archive) = RedbArchive::open(&copy, 1 << 20) else { continue };
        let read = |author: &str, max| {
            let query = OutboxQuery { part: Part::Whole, span: PositionRange::ALL, direction: Direction::Older, max };
            archive.positions(&id(author), query, &mut Vec::new())
        };
        if archive.archived_counts().is_ok()
            && read("carl", usize::MAX).is_ok()
            && matches!(read("bob", 1), Err(ArchiveError::Damaged { .. }))
        {
            fs::write(&path, &damaged).unwrap();
            return;
        }
    }
    panic!("no page has what is looked for");
}

fn held_back(engine: &Engine) -> usize {
    engine.shared().world.held_back.sources()
}

#[tokio::test]
async fn a_damaged_page_holds_back_only_its_own_sources_and_snapshots_continue() {
    let place = tempfile::tempdir().unwrap();
    let engine = open(place.path());
    let mut count = 500;
    // Entries sort by the length of the id, then by the id: those of zoe keep the other two on pages of their own.
    for author in ["bob", "zoe", "carl"] {
        publish(&engine, author, count).await;
        eventually_async("it is archived", async || in_memory(&engine, author) <= 8).await;
    }
    engine.snapshot().await.unwrap();
    engine.shutdown();
    drop(engine);
    damage(place.path());
    for round in 1..=3 {
        let engine = open(place.path());
        for author in AUTHORS {
            publish(&engine, author, 200).await;
        }
        count += 200;
        eventually_async("carl's posts go to the archive", async || in_memory(&engine, "carl") <= 8).await;
        assert_eq!((in_memory(&engine, "bob") / 200, held_back(&engine)), (round, 1), "bob's new posts stay in memory");
        engine.snapshot().await.unwrap();
        let (of_bob, is_partial) = served(&engine, "bob").await;
        assert!(is_partial && of_bob >= 200 * round, "what cannot be read is named, what is new is there: {of_bob}");
        assert_eq!(served(&engine, "carl").await, (count, false));
        engine.shutdown();
    }
    // Without the archive what it had is gone, and what was held back is not: it goes into the new one.
    for file in ["archive.redb", "archive.sums"] {
        fs::rename(place.path().join(file), place.path().join(format!("{file}.damaged"))).unwrap();
    }
    let engine = open_or_repair(place.path(), true);
    publish(&engine, "bob", 200).await;
    eventually_async("bob's posts go to the new archive", async || in_memory(&engine, "bob") <= 8).await;
    assert_eq!((served(&engine, "bob").await.0 / 200, held_back(&engine)), (4, 0));
    engine.shutdown();
}
