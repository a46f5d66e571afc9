//! Erasures that are replayed: over any snapshot that may have been taken meanwhile, and over an archive that was rewritten.

use std::sync::Arc;
use testkit::{cases, eventually};

use tidewire::clock::{SystemClock, UnixMicros};
use tidewire::engine::{Engine, StorageConfig};
use tidewire::feed::event::Event;
use tidewire::feed::followers::Sharding;
use tidewire::feed::position::Position;
use tidewire::id::PostId;
use tidewire::recovery::RecoveryProgress;
use tidewire::state::records::RecordTraversal;
use tidewire::state::world::{StateMachine, World};
use tidewire::storage::files::disk::DiskFiles;
use tidewire::storage::journal::{Durability, Journal as _};

use crate::erasure::{MARKER, ZOE, holding, small};
use testkit::histories::{History, START, Store, journal, state};
use testkit::world::{above, draft, id};

fn after(events: &[Event]) -> (Arc<World>, StateMachine) {
    let (world, mut machine) = World::create(above(3), Sharding::new(2));
    for event in events {
        machine.apply(event);
    }
    (world, machine)
}

/// What is recovered from a snapshot that begins after `from` events and whose sections saw the state after as many as `seen` has, in their
/// order, and from the events behind it.
fn recovered(events: &[Event], from: usize, seen: [usize; 6]) -> String {
    let sources = after(&events[..from]).0.sources.len();
    let worlds = seen.map(|seen| after(&events[..seen]).0);
    let [of_sources, of_edges, of_preferences, of_reposts, of_revocations, of_posts] =
        [0, 1, 2, 3, 4, 5].map(|section| RecordTraversal { world: &worlds[section], sources });
    let (world, mut machine) = after(&[]);
    of_sources.sources().for_each(|record| machine.restore_source(&record).unwrap());
    of_edges.edges().for_each(|record| machine.restore_edges(&record).unwrap());
    of_preferences.preferences().for_each(|record| machine.restore_preferences(&record).unwrap());
    of_reposts.reposts(|record| machine.restore_reposts(&record)).unwrap();
    of_revocations.revocations().for_each(|record| machine.restore_revocations(&record));
    of_posts.posts(|record| machine.restore_post(&record)).unwrap();
    of_posts.deleted().for_each(|record| machine.restore_deleted(&record));
    machine.set_replaying(true);
    for event in &events[from..] {
        machine.apply(event);
    }
    state(&world)
}

#[test]
fn replay_completes_an_erasure_that_a_snapshot_saw_partly() {
    for seed in 0..cases(4) {
        let mut history = History::new(seed);
        let mut events = history.events(36);
        // One of those who do most, and not before there is something to erase.
        let user = id(&format!("u{}", history.random.u8(0..9)));
        events.retain(|event| !matches!(event, Event::Erased { .. }));
        let place = history.random.usize(8..events.len() - 4);
        events.insert(place, Event::Erased { user, at: UnixMicros(START + 1_000_000) });
        let expected = state(&after(&events).0);
        for from in 0..events.len() {
            for _ in 0..3 {
                let mut seen = [0; 6].map(|_| history.random.usize(from..=events.len()));
                seen.sort_unstable();
                let recovered = recovered(&events, from, seen);
                assert_eq!(recovered, expected, "seed {seed}: erased at {place}, from {from}, seen {seen:?}");
            }
        }
    }
}

#[test]
fn an_erasure_removes_posts_that_a_replay_archived_again() {
    // More than are replayed together, after each of which the archive takes what is too much for memory.
    const POSTS: u64 = 1_500;
    let directory = tempfile::tempdir().unwrap();
    let position = |nth: u64| Position { published_at: UnixMicros(START + nth as i64), id: PostId(nth) };
    let published = |nth: u64| Event::Published {
        position: position(nth),
        draft: draft(ZOE, &format!("\"{MARKER} {nth}\"")),
        accepted_at: UnixMicros(START + nth as i64),
    };
    let at = UnixMicros(START + 1_000_000);
    let mut events: Vec<Event> = (1..=POSTS).map(published).collect();
    events.push(Event::Erased { user: id(ZOE), at });
    events.extend((1..=POSTS).map(|nth| Event::Deleted { id: PostId(nth), repost_of: None, post: None }));
    // The archive was rewritten before, and then the process ended.
    events.push(Event::ErasureScrubbed { at });
    let files = Arc::new(DiskFiles::open(directory.path()).unwrap());
    let mut store = Store::open(files, journal(Durability::Always, 1 << 20)).unwrap().0;
    store.write(&events).unwrap();
    store.journal.close().unwrap();
    drop(store);
    let storage = StorageConfig { directory: directory.path().to_owned(), ..StorageConfig::default() };
    let engine = Engine::open(small(), &storage, Arc::new(SystemClock), &RecoveryProgress::default()).unwrap().0;
    eventually("the erasure ends", || engine.erasures().count == 0);
    engine.shutdown();
    assert_eq!(holding(directory.path(), &[ZOE, MARKER]), [""; 0]);
}
