//! Clients that poll with `after`: whatever order posts arrive in and whatever times they carry, each is given every one.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::{join, join_all};
use testkit::{OnDrop, eventually_async};
use tidewire::clock::{Clock, ManualClock, SystemClock, UnixMicros};
use tidewire::config::EngineConfig;
use tidewire::engine::Engine;
use tidewire::feed::celebrity::CelebrityPolicy;
use tidewire::feed::event::MuteOrBlock;
use tidewire::feed::page::Range;
use tidewire::feed::position::Position;
use tidewire::feed::post::Draft;
use tidewire::feed::resume::Resume;
use tidewire::feed::rules::RulesPatch;
use tidewire::id::PostId;
use tidewire::limits::{AWAITED_ANSWERS_MAX, LATE_POSTS_PER_SOURCE_MAX};
use tidewire::state::reader::PageRequest;
use tidewire::storage::files::memory::MemoryFiles;
use tidewire::storage::journal::{Durability, MemoryJournal};

use crate::concurrency::{HoldingClock, hold};
use testkit::histories::{open_with, storage};
use testkit::world::{NEWEST, above, all_asleep, config, draft, edge, id, ids, some};

/// A client of ann's feed, and what it was given.
struct Client {
    token: Resume,
    given: BTreeSet<PostId>,
    /// Entries asked for at a time.
    limit: usize,
}

impl Client {
    async fn start(engine: &Engine) -> Self {
        let page = engine.feed(&id("ann"), NEWEST).await.unwrap();
        Self { token: page.page.resume.unwrap(), given: ids(&page).into_iter().collect(), limit: 3 }
    }

    /// What came since the last time, newest first; nothing if the feed has to be read again.
    async fn poll(&mut self, engine: &Engine) -> Option<Vec<PostId>> {
        let mut came = Vec::new();
        loop {
            let request = PageRequest { range: Range::Resume(self.token), limit: self.limit };
            let page = engine.feed(&id("ann"), request).await.unwrap();
            self.token = page.page.resume.unwrap();
            self.given.extend(ids(&page));
            if page.page.gap {
                return None;
            }
            came.splice(0..0, ids(&page));
            if !page.page.is_cut {
                return Some(came);
            }
        }
    }
}

async fn publish(engine: &Engine, draft: Draft) -> PostId {
    engine.publish(draft, true).await.unwrap().post.id()
}

fn opened(files: MemoryFiles) -> Engine {
    let storage = storage(Durability::Always, 1 << 20);
    open_with(config(2, CelebrityPolicy::PushAll), files, &storage, Arc::new(SystemClock)).unwrap().0
}

fn dated(author: &str, at: UnixMicros) -> Draft {
    Draft { published_at: Some(at), ..draft(author, "1") }
}

fn ago(ago: Duration) -> UnixMicros {
    SystemClock.now().saturating_sub(ago)
}

