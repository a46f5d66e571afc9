//! Posts too old for memory: scrolled to, edited, deleted, and there after a restart.

use std::sync::Arc;

use testkit::eventually_async;
use tidewire::clock::SystemClock;
use tidewire::config::EngineConfig;
use tidewire::engine::{Engine, StorageConfig};
use tidewire::error::Error;
use tidewire::feed::page::Range;
use tidewire::feed::post::{Body, Draft};
use tidewire::id::{PostId, SourceId};
use tidewire::recovery::RecoveryProgress;
use tidewire::runtime::message::Published;
use tidewire::state::reader::PageRequest;
use tidewire::storage::archive::{Archive, MemoryArchive};
use tidewire::storage::files::Files as _;
use tidewire::storage::files::memory::MemoryFiles;

use testkit::oracle::{NaivePost, Oracle};
use testkit::world::{above, draft, edge, entries, id, insist, patient, some, whole_feed, whole_feed_upward};

struct Archived {
    files: MemoryFiles,
    archive: Arc<MemoryArchive>,
    config: EngineConfig,
    engine: Engine,
    oracle: Oracle,
}

impl Archived {
    fn new(config: EngineConfig) -> Self {
        let (files, archive) = (MemoryFiles::default(), Arc::new(MemoryArchive::default()));
        let engine = open(&files, &archive, &config);
        Self { files, archive, config, engine, oracle: Oracle::default() }
    }

    fn reopen(&mut self) {
        self.engine.shutdown();
        self.engine = open(&self.files, &self.archive, &self.config);
    }

    async fn follow(&mut self, follower: &str, source: &str) {
        self.engine.follow(vec![edge(follower, source)]).await.unwrap();
        self.oracle.follow(follower, source);
    }

    async fn publish(&mut self, author: &str, tag: Option<&str>) {
        let body = self.oracle.posts.len().to_string();
        let tags = tag.into_iter().map(|tag| SourceId::tag(tag).unwrap()).collect();
        self.publish_draft(author, body.clone(), Draft { tags, ..draft(author, &body) }).await;
    }

    /// Publishes it, again and again while there is no room.
    async fn publish_draft(&mut self, author: &str, body: String, draft: Draft) {
        let sources = draft.sources().map(|source| source.to_string()).collect();
        let post = insist(async || self.engine.publish(draft.clone(), true).await).await.unwrap().post;
        self.oracle.posts.push(NaivePost {
            id: post.id().0,
            published_at: post.position.published_at.0,
            author: author.to_owned(),
            sources,
            body,
            ..NaivePost::default()
        });
    }

    /// Fifty rounds of posts by three authors, some of them tagged.
    async fn publish_many(&mut self) {
        for nth in 0..50 {
            self.publish("bob", (nth % 3 == 0).then_some("tea")).await;
            self.publish("cas", None).await;
            if nth % 10 == 0 {
                self.publish("dan", Some("tea")).await;
            }
        }
    }

    /// Waits until no outbox has much more in memory than it may.
    async fn settled(&self) {
        let most = 2 * self.config.outbox_posts.get();
        let in_memory = || {
            let sources = self.engine.shared().world.sources.iter();
            sources.map(|source| source.outbox().in_memory()).max().unwrap_or(0)
        };
        eventually_async("old posts leave memory", async || in_memory() <= most).await;
    }

    async fn check(&self) {
        self.settled().await;
        for reader in ["ann", "eve", "bob"] {
            let expected = self.oracle.feed(reader);
            for limit in [1, 7, 100] {
                assert_eq!(whole_feed(&self.engine, reader, limit).await, expected, "{reader} by {limit}");
                assert_eq!(whole_feed_upward(&self.engine, reader, limit).await, expected, "{reader} up by {limit}");
            }
        }
        for source in ["bob", "cas", "dan", "tag:tea"] {
            let request = PageRequest { range: Range::Newest, limit: 100 };
            let page = self.engine.own_page(&id(source), request).await.unwrap();
            let expected = self.oracle.own_page(source);
            assert_eq!(entries(&page), expected[..expected.len().min(100)]);
            // A count of a source's posts has hidden ones in it, pages have not.
            let posts =
                self.oracle.posts.iter().filter(|post| !post.deleted && post.sources.iter().any(|of| of == source));
            assert_eq!(self.engine.source(&id(source)).unwrap().posts, posts.count(), "{source}");
        }
    }
}

