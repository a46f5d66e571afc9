//! The archive data that a command needs, looked up before the command processor validates the command.
//!
//! Responsible for:
//! - determining the posts and outboxes that a command needs and that are not in memory;
//! - looking them up, and merging them with the contents of memory when the command is validated.

use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::feed::outbox::{OutboxQuery, Part};
use crate::feed::position::{Direction, Position, PositionRange};
use crate::id::{PostId, SourceId, SourceSlot};
use crate::limits::TOMBSTONES_IN_MEMORY_MAX;
use crate::state::held::{Hold, ReleaseFlag};
use crate::state::posts::Stored;
use crate::state::sources::Source;
use crate::state::world::World;
use crate::storage::archive::ArchiveError;

/// The posts and outboxes that a command needs and that are not in memory.
#[derive(Debug, Default)]
pub struct Needs {
    posts: Vec<PostId>,
    /// Those of the posts whose ids are to be minted if they are free.
    ids: Vec<PostId>,
    /// For each outbox, the number of its newest posts that are needed.
    newest: FxHashMap<SourceSlot, usize>,
}

/// The result of the look-ups for a command. It remains valid as long as this value exists.
#[derive(Debug, Default)]
pub struct Resolved {
    posts: Vec<(PostId, Option<Stored>)>,
    newest: FxHashMap<SourceSlot, Newest>,
    /// Ids that were looked up to be minted, the next one first.
    ids: VecDeque<PostId>,
    holds: Vec<Hold>,
}

/// The newest posts of an outbox in the archive.
#[derive(Debug)]
struct Newest {
    /// Newest first, without those that were deleted.
    positions: Vec<Position>,
    /// The list is complete from this position upwards.
    floor: Position,
    /// The value of `Posts::tombstoned` before the read. If it is still the same, none of the posts was deleted since.
    tombstoned: usize,
    flag: Arc<ReleaseFlag>,
}

impl Needs {
    /// Returns true if nothing has to be looked up.
    pub fn is_empty(&self) -> bool {
        self.posts.is_empty() && self.newest.is_empty()
    }

    /// Adds a post, unless memory or `resolved` has it.
    pub fn post(&mut self, id: PostId, world: &World, resolved: &Resolved) {
        if world.posts.stored(id).is_none() && world.may_have_archived(id) && resolved.find(id).is_none() {
            self.posts.push(id);
        }
    }

    /// Adds an id that is to be minted if no post has it.
    pub fn free_id(&mut self, id: PostId) {
        self.posts.push(id);
        self.ids.push(id);
    }

    /// Adds at most `max` of the newest posts of an outbox, unless memory or `resolved` has them.
    pub fn newest_of(&mut self, source: &SourceId, max: usize, world: &World, resolved: &Resolved) {
        if let Some(source) = world.sources.get(source)
            && resolved.newest(world, &source, max).is_none()
        {
            let asked = self.newest.entry(source.slot).or_default();
            *asked = max.max(*asked);
        }
    }
}

impl Resolved {
    /// Looks up the needed posts and outboxes, in addition to earlier results. Blocks on disk reads.
    ///
    /// # Errors
    /// Fails if the archive cannot be read.
    pub fn look_up(&mut self, needs: Needs, world: &World) -> Result<(), ArchiveError> {
        // Hold them first: changes after the look-up must be in memory when the command is validated.
        let hold = world.held.hold(needs.posts.clone(), needs.newest.keys().copied());
        world.prefetch_posts(needs.posts.iter().copied());
        for id in needs.posts {
            self.posts.push((id, world.find(id)?));
        }
        self.ids.extend(needs.ids);
        for (slot, flag) in hold.outboxes() {
            let max = needs.newest.get(slot).copied().unwrap_or(0);
            let flag = Arc::clone(flag);
            self.newest.insert(*slot, Newest::look_up(world, world.sources.at(*slot), max, flag)?);
        }
        self.holds.push(hold);
        Ok(())
    }

