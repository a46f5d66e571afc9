//! Clocks that jump, while the engine runs and while it does not.

use std::sync::Arc;
use std::time::Duration;

use testkit::eventually_async;
use tidewire::clock::{Clock, ManualClock, UnixMicros};
use tidewire::config::EngineConfig;
use tidewire::engine::{Engine, StorageConfig};
use tidewire::feed::celebrity::CelebrityPolicy;
use tidewire::feed::event::{Event, NewEdge};
use tidewire::feed::position::Position;
use tidewire::feed::post::Body;
use tidewire::id::PostId;
use tidewire::storage::files::memory::MemoryFiles;
use tidewire::storage::journal::{Durability, MemoryJournal};

use testkit::histories::{START, clock, open_with, storage, written};
use testkit::world::{NEWEST, all_asleep, config, draft, edge, id};

/// Bytes of a segment that is never full.
const LARGE: u64 = 1 << 20;

/// In microseconds.
const SECOND: i64 = 1_000_000;
const DAY: i64 = 24 * 3_600 * SECOND;
const YEARS: i64 = 10 * 366 * DAY;

/// An engine on a clock, which restarts.
struct World {
    engine: Engine,
    files: MemoryFiles,
    settings: StorageConfig,
    clock: Arc<ManualClock>,
}

impl World {
    fn new() -> Self {
        Self::on(MemoryFiles::default())
    }

    fn on(files: MemoryFiles) -> Self {
        let (settings, clock) = (storage(Durability::Always, LARGE), Arc::new(ManualClock::new(UnixMicros(START))));
        let dyn_clock = Arc::clone(&clock) as Arc<dyn Clock>;
        let engine = open_with(config(2, CelebrityPolicy::PushAll), files.clone(), &settings, dyn_clock).unwrap().0;
        Self { engine, files, settings, clock }
    }

    fn set(&self, now: i64) {
        self.clock.set(UnixMicros(now));
    }

    fn restart(&mut self) {
        self.engine.shutdown();
        let dyn_clock = Arc::clone(&self.clock) as Arc<dyn Clock>;
        let opened = open_with(config(2, CelebrityPolicy::PushAll), self.files.clone(), &self.settings, dyn_clock);
        self.engine = opened.unwrap().0;
    }

    async fn publish(&self, body: &str) -> Position {
        self.clock.advance(Duration::from_millis(1));
        self.engine.publish(draft("bob", body), true).await.unwrap().post.position
    }

    /// Publishes a post that must be dated by the clock, later than and above those before it but for the named one.
    async fn publish_dated_right(&self, body: &str, before: &[Position]) -> Position {
        let at = self.publish(body).await;
        let off = at.published_at.0 - self.clock.now().0;
        assert!(off.abs() < SECOND, "{body}: dated {} s from the clock", off / SECOND);
        assert!(before.iter().all(|older| older.id < at.id), "{body}: ids increase");
        at
    }

    async fn bodies(&self) -> Vec<String> {
        let page = self.engine.feed(&id("ann"), NEWEST).await.unwrap();
        page.page.items.iter().map(|(_, entry)| entry.post.body().to_owned()).collect()
    }
}

#[tokio::test]
async fn posts_after_a_clock_jump_of_years_are_dated_correctly() {
    for restarts in [[false; 2], [true, false], [false, true], [true; 2]] {
        let mut world = World::new();
        world.engine.follow(vec![edge("ann", "bob")]).await.unwrap();
        let mut all = vec![world.publish_dated_right("1", &[]).await];
        world.set(START + YEARS);
        if restarts[0] {
            world.restart();
        }
        all.push(world.publish_dated_right("2", &all).await);
        world.set(START + 60 * SECOND);
        if restarts[1] {
            world.restart();
        }
        for body in ["3", "4"] {
            let at = world.publish_dated_right(body, &all).await;
            all.push(at);
        }
        assert_eq!(world.bodies().await, ["2", "4", "3", "1"], "{restarts:?}: feeds go by what people see");
        drop(world.engine.snapshot().await.unwrap());
        for body in ["5", "6"] {
            world.restart();
            let at = world.publish_dated_right(body, &all).await;
            assert!(at.published_at > all.last().unwrap().published_at, "{restarts:?}: and times increase again");
            all.push(at);
        }
        assert_eq!(world.bodies().await, ["2", "6", "5", "4", "3", "1"], "{restarts:?}");
        world.engine.shutdown();
    }
}

