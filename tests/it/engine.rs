//! The engine through its own type: single features.

use std::sync::Arc;
use std::time::Duration;

use tidewire::clock::{Clock, ManualClock, SystemClock, UnixMicros};
use tidewire::config::EngineConfig;
use tidewire::engine::{Engine, FeedPage};
use tidewire::error::Error;
use tidewire::feed::celebrity::CelebrityPolicy;
use tidewire::feed::event::{MuteOrBlock, NewEdge};
use tidewire::feed::post::{Body, Draft};
use tidewire::id::{ListName, PostId, SourceId};
use tidewire::storage::journal::MemoryJournal;

use testkit::world::{NEWEST, above, all_asleep, config, draft, edge, id, some};

fn bodies(page: &FeedPage) -> Vec<&str> {
    page.page.items.iter().map(|(_, entry)| entry.post.body()).collect()
}

#[tokio::test]
async fn a_post_reaches_its_followers_newest_first() {
    let engine = Engine::start(config(2, CelebrityPolicy::PushAll));
    engine.follow(vec![edge("ann", "bob"), edge("ann", "tag:rust"), edge("cas", "bob")]).await.unwrap();
    for (author, body) in [("bob", "1"), ("bob", "2"), ("dan", "3"), ("ann", "4")] {
        let tags = if author == "dan" { vec![SourceId::tag("rust").unwrap()] } else { Vec::new() };
        let post = Draft { tags, ..draft(author, body) };
        assert!(engine.publish(post, true).await.unwrap().created);
    }
    assert_eq!(bodies(&engine.feed(&id("ann"), NEWEST).await.unwrap()), ["4", "3", "2", "1"]);
    assert_eq!(bodies(&engine.feed(&id("cas"), NEWEST).await.unwrap()), ["2", "1"]);
    engine.publish(draft("bob", "5"), true).await.unwrap();
    assert_eq!(bodies(&engine.feed(&id("ann"), NEWEST).await.unwrap()), ["5", "4", "3", "2", "1"]);
    assert_eq!(engine.shared().counters.deliveries.get(), 2, "one for each follower who is awake");
    engine.shutdown();
}

#[tokio::test]
async fn inactive_readers_are_skipped_and_miss_nothing() {
    let (clock, window) = (Arc::new(ManualClock::new(SystemClock.now())), Duration::from_millis(40));
    let config = EngineConfig { active_window: window, ..config(1, CelebrityPolicy::PushAll) };
    let engine = Engine::start_with(config, MemoryJournal::default(), Arc::clone(&clock) as Arc<dyn Clock>);
    engine.follow(vec![edge("ann", "bob")]).await.unwrap();
    engine.publish(draft("bob", "1"), true).await.unwrap();
    assert_eq!(bodies(&engine.feed(&id("ann"), NEWEST).await.unwrap()), ["1"]);
    assert!(engine.source(&id("ann")).unwrap().active);
    clock.advance(2 * window);
    all_asleep(&engine).await;
    engine.publish(draft("bob", "2"), true).await.unwrap();
    assert_eq!(engine.shared().counters.deliveries.get(), 0);
    assert_eq!(bodies(&engine.feed(&id("ann"), NEWEST).await.unwrap()), ["2", "1"]);
    assert_eq!(engine.inbox_totals().await.inboxes, 1);
    engine.shutdown();
}

#[tokio::test]
async fn verifying_the_inbox_of_a_sleeping_reader_wakes_it_and_builds_no_page() {
    let engine = Engine::start(config(1, CelebrityPolicy::PushAll));
    engine.follow(vec![edge("ann", "bob")]).await.unwrap();
    engine.publish(draft("bob", "1"), true).await.unwrap();
    assert!(!engine.is_awake(&id("ann")));
    let verdict = engine.verify_feed(&id("ann"), false).await.unwrap();
    assert!(verdict.is_good() && verdict.entries == 1, "{verdict:?}");
    let counters = &engine.shared().counters;
    assert_eq!((counters.wakes.get(), counters.pages.get()), (1, 0));
    engine.shutdown();
}

#[tokio::test]
async fn a_virtual_follow_delivers_posts_and_is_not_listed() {
    let engine = Engine::start(config(1, CelebrityPolicy::PushAll));
    let hidden = tidewire::feed::event::NewEdge { hidden: true, ..edge("ann", "ads") };
    engine.follow(vec![hidden]).await.unwrap();
    engine.publish(draft("ads", "1"), true).await.unwrap();
    let page = engine.feed(&id("ann"), NEWEST).await.unwrap();
    assert_eq!(bodies(&page), ["1"]);
    assert_eq!(page.page.items[0].1.via().count(), 0);
    assert!(engine.following(&id("ann"), UnixMicros(i64::MAX), 9).is_empty());
    assert!(engine.followers(&id("ads"), UnixMicros(i64::MAX), 9).is_empty());
    assert_eq!(engine.source(&id("ads")).unwrap().followers, 0);
    engine.shutdown();
}

