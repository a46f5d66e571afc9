//! Reposts across pages: what one page showed no later one shows again, wherever the reposts are found.

use std::collections::BTreeMap;
use std::sync::Arc;

use testkit::{PageCount, eventually_async};
use tidewire::clock::{SystemClock, UnixMicros};
use tidewire::config::EngineConfig;
use tidewire::engine::{Engine, StorageConfig};
use tidewire::feed::celebrity::CelebrityPolicy;
use tidewire::feed::page::Range;
use tidewire::feed::position::Position;
use tidewire::feed::post::Draft;
use tidewire::id::{PostId, SourceId};
use tidewire::limits::EARLIER_REPOSTS_MAX;
use tidewire::recovery::RecoveryProgress;
use tidewire::state::feed_filter::Entry;
use tidewire::state::reader::PageRequest;
use tidewire::storage::archive::{Archive, MemoryArchive};
use tidewire::storage::files::memory::MemoryFiles;

use testkit::world::{NEWEST, above, config, draft, edge, id, some};

const AUTHORS: [&str; 6] = ["bob", "cas", "dan", "eve", "fay", "gus"];
const STRANGERS: [&str; 2] = ["sue", "tom"];

/// Twelve posts, and forty-eight reposts of them, all over the time between. Half of the authors have two followers.
async fn populate(engine: &Engine, random: &mut fastrand::Rng) -> BTreeMap<PostId, Position> {
    engine.follow(AUTHORS.iter().map(|author| edge("ann", author)).collect()).await.unwrap();
    engine.follow(AUTHORS[..3].iter().map(|author| edge("zoe", author)).collect()).await.unwrap();
    engine.feed(&id("ann"), NEWEST).await.unwrap();
    let mut newest = BTreeMap::new();
    for nth in 0..60u64 {
        let origin = (nth >= 12).then(|| PostId(random.u64(0..12)));
        let by_stranger = origin.is_none() && nth % 2 == 0;
        let author = if by_stranger { random.choice(STRANGERS) } else { random.choice(AUTHORS) }.unwrap();
        let at = Position { published_at: UnixMicros(random.i64(0..40)), id: PostId(nth) };
        let post =
            Draft { id: Some(at.id), published_at: Some(at.published_at), repost_of: origin, ..draft(author, "1") };
        engine.publish(post, true).await.unwrap();
        if !by_stranger {
            let newest = newest.entry(origin.unwrap_or(at.id)).or_insert(at);
            *newest = at.max(*newest);
        }
    }
    newest
}

/// All entries, newest first, as pages show them.
async fn scrolled(engine: &Engine, limit: usize, upward: bool) -> Vec<(Position, PostId)> {
    let (mut met, mut range) = (Vec::new(), if upward { Range::After(Position::MIN) } else { Range::Newest });
    let mut pages = PageCount::default();
    loop {
        pages.count();
        let page = engine.feed(&id("ann"), PageRequest { range, limit }).await.unwrap().page;
        let mut items: Vec<_> = page.items.iter().map(|(at, entry)| (*at, entry.post.id())).collect();
        range = match (items.first(), page.next) {
            (Some((first, _)), _) if upward => Range::After(*first),
            (_, Some(next)) if !upward => Range::Before(next),
            _ => {
                met.extend(items);
                break;
            }
        };
        if upward {
            items.reverse();
        }
        met.extend(items);
    }
    if upward {
        met.reverse();
    }
    met
}

#[tokio::test]
async fn an_entry_of_an_earlier_page_never_repeats_on_a_later_one() {
    // Reposts that are pushed, pulled, both; and an inbox that holds all, or lets most be found below its floor.
    for (seed, policy) in (0..).zip([CelebrityPolicy::PushAll, CelebrityPolicy::PullAll, above(1), above(1), above(1)])
    {
        for inbox_posts in [1, 5, 20, 300] {
            let config = EngineConfig { inbox_posts: some(inbox_posts), ..config(1, policy) };
            let engine = Engine::start(config);
            let newest = populate(&engine, &mut fastrand::Rng::with_seed(seed)).await;
            let mut expected: Vec<(Position, PostId)> = newest.into_iter().map(|(origin, at)| (at, origin)).collect();
            expected.sort_unstable_by(|a, b| b.cmp(a));
            for limit in 1..=3 {
                for upward in [false, true] {
                    let met = scrolled(&engine, limit, upward).await;
                    assert_eq!(met, expected, "{policy:?}, inbox of {inbox_posts}, by {limit}, upward: {upward}");
                }
            }
            engine.shutdown();
        }
    }
}