/// A burst of an author with thousands of awake followers, of whom ann is the last, and then one post that shows at once: her own, or
/// of somebody whom she pulls. It is given while the burst is still on its way, and what stands below it comes afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_polls_during_a_burst_receives_every_post_in_any_delivery_order() {
    const FOLLOWERS: usize = 3_000;
    let pull_star = above(FOLLOWERS as u64 + 10);
    // With the larger limit a copy of the inbox reaches far enough down, and pages are read without the actor.
    for (policy, limit, author) in [
        (CelebrityPolicy::PushAll, 3, "ann"),
        (pull_star, 3, "ann"),
        (pull_star, 3, "star"),
        (CelebrityPolicy::PushAll, 100, "ann"),
    ] {
        let clock = Arc::new(HoldingClock::default());
        let held_by = Arc::clone(&clock) as Arc<dyn Clock>;
        let engine = Engine::start_with(config(1, policy), MemoryJournal::default(), held_by);
        let crowd: Vec<String> = (0..FOLLOWERS).map(|nth| format!("f{nth}")).collect();
        for some in crowd.chunks(1_000) {
            let edges = some.iter().flat_map(|follower| [edge(follower, "big"), edge(follower, "star")]);
            engine.follow(edges.collect()).await.unwrap();
        }
        let more: Vec<_> = (0..20).map(|nth| edge(&format!("more{nth}"), "star")).collect();
        engine.follow(more).await.unwrap();
        // Last in the order of followers.
        engine.follow(["big", "star", "small"].map(|source| edge("ann", source)).into()).await.unwrap();
        for follower in &crowd {
            engine.feed(&id(follower), PageRequest { limit: 1, ..NEWEST }).await.unwrap();
        }
        // More entries than a direct read copies for the limit 3, so that the actor builds that page.
        for _ in 0..10 {
            publish(&engine, draft("small", "0")).await;
        }
        let mut client = Client { limit, ..Client::start(&engine).await };
        let direct_before = engine.shared().counters.direct_pages.get();

        let held = hold(&engine, &clock).await;
        let let_go = OnDrop(|| clock.holding.store(false, Ordering::SeqCst));
        let burst = join_all((0..BURST).map(|_| engine.publish(draft("big", "1"), false))).await;
        let burst: BTreeSet<PostId> = burst.into_iter().map(|published| published.unwrap().post.id()).collect();
        let at_once = engine.publish(draft(author, "1"), false).await.unwrap().post.id();
        // The request waits at the shard when that is let go, and requests wait for a small part of a burst only.
        let (came, ()) = join(client.poll(&engine), async { drop(let_go) }).await;
        assert!(came.is_some(), "nothing is late");
        assert!(client.given.contains(&at_once), "{policy:?}: the post of {author} shows at once");
        assert!(!client.given.is_superset(&burst), "{policy:?}: the poll waited for the burst, so nothing is tested");
        held.await.unwrap().unwrap();

        let mut published = burst;
        published.insert(at_once);
        published.insert(engine.publish(draft("small", "1"), false).await.unwrap().post.id());
        eventually_async("all is delivered", async || {
            assert!(client.poll(&engine).await.is_some(), "nothing is late");
            engine.shared().open_fanouts.is_empty()
        })
        .await;
        assert!(client.poll(&engine).await.is_some(), "nothing is late");
        let missing = published.difference(&client.given).count();
        assert_eq!(missing, 0, "{policy:?}, {author}: of {} posts", published.len());
        assert_eq!(client.poll(&engine).await, Some(vec![]), "what was given and settled does not come again");
        assert!(limit < 100 || engine.shared().counters.direct_pages.get() > direct_before, "pages were read directly");
        engine.shutdown();
    }
}

/// Posts of a burst.
const BURST: usize = 20;

#[tokio::test]
async fn posts_dated_back_or_ahead_are_returned_once() {
    let times = [0, 1, 1_000, 4_900, 5_100, 3_600_000, 10 * 365 * 86_400_000].map(Duration::from_millis);
    for policy in [CelebrityPolicy::PushAll, CelebrityPolicy::PullAll] {
        let engine = Engine::start(config(2, policy));
        engine.follow(vec![edge("ann", "bob")]).await.unwrap();
        publish(&engine, draft("bob", "0")).await;
        let mut client = Client::start(&engine).await;
        for author in ["bob", "ann"] {
            for time in times {
                let post = publish(&engine, dated(author, ago(time))).await;
                assert_eq!(client.poll(&engine).await, Some(vec![post]), "{author}, {time:?} ago, {policy:?}");
                assert_eq!(client.poll(&engine).await, Some(vec![]));
            }
            // Below one that is ahead of the clock, everything that comes for minutes stands lower than it.
            let ahead =
                publish(&engine, dated(author, SystemClock.now().saturating_add(Duration::from_secs(240)))).await;
            let now = publish(&engine, draft("bob", "2")).await;
            assert_eq!(client.poll(&engine).await, Some(vec![ahead, now]));
            let later = publish(&engine, draft(author, "3")).await;
            assert_eq!(client.poll(&engine).await, Some(vec![later]));
        }
        let all: Vec<PostId> = (0..7).map(|nth| PostId(nth + 1)).collect();
        for post in &all {
            let back = dated("bob", ago(Duration::from_secs(7_200 + post.0)));
            publish(&engine, Draft { id: Some(*post), ..back }).await;
        }
        assert_eq!(client.poll(&engine).await, Some(all), "in pages of three, from the oldest on");
        engine.shutdown();
    }
}

