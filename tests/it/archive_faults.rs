//! Archives that fail: what could not be written is written later, what cannot be read is missed and nothing else.

use std::sync::Arc;

use testkit::{eventually_async, in_time};
use tidewire::clock::SystemClock;
use tidewire::config::EngineConfig;
use tidewire::engine::{Engine, StorageConfig};
use tidewire::feed::page::Range;
use tidewire::feed::post::{Body, Draft};
use tidewire::id::{PostId, SourceId};
use tidewire::recovery::RecoveryReport;
use tidewire::state::reader::PageRequest;
use tidewire::storage::archive::faulty::{FaultyArchive, Plan};
use tidewire::storage::archive::{Archive, ArchivedRecord, Batch, MemoryArchive};
use tidewire::storage::error::StorageError;
use tidewire::storage::files::memory::MemoryFiles;
use tidewire::storage::files::{Files as _, UNFINISHED};
use tidewire::storage::journal::Durability;
use tidewire::storage::sequence::Sequence;

use testkit::histories::{open_before, storage};
use testkit::world::{above, draft, edge, id, patient, some, whole_feed};

/// Ann follows bob, most of whose posts are in an archive that fails on demand.
struct Failing {
    files: MemoryFiles,
    archive: Arc<FaultyArchive<MemoryArchive>>,
    engine: Engine,
    posts: Vec<PostId>,
}

impl Failing {
    async fn new() -> Self {
        let (files, archive) = (MemoryFiles::default(), Arc::new(FaultyArchive::default()));
        let engine = open(&files, &archive);
        engine.follow(vec![edge("ann", "bob")]).await.unwrap();
        let mut failing = Self { files, archive, engine, posts: Vec::new() };
        failing.publish(50).await;
        failing.settle().await;
        failing
    }

    async fn publish(&mut self, count: usize) {
        for _ in 0..count {
            let post = self.engine.publish(draft("bob", "\"old\""), false).await.unwrap().post;
            self.posts.push(post.id());
        }
    }

    fn in_memory(&self) -> usize {
        self.engine.shared().world.sources.get(&id("bob")).unwrap().outbox().in_memory()
    }

    async fn settle(&self) {
        eventually_async("old posts leave memory", async || self.in_memory() <= 8).await;
    }

    /// Goes on with what is left when the process is killed.
    fn kill(&mut self) {
        let archive = Arc::new(FaultyArchive::new(self.archive.inner().survived(), Plan::default()));
        let files = self.files.forked();
        self.engine.shutdown();
        (self.files, self.archive) = (files, archive);
        self.engine = open(&self.files, &self.archive);
    }

    /// Goes on with all there is.
    fn reopen(&mut self) {
        self.engine.shutdown();
        self.engine = open(&self.files, &self.archive);
    }

    /// What the archive has of a post is no post.
    fn damage(&self, post: PostId) {
        let posts = vec![(post, ArchivedRecord::Post(b"nonsense".to_vec()))];
        self.archive.inner().write(&Batch { posts, ..Batch::default() }).unwrap();
    }

    async fn all_are_read(&self) {
        assert_eq!(whole_feed(&self.engine, "ann", 20).await.len(), self.posts.len());
    }
}

fn open(files: &MemoryFiles, archive: &Arc<FaultyArchive<MemoryArchive>>) -> Engine {
    try_open(files, archive, false).unwrap().0
}

fn try_open(
    files: &MemoryFiles,
    archive: &Arc<FaultyArchive<MemoryArchive>>,
    repair: bool,
) -> Result<(Engine, RecoveryReport), StorageError> {
    let archive = Arc::clone(archive) as Arc<dyn Archive>;
    let config = EngineConfig { outbox_posts: some(4), inbox_posts: some(10), celebrity: above(100), ..patient() };
    let storage = StorageConfig { repair, ..storage(Durability::Always, 1 << 20) };
    open_before(config, files.clone(), Some(&archive), &storage, Arc::new(SystemClock))
}

