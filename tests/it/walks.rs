//! Snapshots that are walked while posts move to the archive: random steps of both, of the journal and of tiering, and
//! crashes between any two of them. What memory and the archive hold together after a start is what a naive model holds.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;

use serde::Serialize;
use tidewire::clock::{SystemClock, UnixMicros};
use tidewire::feed::event::Event;
use tidewire::feed::followers::Sharding;
use tidewire::feed::outbox::{OutboxQuery, Part};
use tidewire::feed::position::{Direction, PositionRange};
use tidewire::feed::post::Post;
use tidewire::id::PostId;
use tidewire::recovery::{Records, Recovered, Recovery, RecoveryProgress, write_world};
use tidewire::state::posts::Stored;
use tidewire::state::records::RecordTraversal;
use tidewire::state::tiering::Tiering;
use tidewire::state::unwritten::TieringLimits;
use tidewire::state::world::{StateMachine, World};
use tidewire::storage::archive::{Archive, MemoryArchive};
use tidewire::storage::error::StorageError;
use tidewire::storage::files::memory::MemoryFiles;
use tidewire::storage::journal::writer::SegmentJournal;
use tidewire::storage::journal::{Durability, Journal};
use tidewire::storage::snapshot::{Section, SnapshotHeader, SnapshotWriter};

use testkit::cases;
use testkit::histories::{History, START, journal, reposts};
use testkit::world::above;

/// What a crash leaves.
struct Left {
    files: MemoryFiles,
    archive: MemoryArchive,
    /// How many events were committed, all of which must be there.
    committed: usize,
}

/// A round of tiering that has begun.
struct Round {
    tiering: Tiering,
    is_written: bool,
}

/// A world with its journal and its archive, and what crashes left of them on the way.
struct Life {
    history: History,
    files: MemoryFiles,
    archive: Arc<MemoryArchive>,
    journal: SegmentJournal,
    world: Arc<World>,
    machine: StateMachine,
    events: Vec<Event>,
    rounds: Vec<Round>,
    limits: TieringLimits,
    crashes: Vec<Left>,
    /// Posts that were shelved while a snapshot was walked.
    shelved_in_walks: usize,
    is_walking: bool,
}

fn open(files: &MemoryFiles, archive: &Arc<MemoryArchive>, limits: TieringLimits) -> Recovered {
    let make_world = || {
        let archive = Arc::clone(archive) as Arc<dyn Archive>;
        World::create_with(above(3), Sharding::new(2), Some((archive, limits)))
    };
    Recovery { files, make_world: &make_world, repair: false, progress: &RecoveryProgress::default() }.run().unwrap()
}

impl Life {
    fn new(seed: u64) -> Self {
        let mut history = History::new(seed);
        let (files, archive) = (MemoryFiles::default(), Arc::new(MemoryArchive::default()));
        let limits =
            TieringLimits { outbox_posts: history.random.usize(1..4), posts_bytes: history.random.usize(1_000..8_000) };
        let Recovered { world, machine, tail, .. } = open(&files, &archive, limits);
        let segment_bytes = history.random.u64(500..20_000);
        let options = journal(Durability::Always, segment_bytes);
        let journal = SegmentJournal::open(Arc::new(files.clone()), &tail, options, Arc::new(SystemClock)).unwrap();
        let (events, rounds, crashes) = (Vec::new(), Vec::new(), Vec::new());
        let (shelved_in_walks, is_walking) = (0, false);
        Self {
            history,
            files,
            archive,
            journal,
            world,
            machine,
            events,
            rounds,
            limits,
            crashes,
            shelved_in_walks,
            is_walking,
        }
    }

    /// One step of what goes on at the same time.
    fn step(&mut self) {
        match self.history.random.u8(0..10) {
            0..=2 => self.write(),
            3..=5 => self.begin_round(),
            6..=8 => self.go_on_with_rounds(),
            _ if self.history.random.u8(0..20) == 0 => self.crash(),
            _ => {}
        }
    }