#[tokio::test]
async fn a_repost_during_paging_moves_its_entry_above_the_read_pages() {
    let engine = Engine::start(config(1, CelebrityPolicy::PushAll));
    engine.follow(vec![edge("ann", "bob"), edge("ann", "cas")]).await.unwrap();
    let mut posts = Vec::new();
    for body in ["1", "2", "3", "4"] {
        posts.push(engine.publish(draft("bob", body), true).await.unwrap().post.id());
    }
    let two = PageRequest { range: Range::Newest, limit: 2 };
    let page = engine.feed(&id("ann"), two).await.unwrap().page;
    let again = |of: PostId| Draft { repost_of: Some(of), ..draft("cas", "\"again\"") };
    // One that was shown, and one that was not.
    for post in [posts[3], posts[1]] {
        engine.publish(again(post), true).await.unwrap();
    }
    let rest = PageRequest { range: Range::Before(page.next.unwrap()), limit: 9 };
    let rest = engine.feed(&id("ann"), rest).await.unwrap().page;
    assert!(rest.items.iter().map(|(_, entry)| entry.post.id()).eq([posts[0]]));
    let above = PageRequest { range: Range::After(page.newest.unwrap()), limit: 9 };
    let above = engine.feed(&id("ann"), above).await.unwrap().page;
    assert!(above.items.iter().map(|(_, entry)| entry.post.id()).eq([posts[1], posts[3]]));
    engine.shutdown();
}

/// While reposts come, hide and go, what they repeat is on every page, once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_built_during_a_change_shows_an_entry_at_most_once() {
    let engine = Engine::start(config(1, CelebrityPolicy::PullAll));
    engine.follow(vec![edge("ann", "bob"), edge("ann", "cas")]).await.unwrap();
    let origin = engine.publish(draft("bob", "1"), true).await.unwrap().post.id();
    let writing = engine.clone();
    let writer = tokio::spawn(async move {
        for _ in 0..300 {
            let draft = Draft { repost_of: Some(origin), ..draft("cas", "2") };
            let repost = writing.publish(draft, false).await.unwrap().post.id();
            writing.edit(repost, None, Some(true)).await.unwrap();
            writing.edit(repost, None, Some(false)).await.unwrap();
            writing.delete(repost).await.unwrap();
        }
    });
    while !writer.is_finished() {
        let page = engine.feed(&id("ann"), NEWEST).await.unwrap().page;
        let shown: Vec<_> = page.items.iter().map(|(_, entry)| entry.post.id()).collect();
        assert!(shown.len() <= 1, "shown {} times", shown.len());
    }
    writer.await.unwrap();
    engine.shutdown();
}

/// Opens an engine, which keeps of each source as little in memory as it can.
fn open(files: &MemoryFiles, archive: &Arc<dyn Archive>, policy: CelebrityPolicy) -> Engine {
    let config = EngineConfig { outbox_posts: some(1), ..config(1, policy) };
    let (files, storage) = (Arc::new(files.clone()), StorageConfig::default());
    let (clock, progress) = (Arc::new(SystemClock), RecoveryProgress::default());
    Engine::open_on(config, files, Some(archive), None, &storage, clock, &progress).unwrap().0
}

/// The entries of ann: their posts, and who reposted each.
async fn shown(engine: &Engine) -> Vec<(u64, Vec<String>)> {
    let page = engine.feed(&id("ann"), NEWEST).await.unwrap().page;
    let reposters = |entry: &Entry| entry.reposts().iter().map(|repost| repost.user.to_string()).collect();
    page.items.iter().map(|(_, entry)| (entry.post.id().0, reposters(entry))).collect()
}

#[tokio::test]
async fn reposts_of_reposts_have_the_original_in_any_order_of_publication() {
    // Each repeats the one before it. Nobody follows the author of the original.
    let post = |number: u64| Draft {
        id: Some(PostId(number)),
        published_at: Some(UnixMicros(number as i64)),
        repost_of: (number > 1).then(|| PostId(number - 1)),
        ..draft(["zoe", "bob", "cas", "dan"][number as usize - 1], "1")
    };
    let in_order = [1, 2, 3, 4];
    let mut expected = None;
    for policy in [CelebrityPolicy::PushAll, CelebrityPolicy::PullAll] {
        for nth in 0..24 {
            let mut left = in_order.to_vec();
            let order = [4, 3, 2, 1].map(|choices| left.remove(nth / [1, 1, 1, 2, 6][choices] % choices));
            let (files, archive) = (MemoryFiles::default(), Arc::<MemoryArchive>::default() as Arc<dyn Archive>);
            let engine = open(&files, &archive, policy);
            engine.follow(AUTHORS[..3].iter().map(|author| edge("ann", author)).collect()).await.unwrap();
            shown(&engine).await;
            for number in order {
                engine.publish(post(number), true).await.unwrap();
            }
            let all = shown(&engine).await;
            assert_eq!(*expected.get_or_insert(all.clone()), all, "published in the order {order:?}");
            engine.shutdown();
            let engine = open(&files, &archive, policy);
            assert_eq!(shown(&engine).await, all, "restarted after {order:?}");
            for number in 2..=4 {
                let repost_of = engine.post(PostId(number)).await.unwrap().repost_of;
                assert_eq!(repost_of, Some(PostId(1)), "of post {number} after {order:?}");
            }
            engine.shutdown();
        }
    }
    assert_eq!(expected.unwrap(), [(1, ["dan", "cas", "bob"].map(str::to_owned).to_vec())]);
}

