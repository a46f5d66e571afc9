//! Moves replies out of memory together with the entries of their authors, so that they still count.
//!
//! Most posts have few replies. Their outboxes never have too many posts, so a reply would stay in memory until all posts take too many bytes.

use std::mem;

use super::Tiering;
use crate::feed::outbox::{OutboxQuery, Part};
use crate::feed::position::{Direction, Position, PositionRange};
use crate::id::SourceSlot;
use crate::state::sources::Source;
use crate::state::world::{StateMachine, World};
use crate::storage::archive::{Archive, ArchiveError};

/// Number of archived replies that are read together.
const LISTED_AT_ONCE: usize = 1_024;

impl World {
    /// Returns true if the archived posts of a source are listed: the source collects the replies to a post, and the archive does not count
    /// them.
    fn lists_archived(&self, source: &Source) -> bool {
        source.id.replied_post().is_some() && self.archive().is_some_and(|archive| archive.is_remote())
    }
}

impl StateMachine {
    /// Adds the entries of posts in the replies to other posts, if the entries of their authors were collected. Also adds the entries that
    /// were left behind before.
    pub(super) fn collect_replies(&mut self, tiering: &mut Tiering) {
        let left_behind = mem::take(&mut self.backlog.left_behind);
        tiering.posts.extend(left_behind.iter().filter_map(|(_, position)| self.world().posts.get(position.id)));
        let with_author = tiering.entries.iter().filter_map(|(slot, position, _)| {
            let post = self.world().posts.get(position.id).filter(|post| post.author().slot == *slot)?;
            Some((post.replies()?.slot, *position))
        });
        let is_held_back = |slot: &SourceSlot| self.world().held_back.contains(*slot);
        let entries = with_author.chain(left_behind).filter(|(slot, _)| !is_held_back(slot));
        let entry = |(slot, position): (SourceSlot, Position)| {
            // The post may have been deleted, and the entry may be in the archive.
            let route = self.world().sources.at(slot).outbox().route(position)?;
            Some((slot, position, route))
        };
        let mut entries: Vec<_> = entries.filter_map(entry).collect();
        tiering.entries.append(&mut entries);
        // A reply may be collected with its author as well as with the post that it answers.
        tiering.entries.sort_unstable_by_key(|(slot, position, _)| (*slot, *position));
        tiering.entries.dedup();
    }

    /// Moves an entry of an outbox to the archive, which already contains it.
    pub(super) fn move_to_archive(&self, slot: SourceSlot, position: Position) {
        let source = self.world().sources.at(slot);
        let is_listed = self.world().lists_archived(source);
        source.change_outbox(|outbox| {
            if is_listed && outbox.contains(position) {
                outbox.list(position);
            }
            outbox.move_to_archive(position)
        });
    }

    /// Reads the list of archived replies to a post from the archive, if they must be listed.
    pub(super) fn list_archived_replies(&self, archive: &dyn Archive, source: &Source) -> Result<(), ArchiveError> {
        let mut span = PositionRange::ALL;
        while self.world().lists_archived(source) {
            let mut archived = Vec::new();
            let max = LISTED_AT_ONCE;
            let ask = OutboxQuery { part: Part::Whole, span, direction: Direction::Older, max };
            archive.positions(&source.id, ask, &mut archived)?;
            let last = archived.last().copied().filter(|_| archived.len() == max);
            source.change_outbox(|outbox| outbox.restore_listed(archived.into_iter()));
            match last {
                Some(last) => span = span.beyond(last, Direction::Older),
                None => break,
            }
        }
        Ok(())
    }