    fn write(&mut self) {
        let count = self.history.random.usize(1..4);
        let group = self.history.events(count);
        for event in &group {
            self.journal.append(event).unwrap();
        }
        self.journal.commit().unwrap();
        for event in &group {
            let changed = changed(&self.world, event);
            self.machine.apply_validated(event, changed.as_ref());
        }
        self.events.extend(group);
    }

    /// As the command processor does it: one round at a time.
    fn begin_round(&mut self) {
        if self.rounds.is_empty() {
            let tiering = self.machine.collect_tiering(self.journal.last());
            self.rounds.push(Round { tiering, is_written: false });
        }
    }

    /// A round that was begun is written, or fails, or is taken out of memory once it was written.
    fn go_on_with_rounds(&mut self) {
        let Some(round) = self.rounds.first_mut() else { return };
        if round.is_written {
            let Round { tiering, .. } = self.rounds.remove(0);
            self.finish(tiering);
        } else if self.history.random.u8(0..5) == 0 {
            let Round { tiering, .. } = self.rounds.remove(0);
            self.machine.give_up_tiering(tiering);
        } else {
            self.archive.write(&round.tiering.batch(&self.world)).unwrap();
            round.is_written = true;
        }
    }

    fn finish(&mut self, tiering: Tiering) {
        let before = self.world.posts.len();
        self.machine.finish_tiering(tiering);
        if self.is_walking {
            self.shelved_in_walks += before - self.world.posts.len();
        }
    }

    fn crash(&mut self) {
        let (files, archive) = (self.files.forked(), self.archive.survived());
        if self.history.random.bool() {
            files.lose_power(&mut self.history.random);
        }
        self.crashes.push(Left { files, archive, committed: self.events.len() });
    }

    fn snapshot(&mut self) {
        let (sequence, sources, world) = (self.journal.last(), self.world.sources.len(), Arc::clone(&self.world));
        let files = self.files.clone();
        let header = SnapshotHeader { sequence, taken_at: UnixMicros(START) };
        let mut writer = SnapshotWriter::begin(&files, header, false).unwrap();
        self.is_walking = true;
        write_world(RecordTraversal { world: &world, sources }, &mut Between { life: self, writer: &mut writer })
            .unwrap();
        self.is_walking = false;
        // The end of a snapshot, as the command processor and the archiver make it: rounds under way are written before its own.
        self.journal.sync().unwrap();
        let last = self.journal.last();
        let tiering = self.machine.collect_tiering(self.journal.last());
        self.rounds.push(Round { tiering, is_written: false });
        for round in self.rounds.iter_mut().filter(|round| !round.is_written) {
            self.archive.write(&round.tiering.batch(&world)).unwrap();
            round.is_written = true;
        }
        self.archive.persist(last).unwrap();
        self.crash();
        for _ in 0..self.history.random.u8(0..4) {
            self.step();
        }
        writer.finish(last, UnixMicros(START), !self.archive.is_empty()).unwrap();
        self.crash();
    }

    /// What is there after a start from what a crash left.
    fn check(&self, left: &Left, seed: u64) {
        let archive = Arc::new(left.archive.survived());
        let mut recovered = open(&left.files, &archive, self.limits);
        let events = &self.events[..left.committed];
        assert_eq!(recovered.tail.last.0 as usize, left.committed, "seed {seed}");
        let (world, mut machine) = World::create(above(3), Sharding::new(2));
        for event in events {
            machine.apply(event);
        }
        let expected = both_levels(&world, events, &|_| true);
        // The archive may have places of deleted posts until the next round, which nobody is shown.
        let is_deleted = |id| matches!(recovered.world.find(PostId(id)).unwrap(), Some(Stored::Deleted));
        let found = both_levels(&recovered.world, events, &|id| !is_deleted(id));
        let all_is_there = |found: &str| {
            assert!(found == expected, "seed {seed} after {} events:\n{}", events.len(), difference(&expected, found));
        };
        all_is_there(&found);
        let tiering = recovered.machine.collect_tiering(recovered.tail.last);
        archive.write(&tiering.batch(&recovered.world)).unwrap();
        recovered.machine.finish_tiering(tiering);
        all_is_there(&both_levels(&recovered.world, events, &|_| true));
    }
}