#[tokio::test]
async fn posts_that_arrived_while_the_reader_slept_are_returned() {
    let clock = Arc::new(ManualClock::new(SystemClock.now()));
    let window = Duration::from_secs(60);
    let settings = EngineConfig { active_window: window, ..config(1, CelebrityPolicy::PushAll) };
    let engine = Engine::start_with(settings, MemoryJournal::default(), clock.clone());
    engine.follow(vec![edge("ann", "bob")]).await.unwrap();
    publish(&engine, draft("bob", "0")).await;
    let mut client = Client::start(&engine).await;
    clock.advance(2 * window);
    all_asleep(&engine).await;
    let back = dated("bob", clock.now().saturating_sub(4 * window));
    let (late, new) = (publish(&engine, back).await, publish(&engine, draft("bob", "1")).await);
    assert_eq!(client.poll(&engine).await, Some(vec![new, late]));
    engine.shutdown();
}

#[tokio::test]
async fn tokens_and_late_posts_survive_a_restart() {
    for with_snapshot in [false, true] {
        let files = MemoryFiles::default();
        let engine = opened(files.clone());
        engine.follow(vec![edge("ann", "bob")]).await.unwrap();
        publish(&engine, draft("bob", "0")).await;
        engine.silence(id("ann"), id("tag:tea"), MuteOrBlock::Mute, true).await.unwrap();
        let mut client = Client::start(&engine).await;
        let late = publish(&engine, dated("bob", ago(Duration::from_secs(3_600)))).await;
        let new = publish(&engine, dated("bob", ago(Duration::from_secs(1)))).await;
        if with_snapshot {
            engine.snapshot().await.unwrap();
        }
        engine.shutdown();
        let engine = opened(files);
        assert_eq!(client.poll(&engine).await, Some(vec![new, late]), "with a snapshot: {with_snapshot}");
        let late = publish(&engine, dated("bob", ago(Duration::from_secs(7_200)))).await;
        assert_eq!(client.poll(&engine).await, Some(vec![late]));
        engine.shutdown();
    }
}

#[tokio::test]
async fn too_many_late_posts_cause_a_gap_and_the_newest_page() {
    let engine = Engine::start(config(1, CelebrityPolicy::PushAll));
    engine.follow(vec![edge("ann", "bob")]).await.unwrap();
    let newest = publish(&engine, draft("bob", "0")).await;
    let mut client = Client::start(&engine).await;
    for nth in 0..=LATE_POSTS_PER_SOURCE_MAX as u64 {
        publish(&engine, dated("bob", ago(Duration::from_secs(3_600 + nth)))).await;
    }
    let request = PageRequest { range: Range::Resume(client.token), limit: 5 };
    let page = engine.feed(&id("ann"), request).await.unwrap();
    assert!(page.page.gap);
    assert_eq!((ids(&page).len(), ids(&page)[0]), (5, newest));
    assert_eq!((client.poll(&engine).await, client.poll(&engine).await), (None, Some(vec![])));
    engine.shutdown();
}

#[tokio::test]
async fn a_preference_change_causes_one_gap() {
    let engine = Engine::start(config(1, above(1)));
    engine.follow(vec![edge("ann", "bob"), edge("eve", "star"), edge("fay", "star")]).await.unwrap();
    publish(&engine, draft("bob", "0")).await;
    publish(&engine, draft("star", "0")).await;
    let mut client = Client::start(&engine).await;
    let gap_once = async |client: &mut Client, what| {
        assert_eq!(client.poll(&engine).await, None, "{what}");
        assert_eq!(client.poll(&engine).await, Some(vec![]), "{what}");
    };
    engine.follow(vec![edge("ann", "star")]).await.unwrap();
    gap_once(&mut client, "a follow brings earlier posts").await;
    for on in [true, false] {
        engine.silence(id("ann"), id("star"), MuteOrBlock::Mute, on).await.unwrap();
        gap_once(&mut client, "a mute, and its end").await;
    }
    let rules = RulesPatch { show_own: Some(false), ..RulesPatch::default() };
    engine.change_rules(id("ann"), rules).await.unwrap();
    gap_once(&mut client, "rules").await;
    engine.mark(id("ann"), client.token).await.unwrap();
    engine.set_listed(id("ann"), "near".parse().unwrap(), id("bob"), true).await.unwrap();
    engine.unfollow(id("ann"), id("star")).await.unwrap();
    assert_eq!(client.poll(&engine).await, Some(vec![]), "none of these brings anything in");
    engine.shutdown();
}