    /// Notes an entry that remains in memory, if nothing else would collect it again.
    pub(super) fn leave_behind(&mut self, slot: SourceSlot, position: Position) {
        if self.world().sources.at(slot).id.replied_post().is_some() {
            self.backlog.left_behind.push((slot, position));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::feed::celebrity::CelebrityPolicy;
    use crate::feed::event::Event;
    use crate::feed::followers::Sharding;
    use crate::feed::position::at;
    use crate::feed::post::{Body, Draft};
    use crate::id::{PostId, SourceId};
    use crate::state::records::{SourceRecord, record};
    use crate::state::unwritten::TieringLimits;
    use crate::storage::archive::faulty::{FaultyArchive, Plan};
    use crate::storage::archive::{MemoryArchive, ReplicatedArchive};
    use crate::storage::sequence::Sequence;

    fn world() -> (Arc<World>, StateMachine) {
        let archive: Arc<dyn Archive> = Arc::new(MemoryArchive::default());
        let limits = TieringLimits { outbox_posts: 2, posts_bytes: usize::MAX };
        World::create_with(CelebrityPolicy::PushAll, Sharding::new(1), Some((archive, limits)))
    }

    /// Ann replies to posts 100 and 101 in turn.
    fn reply(machine: &mut StateMachine, ids: std::ops::RangeInclusive<u64>) {
        for id in ids {
            let draft = Draft::new(SourceId::new("ann").unwrap(), Body::new("1").unwrap());
            let draft = Draft { reply_to: Some(PostId(100 + id % 2)), ..draft };
            let position = at(id as i64, id);
            machine.apply(&Event::Published { position, draft, accepted_at: position.published_at });
        }
    }

    fn in_memory(world: &World) -> Vec<u64> {
        (1..=30).filter(|id| world.posts.get(PostId(*id)).is_some()).collect()
    }

    #[test]
    fn a_reply_is_archived_with_the_outbox_of_its_author_even_in_a_short_thread() {
        let (world, mut machine) = world();
        // Each of the two posts has so many replies that its outbox archives the oldest ones by itself too.
        reply(&mut machine, 1..=11);
        let round = machine.collect_tiering(Sequence(1));
        let mut placed = round.batch(&world).placed;
        let collected = placed.len();
        placed.dedup();
        assert_eq!((collected, placed.len()), (18, 18), "nine posts, each of its author and of what it answers, once");
        machine.finish_tiering(round);
        assert_eq!(in_memory(&world), [10, 11]);
    }

    #[test]
    fn a_reply_archived_only_for_its_author_leaves_memory_in_the_next_round() {
        let (world, mut machine) = world();
        reply(&mut machine, 1..=5);
        let mut round = machine.collect_tiering(Sequence(1));
        let ann = world.sources.get(&SourceId::new("ann").unwrap()).unwrap().slot;
        let mut failed = Tiering { as_of: round.as_of, posts: round.posts.clone(), ..Tiering::default() };
        failed.entries = round.entries.extract_if(.., |(slot, ..)| *slot != ann).collect();
        assert_eq!((round.entries.len(), failed.entries.len()), (3, 3));
        machine.finish_tiering(round);
        machine.give_up_tiering(failed);
        assert_eq!(in_memory(&world), [1, 2, 3, 4, 5]);
        assert!(machine.is_tiering_due());
        let round = machine.collect_tiering(Sequence(1));
        assert_eq!(round.batch(&world).placed.len(), 3);
        machine.finish_tiering(round);
        assert_eq!(in_memory(&world), [4, 5]);
        assert!(!machine.is_tiering_due() && machine.collect_tiering(Sequence(1)).is_empty());
    }

    #[test]
    fn replies_on_an_unwritable_page_do_not_disturb_later_rounds() {
        let (world, mut machine) = world();
        let damaged = vec![SourceId::replies_to(PostId(100))];
        let archive = FaultyArchive::new(MemoryArchive::default(), Plan { damaged, ..Plan::default() });
        reply(&mut machine, 1..=5);
        let written = machine.collect_tiering(Sequence(1)).write(&world, &archive);
        machine.finish_round(written).unwrap();
        assert_eq!((in_memory(&world), world.held_back.sources()), (vec![2, 4, 5], 1));
        let writes = archive.counts().writes;
        reply(&mut machine, 6..=9);
        let written = machine.collect_tiering(Sequence(1)).write(&world, &archive);
        machine.finish_round(written).unwrap();
        assert_eq!(archive.counts().writes, writes + 1, "in one write");
        assert_eq!(in_memory(&world), [2, 4, 6, 8, 9]);
    }

    #[test]
    fn a_node_omits_archived_replies_of_earlier_versions_without_their_thread() {
        let restored = |is_replicated: bool| {
            let (earlier, mut machine) = world();
            reply(&mut machine, 1..=1);
            let post = earlier.posts.get(PostId(1)).unwrap();
            let mut record = record(&earlier, &post, |source| source.slot.0);
            record.sources.truncate(1);
            let limits = TieringLimits { outbox_posts: 2, posts_bytes: usize::MAX };
            let (policy, sharding) = (CelebrityPolicy::PushAll, Sharding::new(1));
            let (world, mut machine) = if is_replicated {
                let archive = ReplicatedArchive::new(Arc::new(MemoryArchive::ordered())).unwrap();
                World::create_replicated(policy, sharding, Arc::new(archive), limits)
            } else {
                World::create_with(policy, sharding, Some((Arc::new(MemoryArchive::default()), limits)))
            };
            machine.restore_source(&SourceRecord::new(SourceId::new("ann").unwrap())).unwrap();
            machine.restore_post(&record).unwrap();
            world.sources.get(&SourceId::replies_to(PostId(101))).is_some()
        };
        assert!(restored(false));
        assert!(!restored(true));
    }
}
