//! An archive across a network: it may not answer for a while, it is not listed at a start, and no power loss takes back what it has.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use testkit::eventually_async;
use tidewire::clock::{SystemClock, UnixMicros};
use tidewire::config::EngineConfig;
use tidewire::engine::{Engine, StorageConfig};
use tidewire::feed::outbox::{OutboxQuery, Part};
use tidewire::feed::position::{Direction, Position, PositionRange};
use tidewire::feed::post::{Body, Draft};
use tidewire::id::PostId;
use tidewire::state::reader::PageRequest;
use tidewire::storage::archive::faulty::{FaultyArchive, Plan};
use tidewire::storage::archive::{Archive, MemoryArchive};
use tidewire::storage::files::memory::MemoryFiles;
use tidewire::storage::journal::Durability;
use tidewire::storage::sequence::Sequence;

use testkit::histories::{open_before, storage};
use testkit::observed_archive::{ObservedArchive, Read};
use testkit::oracle::Expected;
use testkit::world::{above, draft, edge, id, insist, patient, some, whole_feed};

type Remote = FaultyArchive<MemoryArchive>;

/// Ann follows bob and cas, most of whose posts are in a store across a network. Cas is a celebrity.
struct Town {
    files: MemoryFiles,
    archive: Arc<Remote>,
    durability: Durability,
    engine: Engine,
}

fn shared<A: Archive>(archive: &Arc<A>) -> Arc<dyn Archive> {
    Arc::clone(archive) as Arc<dyn Archive>
}

fn config() -> EngineConfig {
    EngineConfig { outbox_posts: some(4), inbox_posts: some(10), celebrity: above(1), ..patient() }
}

fn open(files: &MemoryFiles, archive: &Arc<dyn Archive>, durability: Durability) -> (Engine, u64) {
    open_with(config(), files, archive, durability)
}

fn open_with(
    config: EngineConfig,
    files: &MemoryFiles,
    archive: &Arc<dyn Archive>,
    durability: Durability,
) -> (Engine, u64) {
    let storage: StorageConfig = storage(durability, 1 << 20);
    let (engine, report) = open_before(config, files.clone(), Some(archive), &storage, Arc::new(SystemClock)).unwrap();
    (engine, report.events)
}

impl Town {
    async fn new(durability: Durability) -> Self {
        let (files, archive) =
            (MemoryFiles::default(), Arc::new(Remote::remote(MemoryArchive::default(), Plan::default())));
        let engine = open(&files, &shared(&archive), durability).0;
        engine.follow(vec![edge("ann", "bob"), edge("ann", "cas"), edge("dan", "cas")]).await.unwrap();
        let town = Self { files, archive, durability, engine };
        for nth in 0..40 {
            town.publish_pair(nth).await;
            // No round of tiering is in progress at the end. It would archive posts that an inbox has by then.
            town.settle().await;
        }
        town
    }

    /// Publishes as many posts of bob and of cas.
    async fn publish(&self, count: usize) {
        for nth in 0..count {
            self.publish_pair(nth).await;
        }
    }

    async fn publish_pair(&self, nth: usize) {
        self.engine.publish(draft("bob", &nth.to_string()), true).await.unwrap();
        self.engine.publish(draft("cas", &nth.to_string()), true).await.unwrap();
    }

    async fn late(&self, author: &str, at: i64) -> PostId {
        let late = Draft { published_at: Some(UnixMicros(at)), ..draft(author, "\"late\"") };
        self.engine.publish(late, true).await.unwrap().post.id()
    }

    fn in_memory(&self) -> usize {
        self.engine.shared().world.sources.iter().map(|source| source.outbox().in_memory()).max().unwrap_or(0)
    }

    async fn settle(&self) {
        eventually_async("old posts leave memory", async || self.in_memory() <= 8).await;
    }

    async fn feed(&self) -> Vec<Expected> {
        whole_feed(&self.engine, "ann", 20).await
    }

