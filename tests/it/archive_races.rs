//! Commands on posts that go to the archive and come back while others are judged: every answer is as if there was one level.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tidewire::clock::SystemClock;
use tidewire::config::EngineConfig;
use tidewire::engine::{Engine, StorageConfig};
use tidewire::feed::event::NewEdge;
use tidewire::feed::post::{Body, Draft};
use tidewire::id::{PostId, SourceId};
use tidewire::recovery::RecoveryProgress;
use tidewire::storage::archive::{Archive, MemoryArchive};
use tidewire::storage::files::memory::MemoryFiles;
use tokio::task::{LocalSet, spawn_local};

use testkit::world::{above, draft, id, insist, patient, some, whole_feed};

/// Each changes posts of its own, one command after the other, so that all its answers are known.
const WRITERS: u64 = 12;
const COMMANDS: usize = 250;

/// A post, as its writer knows it.
struct Known {
    draft: Draft,
    body: String,
    hidden: bool,
    deleted: bool,
    origin: Option<PostId>,
}

fn open(files: &MemoryFiles, archive: &Arc<dyn Archive>) -> Engine {
    let config = EngineConfig { outbox_posts: some(1), celebrity: above(100), ..patient() };
    let (files, storage) = (Arc::new(files.clone()), StorageConfig::default());
    Engine::open_on(config, files, Some(archive), None, &storage, Arc::new(SystemClock), &RecoveryProgress::default())
        .unwrap()
        .0
}

fn body(text: &str) -> Body {
    Body::new(&format!("\"{text}\"")).unwrap()
}

async fn publish_new(
    engine: &Engine,
    author: &SourceId,
    nth: u64,
    random: &mut fastrand::Rng,
    known: &mut HashMap<PostId, Known>,
) {
    // Ids in no order, so that nobody can tell from them what is archived.
    let post = PostId(random.u64(..));
    let own = known.iter().filter(|(_, known)| !known.deleted).map(|(id, known)| (*id, known.origin)).min();
    let repeated = own.filter(|_| random.bool());
    let reply_to = random.bool().then_some(PostId(7));
    let draft = Draft {
        id: Some(post),
        repost_of: repeated.map(|(id, _)| id),
        reply_to,
        ..Draft::new(author.clone(), body(&nth.to_string()))
    };
    let published = insist(async || engine.publish(draft.clone(), false).await).await.unwrap();
    let origin = repeated.map(|(id, origin)| origin.unwrap_or(id));
    assert!(published.created);
    assert_eq!(published.post.repost_of, origin);
    assert_eq!(published.post.answered.as_ref().map(|source| source.id.clone()), reply_to.map(|_| id("star")));
    known.insert(post, Known { body: draft.body.as_str().to_owned(), draft, hidden: false, deleted: false, origin });
}

async fn change(engine: &Engine, post: PostId, known: &mut Known, random: &mut fastrand::Rng) {
    match random.u8(0..8) {
        0 => {
            insist(async || engine.delete(post).await).await.unwrap();
            known.deleted = true;
        }
        1 | 2 => {
            let again = insist(async || engine.publish(known.draft.clone(), false).await).await;
            match again {
                Ok(again) => assert!(!known.deleted && !again.created && again.post.body() == known.body),
                Err(refused) => assert!(known.deleted && refused.code() == "post_deleted", "{refused}"),
            }
        }
        3 => {
            let other = Draft { body: body("other"), ..known.draft.clone() };
            let refused = insist(async || engine.publish(other.clone(), false).await).await.unwrap_err();
            assert_eq!(refused.code(), if known.deleted { "post_deleted" } else { "post_id_taken" });
        }
        choice => {
            let text = (choice > 5).then(|| body(&random.u32(..).to_string()));
            let hidden = (choice <= 5).then_some(choice == 5);
            match insist(async || engine.edit(post, text.clone(), hidden).await).await {
                Ok(edited) => {
                    known.body = text.map_or(known.body.clone(), |text| text.as_str().to_owned());
                    known.hidden = hidden.unwrap_or(known.hidden);
                    assert!(!known.deleted);
                    assert_eq!((edited.body(), edited.hidden), (known.body.as_str(), known.hidden));
                }
                Err(refused) => assert!(known.deleted && refused.code() == "unknown_post", "{refused}"),
            }
        }
    }
}

