//! The command processor reads no archive: what a command needs of it is looked up before, on other threads.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use testkit::eventually_async;
use tidewire::clock::{Clock, ManualClock, SystemClock, UnixMicros};
use tidewire::config::EngineConfig;
use tidewire::engine::{Engine, StorageConfig};
use tidewire::feed::event::{MuteOrBlock, NewEdge};
use tidewire::feed::post::{Body, Draft};
use tidewire::id::PostId;
use tidewire::recovery::RecoveryProgress;
use tidewire::storage::archive::faulty::{FaultyArchive, Plan};
use tidewire::storage::archive::{Archive, LARGEST_IDS_MAX, MemoryArchive};
use tidewire::storage::files::memory::MemoryFiles;

use testkit::observed_archive::{ObservedArchive, Read};
use testkit::world::{above, draft, id, insist, patient, some, whole_feed};

/// What was read of an archive.
#[derive(Default)]
struct Reads {
    by_processor: AtomicU64,
    /// Posts that were looked up, by anybody.
    posts: AtomicU64,
    /// Times that ids were listed.
    lists: AtomicU64,
}

impl Reads {
    fn count(&self, read: &Read<'_>) {
        if thread::current().name() == Some("tidewire-writer") {
            self.by_processor.fetch_add(1, Ordering::SeqCst);
        }
        match read {
            Read::Post => self.posts.fetch_add(1, Ordering::SeqCst),
            Read::Ids => self.lists.fetch_add(1, Ordering::SeqCst),
            Read::Outbox(_) | Read::Nothing(_) => 0,
        };
    }
}

type Watched = ObservedArchive<FaultyArchive<MemoryArchive>>;

/// An engine before such an archive.
struct Observed {
    files: MemoryFiles,
    archive: Arc<Watched>,
    reads: Arc<Reads>,
    clock: Arc<dyn Clock>,
    engine: Engine,
}

impl Observed {
    fn new(clock: Arc<dyn Clock>) -> Self {
        let (files, reads) = (MemoryFiles::default(), Arc::<Reads>::default());
        let counts = Arc::clone(&reads);
        let archive = Arc::new(ObservedArchive::new(FaultyArchive::default(), move |read| {
            counts.count(read);
            Ok(())
        }));
        let engine = open(&files, &archive, &clock);
        Self { files, archive, reads, clock, engine }
    }

    fn reopen(&mut self) {
        self.engine.shutdown();
        self.engine = open(&self.files, &self.archive, &self.clock);
    }

    async fn publish(&self, author: &str, count: usize) -> Vec<PostId> {
        let mut posts = Vec::new();
        for _ in 0..count {
            posts.push(self.engine.publish(draft(author, "\"old\""), false).await.unwrap().post.id());
        }
        posts
    }

    async fn settle(&self) {
        let in_memory = || self.engine.shared().world.sources.iter().map(|source| source.outbox().in_memory()).max();
        eventually_async("old posts leave memory", async || in_memory() <= Some(8)).await;
    }

    fn by_processor(&self) -> u64 {
        self.reads.by_processor.load(Ordering::SeqCst)
    }
}

fn open(files: &MemoryFiles, archive: &Arc<Watched>, clock: &Arc<dyn Clock>) -> Engine {
    let archive = Arc::clone(archive) as Arc<dyn Archive>;
    let config = EngineConfig { outbox_posts: some(4), celebrity: above(100), ..patient() };
    let files = Arc::new(files.clone());
    let (clock, storage) = (Arc::clone(clock), StorageConfig::default());
    Engine::open_on(config, files, Some(&archive), None, &storage, clock, &RecoveryProgress::default()).unwrap().0
}