    async fn shows(&self, feed: &[Expected], round: i64) {
        let now = self.feed().await;
        let differs = |one: &[Expected], other: &[Expected]| -> Vec<String> {
            one.iter().filter(|entry| !other.contains(entry)).map(|entry| format!("{entry:?}")).collect()
        };
        assert!(now == feed, "{round}: lacks {:?}, has {:?}", differs(feed, &now), differs(&now, feed));
    }

    /// Goes on with what the disk has when the process is killed. The store has all that it was sent.
    fn kill(&mut self) {
        let files = self.files.forked();
        self.engine.shutdown();
        self.files = files;
        let _ = self.open();
    }

    /// Starts again, and returns the number of events that were replayed.
    fn open(&mut self) -> u64 {
        self.archive.set_plan(Plan::default());
        let (engine, replayed) = open(&self.files, &shared(&self.archive), self.durability);
        self.engine = engine;
        replayed
    }

    /// Checks that nothing was listed since the start.
    fn nothing_was_listed(&self) {
        assert_eq!((self.archive.counts().listings, self.archive.counts().ids), (0, 0));
    }
}

fn temporary() -> Plan {
    Plan { is_temporary: true, ..Plan::default() }
}

#[tokio::test]
async fn writes_to_an_unresponsive_store_are_retried_and_lose_nothing() {
    for loses_answers in [false, true] {
        let mut town = Town::new(Durability::Always).await;
        town.archive.set_plan(Plan {
            fail_writes: 1..u64::MAX,
            fail_persists: 1..u64::MAX,
            loses_answers,
            ..temporary()
        });
        town.publish(20).await;
        eventually_async("a batch is written", async || town.archive.counts().writes > 0).await;
        assert_eq!(town.feed().await.len(), 120);
        let refused = town.engine.snapshot().await.unwrap_err();
        assert_eq!((refused.code(), refused.is_temporary()), ("archive_unavailable", true));
        assert!(town.in_memory() > 8);
        town.archive.set_plan(Plan::default());
        // Nobody writes anything that would remind it.
        town.settle().await;
        assert_eq!(town.feed().await.len(), 120);
        town.engine.snapshot().await.unwrap();
        town.kill();
        assert_eq!(town.feed().await.len(), 120);
        town.nothing_was_listed();
        town.engine.shutdown();
    }
}

/// Replays all of a journal beside an empty store, after these posts were deleted. Returns whether the replay wrote to the store.
async fn replay_writes(deleted: usize) -> bool {
    let town = Town::new(Durability::Never).await;
    town.archive.set_plan(Plan { fail_writes: 1..u64::MAX, fail_persists: 1..u64::MAX, ..temporary() });
    let mut posts = Vec::new();
    for nth in 0..2_000 {
        let draft = draft(["bob", "cas"][nth % 2], &nth.to_string());
        posts.push(town.engine.publish(draft, true).await.unwrap().post.id());
    }
    for post in &posts[..deleted] {
        town.engine.delete(*post).await.unwrap();
    }
    let files = town.files.forked();
    town.engine.shutdown();
    let replays = std::thread::current().id();
    let has_written = Arc::new(AtomicBool::new(false));
    let noted = Arc::clone(&has_written);
    let store = Remote::remote(MemoryArchive::default(), Plan::default());
    let observed = Arc::new(ObservedArchive::new(store, move |read| {
        if matches!(read, Read::Nothing(_)) && std::thread::current().id() == replays {
            noted.store(true, Ordering::Relaxed);
        }
        Ok(())
    }));
    let (engine, replayed) = open(&files, &shared(&observed), Durability::Never);
    assert!(replayed > 2_000);
    let town = Town { files, archive: town.archive, durability: Durability::Never, engine };
    // Nobody sends a command that would remind it.
    town.settle().await;
    assert_eq!(town.feed().await.len(), 2_080 - deleted);
    town.engine.shutdown();
    has_written.load(Ordering::Relaxed)
}

#[tokio::test]
async fn a_start_waits_for_the_store_only_if_many_changes_of_old_posts_are_pending() {
    for (deleted, writes) in [(0, false), (100, false), (1_100, true)] {
        assert_eq!(replay_writes(deleted).await, writes, "{deleted} deleted");
    }
}

