//! Clients that come, go and read while everything changes at once: when all is quiet, each has what pages show.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::ready;
use tidewire::clock::{Clock, SystemClock, UnixMicros};
use tidewire::config::EngineConfig;
use tidewire::engine::{Engine, Watcher};
use tidewire::error::Error;
use tidewire::feed::event::{MuteOrBlock, NewEdge};
use tidewire::feed::page::Range;
use tidewire::feed::position::Position;
use tidewire::feed::post::{Body, Draft};
use tidewire::feed::rules::{Replies, RulesPatch};
use tidewire::feed::stream::{StreamLimits, StreamPosition};
use tidewire::id::PostId;
use tidewire::live::event::{EventKind, LiveEvent};
use tidewire::state::reader::PageRequest;
use tokio::task::yield_now;
use tokio::time::timeout;

use testkit::oracle::Expected;
use testkit::world::{above, draft, edge, expected, id, some, whole_feed};
use testkit::{DEADLINE, cases, eventually_async, in_time};

const PEOPLE: [&str; 8] = ["ann", "bob", "cas", "dan", "eve", "fay", "gus", "hal"];
const TAGS: [&str; 2] = ["tag:rust", "tag:tea"];
const WRITERS: u64 = 4;
const WRITES: usize = 120;
const CLIENTS: usize = 12;

/// What a write may be refused with when others change the same things.
const FORESEEN: [&str; 8] = [
    "overloaded",
    "unknown_post",
    "post_deleted",
    "unknown_source",
    "blocked",
    "self_follow",
    "self_mute",
    "self_block",
];

/// An engine, and what all who work on it share.
struct Scene {
    seed: u64,
    engine: Engine,
    /// What was published, for those who change it.
    posts: boxcar::Vec<PostId>,
    is_over: AtomicBool,
    recovered: AtomicU64,
    anew: AtomicU64,
}

impl Scene {
    /// Small limits, so that feeds leave the window, streams are forgotten, and readers fall asleep, in one seed or another.
    fn new(seed: u64) -> Arc<Self> {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut one_of = |values: &[u64]| *random.choice(values).unwrap();
        let config = EngineConfig {
            shards: some(one_of(&[2, 3]) as usize),
            celebrity: above(one_of(&[1, 3, 5])),
            inbox_posts: some(one_of(&[6, 40, 300]) as usize),
            active_window: Duration::from_millis(one_of(&[20, 600_000])),
            live: StreamLimits {
                window_entries: one_of(&[1, 3, 8, 64]) as usize,
                history_changes: one_of(&[2, 10, 256]) as usize,
            },
            live_history_ttl: Duration::from_millis(one_of(&[1, 10, 120_000])),
            // A busy machine must not leave pages incomplete.
            pull_budget: DEADLINE,
            ..EngineConfig::default()
        };
        Self::with(seed, config)
    }

    fn with(seed: u64, config: EngineConfig) -> Arc<Self> {
        Arc::new(Self {
            seed,
            engine: Engine::start(config),
            posts: boxcar::Vec::new(),
            is_over: AtomicBool::new(false),
            recovered: AtomicU64::new(0),
            anew: AtomicU64::new(0),
        })
    }

    async fn write_on(self: Arc<Self>, mut random: fastrand::Rng) {
        for _ in 0..WRITES {
            if let Err(cause) = self.write(&mut random).await {
                assert!(FORESEEN.contains(&cause.code()), "seed {}: {cause}", self.seed);
            }
            for _ in 0..random.u8(0..8) {
                yield_now().await;
            }
        }
    }

