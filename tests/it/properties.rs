//! The engine against the naive oracle, by random histories.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use tidewire::clock::{Clock, ManualClock, UnixMicros};
use tidewire::config::EngineConfig;
use tidewire::engine::Engine;
use tidewire::engine::StorageConfig;
use tidewire::feed::page::Range;
use tidewire::feed::policy::Policy;
use tidewire::feed::position::Position;
use tidewire::feed::post::{Body, Draft};
use tidewire::id::{PostId, SourceId};
use tidewire::state::reader::PageRequest;
use tidewire::storage::archive::{Archive, MemoryArchive};
use tidewire::storage::files::memory::MemoryFiles;
use tidewire::storage::journal::Durability;

use crate::kept::{open_before, state, storage};
use crate::oracle::{NaivePost, Oracle};
use crate::world::{above, all_asleep, edge, entries, id, some, whole_feed, whole_feed_upward};

const PEOPLE: [&str; 7] = ["ann", "bob", "cas", "dan", "eve", "fay", "gus"];
const TAGS: [&str; 2] = ["rust", "tea"];
const START: i64 = 1_000_000_000;
const WINDOW: Duration = Duration::from_millis(80);

#[derive(Clone, Debug)]
enum Op {
    /// Author, how long ago (nothing: now), which tags, whether it has a topic and an id of the author's.
    Publish {
        author: usize,
        ago: Option<i64>,
        tags: u8,
        topic: bool,
        own_id: Option<u64>,
    },
    Delete(usize),
    Hide(usize, bool),
    Edit(usize),
    Follow(usize, usize),
    FollowAll(usize),
    Unfollow(usize, usize),
    Page {
        reader: usize,
        limit: usize,
        from: Option<usize>,
    },
    PageUp {
        reader: usize,
        limit: usize,
        from: usize,
    },
    WholeFeed {
        reader: usize,
        limit: usize,
        upward: bool,
    },
    OwnPage {
        source: usize,
        limit: usize,
    },
    SleepAll,
    Snapshot,
    Restart {
        how: Restart,
        /// By how much the clock is off afterwards, in seconds.
        clock: i64,
    },
}

#[derive(Clone, Copy, Debug)]
enum Restart {
    InOrder,
    ProcessKilled,
    PowerLost(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let (person, source) = (0..PEOPLE.len(), 0..PEOPLE.len() + TAGS.len() + 1);
    let publish = (person.clone(), prop::option::of(0..6i64), 0..4u8, prop::bool::weighted(0.2)).prop_flat_map(
        |(author, ago, tags, topic)| {
            let own_id = prop::option::weighted(0.3, 0..40u64);
            own_id.prop_map(move |own_id| Op::Publish { author, ago, tags, topic, own_id })
        },
    );
    prop_oneof![
        30 => publish,
        4 => (0..60usize).prop_map(Op::Delete),
        4 => (0..60usize, any::<bool>()).prop_map(|(post, hidden)| Op::Hide(post, hidden)),
        2 => (0..60usize).prop_map(Op::Edit),
        12 => (person.clone(), source.clone()).prop_map(|(reader, source)| Op::Follow(reader, source)),
        2 => person.clone().prop_map(Op::FollowAll),
        6 => (person.clone(), source.clone()).prop_map(|(reader, source)| Op::Unfollow(reader, source)),
        10 => (person.clone(), 1..=25usize, prop::option::of(0..60usize))
            .prop_map(|(reader, limit, from)| Op::Page { reader, limit, from }),
        5 => (person.clone(), 1..=25usize, 0..60usize)
            .prop_map(|(reader, limit, from)| Op::PageUp { reader, limit, from }),
        6 => (person, 1..=25usize, any::<bool>())
            .prop_map(|(reader, limit, upward)| Op::WholeFeed { reader, limit, upward }),
        3 => (source, 1..=25usize).prop_map(|(source, limit)| Op::OwnPage { source, limit }),
        1 => Just(Op::SleepAll),
        2 => Just(Op::Snapshot),
        3 => (restart(), -100..100i64).prop_map(|(how, clock)| Op::Restart { how, clock }),
    ]
}

fn restart() -> impl Strategy<Value = Restart> {
    prop_oneof![Just(Restart::InOrder), Just(Restart::ProcessKilled), any::<u64>().prop_map(Restart::PowerLost)]
}

fn source_name(source: usize) -> String {
    match source.checked_sub(PEOPLE.len()) {
        None => PEOPLE[source].to_owned(),
        Some(tag) if tag < TAGS.len() => format!("tag:{}", TAGS[tag]),
        Some(_) => "topic:42".to_owned(),
    }
}

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
    policy: Policy,
}

