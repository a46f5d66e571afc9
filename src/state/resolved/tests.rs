//! Tests that the result of an earlier look-up is as good as a new look-up, whatever changed meanwhile.
#![cfg(test)]

use std::sync::Arc;

use crate::clock::UnixMicros;
use crate::feed::celebrity::CelebrityPolicy;
use crate::feed::event::Event;
use crate::feed::followers::Sharding;
use crate::feed::position::at;
use crate::feed::post::{Body, Draft};
use crate::id::{PostId, SourceId};
use crate::state::posts::Stored;
use crate::state::resolved::{Needs, Resolved};
use crate::state::unwritten::TieringLimits;
use crate::state::world::{StateMachine, World};
use crate::storage::archive::{Archive, LARGEST_IDS_MAX, MemoryArchive};
use crate::storage::sequence::Sequence;

fn ann() -> SourceId {
    SourceId::new("ann").unwrap()
}

/// Returns a world with ann's posts 1 to `posts`. The newest two are in memory, the others in the archive.
fn archived_world(posts: i64) -> (Arc<World>, StateMachine) {
    let archive: Arc<dyn Archive> = Arc::new(MemoryArchive::default());
    let limits = TieringLimits { outbox_posts: 2, posts_bytes: usize::MAX };
    let (world, mut machine) = World::create_with(CelebrityPolicy::PushAll, Sharding::new(1), Some((archive, limits)));
    (1..=posts).for_each(|time| publish(&mut machine, time, time as u64));
    run_tiering_round(&mut machine);
    (world, machine)
}

fn publish(machine: &mut StateMachine, time: i64, id: u64) {
    let draft = Draft::new(ann(), Body::new("1").unwrap());
    machine.apply(&Event::Published { position: at(time, id), draft, accepted_at: UnixMicros(time) });
}

fn edit(machine: &mut StateMachine, id: u64, found: Option<&Stored>) {
    let found = found.cloned().and_then(Stored::live);
    let event = Event::Edited {
        id: PostId(id),
        body: Some(Body::new("2").unwrap()),
        hidden: None,
        at: UnixMicros(99),
        post: None,
    };
    machine.apply_validated(&event, found.as_ref());
}

fn delete(machine: &mut StateMachine, id: u64, found: Option<&Stored>) {
    let found = found.cloned().and_then(Stored::live);
    machine.apply_validated(&Event::Deleted { id: PostId(id), repost_of: None, post: None }, found.as_ref());
}

/// Runs a round of tiering, whether or not it is due.
fn run_tiering_round(machine: &mut StateMachine) {
    let tiering = machine.collect_tiering(Sequence(1));
    machine.world().archive().unwrap().write(&tiering.batch(machine.world())).unwrap();
    machine.finish_tiering(tiering);
}

fn look_up(world: &World, posts: &[u64], newest: Option<usize>) -> Resolved {
    let (mut needs, mut resolved) = (Needs::default(), Resolved::default());
    posts.iter().for_each(|id| needs.post(PostId(*id), world, &resolved));
    newest.into_iter().for_each(|max| needs.newest_of(&ann(), max, world, &resolved));
    resolved.look_up(needs, world).unwrap();
    resolved
}

fn newest(world: &World, resolved: &Resolved, max: usize) -> Option<Vec<u64>> {
    let positions = resolved.newest(world, &world.sources.get(&ann()).unwrap(), max)?;
    Some(positions.iter().map(|position| position.id.0).collect())
}

fn body(stored: Option<Stored>) -> Option<String> {
    Some(stored?.live()?.body().to_owned())
}

#[test]
fn only_posts_and_outboxes_missing_in_memory_are_looked_up() {
    let (world, _writer) = archived_world(9);
    for (id, is_needed) in [(1, true), (7, true), (8, false), (9, false), (10, false), (u64::MAX, false)] {
        let mut needs = Needs::default();
        needs.post(PostId(id), &world, &Resolved::default());
        assert_eq!(!needs.is_empty(), is_needed, "{id}");
    }
    for (max, is_needed) in [(1, false), (2, false), (3, true), (100, true)] {
        let mut needs = Needs::default();
        needs.newest_of(&ann(), max, &world, &Resolved::default());
        assert_eq!(!needs.is_empty(), is_needed, "{max}");
    }
}