#[tokio::test]
async fn the_command_processor_never_reads_the_archive() {
    let seen = Observed::new(Arc::new(SystemClock));
    let engine = &seen.engine;
    let given = Draft { id: Some(PostId(77)), published_at: Some(UnixMicros(5)), ..draft("bob", "7") };
    engine.publish(given.clone(), false).await.unwrap();
    let posts = seen.publish("bob", 60).await;
    let repost = Draft { repost_of: Some(posts[0]), ..draft("cas", "1") };
    let repost = engine.publish(repost, false).await.unwrap().post.id();
    seen.publish("cas", 60).await;
    seen.settle().await;
    assert_eq!(seen.by_processor(), 0);

    let reply = Draft { reply_to: Some(posts[1]), ..draft("dan", "1") };
    let reply = engine.publish(reply, true).await.unwrap().post;
    assert_eq!(reply.answered.as_ref().map(|source| source.id.as_str()), Some("bob"));
    let again = Draft { repost_of: Some(repost), ..draft("dan", "1") };
    let again = engine.publish(again, true).await.unwrap().post;
    assert_eq!(again.repost_of, Some(posts[0]), "a repost of an archived repost points at the origin");
    assert!(!engine.publish(given.clone(), false).await.unwrap().created);
    let taken = Draft { body: Body::new("8").unwrap(), ..given };
    assert_eq!(engine.publish(taken, false).await.unwrap_err().code(), "post_id_taken");
    let fresh = Draft { id: Some(PostId(78)), ..draft("dan", "1") };
    assert!(engine.publish(fresh, false).await.unwrap().created);

    let edited = engine.edit(posts[2], Some(Body::new("\"new\"").unwrap()), None).await.unwrap();
    assert_eq!(edited.body(), "\"new\"");
    assert!(engine.edit(posts[3], None, Some(true)).await.unwrap().hidden);
    engine.delete(posts[4]).await.unwrap();
    engine.delete(PostId(3)).await.unwrap();
    assert_eq!(engine.edit(posts[4], None, Some(true)).await.unwrap_err().code(), "unknown_post");
    assert_eq!(engine.edit(PostId(3), None, Some(true)).await.unwrap_err().code(), "unknown_post");
    assert_eq!(
        engine.publish(Draft { id: Some(posts[4]), ..draft("bob", "1") }, false).await.unwrap_err().code(),
        "post_deleted"
    );

    // Bob has 61 posts, of which one is deleted and one hidden.
    for (reader, backfill, shows) in [("r0", 0, 0), ("r3", 3, 3), ("r30", 30, 30), ("r58", 58, 57), ("all", 10_000, 59)]
    {
        let edge = NewEdge { backfill: Some(backfill), ..NewEdge::new(id(reader), id("bob")) };
        engine.follow(vec![edge]).await.unwrap();
        assert_eq!(whole_feed(engine, reader, 20).await.len(), shows, "{reader}");
    }
    let many = (0..50).map(|nth| NewEdge { backfill: Some(nth), ..NewEdge::new(id(&format!("m{nth}")), id("cas")) });
    engine.follow(many.collect()).await.unwrap();
    assert_eq!(whole_feed(engine, "m40", 20).await.len(), 40);
    engine.unfollow_but_keep(id("r30"), id("bob")).await.unwrap();
    assert_eq!(whole_feed(engine, "r30", 20).await.len(), 30);
    engine.silence(id("m1"), id("cas"), MuteOrBlock::Block, true).await.unwrap();
    assert_eq!(seen.by_processor(), 0);
    engine.shutdown();
}

#[tokio::test]
async fn an_archived_id_near_the_maximum_does_not_cause_lookups_of_minted_ids() {
    let mut seen = Observed::new(Arc::new(SystemClock));
    let largest = Draft { id: Some(PostId(u64::MAX - 1)), ..draft("bob", "1") };
    seen.engine.publish(largest, false).await.unwrap();
    seen.publish("bob", 60).await;
    seen.settle().await;
    for _ in 0..2 {
        assert!(seen.archive.may_have(PostId(u64::MAX - 1)) && !seen.archive.may_have(PostId(u64::MAX - 2)));
        let looked_up = |seen: &Observed| seen.reads.posts.load(Ordering::SeqCst);
        let before = looked_up(&seen);
        seen.publish("cas", 200).await;
        assert_eq!((looked_up(&seen) - before, seen.by_processor()), (0, 0));
        seen.reopen();
    }
    assert_eq!(seen.reads.lists.load(Ordering::SeqCst), 0);
    seen.engine.shutdown();
}

#[tokio::test]
async fn many_archived_ids_near_the_maximum_are_listed_and_not_looked_up_singly() {
    let mut seen = Observed::new(Arc::new(SystemClock));
    for nth in 0..LARGEST_IDS_MAX as u64 + 100 {
        let large = Draft { id: Some(PostId(u64::MAX - 2 * nth)), ..draft("bob", "1") };
        seen.engine.publish(large, false).await.unwrap();
    }
    seen.settle().await;
    for _ in 0..2 {
        assert!(seen.archive.may_have(PostId(u64::MAX / 2)), "too many to know each");
        let looked_up = |seen: &Observed| seen.reads.posts.load(Ordering::SeqCst);
        let before = looked_up(&seen);
        seen.publish("cas", 200).await;
        assert_eq!((looked_up(&seen) - before, seen.by_processor()), (0, 0));
        seen.reopen();
    }
    assert!(seen.reads.lists.load(Ordering::SeqCst) <= 2, "one for each start");
    seen.engine.shutdown();
}

