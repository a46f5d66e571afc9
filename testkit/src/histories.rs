//! Helpers for the tests of stored data: random histories, a naive model of them, the text of a state, and stores without an engine,
//! which are fast enough for thousands of crashes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use tidewire::clock::{Clock, ManualClock, SystemClock, UnixMicros};
use tidewire::config::EngineConfig;
use tidewire::engine::{Engine, SnapshotOptions, StorageConfig};
use tidewire::feed::event::{Event, MuteOrBlock, NewEdge, OldEdge};
use tidewire::feed::followers::Sharding;
use tidewire::feed::following::{Edge, RetainedRange};
use tidewire::feed::outbox::Part;
use tidewire::feed::position::{Direction, Position, PositionRange};
use tidewire::feed::post::{Body, Draft};
use tidewire::feed::reposts::Repost;
use tidewire::feed::rules::{Replies, Rules};
use tidewire::id::{PostId, SourceId, SourceSlot};
use tidewire::recovery::{Recovered, Recovery, RecoveryProgress, RecoveryReport, write_world};
use tidewire::state::records::RecordTraversal;
use tidewire::state::sources::Source;
use tidewire::state::world::{StateMachine, World};
use tidewire::storage::archive::Archive;
use tidewire::storage::error::StorageError;
use tidewire::storage::files::Files;
use tidewire::storage::files::memory::MemoryFiles;
use tidewire::storage::journal::writer::{JournalOptions, SegmentJournal};
use tidewire::storage::journal::{Durability, Journal, JournalError};
use tidewire::storage::sequence::Sequence;
use tidewire::storage::snapshot::{SnapshotHeader, SnapshotWriter};

use crate::world::{above, config, id};

pub const START: i64 = 1_700_000_000_000_000;

/// Everything that must be the same after recovery, as text: by ids of sources, without the routes of posts.
pub fn state(world: &World) -> String {
    let (mut lines, mut posts) = (Vec::new(), BTreeMap::new());
    for source in world.sources.iter() {
        let mut outbox = Vec::new();
        source.outbox().copy(Part::Whole, PositionRange::ALL, Direction::Newer, usize::MAX, &mut outbox);
        if !outbox.is_empty() {
            let ids: Vec<u64> = outbox.iter().map(|position| position.id.0).collect();
            lines.push(format!("outbox {} {ids:?}", source.id));
        }
        let hidden = source.outbox().hidden().to_vec();
        lines.extend(
            Some(hidden).filter(|hidden| !hidden.is_empty()).map(|ids| format!("hidden {} {ids:?}", source.id)),
        );
        posts.extend(outbox.into_iter().map(|position| (position, world.posts.get(position.id))));
        for edge in source.following().edges() {
            let (followed, since) = (&world.sources.at(edge.source).id, edge.since.0);
            lines.push(format!("edge {} {followed} {since} {}", source.id, edge.hidden));
        }
        decided(world, source, &mut lines);
        for (since, follower) in world.followers_before(source, UnixMicros(i64::MAX), usize::MAX) {
            lines.push(format!("follower {} {} {}", source.id, world.sources.at(follower).id, since.0));
        }
    }
    let named = posts.values().flatten().filter_map(|post| post.repost_of);
    named.collect::<BTreeSet<PostId>>().into_iter().for_each(|origin| reposts(world, origin, &mut lines));
    for (position, post) in &posts {
        let post = post.as_ref().map(|post| format!("{} {}", post.json(), post.fingerprint));
        lines.push(format!("post {} {post:?}", position.published_at.0));
    }
    let revoked = world.revocations.after(None, usize::MAX).into_iter();
    lines.extend(revoked.map(|(not_before, user)| format!("revoked {user} {}", not_before.0)));
    lines.extend(world.posts.deleted().map(|id| format!("deleted {id}")));
    lines.sort_unstable();
    let mut text = lines.join("\n");
    let _ = write!(text, "\n{} posts, {} edges", world.posts.len(), world.edges());
    text
}

