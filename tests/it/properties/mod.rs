//! The engine against the naive oracle, by random histories.

mod check;
mod live;
mod ops;
mod poll;
mod posts;
mod regressions;

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use testkit::{cases, eventually_async, seed};
use tidewire::clock::{Clock, ManualClock, UnixMicros};
use tidewire::config::EngineConfig;
use tidewire::engine::{Engine, Erasing, StorageConfig};
use tidewire::feed::celebrity::CelebrityPolicy;
use tidewire::feed::event::{MuteOrBlock, NewEdge};
use tidewire::feed::position::Position;
use tidewire::feed::stream::StreamLimits;
use tidewire::id::PostId;
use tidewire::storage::archive::{Archive, MemoryArchive};
use tidewire::storage::files::memory::MemoryFiles;
use tidewire::storage::journal::Durability;

use crate::properties::check::position;
use crate::properties::live::{LiveClient, clients};
use crate::properties::ops::{
    Feed, LISTS, Op, PEOPLE, REPLIED, Restart, SOURCES, Settings, Target, op, policy, source_name,
};
use crate::properties::poll::{Poller, pollers};
use testkit::histories::{open_before, state, storage};
use testkit::oracle::{Asked, NaivePost, Of, Oracle};
use testkit::world::{all_asleep, edge, id, patient, some};

const START: i64 = 1_000_000_000;
const WINDOW: Duration = Duration::from_millis(80);

struct Run {
    engine: Engine,
    config: EngineConfig,
    files: MemoryFiles,
    /// With one, most posts are in it.
    archive: Option<Arc<MemoryArchive>>,
    storage: StorageConfig,
    clock: Arc<ManualClock>,
    /// The latest instant the clock ever showed.
    latest: UnixMicros,
    /// The position of the last post that came without id and time.
    last_minted: Position,
    oracle: Oracle,
    policy: CelebrityPolicy,
    /// A snapshot may say on which side of another threshold sources were.
    had_other_policy: bool,
    clients: Vec<LiveClient>,
    pollers: Vec<Poller>,
}

impl Run {
    fn new(
        policy: CelebrityPolicy,
        shards: usize,
        inbox_posts: usize,
        keep_inboxes: bool,
        outbox_posts: Option<usize>,
        live: StreamLimits,
    ) -> Self {
        let config = EngineConfig {
            celebrity: policy,
            shards: some(shards),
            inbox_posts: some(inbox_posts),
            active_window: WINDOW,
            outbox_posts: some(outbox_posts.unwrap_or(1_000)),
            live,
            ..patient()
        };
        let (files, clock) = (MemoryFiles::default(), Arc::new(ManualClock::new(UnixMicros(START))));
        let mut storage = storage(Durability::Always, 2_000);
        storage.snapshots.inboxes = keep_inboxes;
        let archive = outbox_posts.map(|_| Arc::new(MemoryArchive::default()));
        let now = Arc::clone(&clock) as Arc<dyn Clock>;
        let front = archive.clone().map(|archive| archive as Arc<dyn Archive>);
        let engine = open_before(config.clone(), files.clone(), front.as_ref(), &storage, now).unwrap().0;
        let (latest, last_minted, oracle) = (UnixMicros(START), Position::MIN, Oracle::default());
        Self {
            engine,
            config,
            files,
            archive,
            storage,
            clock,
            latest,
            last_minted,
            oracle,
            policy,
            had_other_policy: false,
            clients: clients(),
            pollers: pollers(),
        }
    }