    async fn write(&self, random: &mut fastrand::Rng) -> Result<(), Error> {
        let (engine, reader, post) = (&self.engine, id(any(random, &PEOPLE)), self.any_post(random));
        let source = id(if random.u8(0..5) == 0 { any(random, &TAGS) } else { any(random, &PEOPLE) });
        match random.u8(0..100) {
            0..=37 => self.publish(random).await?,
            // Many at once.
            38..=40 => {
                let mut others: Vec<_> = (0..12).map(|_| random.fork()).collect();
                let all = futures_util::future::join_all(others.iter_mut().map(|random| self.publish(random)));
                all.await.into_iter().collect::<Result<(), Error>>()?;
            }
            41..=50 => engine.delete(post).await?,
            51..=60 => drop(engine.edit(post, None, Some(random.bool())).await?),
            61..=66 => drop(engine.edit(post, Some(body(random)), None).await?),
            67..=76 => {
                let backfill = random.bool().then(|| random.usize(0..10));
                let edge = edge(reader.as_str(), source.as_str());
                engine.follow(vec![NewEdge { hidden: random.u8(0..5) == 0, backfill, ..edge }]).await?;
            }
            77..=80 => engine.unfollow(reader, source).await?,
            81..=83 => engine.unfollow_but_keep(reader, source).await?,
            84..=88 => drop(engine.silence(reader, source, MuteOrBlock::Mute, random.bool()).await?),
            89..=90 => drop(engine.silence(reader, source, MuteOrBlock::Block, random.bool()).await?),
            91..=94 => drop(engine.verify_feed(&reader, true).await?),
            95..=97 => {
                let rules = match random.u8(0..3) {
                    0 => RulesPatch { show_own: Some(random.bool()), ..RulesPatch::default() },
                    1 => RulesPatch { reposts: Some(random.bool()), ..RulesPatch::default() },
                    _ => RulesPatch {
                        replies: random.choice([Replies::All, Replies::Followed, Replies::None]),
                        ..RulesPatch::default()
                    },
                };
                engine.change_rules(reader, rules).await?;
            }
            _ => engine.mark(reader, engine.post(post).await?.position).await?,
        }
        Ok(())
    }

    async fn publish(&self, random: &mut fastrand::Rng) -> Result<(), Error> {
        let author = id(any(random, &PEOPLE));
        let mut draft = Draft::new(author, body(random));
        match random.u8(0..8) {
            0 => draft.repost_of = Some(self.any_post(random)),
            1 => draft.reply_to = Some(self.any_post(random)),
            2 => draft.tags = vec![id(any(random, &TAGS))],
            3 => draft.published_at = Some(UnixMicros(SystemClock.now().0 - random.i64(0..2_000_000))),
            _ => {}
        }
        let published = self.engine.publish(draft, random.u8(0..4) == 0).await?;
        self.posts.push(published.post.id());
        Ok(())
    }

    /// Waits until so many more posts were published, or the writers are through.
    async fn more(&self, posts: usize) {
        let until = self.posts.count() + posts;
        let others = async {
            while !self.is_over.load(Ordering::Relaxed) && self.posts.count() < until {
                yield_now().await;
            }
        };
        in_time("posts are published", others).await;
    }

    /// Mostly one of the last.
    fn any_post(&self, random: &mut fastrand::Rng) -> PostId {
        let count = self.posts.count();
        let ago = if random.bool() { random.usize(0..8) } else { random.usize(0..200) };
        self.posts.get(count.saturating_sub(1 + ago)).copied().unwrap_or(PostId(7))
    }
}

fn any<'a>(random: &mut fastrand::Rng, of: &[&'a str]) -> &'a str {
    random.choice(of).unwrap()
}

fn body(random: &mut fastrand::Rng) -> Body {
    Body::new(&random.u32(..).to_string()).unwrap()
}

/// A client as `docs/live.md` says it should be: entries complete from a bound up.
struct Client {
    scene: Arc<Scene>,
    reader: &'static str,
    watcher: Option<Watcher>,
    place: Option<StreamPosition>,
    /// It was told that it missed something, and has not read the feed since.
    is_outdated: bool,
    entries: BTreeMap<Position, Expected>,
    bound: Position,
    marker: Option<Position>,
}

impl Client {
    fn new(scene: &Arc<Scene>, reader: &'static str) -> Self {
        Self {
            scene: Arc::clone(scene),
            reader,
            watcher: None,
            place: None,
            is_outdated: true,
            entries: BTreeMap::new(),
            bound: Position::MAX,
            marker: None,
        }
    }