/// Adds the preferences of a reader, and the starts of edges.
fn decided(world: &World, reader: &Source, lines: &mut Vec<String>) {
    let (who, name) = (&reader.id, |source: SourceSlot| world.sources.at(source).id.clone());
    let (preferences, following) = (reader.preferences(), reader.following());
    if preferences.rules != Rules::default() || preferences.marker.is_some() {
        lines.push(format!("rules {who} {:?} {:?}", preferences.rules, preferences.marker));
    }
    for (how, silenced) in [("mute", &preferences.mutes), ("block", &preferences.blocks)] {
        lines.extend(silenced.iter().map(|(source, since)| format!("{how} {who} {} {}", name(source), since.0)));
    }
    for (list, members) in &preferences.lists {
        lines.push(format!("list {who} {}", list.as_str()));
        let member = |edge: Edge| format!("member {who} {} {} {}", list.as_str(), name(edge.source), edge.since.0);
        lines.extend(members.edges().map(member));
    }
    lines.extend(following.starts().iter().map(|(source, at)| format!("start {who} {} {at:?}", name(*source))));
    let kept = |kept: &RetainedRange| {
        let RetainedRange { from, until, since, hidden, .. } = kept;
        format!("kept {who} {} {from:?} {until:?} {} {hidden}", name(kept.source), since.0)
    };
    lines.extend(following.kept().iter().map(kept));
}

/// Adds the reposts of a post, as a page finds them.
pub fn reposts(world: &World, of: PostId, lines: &mut Vec<String>) {
    let Some(reposts) = world.reposts.of(of) else { return };
    let reposts = reposts.read();
    let repost = |repost: Repost| {
        let (source, author) = (world.sources.at(repost.source), world.sources.at(repost.author));
        format!("repost of {of}: {} by {} in {}, {}", repost.at.id, author.id, source.id, reposts.is_hidden(repost.at))
    };
    lines.extend(reposts.iter().map(repost));
    lines.push(format!("{} reposts of {of} are shown", reposts.shown()));
}

fn make_world() -> (Arc<World>, StateMachine) {
    World::create(above(3), Sharding::new(2))
}

/// Returns the state after these events, computed from the events alone.
pub fn model<'a>(events: impl IntoIterator<Item = &'a Event>) -> String {
    let (world, mut machine) = make_world();
    for event in events {
        machine.apply(event);
    }
    state(&world)
}

/// Random events, each after the ones before.
pub struct History {
    pub random: fastrand::Rng,
    now: i64,
    /// The published posts, each with the post that it repeats.
    posts: Vec<(PostId, Option<PostId>)>,
    has_erased: bool,
}

impl History {
    pub fn new(seed: u64) -> Self {
        Self { random: fastrand::Rng::with_seed(seed), now: START, posts: Vec::new(), has_erased: false }
    }

    pub fn events(&mut self, count: usize) -> Vec<Event> {
        (0..count).map(|_| self.event()).collect()
    }

    pub fn event(&mut self) -> Event {
        match self.random.u8(0..20) {
            0..=8 => self.publish(),
            9..=10 => Event::Edited {
                id: self.post(),
                body: self.random.bool().then(|| self.body()),
                hidden: self.random.bool().then(|| self.random.bool()),
                at: self.tick(1),
                post: None,
            },
            11..=12 => {
                let (id, repost_of) = self.known();
                Event::Deleted { id, repost_of, post: None }
            }
            13..=15 => match self.follow() {
                // The last edge becomes an unfollow, and the first one is removed at once.
                Event::Followed { edges, since } if edges.len() == 3 => {
                    let old = |edge: &NewEdge| OldEdge { follower: edge.follower.clone(), source: edge.source.clone() };
                    let unfollows = vec![old(&edges[2]), old(&edges[0])];
                    Event::FollowsChanged { follows: edges[..2].to_vec(), since, unfollows }
                }
                followed => followed,
            },
            // Later events of the user belong to the erasure.
            16 if !self.has_erased && self.random.bool() => {
                self.has_erased = true;
                Event::Erased { user: self.person(), at: self.tick(1) }
            }
            16 => self.choose(),
            _ => {
                let keep_until = (self.random.u8(0..3) == 0)
                    .then_some(Position { published_at: UnixMicros(self.now), id: PostId(u64::MAX) });
                Event::Unfollowed { follower: self.person(), source: self.source(), keep_until }
            }
        }
    }

    fn tick(&mut self, count: usize) -> UnixMicros {
        let first = self.now + 1;
        self.now += count as i64;
        UnixMicros(first)
    }