#[tokio::test]
async fn revealed_posts_are_returned() {
    for policy in [CelebrityPolicy::PushAll, CelebrityPolicy::PullAll] {
        let engine = Engine::start(config(1, policy));
        engine.follow(vec![edge("ann", "bob")]).await.unwrap();
        let hidden = publish(&engine, dated("bob", ago(Duration::from_secs(60)))).await;
        engine.edit(hidden, None, Some(true)).await.unwrap();
        let unknown = PostId(77);
        publish(&engine, Draft { repost_of: Some(unknown), ..dated("bob", ago(Duration::from_secs(60))) }).await;
        publish(&engine, draft("bob", "0")).await;
        let mut client = Client::start(&engine).await;
        engine.edit(hidden, None, Some(false)).await.unwrap();
        assert_eq!(client.poll(&engine).await.as_deref().map(<[_]>::len), Some(1), "shown again");
        assert!(client.given.contains(&hidden));
        publish(&engine, Draft { id: Some(unknown), ..draft("cas", "4") }).await;
        let request = PageRequest { range: Range::Resume(client.token), limit: 9 };
        let page = engine.feed(&id("ann"), request).await.unwrap();
        let posts: Vec<PostId> = page.page.items.iter().map(|(_, entry)| entry.post.id()).collect();
        assert_eq!((posts, page.page.gap), (vec![unknown], false));
        engine.shutdown();
    }
}

/// Somebody's post is on its way to many readers for long. Meanwhile others publish.
#[tokio::test]
async fn posts_shown_by_a_page_count_as_read_during_undelivered_posts_of_others() {
    let engine = Engine::start(config(1, CelebrityPolicy::PushAll));
    engine.follow(vec![edge("ann", "bob"), edge("cas", "dan")]).await.unwrap();
    for reader in ["ann", "cas"] {
        engine.feed(&id(reader), NEWEST).await.unwrap();
    }
    let delivery = &engine.shared().world.delivery;
    let long = delivery.applied().through;
    publish(&engine, draft("bob", "1")).await;
    publish(&engine, draft("bob", "2")).await;
    let page = engine.feed(&id("ann"), NEWEST).await.unwrap().page;
    // As on a node that takes the marker of the page of another one, and is behind in its deliveries.
    delivery.begin(long);
    engine.mark(id("ann"), page.resume.unwrap()).await.unwrap();
    assert_eq!(engine.unread(&id("ann")).await.unwrap().entries, 0);
    publish(&engine, draft("dan", "3")).await;
    let page = engine.feed(&id("cas"), NEWEST).await.unwrap().page;
    for up_to in [page.resume.unwrap(), Resume::at(page.items[0].0)] {
        engine.mark(id("cas"), up_to).await.unwrap();
        assert_eq!(engine.unread(&id("cas")).await.unwrap().entries, 0);
    }
    delivery.end(long);
    engine.shutdown();
}

