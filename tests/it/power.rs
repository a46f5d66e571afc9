//! Power loss, and the death of the process: what was promised is there, and nothing is there by half.

use std::sync::Arc;
use std::time::Duration;

use tidewire::clock::{Clock, ManualClock, SystemClock, UnixMicros};
use tidewire::engine::{Engine, StorageConfig};
use tidewire::feed::celebrity::CelebrityPolicy;
use tidewire::feed::event::{Event, OldEdge};
use tidewire::recovery::RecoveryProgress;
use tidewire::storage::files::memory::MemoryFiles;
use tidewire::storage::journal::{Durability, Journal};
use tidewire::storage::segment;

use testkit::histories::{History, Store, journal, model, names, recovered, state, written};
use testkit::world::{config, edge, id};
use testkit::{cases, eventually, stride};

/// One disk through several lives, each ended by what the seed decides.
struct Lives {
    history: History,
    files: MemoryFiles,
    durability: Durability,
    /// Everything that was committed, in order.
    events: Vec<Event>,
    /// How many of them must survive the loss of power.
    promised: usize,
    seed: u64,
}

impl Lives {
    fn new(seed: u64) -> Self {
        let durability = [Durability::Always, Durability::EverySecond, Durability::Never][seed as usize % 3];
        let (history, files) = (History::new(seed), MemoryFiles::default());
        Self { history, files, durability, events: Vec::new(), promised: 0, seed }
    }

    fn live(&mut self) {
        let options = journal(self.durability, self.history.random.u64(100..3_000));
        let mut store = Store::open(Arc::new(self.files.clone()), options).unwrap().0;
        self.check(&store);
        // Whatever is there after a start stays, whoever lost power before.
        self.promised = self.events.len();
        for _ in 0..self.history.random.usize(0..14) {
            match self.history.random.u8(0..12) {
                0 => self.snapshot(&mut store),
                1 => {
                    store.journal.sync().unwrap();
                    self.promised = self.events.len();
                }
                _ => self.commit(&mut store),
            }
            self.note_what_rotation_synced();
        }
        match self.history.random.u8(0..4) {
            0 => {
                store.journal.close().unwrap();
                self.promised = self.events.len();
                self.lose_power();
            }
            // The process dies: what was written is with the system.
            1 => self.promised = self.events.len(),
            _ => self.lose_power(),
        }
    }

    fn commit(&mut self, store: &mut Store) {
        let count = self.history.random.usize(1..5);
        let group = self.history.events(count);
        store.write(&group).unwrap();
        self.events.extend(group);
        if self.durability == Durability::Always {
            self.promised = self.events.len();
        }
    }

    fn snapshot(&mut self, store: &mut Store) {
        let count = self.history.random.usize(0..4);
        let meanwhile = self.history.events(count);
        store.snapshot(&meanwhile).unwrap();
        self.events.extend(meanwhile);
        self.promised = self.events.len();
    }

    /// That a segment follows means that the one before it is synced.
    fn note_what_rotation_synced(&mut self) {
        let last = names(&self.files, "journal-").pop().and_then(|name| segment::parse_name(&name));
        self.promised = self.promised.max(last.map_or(0, |first| first.0 as usize - 1));
    }

    fn lose_power(&mut self) {
        self.files = self.files.forked();
        self.files.lose_power(&mut self.history.random);
    }

    /// The state is the model's after some number of events, which are all that were promised at least.
    fn check(&mut self, store: &Store) {
        let kept = store.journal.last().0 as usize;
        let (seed, promised, committed) = (self.seed, self.promised, self.events.len());
        assert!(
            (promised..=committed).contains(&kept),
            "seed {seed}: {kept} of {promised} promised, {committed} there"
        );
        self.events.truncate(kept);
        assert_eq!(state(&store.world), model(&self.events), "seed {seed} after {kept} events");
    }
}

#[test]
fn a_power_loss_keeps_acknowledged_events_and_no_partial_ones() {
    for seed in 0..cases(200) {
        let mut lives = Lives::new(seed);
        for _ in 0..4 {
            lives.live();
        }
    }
}

#[test]
fn a_journal_closed_at_a_segment_boundary_can_be_continued() {
    let mut history = History::new(5);
    let (events, more) = (history.events(3), history.events(3));
    // One of these lengths leaves room for the last event and not for the mark of the end behind it.
    for segment_bytes in 100..1_000 {
        let files = written(&events, segment_bytes, &[], true);
        let options = journal(Durability::Always, segment_bytes);
        let mut store = Store::open(Arc::new(files.clone()), options).unwrap().0;
        store.write(&more).unwrap();
        assert_eq!(recovered(&files).unwrap().0, model(events.iter().chain(&more)), "{segment_bytes}");
    }
}