impl Run {
    fn new(policy: Policy, shards: usize, inbox_posts: usize, keep_inboxes: bool, outbox_posts: Option<usize>) -> Self {
        let config = EngineConfig {
            celebrity: policy,
            shards: some(shards),
            inbox_posts: some(inbox_posts),
            active_window: WINDOW,
            outbox_posts: some(outbox_posts.unwrap_or(1_000)),
            ..EngineConfig::default()
        };
        let (files, clock) = (MemoryFiles::default(), Arc::new(ManualClock::new(UnixMicros(START))));
        let mut storage = storage(Durability::Always, 2_000);
        storage.snapshots.inboxes = keep_inboxes;
        let archive = outbox_posts.map(|_| Arc::new(MemoryArchive::default()));
        let now = Arc::clone(&clock) as Arc<dyn Clock>;
        let front = archive.clone().map(|archive| archive as Arc<dyn Archive>);
        let engine = open_before(config.clone(), files.clone(), front.as_ref(), &storage, now).unwrap().0;
        let (latest, last_minted, oracle) = (UnixMicros(START), Position::MIN, Oracle::default());
        Self { engine, config, files, archive, storage, clock, latest, last_minted, oracle, policy }
    }

    /// Ends the engine in one way or another, and goes on with what is kept: all there was.
    fn restart(&mut self, how: Restart, clock: i64) {
        let before = state(&self.engine.shared().world);
        // The archive first: it never knows more than the journal.
        let archive_left = self.archive.as_ref().map(|archive| Arc::new(archive.survived()));
        let left = self.files.forked();
        self.engine.shutdown();
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
    }

    async fn apply(&mut self, op: Op) {
        match op {
            Op::Publish { author, ago, tags, topic, own_id } => self.publish(author, ago, tags, topic, own_id).await,
            Op::Delete(post) => {
                if let Some(post) = self.oracle.posts.get_mut(post) {
                    self.engine.delete(PostId(post.id)).await.unwrap();
                    post.deleted = true;
                }
            }
            Op::Hide(post, hidden) => self.edit(post, None, Some(hidden)).await,
            Op::Edit(post) => self.edit(post, Some("\"edited\""), None).await,
            Op::Follow(reader, source) => self.follow(vec![(PEOPLE[reader].to_owned(), source_name(source))]).await,
            Op::FollowAll(reader) => {
                let all = 0..PEOPLE.len() + TAGS.len() + 1;
                let others = all.filter(|source| *source != reader);
                self.follow(others.map(|source| (PEOPLE[reader].to_owned(), source_name(source))).collect()).await;
            }
            Op::Unfollow(reader, source) => {
                let edge = (PEOPLE[reader].to_owned(), source_name(source));
                self.engine.unfollow(id(&edge.0), id(&edge.1)).await.unwrap();
                self.oracle.edges.remove(&edge);
                self.choose_side(&edge.1);
                self.check_side(&edge.1);
            }
            Op::Page { reader, limit, from } => self.page(PEOPLE[reader], limit, from).await,
            Op::PageUp { reader, limit, from } => self.page_up(PEOPLE[reader], limit, from).await,
            Op::WholeFeed { reader, limit, upward } => {
                let reader = PEOPLE[reader];
                let shown = match upward {
                    true => whole_feed_upward(&self.engine, reader, limit).await,
                    false => whole_feed(&self.engine, reader, limit).await,
                };
                assert_eq!(shown, self.oracle.feed(reader));
            }
            Op::OwnPage { source, limit } => {
                let source = source_name(source);
                let page =
                    self.engine.own_page(&id(&source), PageRequest { range: Range::Newest, limit }).await.unwrap();
                let expected = self.oracle.own_page(&source);
                assert_eq!(entries(&page), expected[..limit.min(expected.len())]);
                assert_eq!(page.page.next.is_some(), expected.len() > limit);
            }
            Op::SleepAll => {
                self.latest = self.latest.max(self.clock.now()).saturating_add(2 * WINDOW);
                self.clock.set(self.latest);
                all_asleep(&self.engine).await;
            }
            Op::Snapshot => drop(self.engine.snapshot().await.unwrap()),
            Op::Restart { how, clock } => self.restart(how, clock),
        }
    }