    /// Does this and that until the writers are through, then comes back a last time.
    async fn live(mut self, mut random: fastrand::Rng) -> Self {
        while !self.scene.is_over.load(Ordering::Relaxed) {
            match random.u8(0..10) {
                0..=3 => self.connect(random.usize(1..8)).await,
                4 => self.watcher = None,
                5 => self.read(Range::Newest, random.usize(1..8)).await,
                6 => self.older(random.usize(1..8)).await,
                _ => {
                    let scene = Arc::clone(&self.scene);
                    self.listen(scene.more(random.usize(0..5))).await;
                }
            }
            // For those who are gone others go on as well.
            self.scene.more(random.usize(0..3)).await;
        }
        let back = timeout(DEADLINE, self.come_back(&mut random)).await;
        assert!(back.is_ok(), "{} comes back", self.name());
        self
    }

    async fn come_back(&mut self, random: &mut fastrand::Rng) {
        while self.watcher.is_none() || self.is_outdated {
            self.connect(random.usize(1..8)).await;
        }
    }

    fn name(&self) -> String {
        format!("seed {}, {} at {:?}", self.scene.seed, self.reader, self.place)
    }

    async fn connect(&mut self, limit: usize) {
        if self.watcher.is_none() {
            let mut watcher = match self.scene.engine.watch(&id(self.reader), self.place).await {
                Ok(watcher) => watcher,
                Err(cause) => return assert_eq!(cause.code(), "overloaded", "{}", self.name()),
            };
            let hello = in_time("a hello", watcher.next())
                .await
                .unwrap_or_else(|cause| panic!("{}: {cause:?} before hello", self.name()));
            let EventKind::Hello { recovered, marker } = hello.kind else { panic!("{}: first {hello:?}", self.name()) };
            assert!(!recovered || Some(hello.place) == self.place, "{}: {hello:?}", self.name());
            let count = if recovered { &self.scene.recovered } else { &self.scene.anew };
            count.fetch_add(1, Ordering::Relaxed);
            self.is_outdated |= !recovered;
            (self.place, self.watcher, self.marker) = (Some(hello.place), Some(watcher), marker);
        }
        if self.is_outdated {
            self.read(Range::Newest, limit).await;
        }
    }

    async fn older(&mut self, limit: usize) {
        if !self.is_outdated && self.bound > Position::MIN {
            let range = if self.bound == Position::MAX { Range::Newest } else { Range::Before(self.bound) };
            self.read(range, limit).await;
        }
    }

    /// Reads a page. What is told meanwhile is taken in at once, and once more on top of the page.
    async fn read(&mut self, range: Range, limit: usize) {
        if self.watcher.is_none() {
            return;
        }
        let (engine, reader, bound) = (self.scene.engine.clone(), id(self.reader), self.bound);
        let (mut page, mut since) = (pin!(engine.feed(&reader, PageRequest { range, limit })), Vec::new());
        let page = loop {
            let watcher = self.watcher.as_mut().unwrap();
            tokio::select! {
                page = &mut page => break page,
                event = watcher.next() => {
                    let event = event.unwrap();
                    since.push(event.kind.clone());
                    self.take_in(event);
                }
            }
        };
        let page = match page {
            Ok(page) => page,
            Err(cause) => return assert_eq!(cause.code(), "overloaded", "{}", self.name()),
        };
        assert!(page.partial.is_empty(), "{}", self.name());
        match range {
            Range::Newest => {
                self.entries.clear();
                self.is_outdated = false;
            }
            // There is a gap above the page now.
            _ if self.bound != bound => return,
            _ => {}
        }
        self.bound = page.page.next.unwrap_or(Position::MIN);
        page.page.items.iter().for_each(|(at, entry)| self.put(expected(*at, entry), *at));
        since.into_iter().for_each(|what| self.apply(what));
    }

