//! Posts with very many reposts that come to be seen again: who polls and follows somebody who reposted one is given it, and nobody
//! else has anything to read again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tidewire::clock::{Clock, SystemClock, UnixMicros};
use tidewire::engine::Engine;
use tidewire::feed::celebrity::CelebrityPolicy;
use tidewire::feed::page::Range;
use tidewire::feed::post::Draft;
use tidewire::feed::resume::Resume;
use tidewire::id::PostId;
use tidewire::limits::{LATE_POSTS_PER_SOURCE_MAX, LATE_REPOSTS_MAX};
use tidewire::state::reader::PageRequest;
use tidewire::storage::files::memory::MemoryFiles;
use tidewire::storage::journal::Durability;

use testkit::histories::{open_with, storage};
use testkit::world::{NEWEST, above, config, draft, edge, id};

/// A client of a reader's feed, and the posts whose entries it was given.
struct Client {
    reader: &'static str,
    token: Resume,
    given: BTreeSet<PostId>,
}

impl Client {
    async fn start(engine: &Engine, reader: &'static str) -> Self {
        let page = engine.feed(&id(reader), NEWEST).await.unwrap().page;
        let given = page.items.iter().map(|(_, entry)| entry.post.id()).collect();
        Self { reader, token: page.resume.unwrap(), given }
    }

    /// The posts whose entries came since the last time; nothing if the feed has to be read again.
    async fn poll(&mut self, engine: &Engine) -> Option<BTreeSet<PostId>> {
        let mut came = BTreeSet::new();
        loop {
            let request = PageRequest { range: Range::Resume(self.token), limit: 3 };
            let page = engine.feed(&id(self.reader), request).await.unwrap().page;
            self.token = page.resume.unwrap();
            if page.gap {
                return None;
            }
            came.extend(page.items.iter().map(|(_, entry)| entry.post.id()));
            if !page.is_cut {
                self.given.extend(&came);
                return Some(came);
            }
        }
    }
}

fn opened(files: &MemoryFiles, policy: CelebrityPolicy) -> Engine {
    let storage = storage(Durability::Never, 16 << 20);
    open_with(config(1, policy), files.clone(), &storage, Arc::new(SystemClock)).unwrap().0
}

/// An hour ago, so that only what is noted of it is found.
fn long_ago() -> UnixMicros {
    SystemClock.now().saturating_sub(Duration::from_secs(3_600))
}

/// Publishes a post that so many have reposted, the first of them `fan0`.
async fn viral(engine: &Engine, post: PostId, reposts: usize) {
    let old = |author: &str| Draft { published_at: Some(long_ago()), ..draft(author, "1") };
    engine.publish(Draft { id: Some(post), ..old("star") }, true).await.unwrap();
    let repost = |nth: usize| Draft { repost_of: Some(post), ..old(&format!("fan{nth}")) };
    let drafts: Vec<_> = (0..reposts).map(repost).collect();
    for some in drafts.chunks(512) {
        let published = join_all(some.iter().map(|draft| engine.publish(draft.clone(), true))).await;
        published.into_iter().for_each(|published| drop(published.unwrap()));
    }
}

async fn hide(engine: &Engine, post: PostId, hidden: bool) {
    engine.edit(post, None, Some(hidden)).await.unwrap();
}

const POST: PostId = PostId(7);
const MANY: usize = LATE_REPOSTS_MAX + 1;

#[tokio::test]
async fn an_unhidden_viral_post_reaches_only_affected_readers_and_causes_no_gap() {
    for policy in [CelebrityPolicy::PushAll, CelebrityPolicy::PullAll] {
        let engine = opened(&MemoryFiles::default(), policy);
        let edges = [edge("ann", "bob"), edge("eve", "fan9"), edge("fay", "star")];
        engine.follow(edges.to_vec()).await.unwrap();
        viral(&engine, POST, MANY).await;
        for author in ["bob", "fan9", "star"] {
            engine.publish(draft(author, "0"), true).await.unwrap();
        }
        hide(&engine, POST, true).await;
        let mut ann = Client::start(&engine, "ann").await;
        let mut concerned = [Client::start(&engine, "eve").await, Client::start(&engine, "fay").await];
        for _ in 0..3 {
            hide(&engine, POST, false).await;
            assert_eq!(ann.poll(&engine).await, Some(BTreeSet::new()), "{policy:?}: of nobody she follows");
            for client in &mut concerned {
                assert_eq!(client.poll(&engine).await, Some([POST].into()), "{policy:?}: {}", client.reader);
                assert_eq!(client.poll(&engine).await, Some(BTreeSet::new()));
            }
            hide(&engine, POST, true).await;
            assert_eq!(concerned[0].poll(&engine).await, Some(BTreeSet::new()));
        }
        // Shown and hidden again before she asks: nothing came in.
        hide(&engine, POST, false).await;
        hide(&engine, POST, true).await;
        assert_eq!(concerned[0].poll(&engine).await, Some(BTreeSet::new()));
        engine.shutdown();
    }
}

