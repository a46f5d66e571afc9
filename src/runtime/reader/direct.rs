//! Direct reads: pages that are built on the threads of their callers.

use std::panic::{self, AssertUnwindSafe};
use std::time::Instant;

use tracing::error;

use crate::feed::page::Page;
use crate::feed::position::Position;
use crate::id::PostId;
use crate::runtime::reader::inboxes::InboxCopy;
use crate::runtime::shared::Shared;
use crate::state::direct_page::DirectPage;
use crate::state::feed_filter::Entry;
use crate::state::reader::PageRequest;
use crate::state::sources::Source;

/// Number of due deliveries up to which direct reads have no budget: about a millisecond's work for one courier.
const FREE_BELOW_DELIVERIES: usize = 16_384;

/// Builds a page on this thread, without waiting for any other. Returns None if the reader's actor has to build it.
pub(crate) fn read(shared: &Shared, source: &Source, request: PageRequest) -> Option<Page<Entry>> {
    let is_busy = shared.open_fanouts.deliveries() >= FREE_BELOW_DELIVERIES;
    let began = is_busy.then(Instant::now);
    if let Some(began) = began {
        let now_ns = u64::try_from(began.duration_since(shared.started).as_nanos()).unwrap_or(u64::MAX);
        if !shared.direct_budget.may_begin(now_ns, shared.inboxes.len()) {
            return None;
        }
    }
    // After a panic the actor builds the page. If the actor panics repeatedly as well, the reader is quarantined.
    let built = panic::catch_unwind(AssertUnwindSafe(|| build(shared, source, request)));
    if let Some(began) = began {
        shared.direct_budget.took(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    built.unwrap_or_else(|_| {
        error!(reader = %source.id, "a direct read crashed; the reader's actor builds the page");
        shared.counters.user_crashes.add(1);
        None
    })
}

fn build(shared: &Shared, source: &Source, request: PageRequest) -> Option<Page<Entry>> {
    let sharding = shared.world.sharding;
    let (inboxes, local) = (&shared.inboxes[sharding.shard_of(source.slot)], sharding.local(source.slot));
    let now = shared.clock.now();
    let page = DirectPage::new(source, &shared.world, request)?;
    let oldest = Position { published_at: shared.config.oldest_in_inbox(now), id: PostId(0) };
    let InboxCopy { inbox, is_cut, pulled } = inboxes.copy_newest(local, page.positions(), oldest)?;
    if !page.suffices(&inbox) {
        return None;
    }
    if !request.range.is_count() {
        source.seen(now);
    }
    let (pulled, is_new) = page.pulled(source, pulled)?;
    if is_new {
        inboxes.try_set_pulled(local, &pulled);
    }
    let built = page.build(&inbox, is_cut, &pulled, shared.read_clock(now))?;
    if !built.gone.is_empty() {
        inboxes.try_remove(local, &built.gone);
    }
    // The actor of a watched reader has to see every page. If the watch began after the inbox was copied, this page may
    // contain an error that no event corrects.
    if shared.watchers.is_watched(source.slot) {
        return None;
    }
    shared.count_page(&built);
    if !request.range.is_count() {
        source.note_page();
    }
    shared.counters.direct_pages.add(1);
    Some(built)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::EngineConfig;
    use crate::engine::Engine;
    use crate::feed::celebrity::{CelebrityPolicy, CostModel};
    use crate::feed::event::{MuteOrBlock, NewEdge};
    use crate::feed::page::Range;
    use crate::feed::post::{Body, Draft};
    use crate::id::{SourceId, SourceSlot};
    use crate::runtime::fanout::open_fanouts::OpenFanout;
    use crate::runtime::message::Sleep;
    use crate::runtime::reader::user::UserActor;
    use crate::state::reader::PulledSources;
    use actix::{Handler, Message};
    use std::num::{NonZeroU64, NonZeroUsize};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::time::Duration;
    use testkit::eventually_async;

    /// A message whose handler panics.
    #[derive(Message)]
    #[rtype(result = "()")]
    struct Poison;

    impl Handler<Poison> for UserActor {
        type Result = ();

        fn handle(&mut self, _: Poison, _: &mut Self::Context) {
            panic!("poisoned");
        }
    }

    const NEWEST: PageRequest = PageRequest { range: Range::Newest, limit: 20 };

    fn id(text: &str) -> SourceId {
        SourceId::new(text).unwrap()
    }

    fn config() -> EngineConfig {
        let inbox_posts = NonZeroUsize::new(60).unwrap();
        EngineConfig { shards: NonZeroUsize::MIN, inbox_posts, ..EngineConfig::default() }
    }

    async fn engine() -> Engine {
        let engine = Engine::start(config());
        engine.follow(vec![NewEdge::new(id("ann"), id("bob"))]).await.unwrap();
        engine
    }

    async fn publish(engine: &Engine, numbers: std::ops::Range<usize>) {
        for number in numbers {
            engine.publish(Draft::new(id("bob"), Body::new(&number.to_string()).unwrap()), true).await.unwrap();
        }
    }

    /// Returns the numbers in the posts of Ann's newest page.
    async fn page(engine: &Engine) -> Vec<usize> {
        let page = engine.feed(&id("ann"), NEWEST).await.unwrap().page;
        page.items.iter().map(|(_, entry)| entry.post.body().parse().unwrap()).collect()
    }

    #[tokio::test]
    async fn only_pages_of_awake_unwatched_readers_are_read_directly() {
        let engine = engine().await;
        publish(&engine, 0..3).await;
        let direct = || engine.shared().counters.direct_pages.get();
        assert_eq!((page(&engine).await, direct()), (vec![2, 1, 0], 0), "she was asleep");
        assert_eq!((page(&engine).await, direct()), (vec![2, 1, 0], 1));
        engine.follow(vec![NewEdge::new(id("ann"), id("cas"))]).await.unwrap();
        assert_eq!((page(&engine).await, direct()), (vec![2, 1, 0], 1), "her inbox lacks the new edge");
        assert_eq!((page(&engine).await, direct()), (vec![2, 1, 0], 2));
        let watcher = engine.watch(&id("ann"), None).await.unwrap();
        assert_eq!((page(&engine).await, direct()), (vec![2, 1, 0], 2), "she is watched");
        drop(watcher);
        engine.shutdown();
    }

    #[tokio::test]
    async fn a_source_that_switches_to_pull_is_on_the_next_page() {
        let threshold = NonZeroU64::new(1).unwrap();
        let policy = CelebrityPolicy::Above(threshold);
        let engine = Engine::start(EngineConfig { celebrity: policy, ..config() });
        engine.follow(vec![NewEdge::new(id("ann"), id("bob"))]).await.unwrap();
        publish(&engine, 0..3).await;
        assert_eq!([page(&engine).await, page(&engine).await], [[2, 1, 0], [2, 1, 0]]);
        engine.follow(vec![NewEdge::new(id("cas"), id("bob"))]).await.unwrap();
        publish(&engine, 3..4).await;
        assert_eq!(engine.inbox_totals().await.entries, 3, "it is pulled");
        assert_eq!(page(&engine).await, [3, 2, 1, 0]);
        assert_eq!(engine.shared().counters.direct_pages.get(), 2);
        engine.shutdown();
    }

    #[tokio::test]
    async fn a_deleted_post_leaves_the_inbox_with_the_next_page() {
        let engine = engine().await;
        publish(&engine, 0..3).await;
        page(&engine).await;
        let newest = engine.feed(&id("ann"), NEWEST).await.unwrap().page.items[0].1.post.id();
        engine.delete(newest).await.unwrap();
        assert_eq!((page(&engine).await, engine.inbox_totals().await.entries), (vec![1, 0], 2));
        assert_eq!(engine.shared().counters.direct_pages.get(), 2);
        engine.shutdown();
    }

    #[tokio::test]
    async fn a_page_whose_direct_read_crashes_is_built_by_the_actor_and_counted() {
        let engine = engine().await;
        publish(&engine, 0..3).await;
        page(&engine).await;
        let world = &engine.shared().world;
        let ann = world.sources.get(&id("ann")).unwrap();
        let broken = Arc::new(PulledSources::broken(&ann, world));
        engine.shared().inboxes[0].set_pulled(world.sharding.local(ann.slot), &broken);
        let counters = &engine.shared().counters;
        assert_eq!(
            (page(&engine).await, counters.direct_pages.get(), counters.user_crashes.get()),
            (vec![2, 1, 0], 0, 1)
        );
        assert_eq!(engine.shared().directory.crashes(ann.slot), 0, "her actor did not crash");
        engine.shutdown();
    }

    /// Many posts are muted, so the copied positions do not fill the page.
    #[tokio::test]
    async fn a_page_that_exceeds_the_inbox_copy_is_built_by_the_actor() {
        let engine = engine().await;
        engine.follow(vec![NewEdge::new(id("ann"), id("cas"))]).await.unwrap();
        publish(&engine, 0..15).await;
        page(&engine).await;
        for _ in 0..40 {
            engine.publish(Draft::new(id("cas"), Body::new("1").unwrap()), true).await.unwrap();
        }
        engine.silence(id("ann"), id("cas"), MuteOrBlock::Mute, true).await.unwrap();
        let expected: Vec<usize> = (0..15).rev().collect();
        assert_eq!((page(&engine).await, engine.shared().counters.direct_pages.get()), (expected, 0));
        engine.shutdown();
    }

    /// Due deliveries leave direct reads a share of the time; the actor builds all other pages.
    #[tokio::test]
    async fn while_couriers_are_busy_pages_are_read_directly_and_by_actors() {
        let engine = engine().await;
        publish(&engine, 0..3).await;
        let due = OpenFanout {
            position: Position::MIN,
            author: SourceSlot(9),
            deliveries: FREE_BELOW_DELIVERIES,
            accepted_at: None,
        };
        page(&engine).await;
        engine.shared().open_fanouts.begin(due);
        let counters = &engine.shared().counters;
        // Without a pause, since direct reads may use the time that nothing else uses.
        let is_over = || counters.pages.get() >= counters.direct_pages.get() + 50;
        for _ in (0..1_000_000).take_while(|_| !is_over()) {
            assert_eq!(page(&engine).await, [2, 1, 0]);
        }
        assert!(is_over(), "50 pages come from the actor");
        assert!(counters.direct_pages.get() > 0);
        engine.shared().open_fanouts.end(due);
        engine.shutdown();
    }

    /// Copies overlap with deliveries, evictions, sleep and crashes. A page is never wrong: it has the newest posts without a gap.
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn pages_concurrent_with_deliveries_sleep_and_crashes_have_no_gap() {
        let engine = engine().await;
        beside_everything(&engine, |page, _| (0..20).map(|nth| page[0].saturating_sub(nth)).collect()).await;
        engine.shutdown();
    }

    /// A page may contain or lack posts that are published while it is built; its token treats them as new. It has all
    /// others.
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn pages_concurrent_with_route_changes_have_all_earlier_posts() {
        let often = CostModel { refresh_ns: 0, change_period: Duration::ZERO, ..CostModel::default() };
        // The route changes at every post.
        let celebrity = CelebrityPolicy::ByCost(CostModel { advantage_percent: 0, posts_per_comparison: 1, ..often });
        let engine = Engine::start(EngineConfig { celebrity, ..config() });
        engine.follow(vec![NewEdge::new(id("ann"), id("bob"))]).await.unwrap();
        let expected = |page: &[usize], before: usize| {
            let meanwhile: Vec<usize> = page.iter().copied().filter(|number| *number > before).collect();
            assert!(meanwhile.is_sorted_by(|a, b| a > b));
            meanwhile.into_iter().chain((0..=before).rev()).take(20).collect()
        };
        beside_everything(&engine, expected).await;
        let pushed = engine.shared().counters.deliveries.get();
        assert!((50..330).contains(&pushed), "{pushed} of 340 posts were pushed, the others pulled");
        engine.shutdown();
    }

    /// Reads while posts are delivered and the reader sleeps and crashes. `expected` returns the expected page, given
    /// the number of the last post before it.
    async fn beside_everything(engine: &Engine, expected: fn(&[usize], usize) -> Vec<usize>) {
        publish(engine, 0..60).await;
        let (is_over, delivered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(59)));
        let readers: Vec<_> = (0..3)
            .map(|_| {
                let (engine, is_over, delivered) = (engine.clone(), Arc::clone(&is_over), Arc::clone(&delivered));
                tokio::spawn(async move {
                    while !is_over.load(Ordering::SeqCst) {
                        let at_least = delivered.load(Ordering::SeqCst) as usize;
                        let page = page(&engine).await;
                        assert!(page[0] >= at_least, "{page:?} begins below {at_least}");
                        assert_eq!(page, expected(&page, at_least));
                        tokio::task::yield_now().await;
                    }
                })
            })
            .collect();
        let slot = engine.shared().world.sources.get(&id("ann")).unwrap().slot;
        for number in 60..400 {
            publish(engine, number..number + 1).await;
            delivered.store(number as u64, Ordering::SeqCst);
            match number {
                // More crashes in a short time would quarantine her.
                100 | 300 => {
                    // A page wakes her, if she sleeps.
                    while engine.shared().directory.send(slot, Poison).is_err() {
                        page(engine).await;
                    }
                }
                _ if number % 40 == 0 => drop(engine.shared().directory.send(slot, Sleep)),
                _ => {}
            }
        }
        is_over.store(true, Ordering::SeqCst);
        for reader in readers {
            reader.await.unwrap();
        }
        let counters = &engine.shared().counters;
        let is_through = async || counters.sleeps.get() > 0 && counters.user_crashes.get() > 0;
        eventually_async("she has slept and crashed", is_through).await;
        assert!((1..counters.pages.get()).contains(&counters.direct_pages.get()), "pages were built in both ways");
    }

    #[tokio::test]
    async fn a_task_that_reads_pages_in_a_loop_yields_to_others() {
        let engine = engine().await;
        publish(&engine, 0..3).await;
        page(&engine).await;
        let other = tokio::spawn(async {});
        let mut pages = 0;
        while !other.is_finished() {
            page(&engine).await;
            pages += 1;
            assert!(pages < 1_000, "the other task did not run");
        }
        engine.shutdown();
    }
}