#[tokio::test]
async fn posts_that_arrive_after_a_marker_was_set_count_as_unread() {
    let files = MemoryFiles::default();
    let mut engine = opened(files.clone());
    engine.follow(vec![edge("ann", "bob"), edge("ann", "cas")]).await.unwrap();
    let first = engine.publish(draft("bob", "0"), true).await.unwrap().post.position;
    let page = engine.feed(&id("ann"), NEWEST).await.unwrap();
    publish(&engine, dated("cas", ago(Duration::from_secs(3_600)))).await;
    let unread = async |engine: &Engine| engine.unread(&id("ann")).await.unwrap().entries;
    engine.mark(id("ann"), page.page.resume.unwrap()).await.unwrap();
    assert_eq!(unread(&engine).await, 1, "it came between the page and the marker");
    engine.mark(id("ann"), first).await.unwrap();
    assert_eq!(unread(&engine).await, 0, "a plain cursor marks what is there");
    for back in [1, 3_600] {
        publish(&engine, dated("cas", first.published_at.saturating_sub(Duration::from_secs(back)))).await;
    }
    assert_eq!(unread(&engine).await, 2);
    engine.shutdown();
    engine = opened(files);
    assert_eq!(unread(&engine).await, 2, "after a restart");
    engine.mark(id("ann"), first).await.unwrap();
    assert_eq!(unread(&engine).await, 0, "the same marker set again counts them as read");
    engine.shutdown();
}

#[tokio::test]
async fn an_old_cursor_is_accepted_and_a_truncated_page_continues_with_the_rest() {
    let engine = Engine::start(EngineConfig { inbox_posts: some(4), ..config(1, CelebrityPolicy::PushAll) });
    engine.follow(vec![edge("ann", "bob")]).await.unwrap();
    let mut all = Vec::new();
    for _ in 0..10 {
        all.insert(0, publish(&engine, draft("bob", "1")).await);
    }
    let oldest = engine.own_page(&id("bob"), NEWEST).await.unwrap().page.items.last().unwrap().0;
    let mut client = Client { token: Resume::at(oldest), given: BTreeSet::new(), limit: 3 };
    assert_eq!(client.poll(&engine).await.as_deref(), Some(&all[..9]));
    let mut client = Client { token: Resume::at(Position::MIN), given: BTreeSet::new(), limit: 3 };
    assert_eq!(client.poll(&engine).await, Some(all));
    engine.shutdown();
}

#[tokio::test]
async fn lists_and_own_pages_can_be_resumed_like_feeds() {
    let engine = Engine::start(config(1, CelebrityPolicy::PushAll));
    let near = || "near".parse().unwrap();
    engine.set_listed(id("ann"), near(), id("bob"), true).await.unwrap();
    publish(&engine, draft("bob", "0")).await;
    let list = engine.list_feed(&id("ann"), &near(), NEWEST).await.unwrap();
    let own = engine.own_page(&id("bob"), NEWEST).await.unwrap();
    let late = publish(&engine, dated("bob", ago(Duration::from_secs(3_600)))).await;
    let after = |token: Option<Resume>| PageRequest { range: Range::Resume(token.unwrap()), limit: 5 };
    let list = engine.list_feed(&id("ann"), &near(), after(list.page.resume)).await.unwrap();
    let own = engine.own_page(&id("bob"), after(own.page.resume)).await.unwrap();
    assert_eq!((ids(&list), ids(&own)), (vec![late], vec![late]));
    engine.set_listed(id("ann"), near(), id("cas"), true).await.unwrap();
    let list = engine.list_feed(&id("ann"), &near(), after(list.page.resume)).await.unwrap();
    assert!(list.page.gap, "a new member brings what it has published");
    engine.shutdown();
}

/// Answers by bob to a post that nobody knows, more than are remembered, all dated back.
async fn answer_unknown(engine: &Engine, unknown: PostId) -> usize {
    let answers = AWAITED_ANSWERS_MAX + 1;
    for nth in 0..answers as u64 {
        let answer = dated("bob", ago(Duration::from_secs(60 + nth)));
        publish(engine, Draft { reply_to: Some(unknown), ..answer }).await;
    }
    answers
}

