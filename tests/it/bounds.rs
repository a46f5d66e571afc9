//! Bounds on work: whatever a feed holds, a page, a count and a live notice do so much and no more. Work is counted, never timed.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tidewire::clock::{Clock, ManualClock, SystemClock, UnixMicros};
use tidewire::config::EngineConfig;
use tidewire::engine::{Engine, Watcher};
use tidewire::feed::celebrity::CelebrityPolicy;
use tidewire::feed::event::MuteOrBlock;
use tidewire::feed::inbox::Inbox;
use tidewire::feed::page::{Page, Range, Reach};
use tidewire::feed::position::Position;
use tidewire::feed::post::{Body, Draft};
use tidewire::feed::rules::RulesPatch;
use tidewire::feed::work::Work;
use tidewire::id::{PostId, SourceId};
use tidewire::limits::{
    LATE_REPOSTS_MAX, LIVE_REPOSTERS_MAX, PAGE_WORK_MAX, PAGE_WORK_ON_SHARD_MAX, PARTIAL_NAMES_MAX,
};
use tidewire::live::event::EventKind;
use tidewire::state::feed_filter::Entry;
use tidewire::state::read_clock::ReadClock;
use tidewire::state::reader::{PageRequest, PageStart, Reader};
use tidewire::storage::journal::MemoryJournal;

use testkit::world::{NEWEST, config, draft, edge, id, next_event};

async fn follow(engine: &Engine, follower: &str, sources: impl IntoIterator<Item = String>) {
    let edges = sources.into_iter().map(|source| edge(follower, &source)).collect();
    engine.follow(edges).await.unwrap();
}

async fn publish(engine: &Engine, drafts: impl IntoIterator<Item = Draft>) {
    let drafts: Vec<Draft> = drafts.into_iter().collect();
    for some in drafts.chunks(500) {
        let published = join_all(some.iter().map(|draft| engine.publish(draft.clone(), true))).await;
        published.into_iter().for_each(|published| drop(published.unwrap()));
    }
}

fn fan(nth: usize) -> String {
    format!("fan{nth}")
}

fn tagged(draft: Draft) -> Draft {
    Draft { tags: vec![SourceId::tag("spam").unwrap()], ..draft }
}

/// Ann follows some fans, who have reposted one post so many times in all.
async fn viral(fans: usize, reposts: usize, dress: impl Fn(Draft) -> Draft) -> Engine {
    let engine = Engine::start(config(1, CelebrityPolicy::PullAll));
    follow(&engine, "ann", (0..fans).map(fan)).await;
    publish(&engine, [Draft { id: Some(PostId(1)), ..draft("star", "1") }]).await;
    let repost = |nth: usize| dress(Draft { repost_of: Some(PostId(1)), ..draft(&fan(nth % fans), "2") });
    publish(&engine, (0..reposts).map(repost)).await;
    engine
}

async fn mute(engine: &Engine, source: &str) {
    assert!(engine.silence(id("ann"), id(source), MuteOrBlock::Mute, true).await.unwrap());
}

/// A page of a reader as its actor builds it, on its shard.
fn on_shard(engine: &Engine, reader: &str, request: PageRequest) -> Page<Entry> {
    let shared = engine.shared();
    let mut reader = Reader::new(shared.world.sources.get(&id(reader)).unwrap());
    let mut inbox = Inbox::new(shared.config.inbox_posts);
    reader.rebuild(&mut inbox, &shared.world);
    let time = ReadClock { clock: &*shared.clock, deadline: UnixMicros(i64::MAX) };
    let start = PageStart::of(reader.source(), &shared.world);
    reader.page(&start, &inbox, &shared.world, request, time)
}

const REPOSTS: u64 = 8_000;

/// Judging one candidate may cost as much as its post has reposts; after that the page ends if its budget is spent.
fn assert_bounded(work: Work, units_max: u64, of_one: u64) {
    assert!(work.units() <= units_max + of_one, "{work:?}: {} units", work.units());
}