    async fn publish(&mut self, author: usize, ago: Option<i64>, tags: u8, topic: bool, own_id: Option<u64>) {
        self.clock.advance(Duration::from_micros(1));
        let tags: Vec<SourceId> =
            (0..TAGS.len()).filter(|nth| tags & (1 << nth) != 0).map(|nth| SourceId::tag(TAGS[nth]).unwrap()).collect();
        let body = self.oracle.posts.len().to_string();
        let draft = Draft {
            id: own_id.map(PostId),
            // Whole seconds: many posts share their time.
            published_at: ago.map(|ago| UnixMicros(START - ago * 1_000_000)),
            tags,
            topic: topic.then(|| SourceId::topic("42").unwrap()),
            ..Draft::new(id(PEOPLE[author]), Body::new(&body).unwrap())
        };
        let taken = own_id.and_then(|own_id| self.oracle.posts.iter().find(|post| post.id == own_id));
        if let Some(taken) = taken {
            let code = if taken.deleted { "post_deleted" } else { "post_id_taken" };
            assert_eq!(self.engine.publish(draft, true).await.unwrap_err().code(), code);
            return;
        }
        let sources = draft.sources().map(SourceId::to_string).collect();
        let published = self.engine.publish(draft.clone(), true).await.unwrap();
        assert!(published.created);
        let post = published.post;
        if draft.id.is_none() && draft.published_at.is_none() {
            let last = std::mem::replace(&mut self.last_minted, post.position);
            assert!(post.position.published_at > last.published_at && post.id() > last.id, "whatever the clock does");
        }
        let again = Draft { id: Some(post.id()), ..draft };
        assert!(!self.engine.publish(again, true).await.unwrap().created);
        self.oracle.posts.push(NaivePost {
            id: post.id().0,
            published_at: post.position.published_at.0,
            author: PEOPLE[author].to_owned(),
            sources,
            body,
            hidden: false,
            deleted: false,
        });
    }

    async fn edit(&mut self, post: usize, body: Option<&str>, hidden: Option<bool>) {
        let Some(post) = self.oracle.posts.get_mut(post) else { return };
        let edited = self.engine.edit(PostId(post.id), body.map(|body| Body::new(body).unwrap()), hidden).await;
        assert_eq!(edited.is_err(), post.deleted);
        post.hidden = hidden.unwrap_or(post.hidden);
        if let Some(body) = body {
            body.clone_into(&mut post.body);
        }
    }

    async fn follow(&mut self, edges: Vec<(String, String)>) {
        let oneself = edges.iter().any(|(follower, source)| follower == source);
        let asked = edges.iter().map(|(follower, source)| edge(follower, source)).collect();
        let followed = self.engine.follow(asked).await;
        assert_eq!(followed.is_err(), oneself);
        let Ok(followed) = followed else { return };
        let before = self.oracle.edges.len();
        for edge in &edges {
            self.oracle.edges.insert(edge.clone());
            self.choose_side(&edge.1);
        }
        edges.iter().for_each(|edge| self.check_side(&edge.1));
        assert_eq!(followed.created, self.oracle.edges.len() - before);
    }

