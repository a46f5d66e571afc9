//! Tests of one turn of the copier.
#![cfg(test)]

use std::sync::atomic::AtomicU64;

use super::*;
use crate::clock::{ManualClock, UnixMicros};
use crate::feed::celebrity::CelebrityPolicy;
use crate::feed::event::Event;
use crate::feed::followers::Sharding;
use crate::feed::position::at;
use crate::feed::post::{Body, Draft};
use crate::state::unwritten::TieringLimits;
use crate::state::world::StateMachine;
use crate::storage::archive::faulty::{FaultyArchive, Plan};
use crate::storage::archive::{Archive as _, ArchivedRecord, Batch, MemoryArchive, RemoteArchive};

type Store = FaultyArchive<MemoryArchive>;

/// A node that has applied this many records, each of which published a post.
struct Node {
    store: Arc<Store>,
    behind: Arc<ReplicatedArchive>,
    machine: StateMachine,
    copier: ArchiveCopier,
}

fn node(posts: u64) -> Node {
    let store = Arc::new(Store::remote(MemoryArchive::ordered(), Plan::default()));
    let behind = Arc::new(ReplicatedArchive::new(Arc::clone(&store) as Arc<dyn RemoteArchive>).unwrap());
    let limits = TieringLimits { outbox_posts: 1_000_000, posts_bytes: usize::MAX };
    let (policy, sharding) = (CelebrityPolicy::PushAll, Sharding::new(1));
    let (world, mut machine) = World::create_replicated(policy, sharding, Arc::clone(&behind), limits);
    for nth in 1..=posts {
        let draft = Draft::new(SourceId::new("ann").unwrap(), Body::new("1").unwrap());
        let position = at(nth as i64, nth);
        drop(machine.apply(&Event::Published { position, draft, accepted_at: UnixMicros(nth as i64) }));
    }
    let (clock, stopping) = (Arc::new(ManualClock::new(UnixMicros(0))), Arc::default());
    let copier = ArchiveCopier { world, is_writer: Box::new(|| true), clock, stopping };
    Node { store, behind, machine, copier }
}

impl Node {
    fn note_changes(&self, ids: std::ops::RangeInclusive<u64>) {
        self.behind.begin(Sequence(0)).unwrap();
        let last = *ids.end();
        ids.for_each(|id| self.behind.note_change(Sequence(id), PostId(id)));
        self.behind.note_applied(Sequence(last));
    }
}

#[test]
fn a_full_copy_continues_where_it_failed() {
    let node = node(3 * CHANGES_PER_BATCH as u64);
    let last = Sequence(3 * CHANGES_PER_BATCH as u64);
    node.behind.begin(last).unwrap();
    node.store.set_plan(Plan { fail_writes: 2..3, is_temporary: true, ..Plan::default() });
    let mut turn = begin_turn(&node.behind).unwrap();
    assert!(node.copier.copy(&node.behind, &mut turn, false).is_err());
    assert_eq!(node.behind.progress(), Sequence(0));
    node.store.set_plan(Plan::default());
    node.copier.copy(&node.behind, &mut turn, false).unwrap();
    assert_eq!((node.store.counts().writes, node.behind.progress()), (2, last));
    assert!((1..=last.0).all(|id| node.store.post(PostId(id)).unwrap().is_some()));
}

#[test]
fn a_node_deposed_during_a_write_stores_no_progress() {
    let mut node = node(9);
    node.note_changes(1..=9);
    let asked = AtomicU64::new(0);
    node.copier.is_writer = Box::new(move || asked.fetch_add(1, Ordering::Relaxed) == 0);
    node.copier.copy(&node.behind, &mut Turn::default(), false).unwrap();
    assert_eq!((node.store.counts().writes, node.store.counts().persists), (1, 0));
    assert_eq!(node.behind.progress(), Sequence(0));
}

#[test]
fn a_deleted_post_whose_record_is_damaged_becomes_a_tombstone() {
    let mut node = node(9);
    let damaged = ArchivedRecord::Post(b"damaged".to_vec());
    node.store.write(&Batch { posts: vec![(PostId(7), damaged)], ..Batch::default() }).unwrap();
    drop(node.machine.apply(&Event::Deleted { id: PostId(7), repost_of: None, post: None }));
    node.note_changes(1..=9);
    node.store.set_plan(Plan { damaged_post: Some(PostId(7)), ..Plan::default() });
    node.copier.copy(&node.behind, &mut Turn::default(), false).unwrap();
    assert_eq!(node.store.inner().post(PostId(7)).unwrap(), Some(ArchivedRecord::Deleted));
    assert_eq!((node.behind.progress(), node.copier.world.read_failures.count()), (Sequence(9), 1));
}

#[test]
fn a_source_is_held_back_before_progress_is_stored_and_written_later() {
    let node = node(9);
    node.note_changes(1..=9);
    let ann = SourceId::new("ann").unwrap();
    node.store.set_plan(Plan { damaged: vec![ann.clone()], fail_persists: 1..2, ..Plan::default() });
    assert!(node.copier.copy(&node.behind, &mut Turn::default(), false).is_err());
    assert_eq!((node.store.held_back().unwrap(), node.behind.progress()), ([ann.clone()].into(), Sequence(0)));
    node.copier.copy(&node.behind, &mut Turn::default(), false).unwrap();
    assert_eq!(node.behind.progress(), Sequence(9));
    let entries = node.copier.world.entries_in_memory(&ann, Sequence(9));
    assert_eq!((entries.placed.len(), node.copier.world.held_back.sources()), (9, 1));
    let refused = node.behind.write(&entries).unwrap_err();
    assert!(matches!(&refused, ArchiveError::Damaged { what, .. } if what.contains("ann")), "{refused}");
    node.store.set_plan(Plan::default());
    node.copier.copy(&node.behind, &mut Turn::default(), false).unwrap();
    assert_eq!(node.store.held_back().unwrap(), BTreeSet::new());
    node.behind.write(&entries).unwrap();
}