    fn body(&mut self) -> Body {
        let letters = "x".repeat(self.random.usize(0..60));
        Body::new(&format!("\"{} {letters}\"", self.random.u32(..))).unwrap()
    }

    fn person(&mut self) -> SourceId {
        id(&format!("u{}", self.random.u8(0..9)))
    }

    fn source(&mut self) -> SourceId {
        match self.random.u8(0..6) {
            0 => id(&format!("tag:{}", self.random.u8(0..3))),
            1 => id("topic:42"),
            _ => self.person(),
        }
    }

    fn known(&mut self) -> (PostId, Option<PostId>) {
        self.random.choice(&self.posts).copied().unwrap_or((PostId(7), None))
    }

    fn post(&mut self) -> PostId {
        self.known().0
    }

    fn publish(&mut self) -> Event {
        let accepted_at = self.tick(1);
        let ago = if self.random.u8(0..4) == 0 { self.random.i64(0..5) * 1_000_000 } else { 0 };
        let position =
            Position { published_at: UnixMicros(accepted_at.0 - ago), id: PostId((accepted_at.0 as u64) << 12) };
        let mut draft = Draft::new(self.person(), self.body());
        draft.tags = (0..self.random.u8(0..3)).map(|tag| SourceId::tag(&tag.to_string()).unwrap()).collect();
        draft.repost_of = (self.random.u8(0..5) == 0).then(|| self.post());
        draft.topic = (self.random.u8(0..5) == 0).then(|| SourceId::topic("42").unwrap());
        self.posts.push((position.id, draft.repost_of));
        Event::Published { position, draft, accepted_at }
    }

    fn choose(&mut self) -> Event {
        let (reader, source) = (self.person(), self.source());
        let list = if self.random.bool() { "near" } else { "far" }.parse().unwrap();
        let since = (self.random.u8(0..3) > 0).then(|| self.tick(1));
        match self.random.u8(0..8) {
            0 => Event::MuteChanged { reader, source, how: MuteOrBlock::Mute, since },
            1 => Event::MuteChanged { reader, source, how: MuteOrBlock::Block, since },
            2 => {
                let replies = if self.random.bool() { Replies::All } else { Replies::None };
                Event::RulesChanged {
                    reader,
                    rules: Rules { replies, reposts: self.random.bool(), ..Rules::default() },
                }
            }
            3 => Event::MarkerMoved {
                reader,
                at: Position { published_at: UnixMicros(self.now), id: PostId(7) },
                seen: None,
            },
            4 => Event::ListMemberChanged { reader, list, source, since },
            5..=6 => {
                let forget_before = self.random.bool().then(|| UnixMicros(self.now - self.random.i64(0..40)));
                let not_before = UnixMicros(self.now - self.random.i64(-10..60));
                Event::Revoked { user: reader, not_before, forget_before }
            }
            _ => Event::ListDeleted { reader, list },
        }
    }

    fn follow(&mut self) -> Event {
        let edge = |history: &mut Self| {
            let (follower, source) = (history.person(), history.source());
            let start = (history.random.u8(0..5) == 0)
                .then(|| Position { published_at: UnixMicros(history.now - 1_000_000), id: PostId(0) });
            NewEdge { hidden: history.random.u8(0..5) == 0, start, ..NewEdge::new(follower, source) }
        };
        let count = self.random.usize(1..4);
        let edges: Vec<NewEdge> = (0..count).map(|_| edge(self)).collect();
        Event::Followed { since: self.tick(edges.len()), edges }
    }
}

/// Recovers the state in these files.
pub fn recover(files: &dyn Files, repair: bool) -> Result<Recovered, StorageError> {
    Recovery { files, make_world: &make_world, repair, progress: &RecoveryProgress::default() }.run()
}

/// Returns the recovered state, and the last event.
pub fn recovered(files: &dyn Files) -> Result<(String, Sequence), StorageError> {
    recover(files, false).map(|recovered| (state(&recovered.world), recovered.tail.last))
}

pub fn journal(durability: Durability, segment_bytes: u64) -> JournalOptions {
    JournalOptions { durability, segment_bytes }
}

/// A world with its journal, without an engine.
pub struct Store {
    pub files: Arc<dyn Files>,
    pub journal: SegmentJournal,
    pub world: Arc<World>,
    pub machine: StateMachine,
}