/// A directory as it was left before the lead over the clock was known of: whatever came after a jump is dated after it.
fn poisoned() -> MemoryFiles {
    let published = |at: i64, body: &str| {
        let (at, draft) = (UnixMicros(at), draft("bob", body));
        let position = Position { published_at: at, id: PostId((at.0 as u64) << 12) };
        Event::Published { position, draft, accepted_at: at }
    };
    let events = [
        Event::Followed { edges: vec![edge("ann", "bob")], since: UnixMicros(START - DAY) },
        published(START - DAY + 1, "1"),
        published(START + YEARS, "2"),
        published(START + YEARS + 1, "3"),
        Event::Followed { edges: vec![edge("cas", "bob")], since: UnixMicros(START + YEARS + 2) },
    ];
    written(&events, LARGE, &[4], true)
}

#[tokio::test]
async fn a_directory_poisoned_by_a_clock_jump_recovers() {
    let mut world = World::on(poisoned());
    let ahead =
        Position { published_at: UnixMicros(START + YEARS + 1), id: PostId(((START + YEARS + 1) as u64) << 12) };
    let mut all = vec![ahead];
    for body in ["4", "5", "6", "7"] {
        let at = match body {
            "7" => world.publish(body).await,
            _ => world.publish_dated_right(body, &all).await,
        };
        all.push(at);
        if body == "5" {
            world.restart();
        }
        if body == "6" {
            drop(world.engine.snapshot().await.unwrap());
            world.set(world.clock.now().0 - 100 * SECOND);
            world.restart();
        }
    }
    assert!(all[1..].windows(2).all(|pair| pair[0] < pair[1]), "a small step back is waited for: {all:?}");
    assert_eq!(world.bodies().await, ["3", "2", "7", "6", "5", "4", "1"]);

    let edited = world.engine.edit(all[1].id, Some(Body::new("44").unwrap()), None).await.unwrap();
    assert!(edited.edited_at.unwrap().0 < START + DAY, "{:?}", edited.edited_at);
    let again = world.engine.edit(all[1].id, Some(Body::new("45").unwrap()), None).await.unwrap();
    assert!(again.edited_at > edited.edited_at);

    world.engine.follow(vec![edge("dan", "bob"), edge("eve", "bob")]).await.unwrap();
    let followers = world.engine.followers(&id("bob"), UnixMicros(i64::MAX), 9);
    let names: Vec<&str> = followers.iter().map(|listed| listed.id.as_str()).collect();
    assert_eq!(names, ["eve", "dan", "cas", "ann"], "edges stay in the order in which they were made");
    assert!(followers.windows(2).all(|pair| pair[0].since > pair[1].since), "and their cursors apart");
    assert!(followers.iter().all(|listed| listed.shown < UnixMicros(START + DAY)), "{followers:?}");
    let rest = world.engine.followers(&id("bob"), followers[1].since, 9);
    assert_eq!(rest, followers[2..]);
    world.engine.shutdown();
}

#[tokio::test]
async fn a_post_dated_years_ahead_affects_neither_backfills_nor_kept_posts() {
    let world = World::on(poisoned());
    for (reader, backfill) in [("dan", 0), ("eve", 1), ("fay", 2)] {
        world.engine.follow(vec![NewEdge { backfill: Some(backfill), ..edge(reader, "bob") }]).await.unwrap();
    }
    world.publish("4").await;
    world.engine.unfollow_but_keep(id("ann"), id("bob")).await.unwrap();
    world.publish("5").await;
    for (reader, expected) in [("dan", true), ("eve", true), ("fay", true)] {
        let page = world.engine.feed(&id(reader), NEWEST).await.unwrap();
        let has_new = ["4", "5"].iter().all(|new| page.page.items.iter().any(|(_, entry)| entry.post.body() == *new));
        assert_eq!(has_new, expected, "{reader}");
    }
    assert_eq!(world.bodies().await, ["4", "1"], "what came before stays, what came after does not come");
    world.engine.shutdown();
}