#[tokio::test]
async fn posts_stay_in_memory_after_a_failed_write_which_is_retried() {
    let mut failing = Failing::new().await;
    failing.archive.set_plan(Plan { fail_writes: 1..3, ..Plan::default() });
    failing.publish(50).await;
    eventually_async("a batch is written", async || failing.archive.counts().writes == 1).await;
    failing.all_are_read().await;
    assert!(failing.in_memory() > 8);
    // Nobody writes anything that would remind it.
    failing.settle().await;
    assert!(failing.archive.counts().writes >= 3);
    failing.all_are_read().await;
    failing.engine.snapshot().await.unwrap();
    failing.kill();
    failing.all_are_read().await;
    failing.engine.shutdown();
}

#[tokio::test]
async fn a_snapshot_does_not_replace_an_edit_that_failed_to_be_archived() {
    let mut failing = Failing::new().await;
    failing.archive.set_plan(Plan { fail_writes: 1..2, holds_writes: true, ..Plan::default() });
    let edited = failing.posts[0];
    failing.engine.edit(edited, Some(Body::new("\"new\"").unwrap()), None).await.unwrap();
    failing.publish(20).await;
    eventually_async("a batch is written", async || failing.archive.counts().writes == 1).await;
    let engine = failing.engine.clone();
    let taken = tokio::spawn(async move { engine.snapshot().await });
    let has_begun = || failing.files.forked().list().unwrap().iter().any(|name| name.ends_with(UNFINISHED));
    eventually_async("the snapshot has begun", async || has_begun()).await;
    // While the snapshotter waits for the command processor, it asks again and again whether the disk is full. From now on it waits for the mark at the end.
    let before = failing.archive.counts().catch_ups;
    eventually_async("the command processor is asked for its end", async || {
        failing.archive.counts().catch_ups > before
    })
    .await;
    failing.archive.set_plan(Plan::default());
    // The round of its own has nothing of that edit.
    assert_eq!(taken.await.unwrap().unwrap_err().code(), "archive_failed");
    failing.kill();
    assert_eq!(failing.engine.post(edited).await.unwrap().body(), "\"new\"");
    failing.all_are_read().await;
    failing.engine.shutdown();
}

#[tokio::test]
async fn a_snapshot_is_valid_only_if_the_archive_was_persisted() {
    let mut failing = Failing::new().await;
    failing.archive.set_plan(Plan { fail_persists: 1..3, ..Plan::default() });
    assert_eq!(failing.engine.snapshot().await.unwrap_err().code(), "archive_failed");
    assert_eq!(failing.engine.snapshots(), []);
    failing.kill();
    failing.all_are_read().await;
    failing.settle().await;
    failing.engine.snapshot().await.unwrap();
    failing.kill();
    failing.all_are_read().await;
    failing.engine.shutdown();
}

#[tokio::test]
async fn a_snapshot_fails_without_waiting_while_the_disk_is_full() {
    let failing = Failing::new().await;
    failing.archive.set_plan(Plan { is_full: true, ..Plan::default() });
    // The first finds out, when it persists the archive; the second knows before it begins.
    for _ in 0..2 {
        let refused = in_time("an answer while the disk is full", failing.engine.snapshot()).await.unwrap_err();
        assert_eq!((refused.code(), refused.is_temporary()), ("disk_full", true));
        assert_eq!(failing.archive.counts().persists, 1);
    }
    failing.archive.set_plan(Plan::default());
    failing.engine.snapshot().await.unwrap();
    failing.all_are_read().await;
    failing.engine.shutdown();
}

#[tokio::test]
async fn a_journal_that_ends_before_the_archived_events_is_refused() {
    let files = MemoryFiles::default();
    let archive = Arc::new(FaultyArchive::remote(MemoryArchive::ordered(), Plan::default()));
    let engine = open(&files, &archive);
    engine.follow(vec![edge("ann", "bob")]).await.unwrap();
    for _ in 0..50 {
        engine.publish(draft("bob", "\"old\""), false).await.unwrap();
    }
    engine.shutdown();
    let earlier = files.forked();
    open(&files, &archive).shutdown();
    // As another run that went on until there has written it.
    archive.write(&Batch { as_of: Sequence(99), ..Batch::default() }).unwrap();
    for repair in [false, true] {
        let refused = try_open(&earlier, &archive, repair).map(|_| ()).unwrap_err();
        let text = "the journal ends at event 51, but the archive memory has writes of events up to 99";
        assert!(refused.to_string().contains(text), "{refused}");
    }
}