    /// Ends the engine in one way or another, and goes on with what is kept: all there was.
    fn restart(&mut self, how: Restart, clock: i64, change: Option<Settings>) {
        let before = state(&self.engine.shared().world);
        // The archive first: it never knows more than the journal.
        let archive_left = self.archive.as_ref().map(|archive| Arc::new(archive.survived()));
        let left = self.files.forked();
        self.engine.shutdown();
        self.clients.iter_mut().for_each(LiveClient::lose_connection);
        if !matches!(how, Restart::InOrder) {
            self.archive = archive_left;
        }
        match how {
            Restart::InOrder => {}
            Restart::ProcessKilled => self.files = left,
            Restart::PowerLost(seed) => {
                left.lose_power(&mut fastrand::Rng::with_seed(seed));
                self.files = left;
            }
        }
        if let Some(Settings { policy, shards, inbox_posts, outbox_posts, window_ms }) = change {
            self.policy = policy;
            self.had_other_policy = true;
            self.config.celebrity = policy;
            self.config.shards = some(shards);
            self.config.inbox_posts = some(inbox_posts);
            self.config.active_window = Duration::from_millis(window_ms);
            if self.archive.is_some() {
                self.config.outbox_posts = some(outbox_posts);
            }
        }
        self.latest = self.latest.max(self.clock.now());
        self.clock.set(UnixMicros(START + clock * 1_000_000));
        let clock = Arc::clone(&self.clock) as Arc<dyn Clock>;
        let archive = self.archive.clone().map(|archive| archive as Arc<dyn Archive>);
        let (engine, report) =
            open_before(self.config.clone(), self.files.clone(), archive.as_ref(), &self.storage, clock).unwrap();
        assert!(report.skipped.is_empty() && report.lost.is_empty(), "{report:?}");
        // With an archive it differs how much of it is in memory; what readers see is compared anyway.
        assert!(archive.is_some() || state(&engine.shared().world) == before);
        self.engine = engine;
        if self.had_other_policy {
            self.choose_sides_anew();
        }
    }

    async fn apply(&mut self, op: Op) {
        match op {
            Op::Publish(post) => self.publish(post).await,
            Op::Delete(nth) => self.delete(nth).await,
            Op::Hide(post, hidden) => self.edit(post, None, Some(hidden)).await,
            Op::Edit(post) => self.edit(post, Some("\"edited\""), None).await,
            Op::Follow { reader, source, hidden, backfill } => {
                let edge = edge(PEOPLE[reader], &source_name(source));
                self.follow(vec![NewEdge { hidden, backfill, ..edge }]).await;
            }
            Op::FollowAll(reader) => {
                let others = (0..SOURCES).filter(|source| *source != reader).map(source_name);
                let others = others.filter(|source| !self.oracle.has_block(PEOPLE[reader], source));
                self.follow(others.map(|source| edge(PEOPLE[reader], &source)).collect()).await;
            }
            Op::Unfollow { reader, source, keep } => self.unfollow(PEOPLE[reader], &source_name(source), keep).await,
            Op::Silence { reader, source, how, on } => {
                self.silence(PEOPLE[reader], &source_name(source), how, on).await;
            }
            Op::Rules(reader, patch) => {
                let rules = self.engine.change_rules(id(PEOPLE[reader]), patch).await.unwrap();
                assert_eq!(rules, self.oracle.change_rules(PEOPLE[reader], patch));
            }
            Op::List { reader, list, source, on } => {
                self.list(PEOPLE[reader], LISTS[list], &source_name(source), on).await;
            }
            Op::DropList(reader, list) => {
                let (reader, list) = (PEOPLE[reader], LISTS[list]);
                let dropped = self.engine.drop_list(id(reader), list.parse().unwrap()).await.unwrap();
                assert_eq!(dropped, self.oracle.lists.remove(&(reader.to_owned(), list.to_owned())).is_some());
            }
            Op::Mark(reader, post) => {
                self.delivered().await;
                let Some(at) = self.oracle.posts.get(post).map(NaivePost::at) else { return };
                self.engine.mark(id(PEOPLE[reader]), position(at)).await.unwrap();
                self.oracle.markers.insert(PEOPLE[reader].to_owned(), (at, self.oracle.arrivals));
            }
            Op::Erase(user) => self.erase(PEOPLE[user]).await,
            Op::Poll(poller, limit) => {
                let nth = poller % self.pollers.len();
                self.pollers[nth].poll(&self.engine, limit).await;
            }
            Op::Live(client, op) => {
                self.delivered().await;
                let nth = client % self.clients.len();
                self.clients[nth].apply(op, &self.engine, &self.oracle).await;
            }
            read => self.read(read).await,
        }
    }

    /// Waits until what was acknowledged is delivered: only clients that poll are compared before.
    async fn delivered(&self) {
        eventually_async("all is delivered", async || self.engine.shared().open_fanouts.is_empty()).await;
    }

    async fn check_clients(&mut self) {
        self.delivered().await;
        for client in &mut self.clients {
            client.check(&self.oracle).await;
        }
    }

    async fn check_pollers(&mut self) {
        self.delivered().await;
        for poller in &mut self.pollers {
            poller.check(&self.engine, &self.oracle, 3).await;
        }
    }