#[test]
fn events_synced_once_a_second_survive_without_another_write() {
    let (mut history, files) = (History::new(1), MemoryFiles::default());
    let options = journal(Durability::EverySecond, 1 << 20);
    let clock = Arc::new(ManualClock::new(UnixMicros(0)));
    let mut store = Store::open_on(Arc::new(files.clone()), options, Arc::clone(&clock) as Arc<dyn Clock>).unwrap().0;
    let events = history.events(40);
    store.write(&events).unwrap();
    let survives = |seed: u64| {
        let left = files.forked();
        left.lose_power(&mut fastrand::Rng::with_seed(seed));
        recovered(&left).unwrap().0 == model(&events)
    };
    assert!(!(0..20).all(survives), "the second is not over");
    eventually("all events are synced, without another write", || {
        clock.advance(Duration::from_secs(1));
        (0..20).all(survives)
    });
}

/// Cuts the last segment where each frame ends and in between, and goes on from there.
fn cut_everywhere(segment_bytes: u64, snapshots: &[usize], close: bool) {
    let mut history = History::new(3);
    let events = history.events(24);
    let files = written(&events, segment_bytes, snapshots, close);
    let last = names(&files, "journal-").pop().unwrap();
    let before = segment::parse_name(&last).unwrap().0 as usize - 1;
    let whole = files.content(&last);
    let mut ends = vec![];
    let frames = segment::Segment::read(&files, &last, segment::parse_name(&last).unwrap()).unwrap();
    let walk = frames.walk(|found| {
        ends.push(found.offset_bytes as usize + 29 + found.payload.len());
        Ok::<_, ()>(())
    });
    walk.unwrap();
    for length in (0..whole.len()).filter(|length| length % stride(10) == 0 || ends.contains(length)) {
        let cut = files.copied();
        cut.tamper(&last, |bytes| bytes.truncate(length));
        let kept = before + ends.iter().filter(|end| **end <= length).count();
        let (mut store, report) = Store::open(Arc::new(cut.clone()), journal(Durability::Always, 1 << 20)).unwrap();
        assert_eq!(store.journal.last().0 as usize, kept, "cut at {length}");
        assert_eq!(state(&store.world), model(&events[..kept]), "cut at {length}");
        let cut_between_frames = length == 24 || ends.contains(&length);
        assert_eq!(report.torn.is_some(), !cut_between_frames, "cut at {length}");
        let more = history.events(2);
        store.write(&more).unwrap();
        let expected = model(events[..kept].iter().chain(&more));
        assert_eq!(recovered(&cut).unwrap().0, expected, "written on after a cut at {length}");
    }
}

#[test]
fn a_journal_truncated_at_any_byte_has_its_complete_events() {
    for (segment_bytes, snapshots, close) in
        [(1 << 20, &[][..], false), (1 << 20, &[], true), (700, &[], true), (1_500, &[4], false)]
    {
        cut_everywhere(segment_bytes, snapshots, close);
    }
}

#[tokio::test]
async fn a_follow_and_unfollow_request_is_atomic_at_any_truncation_of_the_journal() {
    let files = MemoryFiles::default();
    let open = |files: &MemoryFiles| {
        let (config, files) = (config(1, CelebrityPolicy::PushAll), Arc::new(files.clone()));
        let (storage, progress) = (StorageConfig::default(), RecoveryProgress::default());
        Engine::open_on(config, files, None, None, &storage, Arc::new(SystemClock), &progress).unwrap().0
    };
    let engine = open(&files);
    let sources: Vec<String> = (0..30).map(|nth| format!("s{nth}")).collect();
    engine.follow(sources.iter().map(|source| edge("ann", source)).collect()).await.unwrap();
    let segment = names(&files, "journal-").pop().unwrap();
    let before = files.content(&segment).len();
    let removed = sources.iter().map(String::as_str).chain(["new"]);
    let removed = removed.map(|source| OldEdge { follower: id("ann"), source: id(source) }).collect();
    let result = engine.change_edges(vec![edge("ann", "new"), edge("bob", "new")], removed).await.unwrap();
    assert_eq!((result.created, result.removed), (2, 31));
    let whole = files.content(&segment).len();
    for length in (before..whole).step_by(stride(10)).chain([whole]) {
        let cut = files.copied();
        cut.tamper(&segment, |bytes| bytes.truncate(length));
        let engine = open(&cut);
        assert_eq!(engine.shared().world.edges(), if length < whole { 30 } else { 1 }, "cut at {length} of {whole}");
        engine.shutdown();
    }
    engine.shutdown();
}