#[tokio::test]
async fn an_older_copy_of_the_archive_is_refused_and_a_repair_continues_without_it() {
    let mut failing = Failing::new().await;
    failing.engine.snapshot().await.unwrap();
    let older = failing.archive.inner().survived();
    failing.publish(50).await;
    failing.settle().await;
    failing.engine.snapshot().await.unwrap();
    failing.engine.shutdown();
    for (archive, gone_from, text) in [
        (older.survived(), 52, "relies on posts archived up to event 101, but the archive memory ends at event 51"),
        (MemoryArchive::default(), 1, "relies on an archive with posts, which is missing or empty"),
    ] {
        let (files, archive) = (failing.files.forked(), Arc::new(FaultyArchive::new(archive, Plan::default())));
        let refused = try_open(&files, &archive, false).map(|_| ()).unwrap_err();
        assert!(refused.to_string().contains(text), "{refused}");
        let (engine, report) = try_open(&files, &archive, true).unwrap();
        let lost: Vec<_> = report.lost.iter().map(|lost| (lost.from.0, lost.until.unwrap().0)).collect();
        assert_eq!(lost, [(gone_from, 102)]);
        assert!(whole_feed(&engine, "ann", 20).await.len() < 100);
        engine.shutdown();
        // The state after the repair was kept.
        let (engine, report) = try_open(&files, &archive, false).unwrap();
        assert!(report.lost.is_empty());
        engine.shutdown();
    }
}

#[tokio::test]
async fn pages_omit_and_report_only_the_damaged_post() {
    let failing = Failing::new().await;
    let damaged = failing.posts[20];
    failing.damage(damaged);
    assert_eq!(whole_feed(&failing.engine, "ann", 20).await.len(), 49);
    let request = PageRequest { range: Range::Newest, limit: 100 };
    let feed = failing.engine.feed(&id("ann"), request).await.unwrap();
    let own = failing.engine.own_page(&id("bob"), request).await.unwrap();
    for page in [feed, own] {
        let unreadable: Vec<PostId> = page.page.unreadable.iter().map(|position| position.id).collect();
        assert_eq!((page.page.items.len(), unreadable), (49, vec![damaged]));
    }
    let shared = failing.engine.shared();
    assert!(shared.counters.partial_pages.get() >= 3 && shared.world.read_failures.count() >= 3);
    let refused = failing.engine.post(damaged).await.unwrap_err();
    assert!(refused.to_string().contains(&format!("post {damaged}: its checksum is wrong")), "{refused}");
    failing.engine.shutdown();
}

#[tokio::test]
async fn an_early_reply_can_be_read_if_its_parent_is_damaged() {
    let mut failing = Failing::new().await;
    let (parent, reply) = (PostId(1), PostId(2));
    for post in [Draft { reply_to: Some(parent), ..draft("bob", "\"reply\"") }, draft("bob", "\"parent\"")] {
        let id = if post.reply_to.is_some() { reply } else { parent };
        failing.engine.publish(Draft { id: Some(id), ..post }, true).await.unwrap();
        failing.publish(20).await;
        eventually_async("the post leaves memory", async || failing.engine.shared().world.posts.get(id).is_none())
            .await;
    }
    failing.damage(parent);
    assert!(failing.engine.post(parent).await.is_err());
    assert_eq!(failing.engine.post(reply).await.unwrap().reply_to, Some(parent));
    failing.engine.shutdown();
}

#[tokio::test]
async fn pages_name_a_post_that_an_outbox_has_and_the_archive_lacks() {
    let failing = Failing::new().await;
    let lost = failing.posts[20];
    failing.archive.set_plan(Plan { lost_post: Some(lost), ..Plan::default() });
    let request = PageRequest { range: Range::Newest, limit: 100 };
    let feed = failing.engine.feed(&id("ann"), request).await.unwrap();
    let own = failing.engine.own_page(&id("bob"), request).await.unwrap();
    for page in [feed, own] {
        let unreadable: Vec<PostId> = page.page.unreadable.iter().map(|position| position.id).collect();
        assert_eq!((page.page.items.len(), unreadable), (49, vec![lost]));
    }
    assert!(failing.engine.shared().world.read_failures.count() >= 2);
    failing.engine.shutdown();
}