async fn write(engine: Engine, nth: u64) -> HashMap<PostId, Known> {
    let (mut random, mut known) = (fastrand::Rng::with_seed(nth), HashMap::new());
    let author = id(&format!("a{nth}"));
    for step in 0..COMMANDS as u64 {
        let mut posts: Vec<PostId> = known.keys().copied().collect();
        posts.sort_unstable();
        if posts.is_empty() || random.u8(0..3) == 0 {
            publish_new(&engine, &author, step, &mut random, &mut known).await;
        } else {
            let post = posts[random.usize(..posts.len())];
            let known = known.get_mut(&post).unwrap();
            change(&engine, post, known, &mut random).await;
        }
    }
    known
}

async fn check(engine: &Engine, all: &[HashMap<PostId, Known>]) {
    for (post, known) in all.iter().flatten() {
        match engine.post(*post).await {
            Ok(found) => {
                assert!(!known.deleted);
                assert_eq!((found.body(), found.hidden), (known.body.as_str(), known.hidden));
            }
            Err(refused) => assert!(known.deleted && refused.code() == "unknown_post", "{refused}"),
        }
    }
}

#[tokio::test]
async fn commands_are_judged_as_if_all_posts_were_in_memory() {
    let (files, archive) = (MemoryFiles::default(), Arc::<MemoryArchive>::default() as Arc<dyn Archive>);
    let engine = open(&files, &archive);
    engine.publish(Draft { id: Some(PostId(7)), ..draft("star", "0") }, false).await.unwrap();
    let all = LocalSet::new()
        .run_until(async {
            let writers: Vec<_> = (0..WRITERS).map(|nth| spawn_local(write(engine.clone(), nth))).collect();
            let mut all = Vec::new();
            for writer in writers {
                all.push(writer.await.unwrap());
            }
            all
        })
        .await;
    assert!(engine.shared().world.has_archived());
    check(&engine, &all).await;
    engine.shutdown();
    let engine = open(&files, &archive);
    check(&engine, &all).await;
    engine.shutdown();
}

#[tokio::test]
async fn a_follow_backfills_the_requested_number_during_publishes_and_archiving() {
    let archive = Arc::<MemoryArchive>::default() as Arc<dyn Archive>;
    let engine = open(&MemoryFiles::default(), &archive);
    for _ in 0..100 {
        engine.publish(draft("star", "0"), false).await.unwrap();
    }
    let (begun, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let publishes = async {
        for _ in 0..400 {
            begun.fetch_add(1, Ordering::SeqCst);
            insist(async || engine.publish(draft("star", "1"), false).await).await.unwrap();
            ended.fetch_add(1, Ordering::SeqCst);
        }
    };
    let follows = async {
        let mut followed = Vec::new();
        for nth in 0..150 {
            let (reader, backfill) = (format!("r{nth}"), nth % 60);
            let before = ended.load(Ordering::SeqCst);
            let edge = NewEdge { backfill: Some(backfill), ..NewEdge::new(id(&reader), id("star")) };
            insist(async || engine.follow(vec![edge.clone()]).await).await.unwrap();
            followed.push((reader, backfill, before, begun.load(Ordering::SeqCst)));
        }
        followed
    };
    let (followed, ()) = tokio::join!(follows, publishes);
    for (reader, backfill, before, after) in followed {
        let found = whole_feed(&engine, &reader, 100).await.len();
        let expected = backfill + 400 - after..=backfill + 400 - before;
        assert!(expected.contains(&found), "{reader}: {found} of {expected:?}");
    }
    engine.shutdown();
}
