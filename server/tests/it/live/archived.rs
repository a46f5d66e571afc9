//! Live clients and posts that are in the archive: what is looked up there is delivered, and delivers nothing older than what was
//! delivered before.

use std::sync::Arc;
use testkit::{DEADLINE, eventually_async, in_time};

use crossbeam_channel::{Receiver, Sender, bounded};
use parking_lot::Mutex;
use tidewire::clock::SystemClock;
use tidewire::config::EngineConfig;
use tidewire::engine::{Engine, StorageConfig, Watcher};
use tidewire::feed::post::{Body, Draft};
use tidewire::feed::rules::{Replies, RulesPatch};
use tidewire::id::PostId;
use tidewire::live::event::EventKind;
use tidewire::recovery::RecoveryProgress;
use tidewire::storage::archive::{Archive, MemoryArchive};
use tidewire::storage::files::memory::MemoryFiles;

use testkit::observed_archive::{ObservedArchive, Read};
use testkit::world::{draft, edge, id, patient, some};

/// Stops one read of the archive until the test lets it go on.
#[derive(Default)]
struct Gate(Mutex<Option<Held>>);

struct Held {
    /// Reads of posts that pass before the one that is stopped.
    passing: usize,
    begun: Sender<()>,
    released: Receiver<()>,
}

impl Gate {
    /// Stops the read of a post that comes after `passing` others. The first channel reports that it has begun, and the second ends it.
    fn stop_after(&self, passing: usize) -> (Receiver<()>, Sender<()>) {
        let ((begun, begins), (release, released)) = (bounded(1), bounded(1));
        *self.0.lock() = Some(Held { passing, begun, released });
        (begins, release)
    }

    fn pass(&self, read: &Read<'_>) {
        let mut held = self.0.lock();
        match &mut *held {
            Some(held) if matches!(read, Read::Post) && held.passing > 0 => return held.passing -= 1,
            Some(_) if matches!(read, Read::Post) => {}
            _ => return,
        }
        let Some(Held { begun, released, .. }) = held.take() else { return };
        // Others read meanwhile.
        drop(held);
        begun.send(()).unwrap();
        let _ = released.recv_timeout(DEADLINE);
    }
}

/// An engine that keeps as few posts in memory as it can.
fn open(gate: &Arc<Gate>) -> Engine {
    let gate = Arc::clone(gate);
    let archive = ObservedArchive::new(MemoryArchive::default(), move |read| {
        gate.pass(read);
        Ok(())
    });
    let archive = Arc::new(archive) as Arc<dyn Archive>;
    let config = EngineConfig { outbox_posts: some(1), ..patient() };
    let (files, storage) = (Arc::new(MemoryFiles::default()), StorageConfig::default());
    Engine::open_on(config, files, Some(&archive), None, &storage, Arc::new(SystemClock), &RecoveryProgress::default())
        .unwrap()
        .0
}

async fn publish(engine: &Engine, draft: Draft) -> PostId {
    engine.publish(draft, true).await.unwrap().post.id()
}

/// Publishes more posts of these authors until memory has none of `posts`, and the archive is at rest.
async fn move_to_archive(engine: &Engine, authors: &[&str], posts: &[PostId]) {
    let world = &engine.shared().world;
    eventually_async("the archive takes what is too old", async || {
        for author in authors {
            publish(engine, draft(author, "1")).await;
        }
        posts.iter().all(|post| world.posts.get(*post).is_none())
    })
    .await;
    // With more a round of tiering is under way.
    let is_at_rest = async || world.sources.iter().all(|source| source.outbox().in_memory() <= 2);
    eventually_async("the archive comes to rest", is_at_rest).await;
}

async fn watch(engine: &Engine, reader: &str) -> Watcher {
    let mut watcher = engine.watch(&id(reader), None).await.unwrap();
    let hello = in_time("a hello", watcher.next()).await.unwrap();
    assert!(matches!(hello.kind, EventKind::Hello { .. }), "{hello:?}");
    watcher
}

/// The next event: what it says of which post, in which words.
async fn next(watcher: &mut Watcher) -> (&'static str, PostId, String) {
    let event = in_time("something is delivered", watcher.next()).await.unwrap();
    match event.kind {
        EventKind::Post(item) => ("post", item.entry.post.id(), item.entry.post.body().to_owned()),
        EventKind::Update(post) => ("update", post.id(), post.body().to_owned()),
        EventKind::Remove(post) => ("remove", post, String::new()),
        other => panic!("{other:?}"),
    }
}