#[tokio::test]
async fn a_page_names_an_unreadable_outbox() {
    let failing = Failing::new().await;
    let request = PageRequest { range: Range::Newest, limit: 100 };
    failing.archive.set_plan(Plan { fail_copies: 1..u64::MAX, ..Plan::default() });
    // The last posts may still be leaving memory.
    let before = failing.in_memory();
    let page = failing.engine.own_page(&id("bob"), request).await.unwrap();
    let shown = page.page.items.len();
    assert_eq!(page.partial, [id("bob")]);
    assert!((failing.in_memory()..=before).contains(&shown), "{shown} posts were shown, {before} were in memory");
    assert!(failing.engine.shared().world.read_failures.count() >= 1);
    failing.archive.set_plan(Plan::default());
    failing.all_are_read().await;
    failing.engine.shutdown();
}

#[tokio::test]
async fn paging_terminates_while_a_source_stays_unreadable() {
    let failing = Failing::new().await;
    failing.engine.follow(vec![edge("ann", "cas")]).await.unwrap();
    for _ in 0..5 {
        failing.engine.publish(draft("cas", "1"), true).await.unwrap();
    }
    failing.archive.set_plan(Plan { fail_copies: 1..u64::MAX, ..Plan::default() });
    let (mut met, mut range, mut lacked) = (0, Range::Newest, false);
    for read in 1.. {
        assert!(read < 60, "reading goes in circles");
        let page = failing.engine.feed(&id("ann"), PageRequest { range, limit: 10 }).await.unwrap();
        met += page.page.items.len();
        lacked |= page.partial == [id("bob")];
        let Some(next) = page.page.next else { break };
        assert!(range != Range::Before(next) || !page.page.items.is_empty(), "the same cursor beside no entries");
        range = Range::Before(next);
    }
    assert!(lacked && met >= 5, "what could be read was shown: {met}");
    failing.engine.shutdown();
}

#[tokio::test]
async fn a_post_damaged_in_the_archive_is_restored_from_the_journal() {
    let mut failing = Failing::new().await;
    let damaged = failing.posts[20];
    failing.damage(damaged);
    failing.reopen();
    failing.all_are_read().await;
    failing.engine.snapshot().await.unwrap();
    failing.kill();
    failing.all_are_read().await;
    assert_eq!(failing.engine.post(damaged).await.unwrap().body(), "\"old\"");
    failing.engine.shutdown();
}

#[tokio::test]
async fn the_start_fails_if_the_archive_cannot_be_read() {
    let failing = Failing::new().await;
    failing.engine.shutdown();
    let (once, never) = (1..2, 0..0);
    for (fail_posts, fail_copies) in [(once.clone(), never.clone()), (never, once)] {
        failing.archive.set_plan(Plan { fail_posts, fail_copies, ..Plan::default() });
        let refused = try_open(&failing.files.forked(), &failing.archive, false).map(|_| ()).unwrap_err();
        assert_eq!(refused.to_string(), "failed to read the archive memory");
    }
}

#[tokio::test]
async fn an_archived_post_is_shown_without_a_tag_that_is_otherwise_unknown() {
    let mut failing = Failing::new().await;
    let tagged = Draft { tags: vec![SourceId::tag("tea").unwrap()], ..draft("bob", "1") };
    let tagged = failing.engine.publish(tagged, false).await.unwrap().post.id();
    failing.publish(50).await;
    failing.settle().await;
    failing.engine.shutdown();
    // Journal and snapshots are gone, and the tag's own outbox was never archived.
    failing.files = MemoryFiles::default();
    failing.reopen();
    let post = failing.engine.post(tagged).await.unwrap();
    assert_eq!(post.sources().iter().map(|source| source.id.as_str()).collect::<Vec<_>>(), ["bob"]);
    failing.engine.shutdown();
}