fn open(files: &MemoryFiles, archive: &Arc<MemoryArchive>, config: &EngineConfig) -> Engine {
    let (storage, archive) = (StorageConfig::default(), Arc::clone(archive) as Arc<dyn Archive>);
    let (files, clock) = (Arc::new(files.clone()), Arc::new(SystemClock));
    Engine::open_on(config.clone(), files, Some(&archive), None, &storage, clock, &RecoveryProgress::default())
        .unwrap()
        .0
}

fn small(celebrity: u64) -> EngineConfig {
    EngineConfig { outbox_posts: some(4), inbox_posts: some(10), celebrity: above(celebrity), ..patient() }
}

#[tokio::test]
async fn feeds_are_complete_while_memory_has_few_posts() {
    for celebrity in [1, 100] {
        let mut shelved = Archived::new(small(celebrity));
        for (follower, source) in [("ann", "bob"), ("ann", "cas"), ("eve", "tag:tea"), ("eve", "cas"), ("eve", "dan")] {
            shelved.follow(follower, source).await;
        }
        shelved.publish_many().await;
        shelved.check().await;
        assert!(shelved.engine.shared().world.posts.len() < 40, "most posts are in the archive only");
        assert!(shelved.engine.shared().counters.cold_pages.get() > 0);
        shelved.engine.shutdown();
    }
}

#[tokio::test]
async fn archived_posts_can_be_edited_hidden_and_deleted() {
    let mut shelved = Archived::new(small(100));
    shelved.follow("ann", "bob").await;
    shelved.follow("eve", "tag:tea").await;
    shelved.publish_many().await;
    shelved.settled().await;
    for nth in (0..80).step_by(5) {
        let post = PostId(shelved.oracle.posts[nth].id);
        let naive = &mut shelved.oracle.posts[nth];
        match nth % 3 {
            0 => {
                shelved.engine.delete(post).await.unwrap();
                naive.deleted = true;
                let again = Draft { id: Some(post), ..draft("bob", "1") };
                assert_eq!(shelved.engine.publish(again, false).await.unwrap_err().code(), "post_deleted");
                assert_eq!(shelved.engine.post(post).await.unwrap_err().code(), "unknown_post");
            }
            1 => {
                shelved.engine.edit(post, Some(Body::new("\"new\"").unwrap()), None).await.unwrap();
                "\"new\"".clone_into(&mut naive.body);
            }
            _ => {
                shelved.engine.edit(post, None, Some(true)).await.unwrap();
                naive.hidden = true;
            }
        }
    }
    assert!(shelved.oracle.posts.iter().filter(|post| post.hidden).count() > 3);
    shelved.check().await;
    shelved.reopen();
    shelved.check().await;
    shelved.engine.snapshot().await.unwrap();
    shelved.reopen();
    shelved.check().await;
    // What shows again stands where it stood, from whichever level.
    for post in shelved.oracle.posts.iter_mut().filter(|post| post.hidden) {
        assert!(shelved.engine.post(PostId(post.id)).await.unwrap().hidden);
        shelved.engine.edit(PostId(post.id), None, Some(false)).await.unwrap();
        post.hidden = false;
    }
    shelved.check().await;
    shelved.reopen();
    shelved.check().await;
    shelved.engine.shutdown();
}

impl Archived {
    /// Publishes posts with these ids, and then so many with larger ids that the archive may have any smaller one.
    async fn publish_ids(&mut self, ids: impl IntoIterator<Item = u64>) {
        for id in ids.into_iter().chain((0..1_100).map(|nth| 1_000_000 + nth)) {
            self.publish_draft("bob", "9".to_owned(), Draft { id: Some(PostId(id)), ..draft("bob", "9") }).await;
        }
        self.settled().await;
        eventually_async("the archive has many posts", async || {
            self.engine.shared().world.may_have_archived(PostId(9_999))
        })
        .await;
    }
}