fn body(text: &str) -> Body {
    Body::new(&format!("\"{text}\"")).unwrap()
}

#[tokio::test]
async fn an_original_is_delivered_at_an_archived_repost_that_named_a_later_repost_of_it() {
    let engine = open(&Arc::default());
    let (first, repeated) = (publish(&engine, draft("eve", "1")).await, PostId(28));
    let repost = publish(&engine, Draft { repost_of: Some(repeated), ..draft("cas", "1") }).await;
    move_to_archive(&engine, &["cas"], &[repost]).await;
    let mut watcher = watch(&engine, "cas").await;
    publish(&engine, Draft { id: Some(repeated), repost_of: Some(first), ..draft("eve", "2") }).await;
    assert_eq!(next(&mut watcher).await, ("post", first, "1".to_owned()));
    engine.shutdown();
}

#[tokio::test]
async fn a_lookup_overtaken_by_a_newer_notice_delivers_no_older_version() {
    let gate = Arc::<Gate>::default();
    let engine = open(&gate);
    let post = publish(&engine, draft("dan", "\"old\"")).await;
    let repost = publish(&engine, Draft { repost_of: Some(post), ..draft("cas", "1") }).await;
    engine.edit(post, None, Some(true)).await.unwrap();
    move_to_archive(&engine, &["cas", "dan"], &[post, repost]).await;
    let mut watcher = watch(&engine, "cas").await;
    // The edit itself looks the post up. Then its notice finds the post in memory, and the repost in the archive.
    let (begins, release) = gate.stop_after(1);
    engine.edit(post, None, Some(false)).await.unwrap();
    tokio::task::spawn_blocking(move || begins.recv_timeout(DEADLINE)).await.unwrap().unwrap();
    engine.edit(post, Some(body("new")), None).await.unwrap();
    let new = "\"new\"".to_owned();
    assert_eq!(next(&mut watcher).await, ("update", post, new.clone()));
    // What the first look-up found is not in memory any more.
    move_to_archive(&engine, &["dan"], &[post]).await;
    release.send(()).unwrap();
    assert_eq!(next(&mut watcher).await, ("post", post, new));
    engine.shutdown();
}

#[tokio::test]
async fn the_late_parent_of_an_archived_reply_costs_only_readers_who_may_see_it() {
    let engine = open(&Arc::default());
    engine.follow(vec![edge("ann", "bob"), edge("ann", "cas"), edge("zoe", "eve")]).await.unwrap();
    let rules = RulesPatch { replies: Some(Replies::Followed), ..RulesPatch::default() };
    engine.change_rules(id("ann"), rules).await.unwrap();
    let parent = PostId(28);
    let reply = publish(&engine, Draft { reply_to: Some(parent), ..draft("bob", "1") }).await;
    move_to_archive(&engine, &["bob"], &[reply]).await;
    let mut zoe = watch(&engine, "zoe").await;
    let work = || engine.shared().counters.live_work.get();
    let mut of_posts = Vec::new();
    for is_after_parent in [false, true] {
        let before = work();
        if is_after_parent {
            publish(&engine, Draft { id: Some(parent), ..draft("cas", "2") }).await;
        }
        let post = publish(&engine, draft("eve", "3")).await;
        assert_eq!(next(&mut zoe).await, ("post", post, "3".to_owned()));
        of_posts.push(work() - before);
    }
    assert_eq!(of_posts[0], of_posts[1], "the parent is no work for zoe");
    engine.shutdown();
}

#[tokio::test]
async fn an_archived_reply_is_delivered_when_its_late_parent_makes_it_visible() {
    let engine = open(&Arc::default());
    engine.follow(vec![edge("ann", "bob"), edge("ann", "cas")]).await.unwrap();
    let rules = RulesPatch { replies: Some(Replies::Followed), ..RulesPatch::default() };
    engine.change_rules(id("ann"), rules).await.unwrap();
    let parent = PostId(28);
    let reply = publish(&engine, Draft { reply_to: Some(parent), ..draft("bob", "1") }).await;
    move_to_archive(&engine, &["bob"], &[reply]).await;
    let mut ann = watch(&engine, "ann").await;
    publish(&engine, Draft { id: Some(parent), ..draft("cas", "2") }).await;
    let mut delivered = [next(&mut ann).await, next(&mut ann).await];
    delivered.sort_by_key(|(_, post, _)| *post != parent);
    assert_eq!(delivered, [("post", parent, "2".to_owned()), ("post", reply, "1".to_owned())]);
    engine.shutdown();
}