#[tokio::test]
async fn an_archived_early_repost_of_a_repost_has_the_original() {
    let (files, archive) = (MemoryFiles::default(), Arc::<MemoryArchive>::default() as Arc<dyn Archive>);
    let mut engine = open(&files, &archive, CelebrityPolicy::PushAll);
    engine.follow(vec![edge("ann", "cas")]).await.unwrap();
    let with_id = |number, draft| Draft { id: Some(PostId(number)), ..draft };
    let tags = vec![SourceId::tag("tea").unwrap()];
    let early = Draft { repost_of: Some(PostId(2)), tags, ..draft("cas", "3") };
    engine.publish(with_id(3, early), true).await.unwrap();
    eventually_async("the archive takes what is too old", async || {
        engine.publish(draft("cas", "0"), true).await.unwrap();
        engine.publish(Draft { tags: vec![SourceId::tag("tea").unwrap()], ..draft("eve", "0") }, true).await.unwrap();
        engine.shared().world.posts.get(PostId(3)).is_none()
    })
    .await;
    let late = Draft { repost_of: Some(PostId(1)), ..draft("bob", "2") };
    engine.publish(with_id(2, late), true).await.unwrap();
    engine.publish(with_id(1, draft("zoe", "1")), true).await.unwrap();
    for step in ["at once", "after a replay", "after a snapshot"] {
        let by_cas = original(&engine).await.unwrap();
        assert_eq!(by_cas.reposts().iter().map(|repost| repost.user.as_str()).collect::<Vec<_>>(), ["cas"], "{step}");
        assert_eq!(engine.post(PostId(3)).await.unwrap().repost_of, Some(PostId(1)), "{step}");
        if step == "after a replay" {
            engine.snapshot().await.unwrap();
        }
        engine.shutdown();
        engine = open(&files, &archive, CelebrityPolicy::PushAll);
    }
    for hidden in [true, false] {
        engine.edit(PostId(3), None, Some(hidden)).await.unwrap();
        assert_eq!(original(&engine).await.is_none(), hidden);
    }
    // A deleted original stays what it repeats, wherever the repost is.
    engine.delete(PostId(1)).await.unwrap();
    engine.snapshot().await.unwrap();
    engine.shutdown();
    engine = open(&files, &archive, CelebrityPolicy::PushAll);
    assert_eq!(engine.post(PostId(3)).await.unwrap().repost_of, Some(PostId(1)));
    engine.delete(PostId(3)).await.unwrap();
    assert!(original(&engine).await.is_none());
    assert!(engine.shared().world.reposts.is_empty() && !engine.shared().world.reposts.has_redirected());
    engine.shutdown();
}

/// The entry of post 1 in the feed of ann.
async fn original(engine: &Engine) -> Option<Entry> {
    let all = PageRequest { range: Range::Newest, limit: 1_000 };
    let page = engine.feed(&id("ann"), all).await.unwrap().page;
    page.items.into_iter().map(|(_, entry)| entry).find(|entry| entry.post.id() == PostId(1))
}

#[tokio::test]
async fn only_a_limited_number_of_early_reposts_is_redirected_to_the_original() {
    for more in [0, 1] {
        let engine = Engine::start(config(1, CelebrityPolicy::PushAll));
        for nth in 0..EARLIER_REPOSTS_MAX + more {
            let repost = Draft { repost_of: Some(PostId(2)), ..draft(&format!("u{nth}"), "1") };
            engine.publish(repost, false).await.unwrap();
        }
        let late = Draft { id: Some(PostId(2)), repost_of: Some(PostId(1)), ..draft("bob", "2") };
        engine.publish(late, true).await.unwrap();
        let reposts_of = |id| engine.shared().world.reposts.of(PostId(id)).map_or(0, |reposts| reposts.read().len());
        assert_eq!((reposts_of(1), reposts_of(2)), (EARLIER_REPOSTS_MAX + 1, more));
        engine.shutdown();
    }
}