/// The drafts of a batch whose ids may all be in the archive: descending, one twice, and posts that depend on others of the batch.
fn dependent(first: u64) -> Vec<Draft> {
    let at = |nth: u64, author: &str, body: &str| Draft { id: Some(PostId(first + nth)), ..draft(author, body) };
    // The archive has neither id, but the post that one of each pair answers.
    let mut drafts: Vec<_> =
        vec![at(9_000_000, "gil", "1"), Draft { reply_to: Some(PostId(first)), ..at(9_000_000, "gil", "2") }];
    drafts.extend((20..60).rev().map(|nth| at(nth, "cas", "0")));
    drafts.extend([at(5, "bob", "1"), at(5, "bob", "2"), draft("dan", "3"), at(5, "bob", "1")]);
    drafts.push(Draft { repost_of: Some(PostId(first + 5)), ..at(4, "eve", "4") });
    drafts.push(Draft { repost_of: Some(PostId(first + 4)), ..at(3, "fay", "5") });
    drafts.push(Draft { reply_to: Some(PostId(first + 3)), ..at(2, "bob", "6") });
    // The first comes before the post that it repeats.
    drafts.push(Draft { repost_of: Some(PostId(first + 1)), ..at(6, "eve", "7") });
    drafts.extend([Draft { reply_to: Some(PostId(first)), ..at(9_000_001, "gil", "1") }, at(9_000_001, "gil", "2")]);
    drafts.extend([
        at(1, "eve", "8"),
        at(0, "bob", "9"),
        Draft { repost_of: Some(PostId(first)), ..draft("eve", "10") },
    ]);
    drafts
}

#[tokio::test]
async fn a_batch_with_archived_ids_equals_single_publishes_in_order() {
    let (mut single, mut batch) = (Archived::new(small(100)), Archived::new(small(100)));
    let firsts = (1..=40u64).map(|nth| nth * 100);
    for shelved in [&mut single, &mut batch] {
        shelved.publish_ids(firsts.clone()).await;
    }
    let outcome = |answer: &Result<Published, Error>| match answer {
        Ok(Published { post, created }) => {
            Ok((*created, post.fingerprint, post.repost_of, post.answered.as_ref().map(|answered| answered.id.clone())))
        }
        Err(refused) => Err(refused.code()),
    };
    for first in firsts.take(30) {
        let mut expected = Vec::new();
        for draft in dependent(first) {
            expected.push(outcome(&single.engine.publish(draft, false).await));
        }
        let answers = batch.engine.publish_many(dependent(first), false).await;
        let answers: Vec<_> = answers.iter().map(outcome).collect();
        assert_eq!(answers, expected, "the batch from {first}");
        let refused: Vec<_> = answers.iter().filter_map(|answer| answer.as_ref().err()).collect();
        assert_eq!(refused, [&"post_id_taken"; 3]);
    }
    single.engine.shutdown();
    batch.engine.shutdown();
}

#[tokio::test]
async fn large_batches_do_not_overflow_the_archive_queue() {
    let mut shelved = Archived::new(small(100));
    shelved.publish_ids([1]).await;
    let of =
        |first: u64| (0..1_000).map(move |nth| Draft { id: Some(PostId(first + nth)), ..draft("cas", "1") }).collect();
    let [one, two, three] = [10, 2_000, 4_000].map(|first| shelved.engine.publish_many(of(first), false));
    let (one, two, three) = tokio::join!(one, two, three);
    let refused: Vec<_> = [one, two, three].into_iter().flatten().filter_map(Result::err).collect();
    assert!(refused.is_empty(), "{} refused: {:?}", refused.len(), refused.first());
    shelved.engine.shutdown();
}