#[test]
fn posts_that_change_after_their_lookup_stay_in_memory_until_the_command_is_judged() {
    let (world, mut machine) = archived_world(9);
    let resolved = look_up(&world, &[1, 2, 3, 5_000], None);
    let found = |id| resolved.stored(&world, PostId(id));
    edit(&mut machine, 1, found(1).as_ref());
    delete(&mut machine, 2, found(2).as_ref());
    // Far more posts than remain in memory, and all of them are written to the archive.
    (10..50).for_each(|time| publish(&mut machine, time, time as u64));
    (0..3).for_each(|_| run_tiering_round(&mut machine));
    assert_eq!(body(found(1)).as_deref(), Some("2"));
    assert!(matches!(found(2), Some(Stored::Deleted)));
    assert_eq!(body(found(3)).as_deref(), Some("1"));
    assert!(found(5_000).is_none());
    drop(resolved);
    (0..3).for_each(|_| run_tiering_round(&mut machine));
    assert!(world.posts.get(PostId(1)).is_none(), "nobody waits for it any more");
    assert_eq!(body(world.find(PostId(1)).unwrap()).as_deref(), Some("2"));
}

#[test]
fn a_post_published_after_the_lookup_of_its_free_id_is_found() {
    let (world, mut machine) = archived_world(9);
    // More larger ids than are listed one by one.
    let many = 700..701 + LARGEST_IDS_MAX as i64;
    many.for_each(|time| publish(&mut machine, time - 10_000, time as u64));
    run_tiering_round(&mut machine);
    assert!(world.may_have_archived(PostId(500)));
    let resolved = look_up(&world, &[500], None);
    assert!(resolved.stored(&world, PostId(500)).is_none());
    publish(&mut machine, 1, 500);
    (20..40).for_each(|time| publish(&mut machine, time, time as u64));
    (0..3).for_each(|_| run_tiering_round(&mut machine));
    assert!(resolved.stored(&world, PostId(500)).is_some());
}

#[test]
fn a_post_archived_after_its_lookup_is_looked_up_again() {
    let (world, mut machine) = archived_world(9);
    let mut resolved = look_up(&world, &[9], Some(2));
    assert_eq!(newest(&world, &resolved, 2), Some(vec![9, 8]));
    (10..15).for_each(|time| publish(&mut machine, time, time as u64));
    run_tiering_round(&mut machine);
    let mut needs = Needs::default();
    needs.post(PostId(9), &world, &resolved);
    assert!(!needs.is_empty());
    resolved.look_up(needs, &world).unwrap();
    assert!(resolved.stored(&world, PostId(9)).is_some());
}

#[test]
fn the_newest_posts_are_those_at_the_time_of_judging() {
    let (world, mut machine) = archived_world(20);
    let resolved = look_up(&world, &[5, 6], Some(10));
    assert_eq!(newest(&world, &resolved, 10), Some((11..=20).rev().collect()));
    // One post is the newest, one is dated back, and both leave memory as far as the hold permits.
    publish(&mut machine, 21, 21);
    publish(&mut machine, 15, 1_000);
    (0..3).for_each(|_| run_tiering_round(&mut machine));
    assert_eq!(newest(&world, &resolved, 10), Some(vec![21, 20, 19, 18, 17, 16, 1_000, 15, 14, 13]));
    // Some of them are deleted: one in the archive, one in memory.
    let found = world.find(PostId(14)).unwrap();
    delete(&mut machine, 14, found.as_ref());
    delete(&mut machine, 21, None);
    assert_eq!(newest(&world, &resolved, 10), Some(vec![20, 19, 18, 17, 16, 1_000, 15, 13, 12, 11]));
    // Too few of the posts that were looked up are left: the posts below them are not known.
    for id in [12, 13, 15] {
        let found = world.find(PostId(id)).unwrap();
        delete(&mut machine, id, found.as_ref());
    }
    assert_eq!(newest(&world, &resolved, 10), None);
    assert_eq!(
        newest(&world, &look_up(&world, &[], Some(10)), 10),
        Some(vec![20, 19, 18, 17, 16, 1_000, 11, 10, 9, 8])
    );
    let all = look_up(&world, &[], Some(100));
    assert_eq!(newest(&world, &all, 100).map(|all| all.len()), Some(17));
}

#[test]
fn an_outbox_held_too_long_leaves_memory_and_is_looked_up_again() {
    let (world, mut machine) = archived_world(20);
    let resolved = look_up(&world, &[], Some(10));
    let in_memory = || world.sources.get(&ann()).unwrap().outbox().in_memory();
    for time in 21..1_000 {
        publish(&mut machine, time, time as u64);
        run_tiering_round(&mut machine);
        assert!(in_memory() <= 2 * (2 + 128) + 1, "{}", in_memory());
        let newest = newest(&world, &resolved, 10);
        let expected: Vec<u64> = (time as u64 - 9..=time as u64).rev().collect();
        assert!(newest.is_none_or(|newest| newest == expected));
    }
    assert_eq!(newest(&world, &resolved, 10), None);
    drop(resolved);
    publish(&mut machine, 1_000, 1_000);
    run_tiering_round(&mut machine);
    assert_eq!(in_memory(), 2);
}
