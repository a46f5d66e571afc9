//! Tests of the choice of posts to archive, and of the replay of posts that are in both tiers or in only some of their
//! outboxes.
#![cfg(test)]

use std::sync::Arc;

use crate::clock::UnixMicros;
use crate::feed::celebrity::CelebrityPolicy;
use crate::feed::event::{ChangedPost, Event};
use crate::feed::followers::Sharding;
use crate::feed::position::{Position, at};
use crate::feed::post::{Body, Draft, Post};
use crate::feed::record::PostRecord;
use crate::id::{PostId, SourceId, SourceSlot};
use crate::limits::{HELD_BACK_SOURCES_MAX, TIERING_WRITES_MAX};
use crate::state::posts::Stored;
use crate::state::records::RecordTraversal;
use crate::state::resolved::{Needs, Resolved};
use crate::state::unwritten::TieringLimits;
use crate::state::world::{Applied, StateMachine, World};
use crate::storage::archive::faulty::{FaultyArchive, Plan};
use crate::storage::archive::{Archive, ArchivedRecord, MemoryArchive, ReplicatedArchive};
use crate::storage::sequence::Sequence;

fn world(outbox_posts: usize, posts_bytes: usize) -> (Arc<World>, StateMachine) {
    let archive: Arc<dyn Archive> = Arc::new(MemoryArchive::default());
    let limits = TieringLimits { outbox_posts, posts_bytes };
    World::create_with(CelebrityPolicy::PushAll, Sharding::new(1), Some((archive, limits)))
}

