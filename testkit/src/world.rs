//! Helpers of the engine's tests: an engine driven from a test's thread, and shorthands.

use std::num::{NonZeroU64, NonZeroUsize};
use std::time::Duration;

use tidewire::config::EngineConfig;
use tidewire::engine::{Engine, FeedPage, Watcher};
use tidewire::error::Error;
use tidewire::feed::celebrity::{CelebrityPolicy, CostModel};
use tidewire::feed::event::NewEdge;
use tidewire::feed::page::Range;
use tidewire::feed::position::Position;
use tidewire::feed::post::{Body, Draft};
use tidewire::id::{PostId, SourceId};
use tidewire::live::event::LiveEvent;
use tidewire::state::feed_filter::Entry;
use tidewire::state::reader::PageRequest;

use crate::oracle::Expected;
use crate::{PageCount, eventually_async, in_time};

pub fn id(text: &str) -> SourceId {
    SourceId::new(text).unwrap()
}

pub fn edge(follower: &str, source: &str) -> NewEdge {
    NewEdge::new(id(follower), id(source))
}

pub fn draft(author: &str, body: &str) -> Draft {
    Draft::new(id(author), Body::new(body).unwrap())
}

pub fn above(followers: u64) -> CelebrityPolicy {
    CelebrityPolicy::Above(NonZeroU64::new(followers).unwrap())
}

/// A delivery and a pull cost the same, and every advantage counts.
pub const SENSITIVE: CostModel = CostModel {
    delivery_ns: 1_000_000,
    fanout_ns: 0,
    pull_ns: 1_000_000,
    refresh_ns: 0,
    advantage_percent: 150,
    posts_per_comparison: 1,
    change_period: Duration::ZERO,
};

/// Changes the route of a source at each post, once any follower has read.
pub fn flapping() -> CelebrityPolicy {
    let any_advantage =
        CostModel { advantage_percent: 0, refresh_ns: 0, posts_per_comparison: 1, ..CostModel::default() };
    CelebrityPolicy::ByCost(CostModel { change_period: Duration::ZERO, ..any_advantage })
}

pub fn some(count: usize) -> NonZeroUsize {
    NonZeroUsize::new(count).unwrap()
}

/// The default configuration, but with so much time that pages do not end early on a slow machine.
pub fn patient() -> EngineConfig {
    EngineConfig { pull_budget: Duration::from_secs(60), ..EngineConfig::default() }
}

pub fn config(shards: usize, celebrity: CelebrityPolicy) -> EngineConfig {
    EngineConfig { shards: some(shards), celebrity, ..patient() }
}

pub const NEWEST: PageRequest = PageRequest { range: Range::Newest, limit: 20 };

/// Entries of a page, as the oracle writes them.
pub fn entries(page: &FeedPage) -> Vec<Expected> {
    page.page.items.iter().map(|(at, entry)| expected(*at, entry)).collect()
}

/// An entry, as the oracle writes it.
pub fn expected(at: Position, entry: &Entry) -> Expected {
    let mut via: Vec<String> = entry.via().map(SourceId::to_string).collect();
    via.sort_unstable();
    let reposts = entry.reposts().iter().map(|repost| (repost.user.to_string(), repost.at.id.0)).collect();
    let (post, body) = (entry.post.id(), entry.post.body().to_owned());
    Expected { at: (at.published_at.0, at.id.0), post, body, via, reposts }
}

pub fn ids(page: &FeedPage) -> Vec<PostId> {
    page.page.items.iter().map(|(position, _)| position.id).collect()
}

/// Reads a feed page by page down to its end, and checks the invariants of every page.
pub async fn whole_feed(engine: &Engine, reader: &str, limit: usize) -> Vec<Expected> {
    let (mut all, mut range) = (Vec::new(), Range::Newest);
    let mut pages = PageCount::default();
    loop {
        pages.count();
        let page = engine.feed(&id(reader), PageRequest { range, limit }).await.unwrap();
        assert!(page.partial.is_empty());
        assert!(page.page.items.len() == limit || page.page.next.is_none(), "a page is full while anything is left");
        all.extend(entries(&page));
        let Some(next) = page.page.next else { return all };
        assert_eq!(page.page.items.last().map(|item| item.0), Some(next));
        range = Range::Before(next);
    }
}

/// Reads a feed page by page up from its very end. Returns it newest first.
pub async fn whole_feed_upward(engine: &Engine, reader: &str, limit: usize) -> Vec<Expected> {
    let (mut all, mut above) = (Vec::new(), Position::MIN);
    let mut pages = PageCount::default();
    loop {
        pages.count();
        let page = engine.feed(&id(reader), PageRequest { range: Range::After(above), limit }).await.unwrap();
        let Some(first) = page.page.items.first() else { break };
        above = first.0;
        all.extend(entries(&page).into_iter().rev());
    }
    all.reverse();
    all
}

/// The next event of a live connection that stays open.
pub async fn next_event(watcher: &mut Watcher) -> LiveEvent {
    in_time("the next live event", watcher.next()).await.unwrap()
}

/// Waits until all readers that are not watched are asleep.
pub async fn all_asleep(engine: &Engine) {
    let is_over = async || engine.shared().directory.len() <= engine.shared().watchers.readers();
    eventually_async("readers fall asleep after the active window", is_over).await;
}

/// Retries while the engine returns a temporary error.
pub async fn insist<T>(mut ask: impl AsyncFnMut() -> Result<T, Error>) -> Result<T, Error> {
    let ask = async || match ask().await {
        Err(refused) if refused.is_temporary() => Err(refused),
        answer => Ok(answer),
    };
    eventually_async("the engine refuses no more", ask).await
}