    /// The threshold with its hysteresis, as requirements state it.
    fn choose_side(&mut self, source: &str) {
        let Policy::Above(threshold) = self.policy else { return };
        let (followers, threshold) = (self.oracle.followers(source) as f64, threshold.get() as f64);
        let side = self.oracle.celebrity.entry(source.to_owned()).or_default();
        *side = followers > if *side { (0.8 * threshold).floor() } else { threshold };
    }

    fn check_side(&self, source: &str) {
        if let (Some(side), Ok(info)) = (self.oracle.celebrity.get(source), self.engine.source(&id(source))) {
            assert_eq!(info.celebrity, *side, "{source}");
        }
    }

    async fn page(&self, reader: &str, limit: usize, from: Option<usize>) {
        let expected = self.oracle.feed(reader);
        let from = from.and_then(|from| self.oracle.posts.get(from));
        let range = from.map_or(Range::Newest, |post| {
            Range::Before(tidewire::feed::position::Position {
                published_at: UnixMicros(post.published_at),
                id: PostId(post.id),
            })
        });
        let older: Vec<_> = expected.iter().filter(|entry| from.is_none_or(|post| self.below(entry.0, post))).collect();
        let page = self.engine.feed(&id(reader), PageRequest { range, limit }).await.unwrap();
        assert!(entries(&page).iter().eq(older.iter().copied().take(limit)));
        assert_eq!(page.page.next.is_some(), older.len() > limit, "next is null at the end, and only there");
        assert_eq!(page.page.newest.map(|newest| newest.id), expected.first().map(|entry| entry.0));
    }

    async fn page_up(&self, reader: &str, limit: usize, from: usize) {
        let Some(from) = self.oracle.posts.get(from) else { return };
        let expected = self.oracle.feed(reader);
        let newer: Vec<_> =
            expected.iter().filter(|entry| entry.0.0 != from.id && !self.below(entry.0, from)).collect();
        let position =
            tidewire::feed::position::Position { published_at: UnixMicros(from.published_at), id: PostId(from.id) };
        let request = PageRequest { range: Range::After(position), limit };
        let page = self.engine.feed(&id(reader), request).await.unwrap();
        assert!(entries(&page).iter().eq(newer[newer.len().saturating_sub(limit)..].iter().copied()));
        // Older than the page, or without a page than the cursor.
        let oldest = newer.last().map_or(from, |entry| self.post(entry.0));
        let older = expected.iter().any(|entry| self.below(entry.0, oldest));
        assert_eq!(page.page.next.is_some(), older);
    }

    fn post(&self, id: PostId) -> &NaivePost {
        self.oracle.posts.iter().find(|post| post.id == id.0).unwrap()
    }

    fn below(&self, id: PostId, other: &NaivePost) -> bool {
        let post = self.post(id);
        (post.published_at, post.id) < (other.published_at, other.id)
    }
}

fn policy() -> impl Strategy<Value = Policy> {
    prop_oneof![1 => Just(Policy::PushAll), 1 => Just(Policy::PullAll), 4 => (1..6u64).prop_map(above)]
}

/// Cases of the normal run; `TIDEWIRE_CASES` asks for more.
fn cases() -> u32 {
    std::env::var("TIDEWIRE_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(256)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, max_shrink_iters: 500, ..ProptestConfig::default() })]

    #[test]
    fn feeds_are_what_a_naive_computation_says(
        policy in policy(),
        shards in 1..=4usize,
        inbox_posts in 1..20usize,
        keep_inboxes in any::<bool>(),
        outbox_posts in prop::option::of(1..6usize),
        ops in prop::collection::vec(op(), 1..120),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let mut run = Run::new(policy, shards, inbox_posts, keep_inboxes, outbox_posts);
            for op in ops {
                run.apply(op).await;
            }
            for reader in PEOPLE {
                assert_eq!(whole_feed(&run.engine, reader, 7).await, run.oracle.feed(reader));
            }
            run.engine.shutdown();
        });
    }
}