fn published(time: i64, author: &str, tag: Option<&str>) -> Event {
    let body = Body::new(r#""text of some length, so that posts weigh something""#).unwrap();
    let tags = tag.map(|tag| SourceId::tag(tag).unwrap()).into_iter().collect();
    let draft = Draft { tags, ..Draft::new(SourceId::new(author).unwrap(), body) };
    Event::Published { position: position(time), draft, accepted_at: UnixMicros(time) }
}

fn position(time: i64) -> Position {
    at(time, time as u64)
}

fn has(world: &World, source: &str, time: i64) -> bool {
    let source = world.sources.get(&SourceId::new(source).unwrap());
    source.is_some_and(|source| source.outbox().contains(position(time)))
}

#[test]
fn replay_adds_a_post_to_outboxes_that_the_snapshot_lacks() {
    let (world, mut machine) = world(10, usize::MAX);
    let event = published(7, "ann", Some("tea"));
    let Event::Published { position, draft, .. } = &event else { unreachable!() };
    let mut post = Post::new(*position, draft, position.published_at);
    post.join(|id| world.sources.intern(id).slot);
    machine.restore_placed(&Arc::new(post), |nth| (nth == 0).then_some(crate::feed::outbox::Route::Push));
    assert!(has(&world, "ann", 7) && !has(&world, "tag:tea", 7));
    machine.set_replaying(true);
    for _ in 0..2 {
        let applied = machine.apply(&event);
        assert!(matches!(&applied, crate::state::world::Applied::Published { push, .. } if push.len() == 2));
        assert!(has(&world, "ann", 7) && has(&world, "tag:tea", 7));
    }
}

#[test]
fn a_post_edited_during_a_write_is_written_again() {
    let (world, mut machine) = world(1, usize::MAX);
    (1..=4).for_each(|time| drop(machine.apply(&published(time, "ann", None))));
    assert!(machine.is_tiering_due());
    let slow = machine.collect_tiering(Sequence(1));
    let body = Some(Body::new("2").unwrap());
    machine.apply(&Event::Edited { id: PostId(1), body, hidden: None, at: UnixMicros(9), post: None });
    machine.apply(&Event::Edited { id: PostId(4), body: None, hidden: Some(true), at: UnixMicros(9), post: None });
    let next = machine.collect_tiering(Sequence(1));
    let ids: Vec<PostId> = next.batch(&world).posts.into_iter().map(|(id, _)| id).collect();
    assert_eq!(ids, [PostId(1)], "the first is on its way to the archive, the last is not");
    machine.finish_tiering(slow);
    machine.finish_tiering(next);
    machine.apply(&Event::Edited { id: PostId(4), body: None, hidden: Some(false), at: UnixMicros(9), post: None });
    assert!(machine.collect_tiering(Sequence(1)).is_empty());
}

#[test]
fn the_tombstone_of_an_id_that_had_no_post_is_written_to_the_archive_once() {
    let (world, mut machine) = world(1, usize::MAX);
    let deleted = Event::Deleted { id: PostId(7), repost_of: None, post: None };
    (0..2).for_each(|_| drop(machine.apply(&deleted)));
    let round = machine.collect_tiering(Sequence(1));
    let batch = round.batch(&world);
    assert!(matches!(batch.posts[..], [(PostId(7), ArchivedRecord::Deleted)]) && batch.removed.is_empty());
    machine.finish_tiering(round);
    machine.apply(&deleted);
    assert!(machine.collect_tiering(Sequence(2)).is_empty());
    assert_eq!(machine.backlog.tombstones, [PostId(7)], "it leaves memory some day");
}

#[test]
fn above_the_byte_budget_the_oldest_posts_leave_memory_of_any_source() {
    let (world, mut machine) = world(1_000, 50_000);
    (0..400).for_each(|time| drop(machine.apply(&published(time, &format!("a{}", time % 4), None))));
    (400..440).for_each(|time| drop(machine.apply(&published(time, &format!("b{time}"), None))));
    while machine.is_tiering_due() {
        let tiering = machine.collect_tiering(Sequence(1));
        assert!(!tiering.is_empty());
        machine.finish_tiering(tiering);
    }
    assert!(world.posts.bytes() <= 50_000);
    let kept: Vec<bool> = (0..440).map(|time| world.posts.get(PostId(time)).is_some()).collect();
    let newest_gone = kept.iter().rposition(|kept| !kept).unwrap();
    let oldest_kept = kept.iter().position(|kept| *kept).unwrap();
    assert!(newest_gone < 350 && oldest_kept > 50 && newest_gone < oldest_kept + 100, "{oldest_kept} {newest_gone}");
}

#[test]
fn a_snapshot_far_above_the_memory_limit_is_loaded_within_the_limit() {
    const LIMIT: usize = 70_000;
    let archive: Arc<dyn Archive> = Arc::new(MemoryArchive::default());
    let limits = TieringLimits { outbox_posts: 10_000, posts_bytes: LIMIT / 8 * 7 };
    let open = || World::create_with(CelebrityPolicy::PushAll, Sharding::new(1), Some((Arc::clone(&archive), limits)));
    let (walked, mut machine) = open();
    let author = |nth: i64| format!("a{nth}");
    (0..20).for_each(|nth| drop(machine.intern(&SourceId::new(&author(nth)).unwrap())));
    // One author after the other fills memory, each just before the traversal reaches that author.
    let mut records = Vec::new();
    let walk = RecordTraversal { world: &walked, sources: 20 };
    for nth in 0..20 {
        for time in nth * 1_000..nth * 1_000 + 200 {
            machine.apply(&published(time, &author(nth), None));
            while machine.is_tiering_due() {
                let tiering = machine.collect_tiering(Sequence(1));
                archive.write(&tiering.batch(&walked)).unwrap();
                machine.finish_tiering(tiering);
            }
        }
        let of_author = |record: &PostRecord<u32>| record.sources[0] == nth as u32;
        let (mut all, taken) = (Vec::new(), records.len());
        walk.posts(|record| {
            all.push(record);
            Ok::<_, ()>(())
        })
        .unwrap();
        records.extend(all.into_iter().filter(of_author));
        assert!(records.len() > taken + 50);
    }
    let (restored, mut machine) = open();
    walk.sources().for_each(|source| machine.restore_source(&source).unwrap());
    let (mut most, mut all_bytes) = (0, 0);
    for some in records.chunks(20) {
        let before = restored.posts.bytes();
        some.iter().for_each(|record| machine.restore_post(record).unwrap());
        all_bytes += restored.posts.bytes() - before;
        machine.keep_load_within_limit().unwrap();
        most = most.max(restored.posts.bytes());
    }
    assert!(all_bytes > 3 * LIMIT && most <= LIMIT / 8 * 10, "{most} bytes at most, of {all_bytes} in all");
    machine.note_archived_counts(false).unwrap();
    for time in (0..20).flat_map(|nth| nth * 1_000..nth * 1_000 + 200) {
        assert!(restored.find(PostId(time as u64)).unwrap().is_some(), "{time}");
    }
}

#[test]
fn a_round_with_damaged_pages_writes_all_other_sources_in_few_writes() {
    for (damaged, rounds_max) in [(0, 1), (1, 1), (40, 12)] {
        let (world, mut machine) = world(1, usize::MAX);
        (0..1_200).for_each(|time| drop(machine.apply(&published(time, &format!("a{}", time % 400), None))));
        let names: Vec<SourceId> = (0..400).map(|nth| SourceId::new(&format!("a{nth}")).unwrap()).collect();
        let damaged: Vec<SourceId> = names.iter().take(damaged * 9).step_by(9).cloned().collect();
        let archive = FaultyArchive::new(MemoryArchive::default(), Plan::default());
        let mut rounds = 0;
        while machine.is_tiering_due() {
            archive.set_plan(Plan { damaged: damaged.clone(), ..Plan::default() });
            let written = machine.collect_tiering(Sequence(1)).write(&world, &archive);
            let failed = machine.finish_round(written).is_err();
            assert!(archive.counts().writes <= 1 + 2 * TIERING_WRITES_MAX as u64, "{:?}", archive.counts());
            rounds += 1;
            assert!(rounds <= rounds_max && (rounds < rounds_max || !failed), "{} damaged: {rounds}", damaged.len());
        }
        for name in &names {
            let in_memory = world.sources.get(name).unwrap().outbox().in_memory();
            assert_eq!(in_memory, if damaged.contains(name) { 3 } else { 1 }, "{name}");
        }
        assert_eq!(world.held_back.sources(), damaged.len());
    }
}

#[test]
fn sources_above_the_held_back_limit_are_retried_and_deletions_get_tombstones() {
    let (world, mut machine) = world(1, usize::MAX);
    (0..HELD_BACK_SOURCES_MAX as u32).for_each(|slot| assert!(world.held_back.insert(SourceSlot(slot + 1_000_000))));
    (1..=4).for_each(|time| drop(machine.apply(&published(time, "ann", None))));
    let damaged = vec![SourceId::new("ann").unwrap()];
    let archive = FaultyArchive::new(MemoryArchive::default(), Plan { damaged, ..Plan::default() });
    for _ in 0..3 {
        let written = machine.collect_tiering(Sequence(1)).write(&world, &archive);
        assert_eq!(written.failed.as_ref().map(|(failed, _)| failed.batch(&world).placed.len()), Some(3));
        machine.finish_round(written).unwrap_err();
    }
    assert!(has(&world, "ann", 1) && machine.is_tiering_due());
    (1..=4).for_each(|id| drop(machine.apply(&Event::Deleted { id: PostId(id), repost_of: None, post: None })));
    let written = machine.collect_tiering(Sequence(1)).write(&world, &archive);
    machine.finish_round(written).unwrap();
    assert!((1..=4).all(|id| archive.post(PostId(id)).unwrap() == Some(ArchivedRecord::Deleted)));
}

#[test]
fn a_replica_keeps_edits_and_deletions_of_posts_that_only_the_archive_has() {
    let store = MemoryArchive::ordered();
    let limits = TieringLimits { outbox_posts: 4, posts_bytes: usize::MAX };
    let archive = Arc::new(ReplicatedArchive::new(Arc::new(store)).unwrap());
    let policy = CelebrityPolicy::PushAll;
    let (world, mut machine) = World::create_replicated(policy, Sharding::new(1), archive, limits);
    let draft = Draft::new(SourceId::new("bob").unwrap(), Body::new("0").unwrap());
    for id in [6, 7, 8] {
        let position = at(id as i64, id);
        machine.apply(&Event::Published { position, draft: draft.clone(), accepted_at: position.published_at });
    }
    let copied = world.copied(&[6, 7, 8].map(PostId), Sequence(2)).unwrap();
    let behind = world.replicated_archive().unwrap();
    behind.shared().write(&copied.rest).unwrap();
    let slot = world.sources.get(&SourceId::new("bob").unwrap()).unwrap().slot;
    for id in [6, 7, 8] {
        world.sources.at(slot).change_outbox(|outbox| outbox.move_to_archive(at(id as i64, id)));
        world.posts.forget(PostId(id));
    }
    let edited = |body: Option<&str>, hidden| {
        let body = body.map(|body| Body::new(body).unwrap());
        Event::Edited { id: PostId(7), body, hidden, at: UnixMicros(9), post: None }
    };
    let (mut needs, mut resolved) = (Needs::default(), Resolved::default());
    needs.post(PostId(7), &world, &resolved);
    resolved.look_up(needs, &world).unwrap();
    machine.apply(&edited(Some("1"), None));
    machine.apply(&edited(None, Some(true)));
    machine.apply(&Event::Deleted { id: PostId(8), repost_of: None, post: None });
    assert!(world.posts.get(PostId(7)).is_none(), "only the archive has it");
    let shown = world.find(PostId(7)).unwrap().and_then(Stored::live).unwrap();
    assert_eq!((shown.body(), shown.hidden), ("1", true));
    assert!(matches!(world.find(PostId(8)).unwrap(), Some(Stored::Deleted)));
    assert_eq!(machine.backlog.tombstones, [PostId(8)], "it leaves memory some day");
    // The data of a deleted post counts once.
    let known = ChangedPost { at: at(6, 6), sources: vec![draft.author], repost_of: None, hidden: false };
    let deleted = Event::Deleted { id: PostId(6), repost_of: None, post: Some(Box::new(known)) };
    assert!(matches!(machine.apply(&deleted), Applied::Deleted { post, .. } if *post.sources == [slot]));
    assert!(matches!(machine.apply(&deleted), Applied::Done));
    assert_eq!(world.sources.at(slot).outbox().len(), 2, "the one that another event deleted is still counted");
    // This node becomes the sequencer, and judges an edit of a post that it has looked up before.
    let looked_up = resolved.stored(&world, PostId(7)).and_then(Stored::live).unwrap();
    assert_eq!((looked_up.body(), looked_up.hidden), ("1", true));
    machine.apply_validated(&edited(Some("2"), None), Some(&looked_up));
    let shown = world.posts.get(PostId(7)).unwrap();
    assert_eq!((shown.body(), shown.hidden), ("2", true));
}