#[tokio::test]
async fn expired_posts_leave_inboxes_and_can_still_be_paged_to() {
    let clock = Arc::new(ManualClock::new(UnixMicros(0)));
    let config = EngineConfig { inbox_age: Some(Duration::from_secs(60)), ..config(1, CelebrityPolicy::PushAll) };
    let engine = Engine::start_with(config, MemoryJournal::default(), Arc::clone(&clock) as Arc<dyn Clock>);
    engine.follow(vec![edge("ann", "bob")]).await.unwrap();
    engine.feed(&id("ann"), NEWEST).await.unwrap();
    for body in ["1", "2", "3"] {
        clock.advance(Duration::from_secs(50));
        engine.publish(draft("bob", body), true).await.unwrap();
    }
    assert_eq!(bodies(&engine.feed(&id("ann"), NEWEST).await.unwrap()), ["3", "2", "1"]);
    assert_eq!(engine.inbox_totals().await.entries, 2);
    engine.shutdown();
}

/// A clock that moves on by a second whenever it is read, while it is told to rush.
struct RushingClock {
    clock: ManualClock,
    rushing: std::sync::atomic::AtomicBool,
}

impl Clock for RushingClock {
    fn now(&self) -> UnixMicros {
        if self.rushing.load(std::sync::atomic::Ordering::SeqCst) {
            self.clock.advance(Duration::from_secs(1));
        }
        self.clock.now()
    }

    fn monotonic(&self) -> Duration {
        self.clock.monotonic()
    }
}

#[tokio::test]
async fn sources_that_are_too_late_are_named_and_appear_later() {
    let clock = Arc::new(RushingClock {
        clock: ManualClock::new(SystemClock.now()),
        rushing: std::sync::atomic::AtomicBool::new(false),
    });
    let config = EngineConfig { pull_budget: Duration::from_millis(50), ..config(1, CelebrityPolicy::PullAll) };
    let engine = Engine::start_with(config, MemoryJournal::default(), Arc::clone(&clock) as Arc<dyn Clock>);
    let stars: Vec<String> = (0..1_000).map(|n| format!("star{n}")).collect();
    engine.follow(stars.iter().map(|star| edge("ann", star)).collect()).await.unwrap();
    for star in &stars {
        engine.publish(draft(star, "1"), true).await.unwrap();
    }
    clock.rushing.store(true, std::sync::atomic::Ordering::SeqCst);
    let page = engine.feed(&id("ann"), NEWEST).await.unwrap();
    assert!(!page.partial.is_empty() && page.page.partial.len() < 1_000, "{:?}", page.partial);
    assert!(!page.page.items.is_empty(), "the rest is returned");
    assert_eq!(engine.shared().counters.partial_pages.get(), 1);
    clock.rushing.store(false, std::sync::atomic::Ordering::SeqCst);
    let page = engine.feed(&id("ann"), NEWEST).await.unwrap();
    assert_eq!((page.partial.len(), page.page.items.len()), (0, 20));
    engine.shutdown();
}

#[tokio::test]
async fn a_follow_above_the_limit_is_refused_and_one_at_the_limit_accepted() {
    let engine = Engine::start(EngineConfig { following_max: 3, ..config(1, CelebrityPolicy::PushAll) });
    let edges = |range: std::ops::Range<u32>| range.map(|n| edge("ann", &format!("s{n}"))).collect::<Vec<_>>();
    let over = engine.follow(edges(0..4)).await.unwrap_err();
    assert_eq!(over.code(), "following_limit");
    assert!(engine.source(&id("ann")).is_err(), "nothing was made");
    assert_eq!(engine.follow(edges(0..3)).await.unwrap().created, 3);
    assert_eq!(engine.follow(edges(0..3)).await.unwrap().existing, 3);
    assert_eq!(engine.follow(edges(3..4)).await.unwrap_err().code(), "following_limit");
    engine.unfollow(id("ann"), id("s0")).await.unwrap();
    assert_eq!(engine.follow(edges(3..4)).await.unwrap().created, 1);
    engine.shutdown();
}