    /// Takes in what is told until then, and what is there by then.
    async fn listen(&mut self, until: impl Future<Output = ()>) {
        let mut until = pin!(until);
        while let Some(watcher) = &mut self.watcher {
            tokio::select! {
                biased;
                event = watcher.next() => self.take_in(event.unwrap()),
                () = &mut until => return,
            }
        }
    }

    fn take_in(&mut self, event: LiveEvent) {
        let next = self.place.replace(event.place).map(|before| StreamPosition { last: before.last + 1, ..before });
        assert_eq!(Some(event.place), next, "{}: numbers count up by one", self.name());
        self.apply(event.kind);
    }

    fn apply(&mut self, kind: EventKind) {
        match kind {
            EventKind::Hello { .. } | EventKind::Beat => panic!("{}: {kind:?} is none of the stream's", self.name()),
            EventKind::Post(item) => self.put(expected(item.at, &item.entry), item.at),
            EventKind::Update(post) => {
                let of_post = self.entries.values_mut().filter(|entry| entry.post == post.id());
                of_post.for_each(|entry| post.body().clone_into(&mut entry.body));
            }
            EventKind::Remove(post) => self.entries.retain(|_, entry| entry.post != post),
            EventKind::Stale(below) => self.bound = self.bound.max(below.unwrap_or(Position::MAX)),
            EventKind::Marker(at) => self.marker = Some(at),
        }
        self.entries = self.entries.split_off(&self.bound);
    }

    fn put(&mut self, entry: Expected, at: Position) {
        self.entries.retain(|_, other| other.post != entry.post);
        self.entries.insert(at, entry);
    }

    /// What makes the client another than the pages, and the marker, from its bound up.
    async fn difference(&self) -> Option<String> {
        let bound = (self.bound.published_at.0, self.bound.id.0);
        let mut pages = whole_feed(&self.scene.engine, self.reader, 100).await;
        pages.retain(|entry| entry.at >= bound);
        let told: Vec<Expected> = self.entries.values().rev().cloned().collect();
        let marker = self.scene.engine.shared().world.sources.get(&id(self.reader)).unwrap().preferences().marker;
        if told == pages && marker.map(|marker| marker.at) == self.marker {
            return None;
        }
        let only = |these: &[Expected], those: &[Expected]| {
            these.iter().filter(|entry| !those.contains(entry)).cloned().collect::<Vec<_>>()
        };
        let (of_client, of_pages) = (only(&told, &pages), only(&pages, &told));
        let config = &self.scene.engine.shared().config;
        Some(format!(
            "{}: from {bound:?} up the client alone has {of_client:#?}, pages alone {of_pages:#?}; markers {:?} and \
             {marker:?}; {config:?}",
            self.name(),
            self.marker
        ))
    }

    /// Waits until the client has what pages show.
    async fn settle(&mut self) {
        eventually_async("a client has what pages show", async || {
            self.listen(ready(())).await;
            self.difference().await.map_or(Ok(()), Err)
        })
        .await;
    }
}