#[tokio::test]
async fn an_unwritable_store_causes_refusals_at_the_byte_limit_and_no_loss() {
    let (files, archive) = (MemoryFiles::default(), Arc::new(Remote::remote(MemoryArchive::default(), temporary())));
    let config = EngineConfig { outbox_posts: some(4), store_bytes_max: 256 << 10, ..patient() };
    let open = || {
        let (dyn_archive, storage) = (shared(&archive), storage(Durability::Always, 1 << 20));
        open_before(config.clone(), files.clone(), Some(&dyn_archive), &storage, Arc::new(SystemClock)).unwrap().0
    };
    let engine = open();
    archive.set_plan(Plan { fail_writes: 1..u64::MAX, fail_persists: 1..u64::MAX, ..temporary() });
    let body = format!("\"{}\"", "x".repeat(1_000));
    let mut acknowledged = Vec::new();
    let refused = loop {
        match engine.publish(draft("bob", &body), false).await {
            Ok(published) => acknowledged.push(published.post.id()),
            Err(refused) => break refused,
        }
        assert!(acknowledged.len() < 1_000, "nothing is refused");
    };
    // A full store is temporary beside an archive: 503.
    assert_eq!((refused.code(), refused.is_temporary()), ("overloaded", true), "{refused}");
    assert!(acknowledged.len() > 50 && engine.shared().world.posts.bytes() < 300 << 10);
    let all_are_there = async |engine: &Engine, acknowledged: &[PostId]| {
        for id in acknowledged {
            assert_eq!(engine.post(*id).await.unwrap().body(), body, "{id}");
        }
    };
    all_are_there(&engine, &acknowledged).await;
    archive.set_plan(Plan::default());
    // Nobody has to do anything: publishing goes on once old posts have left memory.
    for _ in 0..500 {
        let published = insist(async || engine.publish(draft("bob", &body), false).await).await.unwrap();
        acknowledged.push(published.post.id());
    }
    all_are_there(&engine, &acknowledged).await;
    engine.shutdown();
    let engine = open();
    all_are_there(&engine, &acknowledged).await;
    engine.shutdown();
}

#[tokio::test]
async fn pages_are_partial_while_a_store_is_unresponsive_and_complete_afterwards() {
    let town = Town::new(Durability::Always).await;
    let feed = town.feed().await;
    let all = u64::MAX;
    let oldest = town.engine.own_page(&id("bob"), PageRequest::newest(100)).await.unwrap().page.items[39].0.id;
    for plan in [
        Plan { fail_copies: 1..all, ..temporary() },
        Plan { fail_posts: 1..all, ..temporary() },
        Plan { fail_posts: 1..all, fail_copies: 1..all, fail_writes: 1..all, ..temporary() },
    ] {
        let (fails_posts, fails_copies) = (plan.fail_posts.contains(&1), plan.fail_copies.contains(&1));
        town.archive.set_plan(plan);
        let page = town.engine.own_page(&id("bob"), PageRequest::newest(100)).await.unwrap();
        assert!(page.page.items.len() < 40 && !page.page.is_complete);
        // What is read later is not damaged.
        assert_eq!((page.partial, page.page.unreadable), (vec![id("bob")], vec![]));
        // Of a position alone it is not known whose post it is.
        let page = town.engine.feed(&id("ann"), PageRequest::newest(100)).await.unwrap();
        assert_eq!((page.partial.contains(&id("ann")), page.page.unreadable), (fails_posts && !fails_copies, vec![]));
        assert_eq!(page.partial.contains(&id("cas")), fails_copies, "cas is pulled");
        if fails_posts {
            let refused = town.engine.explain(&id("ann"), oldest).await.unwrap_err();
            assert_eq!((refused.code(), refused.is_temporary()), ("archive_unavailable", true));
            let refused = town.engine.post(oldest).await.unwrap_err();
            assert_eq!((refused.code(), refused.is_temporary()), ("archive_unavailable", true));
            let refused = town.engine.edit(oldest, None, Some(true)).await.unwrap_err();
            assert_eq!(refused.code(), "archive_unavailable");
        }
        // Posts are published as ever.
        let post = town.engine.publish(draft("eve", "1"), true).await.unwrap().post.id();
        assert_eq!(town.engine.post(post).await.unwrap().id(), post);
        town.archive.set_plan(Plan::default());
        assert_eq!(town.feed().await, feed);
    }
    assert!(town.engine.edit(oldest, None, Some(true)).await.unwrap().hidden);
    town.engine.shutdown();
}