#[tokio::test]
async fn a_post_that_arrives_after_its_many_reposts_reaches_affected_readers() {
    let engine = opened(&MemoryFiles::default(), CelebrityPolicy::PushAll);
    engine.follow(vec![edge("ann", "bob"), edge("eve", "fan9")]).await.unwrap();
    engine.publish(draft("bob", "0"), true).await.unwrap();
    engine.publish(draft("fan9", "0"), true).await.unwrap();
    let old = |author: &str| Draft { published_at: Some(long_ago()), ..draft(author, "1") };
    for nth in 0..MANY {
        let repost = Draft { repost_of: Some(POST), ..old(&format!("fan{nth}")) };
        engine.publish(repost, false).await.unwrap();
    }
    let mut clients = [Client::start(&engine, "ann").await, Client::start(&engine, "eve").await];
    engine.publish(Draft { id: Some(POST), ..old("star") }, true).await.unwrap();
    assert_eq!(clients[0].poll(&engine).await, Some(BTreeSet::new()));
    assert_eq!(clients[1].poll(&engine).await, Some([POST].into()));
    engine.shutdown();
}

/// One post takes one place among what is noted of a source, however often it comes to show.
#[tokio::test]
async fn repeated_unhiding_of_a_post_causes_no_gap_for_followers_of_its_reposters() {
    let engine = opened(&MemoryFiles::default(), CelebrityPolicy::PushAll);
    engine.follow(vec![edge("ann", "fan0"), edge("eve", "star")]).await.unwrap();
    viral(&engine, POST, 3).await;
    engine.publish(draft("fan0", "0"), true).await.unwrap();
    engine.publish(draft("star", "0"), true).await.unwrap();
    let mut clients = [Client::start(&engine, "ann").await, Client::start(&engine, "eve").await];
    for _ in 0..=LATE_POSTS_PER_SOURCE_MAX {
        hide(&engine, POST, true).await;
        hide(&engine, POST, false).await;
    }
    for client in &mut clients {
        assert_eq!(client.poll(&engine).await, Some([POST].into()), "{}", client.reader);
    }
    engine.shutdown();
}

#[tokio::test]
async fn an_unhidden_viral_post_reaches_affected_readers_after_a_restart() {
    for with_snapshot in [false, true] {
        let files = MemoryFiles::default();
        let engine = opened(&files, CelebrityPolicy::PushAll);
        engine.follow(vec![edge("ann", "bob"), edge("eve", "fan9")]).await.unwrap();
        viral(&engine, POST, MANY).await;
        hide(&engine, POST, true).await;
        engine.publish(draft("bob", "0"), true).await.unwrap();
        engine.publish(draft("fan9", "0"), true).await.unwrap();
        let mut clients = [Client::start(&engine, "ann").await, Client::start(&engine, "eve").await];
        hide(&engine, POST, false).await;
        if with_snapshot {
            engine.snapshot().await.unwrap();
        }
        engine.shutdown();
        let engine = opened(&files, CelebrityPolicy::PushAll);
        assert_eq!(clients[0].poll(&engine).await, Some(BTreeSet::new()), "with a snapshot: {with_snapshot}");
        assert_eq!(clients[1].poll(&engine).await, Some([POST].into()), "with a snapshot: {with_snapshot}");
        engine.shutdown();
    }
}

/// Some viral posts that are hidden and shown at random, reposts that come and go, and readers who poll now and then, against what each
/// would see.
#[tokio::test]
async fn random_hiding_and_unhiding_reaches_readers_and_only_affected_ones_reload() {
    const READERS: [&str; 4] = ["r0", "r1", "r2", "r3"];
    for seed in 0..4 {
        let mut random = fastrand::Rng::with_seed(seed);
        let engine = opened(
            &MemoryFiles::default(),
            [CelebrityPolicy::PushAll, CelebrityPolicy::PullAll, above(2)][seed as usize % 3],
        );
        // The last reader follows nobody who ever reposted.
        let mut follows: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
        for reader in READERS {
            let sources = if reader == "r3" { 5_000..5_003 } else { 0..3_usize };
            let fans: BTreeSet<usize> =
                sources.map(|source| if source < 5_000 { random.usize(0..MANY) } else { source }).collect();
            let edges = fans.iter().map(|fan| edge(reader, &format!("fan{fan}")));
            engine.follow(edges.collect()).await.unwrap();
            for fan in &fans {
                engine.publish(draft(&format!("fan{fan}"), "0"), true).await.unwrap();
            }
            follows.insert(reader, fans);
        }
        let posts = [PostId(7), PostId(8), PostId(9)];
        for post in posts {
            viral(&engine, post, MANY).await;
        }
        let mut clients = Vec::new();
        for reader in READERS {
            clients.push(Client::start(&engine, reader).await);
            assert_eq!(clients.last().unwrap().given.is_superset(&posts.into()), reader != "r3");
        }
        let mut hidden = BTreeSet::new();
        for _ in 0..120 {
            let post = posts[random.usize(0..posts.len())];
            match random.u8(0..6) {
                0..=2 if hidden.remove(&post) => hide(&engine, post, false).await,
                0..=2 => {
                    hidden.insert(post);
                    hide(&engine, post, true).await;
                    // Whoever had it has to be given it again.
                    clients.iter_mut().for_each(|client| client.given.retain(|given| *given != post));
                }
                3 => {
                    let fan = format!("fan{}", random.usize(0..MANY));
                    engine.publish(draft(&fan, "3"), true).await.unwrap();
                }
                _ => {
                    let client = &mut clients[random.usize(0..READERS.len())];
                    let came = client.poll(&engine).await;
                    assert!(came.is_some(), "{}: nothing was forgotten", client.reader);
                    let shows = |post: &&PostId| !hidden.contains(post) && client.reader != "r3";
                    let missing: Vec<_> =
                        posts.iter().filter(shows).filter(|post| !client.given.contains(post)).collect();
                    assert!(missing.is_empty(), "seed {seed}: {} was not given {missing:?}", client.reader);
                }
            }
        }
        engine.shutdown();
    }
}
