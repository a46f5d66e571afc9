//! Shared by the tests of what outlives a process: random histories, what they come to, and recovery from a simulated disk.

use std::sync::Arc;

use tidewire::clock::UnixMicros;
use tidewire::feed::event::{Event, NewEdge};
use tidewire::feed::graph::Sharding;
use tidewire::feed::position::Position;
use tidewire::feed::post::{Body, Draft};
use tidewire::id::{PostId, SourceId};
use tidewire::state::image::Walk;
use tidewire::state::world::{World, Writer};
use tidewire::storage::error::StorageError;
use tidewire::storage::files::Files;
use tidewire::storage::files::memory::MemoryFiles;
use tidewire::storage::journal::writer::{JournalOptions, SegmentJournal, Tail};
use tidewire::storage::journal::{Durability, Journal, Sequence};
use tidewire::storage::recovery::{Progress, Recovered, Recovery};
use tidewire::storage::snapshot::{Section, SnapshotHeader, SnapshotWriter};

use crate::world::{above, id};

pub fn world() -> (Arc<World>, Writer) {
    World::create(above(3), Sharding::new(2))
}

/// The state as text: what a restart must not change, by external ids. Not by which route posts go.
pub fn state(world: &World) -> String {
    let walk = Walk { world, sources: world.sources.len() };
    let names: Vec<SourceId> = walk.sources().map(|source| source.id).collect();
    let mut lines = Vec::new();
    walk.posts(|mut post| {
        post.pulled = 0;
        let sources: Vec<&SourceId> = post.sources.iter().map(|slot| &names[*slot as usize]).collect();
        lines.push(format!("post {:?} {sources:?} {post:?}", post.at).replace(&format!("{:?}", post.sources), ""));
        Ok::<(), ()>(())
    })
    .unwrap();
    for follower in world.sources.iter() {
        for edge in follower.following().edges() {
            let source = &world.sources.at(edge.source).id;
            lines.push(format!("edge {} {source} {:?} {}", follower.id, edge.since, edge.hidden));
        }
    }
    lines.extend(world.posts.deleted().map(|id| format!("deleted {id}")));
    lines.sort();
    lines.join("\n")
}

/// A random history: events as the scribe would accept them, each with the state after it.
pub struct History {
    pub events: Vec<Event>,
    /// After so many events; the first is the empty state.
    pub states: Vec<String>,
}

impl History {
    pub fn random(random: &mut fastrand::Rng, length: usize) -> Self {
        let (world, mut writer) = world();
        let mut history = Self { events: Vec::new(), states: vec![state(&world)] };
        for nth in 0..length {
            let event = event(random, nth as i64 * 10 + 1_000);
            writer.apply(&event);
            history.events.push(event);
            history.states.push(state(&world));
        }
        history
    }
}

fn event(random: &mut fastrand::Rng, now: i64) -> Event {
    let person = |random: &mut fastrand::Rng| id(["ann", "bob", "cas", "dan", "eve"][random.usize(0..5)]);
    let post = PostId(random.u64(1..30));
    let at = UnixMicros(now);
    match random.u8(0..10) {
        0..5 => {
            let body = format!("\"{}\"", "x".repeat(random.usize(0..60)));
            let mut draft = Draft::new(person(random), Body::new(&body).unwrap());
            if random.bool() {
                draft.tags.push(SourceId::tag("tea").unwrap());
            }
            let published_at = if random.bool() { at } else { UnixMicros(random.i64(0..now)) };
            Event::Published { position: Position { published_at, id: post }, draft, accepted_at: at }
        }
        5 => Event::Edited { id: post, body: Some(Body::new("2").unwrap()), hidden: None, at },
        6 => Event::Deleted { id: post },
        7 | 8 => {
            let edge = |random: &mut fastrand::Rng| NewEdge {
                follower: person(random),
                source: if random.bool() { person(random) } else { id("tag:tea") },
                hidden: random.bool(),
            };
            Event::Followed { edges: (0..random.usize(1..4)).map(|_| edge(random)).collect(), since: at }
        }
        _ => Event::Unfollowed { follower: person(random), source: person(random) },
    }
}

pub fn journal(files: impl Files, durability: Durability, segment_bytes: u64) -> Result<SegmentJournal, StorageError> {
    SegmentJournal::open(Arc::new(files), &Tail::default(), JournalOptions { durability, segment_bytes })
}

/// A disk with a history in its journal, one commit for each event.
pub fn written(history: &History, segment_bytes: u64) -> MemoryFiles {
    let files = MemoryFiles::default();
    let mut journal = journal(files.clone(), Durability::Always, segment_bytes).unwrap();
    for event in &history.events {
        journal.append(event).unwrap();
        journal.commit().unwrap();
    }
    files
}

/// Takes a snapshot of the state after the first `events` events.
pub fn snapshot(files: &dyn Files, history: &History, events: usize) -> Result<(), StorageError> {
    let (world, mut writer) = world();
    history.events[..events].iter().for_each(|event| drop(writer.apply(event)));
    let sequence = Sequence(events as u64);
    let mut snapshot =
        SnapshotWriter::begin(files, SnapshotHeader { sequence, taken_at: UnixMicros(5) }, events.is_multiple_of(2))?;
    let walk = Walk { world: &world, sources: world.sources.len() };
    walk.sources().try_for_each(|record| snapshot.record(Section::Sources, &record))?;
    walk.edges().try_for_each(|record| snapshot.record(Section::Edges, &record))?;
    walk.posts(|record| snapshot.record(Section::Posts, &record))?;
    walk.deleted().try_for_each(|record| snapshot.record(Section::Deleted, &record))?;
    snapshot.finish(sequence, UnixMicros(5), false).map(drop)
}

pub fn recover(files: &MemoryFiles, repair: bool) -> Result<Recovered, StorageError> {
    Recovery { files, make_world: &world, repair, progress: &Progress::default() }.run()
}

/// Checks that a disk holds a beginning of the history, at least `at_least` events long. Returns how long.
pub fn check_prefix(files: &MemoryFiles, history: &History, at_least: usize) -> usize {
    let recovered = recover(files, false).unwrap_or_else(|cause| panic!("{cause}"));
    let last = recovered.tail.last.0 as usize;
    assert!(last >= at_least, "only {last} events of {at_least}");
    assert_eq!(state(&recovered.world), history.states[last]);
    last
}

/// Seeds of the normal run; `TIDEWIRE_SEEDS` asks for more.
pub fn seeds(normally: u64) -> u64 {
    std::env::var("TIDEWIRE_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(normally)
}