impl Store {
    /// Recovers the state in the files, and continues their journal.
    pub fn open(files: Arc<dyn Files>, options: JournalOptions) -> Result<(Self, RecoveryReport), StorageError> {
        Self::open_on(files, options, Arc::new(SystemClock))
    }

    /// As [`Self::open`], with the clock that determines when the journal is synced.
    pub fn open_on(
        files: Arc<dyn Files>,
        options: JournalOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<(Self, RecoveryReport), StorageError> {
        let Recovered { world, machine, tail, report, .. } = recover(&*files, false)?;
        let journal = SegmentJournal::open(Arc::clone(&files), &tail, options, clock)?;
        Ok((Self { files, journal, world, machine }, report))
    }

    /// Journals events as one group, and applies them.
    pub fn write(&mut self, events: &[Event]) -> Result<(), JournalError> {
        for event in events {
            self.journal.append(event)?;
        }
        self.journal.commit()?;
        for event in events {
            self.machine.apply(event);
        }
        Ok(())
    }

    /// Takes a snapshot. The events `meanwhile` are written after its start and before its records.
    pub fn snapshot(&mut self, meanwhile: &[Event]) -> Result<(), String> {
        let (sequence, sources) = (self.journal.last(), self.world.sources.len());
        self.write(meanwhile).map_err(|cause| cause.to_string())?;
        let header = SnapshotHeader { sequence, taken_at: UnixMicros(START) };
        let failed = |cause: StorageError| cause.to_string();
        let mut writer = SnapshotWriter::begin(&*self.files, header, sequence.0 % 2 == 0).map_err(failed)?;
        write_world(RecordTraversal { world: &self.world, sources }, &mut writer).map_err(failed)?;
        self.journal.sync().map_err(|cause| cause.to_string())?;
        writer.finish(self.journal.last(), UnixMicros(START), false).map(drop).map_err(failed)
    }
}

/// Returns files with these events, each in its own group, and with snapshots at the events that `snapshots` lists. The journal is closed
/// in order only if `close` is true.
pub fn written(events: &[Event], segment_bytes: u64, snapshots: &[usize], close: bool) -> MemoryFiles {
    let files = MemoryFiles::default();
    let options = journal(Durability::Always, segment_bytes);
    let mut store = Store::open(Arc::new(files.clone()), options).unwrap().0;
    for (nth, event) in events.iter().enumerate() {
        store.write(std::slice::from_ref(event)).unwrap();
        if snapshots.contains(&(nth + 1)) {
            store.snapshot(&[]).unwrap();
        }
    }
    if close {
        store.journal.close().unwrap();
    }
    files
}

/// The names of the files that are segments, or snapshots, oldest first.
pub fn names(files: &MemoryFiles, prefix: &str) -> Vec<String> {
    files.list().unwrap().into_iter().filter(|name| name.starts_with(prefix)).collect()
}

/// Settings of an engine that takes no snapshot unless it is asked.
pub fn storage(durability: Durability, segment_bytes: u64) -> StorageConfig {
    let never = Duration::from_secs(1 << 30);
    let snapshots = SnapshotOptions { interval: never, journal_bytes: u64::MAX, ..SnapshotOptions::default() };
    StorageConfig { journal: journal(durability, segment_bytes), snapshots, ..StorageConfig::default() }
}

/// A clock that stands still.
pub fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(UnixMicros(START)))
}

/// An engine on these files.
pub fn open(files: impl Files, storage: &StorageConfig) -> Result<(Engine, RecoveryReport), StorageError> {
    open_with(config(2, above(3)), files, storage, clock())
}

pub fn open_with(
    config: EngineConfig,
    files: impl Files,
    storage: &StorageConfig,
    clock: Arc<dyn Clock>,
) -> Result<(Engine, RecoveryReport), StorageError> {
    open_before(config, files, None, storage, clock)
}

/// An engine in front of an archive.
pub fn open_before(
    config: EngineConfig,
    files: impl Files,
    archive: Option<&Arc<dyn Archive>>,
    storage: &StorageConfig,
    clock: Arc<dyn Clock>,
) -> Result<(Engine, RecoveryReport), StorageError> {
    Engine::open_on(config, Arc::new(files), archive, None, storage, clock, &RecoveryProgress::default())
}