/// Lets the world go on between any two records of a snapshot.
struct Between<'a, 'b> {
    life: &'a mut Life,
    writer: &'a mut SnapshotWriter<'b>,
}

impl Records for Between<'_, '_> {
    fn record<T: Serialize>(&mut self, section: Section, record: &T) -> Result<(), StorageError> {
        self.writer.record(section, record)?;
        // Half of the steps within the posts, of which there are few.
        for _ in 0..if section == Section::Posts { 3 } else { 1 } {
            self.life.step();
        }
        Ok(())
    }
}

/// The post that an event changes, as it is found when the event is judged.
fn changed(world: &World, event: &Event) -> Option<Arc<Post>> {
    let (Event::Edited { id, .. } | Event::Deleted { id, .. }) = event else { return None };
    world.find(*id).unwrap().and_then(Stored::live)
}

/// Everything of posts and edges that must be the same wherever it is kept, as text. Of outboxes what `counts` lets through.
fn both_levels(world: &World, events: &[Event], counts: &dyn Fn(u64) -> bool) -> String {
    let mut lines = Vec::new();
    for source in world.sources.iter() {
        let (span, direction) = (PositionRange::ALL, Direction::Older);
        let (ask, mut all) = (OutboxQuery { part: Part::Whole, span, direction, max: 1_000_000 }, Vec::new());
        world.pull_whole(source.slot, ask, None, &mut all).unwrap();
        let ids: Vec<u64> = all.into_iter().map(|position| position.id.0).filter(|id| counts(*id)).collect();
        if !ids.is_empty() {
            lines.push(format!("outbox {} {ids:?}", source.id));
        }
        for edge in source.following().edges() {
            let (followed, since) = (&world.sources.at(edge.source).id, edge.since.0);
            lines.push(format!("edge {} {followed} {since} {}", source.id, edge.hidden));
        }
    }
    let mut named = BTreeSet::new();
    for event in events {
        let Event::Published { position, draft, .. } = event else { continue };
        let found = match world.find(position.id).unwrap() {
            None => "is not there".to_owned(),
            Some(Stored::Deleted) => "was deleted".to_owned(),
            Some(Stored::Live(post)) => format!("{} {}", post.json(), post.fingerprint),
        };
        lines.push(format!("post {} {found}", position.id));
        named.extend(draft.repost_of);
    }
    named.into_iter().for_each(|origin: PostId| reposts(world, origin, &mut lines));
    lines.sort_unstable();
    lines.join("\n")
}

/// The lines that one of both has and the other has not.
fn difference(expected: &str, found: &str) -> String {
    let (expected, found): (BTreeSet<&str>, BTreeSet<&str>) = (expected.lines().collect(), found.lines().collect());
    let mut text = String::new();
    for line in expected.difference(&found) {
        let _ = writeln!(text, "- {line}");
    }
    for line in found.difference(&expected) {
        let _ = writeln!(text, "+ {line}");
    }
    text
}

#[test]
fn posts_archived_during_a_snapshot_walk_survive_a_crash_at_any_moment() {
    let (mut shelved, mut crashes) = (0, 0);
    for seed in 0..cases(30) {
        let mut life = Life::new(seed);
        for _ in 0..3 {
            (0..30).for_each(|_| life.step());
            life.snapshot();
        }
        life.crash();
        for left in &life.crashes {
            life.check(left, seed);
        }
        shelved += life.shelved_in_walks;
        crashes += life.crashes.len();
    }
    assert!(
        shelved > 25 && crashes > 250,
        "{shelved} posts left memory during walks, and there were {crashes} crashes"
    );
}