#[tokio::test]
async fn an_expired_post_is_omitted_and_a_lost_one_is_named() {
    let town = Town::new(Durability::Always).await;
    let whole = town.engine.feed(&id("ann"), PageRequest::newest(100)).await.unwrap().page;
    let gone = whole.items.last().expect("it has 80 entries").0;
    for expires in [true, false] {
        town.archive.set_plan(Plan { lost_post: Some(gone.id), expires, ..Plan::default() });
        let failures = town.engine.shared().world.read_failures.count();
        let page = town.engine.feed(&id("ann"), PageRequest::newest(100)).await.unwrap().page;
        assert_eq!(page.items.len(), whole.items.len() - 1);
        assert_eq!(page.unreadable, if expires { vec![] } else { vec![gone] });
        assert_eq!(town.engine.shared().world.read_failures.count() == failures, expires);
    }
    town.engine.shutdown();
}

#[tokio::test]
async fn a_start_finds_all_archived_posts_without_listing_the_archive() {
    let mut town = Town::new(Durability::Always).await;
    let mut random = fastrand::Rng::with_seed(7);
    for round in 0..6 {
        let own = town.engine.own_page(&id("cas"), PageRequest::newest(100)).await.unwrap().page;
        let posts: Vec<PostId> = own.items.iter().map(|(at, _)| at.id).collect();
        town.engine.delete(posts[random.usize(10..posts.len())]).await.unwrap();
        let edited = posts[random.usize(..10)];
        town.engine.edit(edited, Some(Body::new(&round.to_string()).unwrap()), None).await.unwrap();
        if round % 2 == 0 {
            town.engine.snapshot().await.unwrap();
        }
        // What is archived after the snapshot: late posts, deleted ones, and others.
        town.late("cas", 5 + round).await;
        let gone = town.late("bob", 5 + round).await;
        town.publish(10).await;
        town.settle().await;
        town.engine.delete(gone).await.unwrap();
        town.publish(10).await;
        town.settle().await;
        let feed = town.feed().await;
        match round % 3 {
            0 => town.kill(),
            1 => {
                town.engine.shutdown();
                let _ = town.open();
            }
            _ => {}
        }
        town.shows(&feed, round).await;
        town.settle().await;
        town.shows(&feed, round).await;
        town.nothing_was_listed();
    }
    let counted = town.engine.shared().world.sources.get(&id("cas")).unwrap().outbox().len();
    let own = town.engine.own_page(&id("cas"), PageRequest::newest(1_000)).await.unwrap();
    assert!(counted >= own.page.items.len(), "{counted} are an upper bound");
    town.engine.shutdown();
}

#[tokio::test]
async fn only_the_first_start_from_a_snapshot_of_a_counting_archive_lists_outboxes() {
    let (files, here) = (MemoryFiles::default(), Arc::new(FaultyArchive::<MemoryArchive>::default()));
    let engine = open(&files, &shared(&here), Durability::Always).0;
    engine.follow(vec![edge("ann", "bob")]).await.unwrap();
    for nth in 0..50 {
        engine.publish(draft("bob", &nth.to_string()), true).await.unwrap();
    }
    eventually_async("old posts leave memory", async || {
        engine.shared().world.sources.get(&id("bob")).unwrap().outbox().in_memory() <= 8
    })
    .await;
    engine.snapshot().await.unwrap();
    engine.shutdown();
    // The contents of the one archive are copied into the other.
    let archive = Arc::new(Remote::remote(here.inner().survived(), Plan::default()));
    for listed in [1, 1] {
        let engine = open(&files, &shared(&archive), Durability::Always).0;
        assert_eq!(whole_feed(&engine, "ann", 20).await.len(), 50);
        assert_eq!(archive.counts().listings, listed);
        engine.snapshot().await.unwrap();
        engine.shutdown();
    }
    // Back: the counts of the snapshot are ignored.
    let here = Arc::new(FaultyArchive::new(archive.inner().survived(), Plan::default()));
    let engine = open(&files, &shared(&here), Durability::Always).0;
    assert_eq!((whole_feed(&engine, "ann", 20).await.len(), here.counts().listings), (50, 1));
    engine.shutdown();
}