#[tokio::test]
async fn reposts_filtered_by_a_mute_are_examined_together() {
    let engine = viral(80, REPOSTS as usize, tagged).await;
    mute(&engine, "tag:spam").await;
    let page = engine.feed(&id("ann"), NEWEST).await.unwrap().page;
    assert_eq!((page.items.len(), page.next, page.reach), (0, None, Reach::Full));
    let work = page.work;
    // Those of followed sources, and those of muted ones.
    assert!(work.reposts <= 3 * REPOSTS && work.lookups <= 3 * REPOSTS, "{work:?}");
    let first = on_shard(&engine, "ann", NEWEST);
    assert_bounded(first.work, PAGE_WORK_ON_SHARD_MAX, 40 * REPOSTS);
    assert_eq!(first.reach, Reach::Short);
    assert_eq!(engine.shared().counters.long_pages.get(), 1);
    engine.shutdown();
}

/// However often posts with many reposts come to show, a client that polls looks at each once, and at no more than its reader follows.
#[tokio::test]
async fn a_poll_examines_each_revealed_post_with_many_reposts_in_bounded_work() {
    let engine = Engine::start(config(1, CelebrityPolicy::PullAll));
    let (posts, follows) = (6, 10);
    follow(&engine, "ann", (0..follows).map(fan)).await;
    follow(&engine, "eve", ["bob".to_owned()]).await;
    publish(&engine, [draft("bob", "1"), draft("ann", "1")]).await;
    publish(&engine, (1..=posts).map(|nth| Draft { id: Some(PostId(nth)), ..draft("star", "1") })).await;
    for post in 1..=posts {
        let repost = |nth: usize| Draft { repost_of: Some(PostId(post)), ..draft(&fan(nth), "2") };
        publish(&engine, (0..=LATE_REPOSTS_MAX).map(repost)).await;
    }
    let mut tokens = Vec::new();
    for reader in ["ann", "eve"] {
        tokens.push((reader, engine.feed(&id(reader), NEWEST).await.unwrap().page.resume.unwrap()));
    }
    for post in (1..=posts).cycle().take(5 * posts as usize) {
        for hidden in [true, false] {
            engine.edit(PostId(post), None, Some(hidden)).await.unwrap();
        }
    }
    for (reader, token) in tokens {
        let page = engine.feed(&id(reader), PageRequest { range: Range::Resume(token), limit: 20 }).await.unwrap().page;
        let shown = if reader == "ann" { posts as usize } else { 0 };
        assert_eq!((page.items.len(), page.gap), (shown, false), "{reader}");
        // Once to find them; the entries of ann's page are judged each, twice where the page looks for what is older.
        let looks = if reader == "ann" { 4 } else { 1 };
        let each = 8 * (follows as u64 + 1) + follows as u64;
        assert!(page.work.reposts <= looks * posts * each, "{reader}: {:?}", page.work);
    }
    engine.shutdown();
}

#[tokio::test]
async fn reposts_filtered_by_a_rule_are_not_examined() {
    let engine = viral(80, 2_000, |draft| draft).await;
    let off = RulesPatch { reposts: Some(false), ..RulesPatch::default() };
    engine.change_rules(id("ann"), off).await.unwrap();
    let page = engine.feed(&id("ann"), NEWEST).await.unwrap().page;
    assert!(page.items.is_empty());
    let work = page.work;
    assert!(work.candidates == 2_000 && work.reposts == 0 && work.lookups == 0, "{work:?}");
    engine.shutdown();
}

#[tokio::test]
async fn reposts_of_many_posts_are_examined_a_few_times_each() {
    let engine = Engine::start(config(1, CelebrityPolicy::PullAll));
    let (posts, fans) = (60, 100);
    follow(&engine, "ann", (0..fans).map(fan)).await;
    publish(&engine, (1..=posts).map(|nth| Draft { id: Some(PostId(nth)), ..draft("star", "1") })).await;
    let repost = |nth: u64| {
        tagged(Draft { repost_of: Some(PostId(nth % posts + 1)), ..draft(&fan((nth / posts) as usize), "2") })
    };
    publish(&engine, (0..posts * fans as u64).map(repost)).await;
    mute(&engine, "tag:spam").await;
    let page = engine.feed(&id("ann"), NEWEST).await.unwrap().page;
    let (all, work) = (posts * 2 * fans as u64, page.work);
    assert!(page.items.is_empty());
    assert!(work.reposts <= 2 * all && work.lookups <= 3 * all, "{work:?}");
    assert_bounded(on_shard(&engine, "ann", NEWEST).work, PAGE_WORK_ON_SHARD_MAX, 10_000);
    engine.shutdown();
}