#[tokio::test]
async fn clock_jumps_are_counted_and_elapsed_time_is_not() {
    let mut world = World::new();
    let report = |world: &World| {
        let report = Arc::clone(&world.engine.shared().clock_report);
        (report.jumps_ahead.get(), report.jumps_back.get(), report.last_jump_seconds(), report.drift_seconds())
    };
    world.publish("1").await;
    world.clock.advance(Duration::from_secs(40 * 24 * 3_600));
    world.publish("2").await;
    let now = world.clock.now().0;
    world.set(now + 299 * SECOND);
    world.publish("3").await;
    world.set(now);
    world.publish("4").await;
    assert_eq!(report(&world), (0, 0, 0, 0));
    world.set(now + YEARS);
    world.publish("5").await;
    let (ahead, back, by, lead) = report(&world);
    assert_eq!((ahead, back, by), (1, 0, -lead));
    assert!((by - YEARS / SECOND).abs() < 2, "{by} s");
    world.set(now + SECOND);
    world.publish("6").await;
    let (ahead, back, by, lead) = report(&world);
    assert_eq!((ahead, back, lead), (1, 1, 0));
    assert!((by + YEARS / SECOND).abs() < 400, "{by} s");
    world.set(now + YEARS);
    world.restart();
    world.publish("7").await;
    assert_eq!(report(&world), (0, 0, 0, 0), "who was stopped for long, or has a wrong clock, cannot know");
    world.set(now + 2 * SECOND);
    world.restart();
    world.publish("8").await;
    let (ahead, back, by, lead) = report(&world);
    assert_eq!((ahead, back), (0, 1));
    assert!((by + YEARS / SECOND).abs() < 400 && (lead - YEARS / SECOND).abs() < 400, "{by} s, {lead} s");
    world.engine.shutdown();
}

#[tokio::test]
async fn a_machine_without_a_clock_continues_from_stored_times() {
    let mut world = World::new();
    world.publish("1").await;
    world.set(0);
    world.restart();
    let at = world.publish("2").await;
    assert!(at.published_at >= UnixMicros(START), "1970 is no time a post may be dated by mistake: {at:?}");
    world.clock.advance(Duration::from_secs(60));
    let later = world.publish("3").await;
    assert!(later.published_at.0 - at.published_at.0 > 59 * SECOND);
    world.set(START + DAY);
    world.publish_dated_right("4", &[at, later]).await;
    world.engine.shutdown();
}

#[tokio::test]
async fn readers_seen_by_a_fast_clock_fall_asleep_after_it_is_corrected() {
    let clock = Arc::new(ManualClock::new(UnixMicros(START)));
    let window = Duration::from_millis(80);
    let config = EngineConfig { active_window: window, ..config(1, CelebrityPolicy::PushAll) };
    let engine = Engine::start_with(config, MemoryJournal::default(), Arc::clone(&clock) as Arc<dyn Clock>);
    engine.follow(vec![edge("ann", "bob")]).await.unwrap();
    clock.set(UnixMicros(START + YEARS));
    drop(engine.feed(&id("ann"), NEWEST).await.unwrap());
    clock.set(UnixMicros(START));
    // A sweep has to see it before time goes on.
    eventually_async("nobody counts as seen in the future", async || {
        engine.source(&id("ann")).unwrap().last_seen.is_some_and(|seen| seen <= clock.now())
    })
    .await;
    clock.advance(2 * window);
    all_asleep(&engine).await;
    engine.shutdown();
}

#[tokio::test]
async fn a_snapshot_is_due_by_the_age_of_the_newest_one_of_any_process() {
    let (clock, files) = (clock(), MemoryFiles::default());
    let interval = Duration::from_secs(900);
    let mut settings = storage(Durability::Always, 1 << 20);
    settings.snapshots.interval = interval;
    let open = || open_with(config(1, CelebrityPolicy::PushAll), files.clone(), &settings, clock.clone()).unwrap().0;
    let first = open();
    first.publish(draft("bob", "1"), false).await.unwrap();
    let before = first.snapshot().await.unwrap();
    first.shutdown();
    // The system was started after the snapshot: its monotonic clock shows less than the age.
    clock.set(clock.now().saturating_add(interval - Duration::from_secs(1)));
    let second = open();
    second.publish(draft("bob", "2"), false).await.unwrap();
    assert_eq!(second.snapshots()[0].sequence, before.sequence);
    clock.advance(Duration::from_secs(1));
    eventually_async("a snapshot is taken", async || second.snapshots()[0].sequence > before.sequence).await;
    second.shutdown();
}