#[tokio::test]
async fn minted_ids_skip_archived_ids_chosen_by_callers() {
    let start = 1_700_000_000_000_000;
    let clock = Arc::new(ManualClock::new(UnixMicros(start)));
    let mut seen = Observed::new(Arc::clone(&clock) as Arc<dyn Clock>);
    // All that will be minted in the microseconds 1,000 to 1,009, and then each first one of 3,000 more.
    let ahead = |after: u64| (start as u64 + after) << 12;
    let given: Vec<u64> =
        (1_000..1_010).flat_map(|at| (0..3).map(move |nth| (at, nth))).map(|(at, nth)| ahead(at) + nth).collect();
    let given: Vec<u64> = given.into_iter().chain((1_010..4_000).map(ahead)).collect();
    for id in &given {
        let draft = Draft { id: Some(PostId(*id)), published_at: Some(UnixMicros(1)), ..draft("bob", "1") };
        let published = insist(async || seen.engine.publish(draft.clone(), false).await).await.unwrap();
        assert!(published.created);
    }
    seen.settle().await;
    for (nth, after) in (990..4_010).enumerate() {
        if nth == 1_500 {
            seen.reopen();
        }
        clock.set(UnixMicros(start + after));
        let published = insist(async || seen.engine.publish(draft("cas", "1"), false).await).await.unwrap();
        assert!(published.created && !given.contains(&published.post.id().0), "{after}");
    }
    assert_eq!(seen.by_processor(), 0);
    seen.engine.shutdown();
}

#[tokio::test]
async fn ids_are_minted_even_if_the_archive_cannot_list_its_ids() {
    let start = 1_700_000_000_000_000;
    let clock = Arc::new(ManualClock::new(UnixMicros(start)));
    let mut seen = Observed::new(Arc::clone(&clock) as Arc<dyn Clock>);
    let ahead = |after: u64| (start as u64 + after) << 12;
    let taken = (5_000..5_010).flat_map(|at| (0..3).map(move |nth| ahead(at) + nth));
    let given: Vec<u64> = (0..LARGEST_IDS_MAX as u64 + 100).map(|nth| u64::MAX - 2 * nth).chain(taken).collect();
    for id in &given {
        let draft = Draft { id: Some(PostId(*id)), published_at: Some(UnixMicros(1)), ..draft("bob", "1") };
        assert!(seen.engine.publish(draft, false).await.unwrap().created);
    }
    seen.settle().await;
    seen.archive.archive.set_plan(Plan { lists_no_ids: true, ..Plan::default() });
    seen.reopen();
    let mut minted = Vec::new();
    for after in 4_995..5_015 {
        clock.set(UnixMicros(start + after));
        minted.push(seen.engine.publish(draft("cas", "1"), false).await.unwrap());
        let many = vec![draft("cas", "1"), draft("dan", "1"), draft("cas", "1")];
        minted.extend(seen.engine.publish_many(many, false).await.into_iter().map(Result::unwrap));
    }
    assert!(minted.iter().all(|published| published.created && !given.contains(&published.post.id().0)));
    let ids: BTreeSet<PostId> = minted.iter().map(|published| published.post.id()).collect();
    assert_eq!((ids.len(), seen.by_processor()), (80, 0));
    // If it cannot be looked up either, the post is refused for now.
    seen.archive.archive.set_plan(Plan {
        lists_no_ids: true,
        fail_posts: 1..u64::MAX,
        is_temporary: true,
        ..Plan::default()
    });
    let refused = seen.engine.publish(draft("cas", "1"), false).await.unwrap_err();
    assert_eq!((refused.code(), refused.is_temporary()), ("archive_unavailable", true));
    seen.engine.shutdown();
}

#[tokio::test]
async fn an_archive_failure_after_judging_does_not_affect_the_command() {
    let seen = Observed::new(Arc::new(SystemClock));
    let posts = seen.publish("bob", 60).await;
    seen.settle().await;
    // Each command may look up what it needs once.
    let then_fail = || seen.archive.archive.set_plan(Plan { fail_posts: 2..u64::MAX, ..Plan::default() });
    then_fail();
    assert!(seen.engine.edit(posts[0], None, Some(true)).await.unwrap().hidden);
    then_fail();
    seen.engine.delete(posts[1]).await.unwrap();
    seen.archive.archive.set_plan(Plan { fail_posts: 1..u64::MAX, fail_copies: 1..u64::MAX, ..Plan::default() });
    assert_eq!(seen.engine.delete(posts[2]).await.unwrap_err().code(), "archive_failed");
    let edge = NewEdge { backfill: Some(30), ..NewEdge::new(id("ann"), id("bob")) };
    assert_eq!(seen.engine.follow(vec![edge.clone()]).await.unwrap_err().code(), "archive_failed");
    seen.publish("bob", 3).await;
    seen.archive.archive.set_plan(Plan::default());
    seen.engine.follow(vec![edge]).await.unwrap();
    assert_eq!(whole_feed(&seen.engine, "ann", 20).await.len(), 30);
    seen.engine.shutdown();
}