#[tokio::test]
async fn a_full_store_refuses_posts_and_keeps_serving() {
    let engine = Engine::start(EngineConfig { store_bytes_max: 1_000, ..config(1, CelebrityPolicy::PushAll) });
    let mut published = 0;
    let refused = loop {
        match engine.publish(draft("bob", "\"some text\""), false).await {
            Ok(_) => published += 1,
            Err(refused) => break refused,
        }
    };
    assert!(matches!(refused, Error::Full { limit: 1_000, .. }));
    assert_eq!(engine.own_page(&id("bob"), NEWEST).await.unwrap().page.items.len(), published);
    engine.delete(engine.own_page(&id("bob"), NEWEST).await.unwrap().page.items[0].0.id).await.unwrap();
    engine.publish(draft("bob", "1"), false).await.unwrap();
    engine.shutdown();
}

#[tokio::test]
async fn a_publish_behind_a_delete_of_its_id_in_one_group_is_refused() {
    let engine = Engine::start(config(1, CelebrityPolicy::PushAll));
    for id in 1..100 {
        let late = Draft { id: Some(PostId(id)), ..draft("bob", "1") };
        let (deleted, published) = tokio::join!(engine.delete(PostId(id)), engine.publish(late, false));
        assert_eq!((deleted, published.err()), (Ok(()), Some(Error::PostDeleted(PostId(id)))));
    }
    engine.shutdown();
}

#[tokio::test]
async fn edits_count_against_the_store_limit_like_new_posts() {
    let limit = 200_000;
    let engine = Engine::start(EngineConfig { store_bytes_max: limit, ..config(1, CelebrityPolicy::PushAll) });
    let body = |bytes: usize| Some(Body::new(&format!("\"{}\"", "x".repeat(bytes))).unwrap());
    let mut posts = Vec::new();
    for _ in 0..100 {
        posts.push(engine.publish(draft("bob", "1"), false).await.unwrap().post.id());
    }
    // All edits wait in one group, which is not larger than the budget either.
    let edits = posts.iter().map(|post| engine.edit(*post, body(60_000), None));
    let edited = futures_util::future::join_all(edits).await;
    let refused: Vec<&Error> = edited.iter().filter_map(|edited| edited.as_ref().err()).collect();
    assert!(refused.len() > 90 && refused.iter().all(|refused| matches!(refused, Error::Full { .. })), "{refused:?}");
    let bytes = engine.shared().world.posts.bytes();
    assert!(bytes < limit + 130_000, "{bytes} of {limit}");
    let largest = posts[edited.iter().position(Result::is_ok).unwrap()];
    assert!(engine.edit(largest, body(59_000), None).await.is_ok(), "an edit that takes less is allowed");
    assert!(engine.edit(largest, None, Some(true)).await.is_ok());
    engine.shutdown();
}

#[tokio::test]
async fn preferences_count_against_the_graph_budget() {
    let limit = 100_000;
    let engine = Engine::start(EngineConfig { graph_bytes_max: limit, ..config(1, CelebrityPolicy::PushAll) });
    for nth in 0..500 {
        engine.publish(draft(&format!("s{nth}"), "1"), false).await.unwrap();
    }
    let bytes = || engine.shared().world.sources.graph_bytes();
    let before = bytes();
    let list = |nth: usize| format!("l{nth}").parse::<ListName>().unwrap();
    let refused = 'refused: {
        for (nth, source) in (0..100).flat_map(|nth| (0..500).map(move |source| (nth, source))) {
            if let Err(refused) = engine.set_listed(id("ann"), list(nth), id(&format!("s{source}")), true).await {
                break 'refused refused;
            }
        }
        panic!("{} bytes are accepted", bytes());
    };
    assert!(matches!(refused, Error::Full { .. }), "{refused}");
    assert!((limit * 9 / 10..limit + 1_000).contains(&bytes()), "{} of {limit}", bytes());
    assert!(engine.silence(id("ann"), id("s1"), MuteOrBlock::Mute, true).await.is_err());
    engine.set_listed(id("ann"), list(0), id("s0"), false).await.unwrap();
    for nth in 0..100 {
        engine.drop_list(id("ann"), list(nth)).await.unwrap();
    }
    assert!(bytes() < before + 2_000, "{} after {before}", bytes());
    engine.silence(id("ann"), id("s1"), MuteOrBlock::Mute, true).await.unwrap();
    engine.shutdown();
}