#[tokio::test]
async fn p10_pages_of_5_000_sources_and_of_5_000_mutes_end_at_the_limits_of_work() {
    let engine = Engine::start(config(1, CelebrityPolicy::PullAll));
    let sources = 5_000;
    follow(&engine, "ann", (0..sources).map(fan)).await;
    publish(&engine, (0..sources).map(|nth| draft(&fan(nth), "1"))).await;
    let middle = on_shard(&engine, "ann", NEWEST).next.unwrap();
    for (range, merges) in [(Range::Newest, 1), (Range::Before(middle), 2), (Range::After(middle), 3)] {
        let page = on_shard(&engine, "ann", PageRequest { range, limit: 20 });
        let pulls = page.work.pulls;
        assert!(page.reach == Reach::Full && pulls <= merges * (sources as u64 + 50), "{range:?}: {:?}", page.work);
    }
    for nth in 0..sources {
        mute(&engine, &fan(nth)).await;
    }
    let first = on_shard(&engine, "ann", NEWEST);
    assert_bounded(first.work, PAGE_WORK_ON_SHARD_MAX, 500);
    assert!(first.reach == Reach::Short && first.next.is_some());
    let page = engine.feed(&id("ann"), NEWEST).await.unwrap().page;
    assert_eq!((page.items.len(), page.next), (0, None));
    assert_bounded(page.work, PAGE_WORK_MAX, 500);
    assert!(page.work.pulls <= 2 * sources as u64 && page.work.lookups == 0, "{:?}", page.work);
    let unread = engine.unread(&id("ann")).await.unwrap();
    assert_eq!((unread.entries, unread.capped, unread.complete), (0, false, true));
    assert_bounded(unread.work, PAGE_WORK_MAX, 500);
    engine.shutdown();
}

/// A clock that moves on whenever it is read.
struct RushingClock {
    clock: ManualClock,
    by: Duration,
}

impl Clock for RushingClock {
    fn now(&self) -> UnixMicros {
        self.clock.advance(self.by);
        self.clock.now()
    }

    fn monotonic(&self) -> Duration {
        self.clock.monotonic()
    }
}

fn rushing(by: Duration) -> Engine {
    let clock = RushingClock { clock: ManualClock::new(SystemClock.now()), by };
    let config = EngineConfig { pull_budget: Duration::from_millis(50), ..config(1, CelebrityPolicy::PullAll) };
    Engine::start_with(config, MemoryJournal::default(), Arc::new(clock))
}

/// Reads a feed down to its end, and returns how many entries it met, and how many reads that took.
async fn read_down(engine: &Engine, limit: usize) -> (usize, usize) {
    let (mut met, mut reads, mut range) = (0, 0, Range::Newest);
    loop {
        let page = engine.feed(&id("ann"), PageRequest { range, limit }).await.unwrap();
        assert!(page.partial.len() <= PARTIAL_NAMES_MAX);
        assert_bounded(page.page.work, PAGE_WORK_MAX, 100_000);
        met += page.page.items.len();
        reads += 1;
        let Some(next) = page.page.next else { return (met, reads) };
        let is_further = match range {
            Range::Before(before) => next < before,
            _ => next < Position::MAX,
        };
        assert!(is_further, "read {reads} went on where it began: {range:?} and {next:?}");
        range = Range::Before(next);
    }
}

#[tokio::test]
async fn posts_below_a_filtered_repost_of_every_source_are_reached_with_little_time() {
    let engine = rushing(Duration::from_millis(1));
    let sources = 1_000;
    follow(&engine, "ann", (0..sources).map(fan)).await;
    publish(&engine, [Draft { id: Some(PostId(1)), ..draft("star", "1") }]).await;
    publish(&engine, (0..5 * sources).map(|nth| draft(&fan(nth % sources), "2"))).await;
    publish(&engine, (0..sources).map(|nth| tagged(Draft { repost_of: Some(PostId(1)), ..draft(&fan(nth), "3") })))
        .await;
    mute(&engine, "tag:spam").await;
    let (met, reads) = read_down(&engine, 100).await;
    assert_eq!(met, 5 * sources);
    assert!(reads < 2 * met / 100, "{reads} reads");
    engine.shutdown();
}