    /// What changes nothing that readers see.
    async fn read(&mut self, op: Op) {
        self.delivered().await;
        match op {
            Op::Page { feed, limit, from, upward } => {
                let from = from.and_then(|from| self.oracle.posts.get(from)).map(NaivePost::at);
                let asked = match from {
                    None => Asked::Newest,
                    Some(from) if upward => Asked::After(from),
                    Some(from) => Asked::Before(from),
                };
                self.page(of(feed, &named(feed)), asked, limit).await;
            }
            Op::Whole { feed, limit, upward } => self.whole(of(feed, &named(feed)), limit, upward).await,
            Op::Explain(reader, post) => {
                if let Some(post) = self.oracle.posts.get(post) {
                    self.explain(PEOPLE[reader], post.id).await;
                }
            }
            Op::Reposts { post, reader, limit } => {
                if let Some(post) = self.oracle.posts.get(post) {
                    self.reposts(post.id, reader.map(|reader| PEOPLE[reader]), limit).await;
                    self.counts(post.id);
                }
            }
            Op::Unread(reader) => self.unread(PEOPLE[reader]).await,
            Op::SleepAll => {
                self.latest = self.latest.max(self.clock.now()).saturating_add(2 * WINDOW);
                self.clock.set(self.latest);
                all_asleep(&self.engine).await;
            }
            Op::Snapshot => drop(self.engine.snapshot().await.unwrap()),
            Op::Restart { how, clock, change } => self.restart(how, clock, change),
            write => unreachable!("{write:?} is none"),
        }
    }

    fn target(&self, target: Target) -> Option<PostId> {
        match target {
            Target::Id(id) => Some(PostId(id)),
            Target::Known(_) if self.oracle.posts.is_empty() => None,
            Target::Known(nth) => Some(PostId(self.oracle.posts[nth % self.oracle.posts.len()].id)),
        }
    }

    async fn follow(&mut self, edges: Vec<NewEdge>) {
        let is_oneself = edges.iter().any(|edge| edge.follower == edge.source);
        let is_blocked = edges.iter().any(|edge| self.oracle.has_block(edge.follower.as_str(), edge.source.as_str()));
        let code = if is_oneself { Some("self_follow") } else { is_blocked.then_some("blocked") };
        let followed = self.engine.follow(edges.clone()).await;
        assert_eq!(followed.as_ref().err().map(tidewire::error::Error::code), code);
        let Ok(followed) = followed else { return };
        let mut created = 0;
        for NewEdge { follower, source, hidden, backfill, .. } in &edges {
            let is_new = self.oracle.follow_with(follower.as_str(), source.as_str(), *hidden, *backfill);
            created += usize::from(is_new);
            self.choose_side(source.as_str());
        }
        edges.iter().for_each(|edge| self.check_side(edge.source.as_str()));
        assert_eq!((followed.created, followed.existing), (created, edges.len() - created));
    }

    async fn unfollow(&mut self, reader: &str, source: &str, keep: bool) {
        if keep {
            self.engine.unfollow_but_keep(id(reader), id(source)).await.unwrap();
            self.oracle.unfollow_but_keep(reader, source, self.clock.now().0);
        } else {
            self.engine.unfollow(id(reader), id(source)).await.unwrap();
            self.oracle.unfollow(reader, source);
        }
        self.choose_side(source);
        self.check_side(source);
    }

    async fn silence(&mut self, reader: &str, source: &str, how: MuteOrBlock, on: bool) {
        let silenced = self.engine.silence(id(reader), id(source), how, on).await;
        if reader == source {
            let code = if how == MuteOrBlock::Mute { "self_mute" } else { "self_block" };
            return assert_eq!(silenced.unwrap_err().code(), code);
        }
        let pair = (reader.to_owned(), source.to_owned());
        let oracle = &mut self.oracle;
        let changed = match (how, on) {
            (MuteOrBlock::Mute, true) => oracle.mutes.insert(pair),
            (MuteOrBlock::Mute, false) => oracle.mutes.remove(&pair),
            (MuteOrBlock::Block, true) => oracle.block(reader, source),
            (MuteOrBlock::Block, false) => oracle.blocks.remove(&pair),
        };
        assert_eq!(silenced, Ok(changed));
        for source in [reader, source] {
            self.choose_side(source);
            self.check_side(source);
        }
    }