/// Returns how often a client that came back got what it had missed, and how often it had to read anew.
async fn race(seed: u64) -> (u64, u64) {
    let scene = Scene::new(seed);
    let mut random = fastrand::Rng::with_seed(seed);
    // Everybody is known, and there is something to begin with.
    for (nth, reader) in PEOPLE.iter().enumerate() {
        let sources = [PEOPLE[(nth + 1) % PEOPLE.len()], PEOPLE[(nth + 3) % PEOPLE.len()], any(&mut random, &TAGS)];
        scene.engine.follow(sources.map(|source| edge(reader, source)).into()).await.unwrap();
        scene.engine.publish(draft(reader, "0"), true).await.unwrap();
    }
    let clients = (0..CLIENTS).map(|nth| Client::new(&scene, PEOPLE[nth % 5]).live(random.fork()));
    let clients: Vec<_> = clients.map(tokio::spawn).collect();
    let writers = (0..WRITERS).map(|_| tokio::spawn(Arc::clone(&scene).write_on(random.fork())));
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    scene.is_over.store(true, Ordering::Relaxed);
    let mut at_rest = Vec::new();
    for client in clients {
        at_rest.push(client.await.unwrap());
    }
    for client in &mut at_rest {
        client.settle().await;
    }
    // Nothing that was on its way spoils it: all of that is ahead of these.
    for author in PEOPLE {
        scene.engine.publish(draft(author, "1"), true).await.unwrap();
    }
    for client in &mut at_rest {
        client.settle().await;
    }
    drop(at_rest);
    scene.engine.shutdown();
    (scene.recovered.load(Ordering::Relaxed), scene.anew.load(Ordering::Relaxed))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_converge_to_their_pages_after_concurrent_operations() {
    let (mut recovered, mut anew) = (0, 0);
    for seed in 0..cases(2) {
        let counts = race(seed).await;
        (recovered, anew) = (recovered + counts.0, anew + counts.1);
    }
    assert!(recovered > 20 && anew > 20, "both ways to come back are gone: {recovered}, {anew}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn posts_in_flight_during_an_inbox_rebuild_are_delivered_live() {
    let scene = Scene::new(0);
    let engine = &scene.engine;
    engine.follow(vec![edge("ann", "bob")]).await.unwrap();
    let mut client = Client::new(&scene, "ann");
    client.connect(5).await;
    for _ in 0..30 {
        let posts = (0..30).map(|nth| engine.publish(draft("bob", &nth.to_string()), false));
        let ann = id("ann");
        let rebuilds = (0..5).map(|_| engine.verify_feed(&ann, true));
        let (published, rebuilt) =
            tokio::join!(futures_util::future::join_all(posts), futures_util::future::join_all(rebuilds));
        published.into_iter().for_each(|post| drop(post.unwrap()));
        rebuilt.into_iter().for_each(|verdict| drop(verdict.unwrap()));
        client.settle().await;
    }
    engine.shutdown();
}

/// What comes and goes, or goes and comes, before whoever tells of it looks, with pages read in between. With so many followers dan is
/// still pushed; where bob has as many, ann is one too many, and he is pulled.
async fn come_and_go(of_many: &[&str]) {
    const FOLLOWERS: usize = 2_000;
    let scene = Scene::with(0, testkit::world::config(2, above(FOLLOWERS as u64)));
    let engine = &scene.engine;
    for source in of_many {
        engine.follow((0..FOLLOWERS).map(|nth| edge(&format!("r{nth}"), source)).collect()).await.unwrap();
    }
    engine.follow(vec![edge("ann", "bob")]).await.unwrap();
    let kept = engine.publish(draft("bob", "0"), true).await.unwrap().post.id();
    let mut client = Client::new(&scene, "ann");
    client.connect(5).await;
    for round in 0..400 {
        let changes = async {
            match round % 5 {
                0 => engine.delete(engine.publish(draft("ann", "1"), false).await.unwrap().post.id()).await.unwrap(),
                1 => {
                    engine.edit(kept, None, Some(true)).await.unwrap();
                    engine.edit(kept, None, Some(false)).await.unwrap();
                }
                2 => {
                    engine.silence(id("ann"), id("bob"), MuteOrBlock::Mute, true).await.unwrap();
                    engine.silence(id("ann"), id("bob"), MuteOrBlock::Mute, false).await.unwrap();
                }
                3 => {
                    engine.publish(draft("bob", "3"), false).await.unwrap();
                    engine.unfollow(id("ann"), id("bob")).await.unwrap();
                }
                _ => drop(engine.follow(vec![edge("ann", "bob")]).await.unwrap()),
            }
        };
        let reads = async {
            for _ in 0..12 {
                client.read(Range::Newest, 5).await;
            }
        };
        // What goes to many keeps busy who would tell.
        let load = futures_util::future::join_all((0..20).map(|_| engine.publish(draft("dan", "2"), false)));
        tokio::join!(load, changes, reads);
        client.settle().await;
    }
    engine.shutdown();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_shown_briefly_by_a_page_does_not_stay_on_clients() {
    come_and_go(&["dan"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_celebrity_entry_shown_briefly_by_a_page_does_not_stay_on_clients() {
    come_and_go(&["dan", "bob"]).await;
}