#[tokio::test]
async fn paging_terminates_when_every_source_is_late() {
    // All time there is has passed before a second look at the clock.
    let engine = rushing(Duration::from_secs(1));
    let sources = 1_000;
    follow(&engine, "ann", (0..sources).map(fan)).await;
    publish(&engine, (0..sources).map(|nth| draft(&fan(nth), "1"))).await;
    let first = engine.feed(&id("ann"), NEWEST).await.unwrap();
    assert_eq!(first.partial.len(), PARTIAL_NAMES_MAX, "the first of those that are late");
    assert!(first.page.partial.len() > PARTIAL_NAMES_MAX && !first.page.items.is_empty());
    let (met, reads) = read_down(&engine, 20).await;
    assert!(met > 0 && reads > 1, "{met} entries in {reads} reads");
    engine.shutdown();
}

#[tokio::test]
async fn an_incomplete_count_is_marked_as_incomplete() {
    let engine = rushing(Duration::from_secs(1));
    follow(&engine, "ann", ["bob".to_owned()]).await;
    publish(&engine, (0..1_000).map(|_| draft("bob", "1"))).await;
    let counted = engine.unread(&id("ann")).await.unwrap();
    assert!(counted.entries > 0 && counted.capped && !counted.complete, "{counted:?}");
    mute(&engine, "bob").await;
    let not_known = engine.unread(&id("ann")).await.unwrap();
    assert_eq!((not_known.entries, not_known.capped, not_known.complete), (0, true, false));
    assert_bounded(not_known.work, PAGE_WORK_ON_SHARD_MAX, 0);
    engine.shutdown();
}

/// Lets a watcher's reader say how far it has read, and returns the events before that one.
async fn events_until_marked(engine: &Engine, reader: &str, at: i64, watcher: &mut Watcher) -> Vec<EventKind> {
    let at = Position { published_at: UnixMicros(at), id: PostId(0) };
    engine.mark(id(reader), at).await.unwrap();
    let mut events = Vec::new();
    loop {
        match next_event(watcher).await.kind {
            EventKind::Marker(_) => return events,
            what => events.push(what),
        }
    }
}

#[tokio::test]
async fn a_notice_about_a_viral_post_costs_a_watched_reader_bounded_work() {
    let (reposts, edges) = (LIVE_REPOSTERS_MAX as u64 + 500, 20);
    let engine = viral(reposts as usize, reposts as usize, |draft| draft).await;
    let readers: Vec<String> = (0..10).map(|nth| format!("reader{nth}")).collect();
    let mut watchers = Vec::new();
    for reader in &readers {
        follow(&engine, reader, (0..edges).map(|nth| format!("other{nth}"))).await;
        let mut watcher = engine.watch(&id(reader), None).await.unwrap();
        assert!(matches!(next_event(&mut watcher).await.kind, EventKind::Hello { .. }));
        watchers.push(watcher);
    }
    let counters = &engine.shared().counters;
    for (at, hidden) in [(1, None), (2, Some(true))] {
        let before = (counters.live_looks.get(), counters.live_work.get());
        engine.edit(PostId(1), Some(Body::new("2").unwrap()), hidden).await.unwrap();
        for (reader, watcher) in readers.iter().zip(&mut watchers) {
            let events = events_until_marked(&engine, reader, at, watcher).await;
            // Of a post that shows no more it is said to all who may have seen it. Nobody has to read the feed again.
            let is_fine = |what: &EventKind| hidden.is_some() && matches!(what, EventKind::Remove(PostId(1)));
            assert!(events.len() <= 1 && events.iter().all(is_fine), "{events:?}");
        }
        let (looks, work) = (counters.live_looks.get() - before.0, counters.live_work.get() - before.1);
        assert_eq!(looks, readers.len() as u64, "each looks at one entry, and at no feed");
        // By the reader's edges, not by the post's reposts.
        assert!(work <= looks * 2 * 8 * (edges + 2), "{work} units of work for {looks} looks");
    }
    engine.shutdown();
}