#[tokio::test]
async fn a_full_graph_refuses_new_edges_and_sources_and_accepts_unfollows() {
    let limit = 100_000;
    let engine = Engine::start(EngineConfig { graph_bytes_max: limit, ..config(1, CelebrityPolicy::PushAll) });
    let bytes = || engine.shared().world.sources.graph_bytes();
    let edge = |nth: usize, source: usize| NewEdge::new(id(&format!("r{nth}")), id(&format!("s{source}")));
    for nth in 0..100 {
        engine.follow(vec![edge(nth, nth % 10)]).await.unwrap();
    }
    let refused = loop {
        let nth = engine.shared().world.edges();
        if let Err(refused) = engine.follow(vec![edge(nth % 100, nth / 100 + 10)]).await {
            break refused;
        }
    };
    assert_eq!(refused, Error::Full { what: "source and follow edge (bytes)", limit });
    // What an edge takes is known only when it is there.
    assert!((limit * 9 / 10..limit + 1_000).contains(&bytes()), "{} of {limit}", bytes());
    let newcomer = engine.publish(draft("newcomer", "1"), false).await;
    assert_eq!(newcomer.err(), Some(refused.clone()));
    engine.publish(draft("s0", "1"), false).await.unwrap();
    engine.follow(vec![edge(0, 0)]).await.unwrap();
    let kept = engine.unfollow_but_keep(id("r0"), id("s0")).await;
    assert_eq!(kept.err(), Some(refused), "what is kept takes more than the edge");
    for nth in 0..100 {
        engine.unfollow(id(&format!("r{nth}")), id(&format!("s{}", nth % 10))).await.unwrap();
    }
    engine.follow(vec![edge(0, 1)]).await.unwrap();
    engine.shutdown();
}

#[tokio::test]
async fn the_number_of_sources_is_limited() {
    let engine = Engine::start(EngineConfig { sources_max: 2, ..config(1, CelebrityPolicy::PushAll) });
    engine.follow(vec![edge("ann", "bob")]).await.unwrap();
    assert_eq!(engine.follow(vec![edge("ann", "cas")]).await.unwrap_err().code(), "store_full");
    assert_eq!(engine.publish(draft("dan", "1"), false).await.unwrap_err().code(), "store_full");
    engine.publish(draft("bob", "1"), false).await.unwrap();
    engine.shutdown();
}

#[tokio::test]
async fn ids_and_times_increase_when_the_clock_steps_back() {
    let clock = Arc::new(ManualClock::new(UnixMicros(5_000_000)));
    let engine =
        Engine::start_with(config(1, above(9)), MemoryJournal::default(), Arc::clone(&clock) as Arc<dyn Clock>);
    let mut last = (UnixMicros(0), PostId(0));
    for at in [5_000_000, 1_000_000, 0, 7_000_000] {
        clock.set(UnixMicros(at));
        let post = engine.publish(draft("bob", "1"), false).await.unwrap().post;
        let this = (post.position.published_at, post.id());
        assert!(this.0 > last.0 && this.1 > last.1, "{this:?} after {last:?}");
        last = this;
    }
    engine.shutdown();
}

#[tokio::test]
async fn readers_above_the_limit_deactivate_others_and_can_still_read() {
    let engine = Engine::start(EngineConfig { active_readers_max: some(4), ..config(2, CelebrityPolicy::PushAll) });
    let readers: Vec<String> = (0..40).map(|n| format!("r{n}")).collect();
    engine.follow(readers.iter().map(|reader| edge(reader, "bob")).collect()).await.unwrap();
    for round in 0..5 {
        engine.publish(draft("bob", &round.to_string()), true).await.unwrap();
        for reader in &readers {
            assert_eq!(engine.feed(&id(reader), NEWEST).await.unwrap().page.items.len(), round + 1);
        }
    }
    assert!(engine.shared().directory.len() <= 4 + 2, "{} awake", engine.shared().directory.len());
    engine.shutdown();
}

#[tokio::test]
async fn huge_and_zero_page_limits_are_clamped() {
    let engine = Engine::start(config(1, CelebrityPolicy::PushAll));
    for _ in 0..120 {
        engine.publish(draft("bob", "1"), false).await.unwrap();
    }
    for (limit, shown) in [(usize::MAX, 100), (0, 1)] {
        let request = tidewire::state::reader::PageRequest { limit, ..NEWEST };
        for page in
            [engine.own_page(&id("bob"), request).await.unwrap(), engine.feed(&id("bob"), request).await.unwrap()]
        {
            assert_eq!((page.page.items.len(), page.page.next.is_some()), (shown, true));
        }
    }
    engine.shutdown();
}