#[tokio::test]
async fn after_a_power_loss_the_store_has_nothing_that_the_journal_lacks() {
    for seed in 0..8 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut town = Town::new(Durability::Never).await;
        let mut as_of = town.archive.counts().as_of;
        if seed % 2 == 0 {
            // The replay of what was not synced writes to the store.
            town.kill();
        }
        town.publish(random.usize(..20)).await;
        town.settle().await;
        as_of = as_of.max(town.archive.counts().as_of);
        assert!(as_of > Sequence(40));
        let left = town.files.forked();
        left.lose_power(&mut random);
        town.engine.shutdown();
        town.files = left;
        let replayed = town.open();
        assert!(replayed >= as_of.0, "{seed}: {replayed} events are left of {as_of}");
        let mut archived = Vec::<Position>::new();
        let all =
            OutboxQuery { part: Part::Whole, span: PositionRange::ALL, direction: Direction::Newer, max: usize::MAX };
        town.archive.positions(&id("bob"), all, &mut archived).unwrap();
        for position in archived {
            assert!(town.engine.post(position.id).await.is_ok());
        }
        town.engine.shutdown();
    }
}

#[tokio::test]
async fn after_a_power_loss_during_replay_the_store_has_nothing_that_the_journal_lacks() {
    let town = Town::new(Durability::Never).await;
    let left = town.files.forked();
    town.engine.shutdown();
    let at_first_write = Arc::new(Mutex::new(None));
    let (files, first) = (left.clone(), Arc::clone(&at_first_write));
    let empty = Remote::remote(MemoryArchive::default(), Plan::default());
    let observed = ObservedArchive::new(empty, move |read| {
        if let Read::Nothing(batch) = read {
            first.lock().unwrap().get_or_insert_with(|| {
                let lost = files.forked();
                lost.lose_power(&mut fastrand::Rng::with_seed(3));
                (lost, batch.as_of)
            });
        }
        Ok(())
    });
    // Less than the posts take, so that the replay cannot leave all of them to the engine.
    let config = EngineConfig { store_bytes_max: 4 << 10, ..config() };
    open_with(config, &left, &shared(&Arc::new(observed)), Durability::Never).0.shutdown();
    let (lost, as_of) = at_first_write.lock().unwrap().take().expect("the replay has written");
    let (engine, replayed) = open(&lost, &shared(&Arc::new(MemoryArchive::default())), Durability::Never);
    assert!(replayed >= as_of.0, "{replayed} events are left of {as_of}");
    engine.shutdown();
}

#[tokio::test]
async fn backdated_posts_archived_after_a_snapshot_are_counted_after_a_crash() {
    let mut town = Town::new(Durability::Always).await;
    town.engine.snapshot().await.unwrap();
    for nth in 0..30 {
        town.late("cas", 5 + nth).await;
    }
    town.publish(10).await;
    town.settle().await;
    town.kill();
    let counted = town.engine.shared().world.sources.get(&id("cas")).unwrap().outbox().len();
    assert!(counted >= 80, "{counted}");
    assert_eq!(town.engine.own_page(&id("cas"), PageRequest::newest(100)).await.unwrap().page.items.len(), 80);
    town.engine.shutdown();
}

#[tokio::test]
async fn a_page_announces_its_reads_to_the_archive() {
    let town = Town::new(Durability::Always).await;
    town.archive.set_plan(Plan::default());
    let whole = town.engine.feed(&id("ann"), PageRequest::newest(60)).await.unwrap();
    assert_eq!(whole.page.items.len(), 60);
    let counts = town.archive.counts();
    let (read, announced) = (counts.posts + counts.copies, counts.prefetched);
    assert!(announced >= counts.posts && read > 40, "{counts:?}");
    town.engine.shutdown();
}