    async fn list(&mut self, reader: &str, list: &str, source: &str, on: bool) {
        let changed = self.engine.set_listed(id(reader), list.parse().unwrap(), id(source), on).await.unwrap();
        let key = (reader.to_owned(), list.to_owned());
        let expected = match on {
            true => self.oracle.lists.entry(key).or_default().insert(source.to_owned()),
            false => self.oracle.lists.get_mut(&key).is_some_and(|members| members.remove(source)),
        };
        assert_eq!(changed, expected);
    }

    /// Erases a user, who is gone from all feeds at once, and waits until that has ended.
    async fn erase(&mut self, user: &str) {
        self.delivered().await;
        let expected = if self.engine.source(&id(user)).is_ok() { Erasing::UnderWay } else { Erasing::Unknown };
        assert_eq!(self.engine.erase(id(user)).await, Ok(expected));
        let edges = self.oracle.edges.keys().filter(|(follower, _)| follower == user);
        let followed: Vec<String> = edges.map(|(_, source)| source.clone()).collect();
        self.oracle.erase(user);
        for reader in PEOPLE {
            self.page(Of::Home(reader), Asked::Newest, 5).await;
        }
        for source in followed {
            self.choose_side(&source);
            self.check_side(&source);
        }
        eventually_async(&format!("the erasure of {user} ends"), async || self.engine.erasures().count == 0).await;
    }

    /// The threshold with its hysteresis, as requirements state it.
    fn choose_side(&mut self, source: &str) {
        let CelebrityPolicy::Above(threshold) = self.policy else { return };
        let (followers, threshold) = (self.oracle.followers(source) as f64, threshold.get() as f64);
        let side = self.oracle.celebrity.entry(source.to_owned()).or_default();
        *side = followers > if *side { (0.8 * threshold).floor() } else { threshold };
    }

    /// After a change of the threshold the side of a source within its hysteresis depends on what was kept.
    fn choose_sides_anew(&mut self) {
        self.oracle.celebrity.clear();
        let CelebrityPolicy::Above(threshold) = self.policy else { return };
        for source in (0..SOURCES).map(source_name) {
            let Ok(info) = self.engine.source(&id(&source)) else { continue };
            let (followers, threshold) = (self.oracle.followers(&source) as f64, threshold.get() as f64);
            assert!(info.celebrity || followers <= threshold, "{source} is above the threshold");
            assert!(!info.celebrity || followers > (0.8 * threshold).floor(), "{source} is far below the threshold");
            self.oracle.celebrity.insert(source, info.celebrity);
        }
    }

    fn check_side(&self, source: &str) {
        if let (Some(side), Ok(info)) = (self.oracle.celebrity.get(source), self.engine.source(&id(source))) {
            assert_eq!(info.celebrity, *side, "{source}");
        }
    }
}

/// The name of the source that a feed is of, or of its reader.
fn named(feed: Feed) -> String {
    match feed {
        Feed::Home(reader) | Feed::List(reader, _) => PEOPLE[reader].to_owned(),
        Feed::Page(source) => source_name(source),
        Feed::Replies(nth, _) => format!("replies:{}", REPLIED[nth]),
    }
}

fn of(feed: Feed, name: &str) -> Of<'_> {
    match feed {
        Feed::Home(_) => Of::Home(name),
        Feed::List(_, list) => Of::List(name, LISTS[list]),
        Feed::Page(_) => Of::Page(name),
        Feed::Replies(_, reader) => Of::Replies(name, PEOPLE[reader]),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(64) as u32, rng_seed: RngSeed::Fixed(seed()), failure_persistence: None, max_shrink_iters: 500, ..ProptestConfig::default() })]

    #[test]
    fn feeds_agree_with_a_naive_computation(
        policy in policy(),
        shards in 1..=4usize,
        inbox_posts in 1..20usize,
        keep_inboxes in any::<bool>(),
        outbox_posts in prop::option::of(1..6usize),
        live in (1..12usize, 1..12usize),
        ops in prop::collection::vec(op(), 1..120),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let live = StreamLimits { window_entries: live.0, history_changes: live.1 };
            let mut run = Run::new(policy, shards, inbox_posts, keep_inboxes, outbox_posts, live);
            for op in ops {
                run.apply(op).await;
            }
            run.delivered().await;
            run.everything().await;
            run.check_clients().await;
            run.check_pollers().await;
            run.engine.shutdown();
        });
    }
}