#[tokio::test]
async fn a_restart_recovers_memory_and_archive_from_any_snapshot() {
    let mut shelved = Archived::new(small(2));
    shelved.follow("ann", "bob").await;
    shelved.follow("eve", "tag:tea").await;
    shelved.follow("eve", "bob").await;
    for _ in 0..2 {
        shelved.publish_many().await;
        shelved.reopen();
        shelved.check().await;
        shelved.engine.snapshot().await.unwrap();
        shelved.publish_many().await;
        shelved.check().await;
    }
    // The newest snapshot is gone: the archive is newer than what is loaded.
    shelved.engine.snapshot().await.unwrap();
    shelved.engine.shutdown();
    let newest = shelved.files.list().into_iter().flatten().filter(|name| name.starts_with("snapshot-")).max().unwrap();
    shelved.files.tamper(&newest, |bytes| bytes.truncate(100));
    shelved.engine = open(&shelved.files, &shelved.archive, &shelved.config);
    for reader in ["ann", "eve", "bob"] {
        assert_eq!(whole_feed(&shelved.engine, reader, 9).await, shelved.oracle.feed(reader));
    }
    shelved.engine.shutdown();
}

#[tokio::test]
async fn posts_leave_memory_above_the_byte_budget() {
    let config = EngineConfig { outbox_posts: some(1_000), store_bytes_max: 200_000, ..small(100) };
    let mut shelved = Archived::new(config);
    shelved.follow("ann", "bob").await;
    shelved.follow("ann", "cas").await;
    for nth in 0..1_000 {
        let author = ["bob", "cas", "dan", "eve"][nth % 4];
        let body = format!("\"{nth} {}\"", "x".repeat(1_000));
        shelved.publish_draft(author, body.clone(), draft(author, &body)).await;
    }
    assert!(shelved.engine.shared().world.posts.bytes() < 220_000);
    let expected = shelved.oracle.feed("ann");
    assert_eq!(expected.len(), 500);
    // No comparison by `assert_eq!`: it would print a megabyte.
    assert!(whole_feed(&shelved.engine, "ann", 100).await == expected, "each post once, newest first");
    assert!(whole_feed_upward(&shelved.engine, "ann", 33).await == expected, "and upward");
    shelved.engine.shutdown();
}

#[tokio::test]
async fn an_early_reply_is_filtered_by_the_author_of_its_parent_in_memory_and_archive() {
    let (files, archive) = (MemoryFiles::default(), Arc::<MemoryArchive>::default());
    let config = EngineConfig { outbox_posts: some(1), ..patient() };
    let mut engine = open(&files, &archive, &config);
    // Ann follows both, and zoe only who answers: replies to others are not in a feed by default.
    engine.follow(vec![edge("ann", "cas"), edge("ann", "bob"), edge("zoe", "cas")]).await.unwrap();
    let with_id = |number, draft| Draft { id: Some(PostId(number)), ..draft };
    let push_out = async |engine: &Engine, post: u64, author: &str| {
        eventually_async("the archive takes what is too old", async || {
            let is_out = engine.shared().world.posts.get(PostId(post)).is_none();
            if !is_out {
                engine.publish(draft(author, "0"), true).await.unwrap();
            }
            is_out
        })
        .await;
    };
    let reply = |number, parent| with_id(number, Draft { reply_to: Some(PostId(parent)), ..draft("cas", "\"reply\"") });
    // To 10 by a reply that goes to the archive before its parent comes, to 20 by one that stays in memory.
    engine.publish(reply(11, 10), true).await.unwrap();
    push_out(&engine, 11, "cas").await;
    engine.publish(reply(21, 20), true).await.unwrap();
    for parent in [10, 20] {
        engine.publish(with_id(parent, draft("bob", "\"parent\"")), true).await.unwrap();
    }
    for step in ["in memory", "in the archive", "after a replay", "after a snapshot"] {
        for (reader, expected) in [("ann", vec![PostId(21), PostId(11)]), ("zoe", Vec::new())] {
            let shown = whole_feed(&engine, reader, 100).await.into_iter().map(|entry| entry.post);
            let replies: Vec<PostId> = shown.filter(|id| [11, 21].contains(&id.0)).collect();
            assert_eq!(replies, expected, "{reader}, {step}");
        }
        match step {
            "in memory" => {
                assert!(engine.shared().world.posts.get(PostId(21)).is_some());
                push_out(&engine, 10, "bob").await;
                push_out(&engine, 20, "bob").await;
                continue;
            }
            "after a replay" => drop(engine.snapshot().await.unwrap()),
            _ => {}
        }
        engine.shutdown();
        engine = open(&files, &archive, &config);
    }
    engine.shutdown();
}