    /// Returns the result for an id, if it was looked up.
    fn find(&self, id: PostId) -> Option<&Option<Stored>> {
        self.posts.iter().rev().find(|(found, _)| *found == id).map(|(_, stored)| stored)
    }

    /// Returns the number of ids to mint that were looked up and are free.
    pub fn free_ids(&self, world: &World) -> usize {
        self.ids.iter().filter(|id| self.stored(world, **id).is_none()).count()
    }

    /// Returns the next id to mint, and does not return it again.
    pub fn next_free_id(&mut self, world: &World) -> Option<PostId> {
        while let Some(id) = self.ids.pop_front() {
            if self.stored(world, id).is_none() {
                return Some(id);
            }
        }
        None
    }

    /// Returns the post or tombstone of an id, if there is one. If memory may not have it, the id must have been looked
    /// up: this function reads no archive.
    pub fn stored(&self, world: &World, id: PostId) -> Option<Stored> {
        world.posts.stored(id).or_else(|| Some(world.with_later_changes(id, self.find(id).cloned().flatten()?)))
    }

    /// Returns at most `max` of the newest positions of an outbox, newest first, or `None` if they must be looked up.
    pub fn newest(&self, world: &World, source: &Source, max: usize) -> Option<Vec<Position>> {
        let mut newest = Vec::new();
        let ask = OutboxQuery { part: Part::Whole, span: PositionRange::ALL, direction: Direction::Older, max };
        if source.pull(ask, &mut newest).is_ok() {
            return Some(newest);
        }
        let archived = self.newest.get(&source.slot).filter(|archived| !archived.flag.is_released())?;
        let deleted_since = world.posts.tombstoned() - archived.tombstoned;
        if deleted_since > TOMBSTONES_IN_MEMORY_MAX / 2 {
            // Memory may have dropped some of these tombstones.
            return None;
        }
        let is_unchanged = deleted_since == 0;
        let is_there = |position: &&Position| is_unchanged || !world.posts.is_deleted(position.id);
        newest.extend(archived.positions.iter().filter(is_there));
        // Two sorted runs, which a stable sort merges in linear time.
        newest.sort_by(|a, b| b.cmp(a));
        newest.dedup();
        newest.truncate(max);
        let is_complete = if newest.len() == max { newest.last() >= Some(&archived.floor) } else { archived.is_all() };
        is_complete.then_some(newest)
    }

    /// Returns the bytes of its lists on the heap, without the posts themselves.
    pub fn bytes(&self) -> usize {
        let newest = self.newest.values().map(|newest| newest.positions.capacity() * size_of::<Position>());
        newest.sum::<usize>() + self.posts.capacity() * size_of::<(PostId, Option<Stored>)>()
    }
}

impl Newest {
    /// Reads at least `max` posts, if there are as many.
    fn look_up(world: &World, source: &Source, max: usize, flag: Arc<ReleaseFlag>) -> Result<Self, ArchiveError> {
        // Read before the look-up: posts that are deleted meanwhile count as deleted since.
        let tombstoned = world.posts.tombstoned();
        let Some(archive) = world.archive() else {
            return Ok(Self { positions: Vec::new(), floor: Position::MIN, tombstoned, flag });
        };
        let mut asked = max;
        loop {
            let mut positions = Vec::new();
            let query =
                OutboxQuery { part: Part::Whole, span: PositionRange::ALL, direction: Direction::Older, max: asked };
            archive.positions(&source.id, query, &mut positions)?;
            let is_all = positions.len() < asked;
            let floor = positions.last().filter(|_| !is_all).copied().unwrap_or(Position::MIN);
            // The archive has the entries of deleted posts until the next round of tiering.
            positions.retain(|position| !world.posts.is_deleted(position.id));
            if is_all || positions.len() >= max {
                return Ok(Self { positions, floor, tombstoned, flag });
            }
            asked = asked.saturating_mul(2);
        }
    }

    fn is_all(&self) -> bool {
        self.floor == Position::MIN
    }
}

#[cfg(test)]
mod tests;