#[tokio::test]
async fn forgotten_revealed_posts_cause_a_gap_after_a_restart_and_stay_unread() {
    for with_snapshot in [false, true] {
        let files = MemoryFiles::default();
        let engine = opened(files.clone());
        engine.follow(vec![edge("ann", "bob"), edge("ann", "cas")]).await.unwrap();
        let answers = answer_unknown(&engine, PostId(77)).await;
        let newest = engine.publish(draft("bob", "0"), true).await.unwrap().post.position;
        let mut client = Client::start(&engine).await;
        engine.mark(id("ann"), newest).await.unwrap();
        assert_eq!((client.given.len(), engine.unread(&id("ann")).await.unwrap().entries), (1, 0));
        publish(&engine, Draft { id: Some(PostId(77)), ..dated("cas", ago(Duration::from_secs(7_200))) }).await;
        let knows_all = async |engine: &Engine| {
            let unread = engine.unread(&id("ann")).await.unwrap();
            !unread.complete || unread.entries == answers + 1
        };
        assert!(knows_all(&engine).await);
        if with_snapshot {
            engine.snapshot().await.unwrap();
        }
        engine.shutdown();
        let engine = opened(files);
        assert!(knows_all(&engine).await, "after a restart, with a snapshot: {with_snapshot}");
        assert_eq!(client.poll(&engine).await, None, "with a snapshot: {with_snapshot}");
        assert_eq!(client.poll(&engine).await, Some(vec![]));
        engine.mark(id("ann"), client.token).await.unwrap();
        assert_eq!(engine.unread(&id("ann")).await.map(|unread| (unread.entries, unread.complete)).unwrap(), (0, true));
        engine.shutdown();
    }
}

/// Between two pages of what is new an entry falls down to where the first of them looked: the repost that it stood at is no more.
#[tokio::test]
async fn an_entry_whose_repost_is_undone_between_pages_is_returned_or_causes_a_gap() {
    for how in ["deleted", "hidden", "unfollowed"] {
        let engine = Engine::start(config(1, CelebrityPolicy::PushAll));
        engine.follow(vec![edge("ann", "bob"), edge("ann", "cas")]).await.unwrap();
        publish(&engine, draft("bob", "0")).await;
        let mut client = Client::start(&engine).await;
        let origin = publish(&engine, draft("bob", "1")).await;
        for _ in 0..5 {
            publish(&engine, draft("bob", "2")).await;
        }
        let repost = publish(&engine, Draft { repost_of: Some(origin), ..draft("cas", "3") }).await;
        let request = PageRequest { range: Range::Resume(client.token), limit: 3 };
        let page = engine.feed(&id("ann"), request).await.unwrap();
        assert!(page.page.is_cut && !ids(&page).contains(&origin));
        client.token = page.page.resume.unwrap();
        match how {
            "deleted" => engine.delete(repost).await.unwrap(),
            "hidden" => drop(engine.edit(repost, None, Some(true)).await.unwrap()),
            _ => engine.unfollow(id("ann"), id("cas")).await.unwrap(),
        }
        let came = client.poll(&engine).await;
        assert!(came.is_none_or(|came| came.contains(&origin)), "{how}");
        assert!(client.poll(&engine).await.is_some(), "no gap for ever");
        engine.shutdown();
    }
}

/// What was dated back stands below the marker, and the reader's inbox gets it only with the follow.
#[tokio::test]
async fn the_unread_count_includes_late_posts_of_sources_followed_after_the_marker() {
    let clock = Arc::new(ManualClock::new(UnixMicros(1_000_000_000)));
    let storage = storage(Durability::Never, 16 << 20);
    let now = Arc::clone(&clock) as Arc<dyn Clock>;
    let engine = open_with(config(1, CelebrityPolicy::PushAll), MemoryFiles::default(), &storage, now).unwrap().0;
    engine.follow(vec![edge("ann", "bob")]).await.unwrap();
    publish(&engine, draft("bob", "1")).await;
    // Woken here: an inbox that is filled later would be taken for one with late posts.
    engine.feed(&id("ann"), NEWEST).await.unwrap();
    clock.advance(Duration::from_secs(10));
    publish(&engine, draft("bob", "2")).await;
    engine.mark(id("ann"), Client::start(&engine).await.token).await.unwrap();
    publish(&engine, Draft { published_at: Some(UnixMicros(900_000_000)), ..draft("cas", "3") }).await;
    assert_eq!(engine.unread(&id("ann")).await.unwrap().entries, 0);
    engine.follow(vec![edge("ann", "cas")]).await.unwrap();
    assert_eq!(engine.unread(&id("ann")).await.unwrap().entries, 1);
    engine.shutdown();
}
