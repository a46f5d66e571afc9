//! What a command needs of the archive, and what was found there before the scribe judges it.
//!
//! Responsible for:
//! - which posts and outboxes a command needs that memory does not have;
//! - looking them up, and joining what was found with what memory has by the time the command is judged.
//!
//! Not responsible for:
//! - on which thread that waits for a disk, how often it is tried (`runtime::background::resolver`), judging commands (`runtime::writer`).

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::feed::outbox::{Ask, Part};
use crate::feed::position::{Direction, Position, Span};
use crate::id::{PostId, SourceId, SourceSlot};
use crate::limits::TOMBSTONES_IN_MEMORY_MAX;
use crate::state::held::{Grip, Hold};
use crate::state::posts::Stored;
use crate::state::sources::Source;
use crate::state::world::World;
use crate::storage::archive::ArchiveError;

/// What a command needs that memory does not have.
#[derive(Debug, Default)]
pub struct Needs {
    posts: Vec<PostId>,
    /// How many of the newest posts of which outbox.
    newest: FxHashMap<SourceSlot, usize>,
}

/// What was found for a command, and holds for as long as this is there.
#[derive(Debug, Default)]
pub struct Resolved {
    posts: Vec<(PostId, Option<Stored>)>,
    newest: FxHashMap<SourceSlot, Newest>,
    holds: Vec<Hold>,
}

/// The newest posts that the archive has of an outbox.
#[derive(Debug)]
struct Newest {
    /// Newest first, without those that were deleted.
    positions: Vec<Position>,
    /// From here up they are all there are.
    floor: Position,
    /// Posts that had been deleted by then: if there are no more, none of these was since.
    tombstoned: usize,
    grip: Arc<Grip>,
}

impl Needs {
    /// Whether it needs nothing.
    pub fn is_empty(&self) -> bool {
        self.posts.is_empty() && self.newest.is_empty()
    }

    /// A post, unless memory or `resolved` has it.
    pub fn post(&mut self, id: PostId, world: &World, resolved: &Resolved) {
        if world.posts.stored(id).is_none() && world.may_have_archived(id) && resolved.find(id).is_none() {
            self.posts.push(id);
        }
    }

    /// At most `max` of the newest posts of an outbox, unless memory or `resolved` has them.
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
    /// Looks up what is needed, beside what was found before. Waits for a disk.
    ///
    /// # Errors
    /// When the archive cannot be read.
    pub fn look_up(&mut self, needs: Needs, world: &World) -> Result<(), ArchiveError> {
        // Held first: what changes after it is looked up has to be in memory when the command is judged.
        let hold = world.held.hold(needs.posts.clone(), needs.newest.keys().copied());
        for id in needs.posts {
            self.posts.push((id, world.find(id)?));
        }
        for (slot, grip) in hold.outboxes() {
            let max = needs.newest.get(slot).copied().unwrap_or(0);
            let grip = Arc::clone(grip);
            self.newest.insert(*slot, Newest::look_up(world, world.sources.at(*slot), max, grip)?);
        }
        self.holds.push(hold);
        Ok(())
    }

    /// What was found under an id, if it was looked for.
    fn find(&self, id: PostId) -> Option<&Option<Stored>> {
        self.posts.iter().rev().find(|(found, _)| *found == id).map(|(_, stored)| stored)
    }

    /// What is known under an id. Needs to have been looked up if memory may not have it: nothing is read here.
    pub fn stored(&self, world: &World, id: PostId) -> Option<Stored> {
        world.posts.stored(id).or_else(|| self.find(id).cloned().flatten())
    }

    /// At most `max` of the newest positions of an outbox, newest first; nothing, if they have to be looked up.
    pub fn newest(&self, world: &World, source: &Source, max: usize) -> Option<Vec<Position>> {
        let mut newest = Vec::new();
        let ask = Ask { part: Part::Whole, span: Span::ALL, direction: Direction::Older, max };
        if source.pull(ask, &mut newest).is_ok() {
            return Some(newest);
        }
        let archived = self.newest.get(&source.slot).filter(|archived| !archived.grip.is_lost())?;
        let deleted_since = world.posts.tombstoned() - archived.tombstoned;
        if deleted_since > TOMBSTONES_IN_MEMORY_MAX / 2 {
            // Memory may have forgotten some of them.
            return None;
        }
        let is_unchanged = deleted_since == 0;
        let is_there = |position: &&Position| is_unchanged || !world.posts.is_deleted(position.id);
        newest.extend(archived.positions.iter().filter(is_there));
        // Two sorted runs, which a stable sort merges.
        newest.sort_by(|a, b| b.cmp(a));
        newest.dedup();
        newest.truncate(max);
        let is_complete = if newest.len() == max { newest.last() >= Some(&archived.floor) } else { archived.is_all() };
        is_complete.then_some(newest)
    }

    /// Bytes that it holds apart from itself.
    pub fn bytes(&self) -> usize {
        let newest = self.newest.values().map(|newest| newest.positions.capacity() * size_of::<Position>());
        newest.sum::<usize>() + self.posts.capacity() * size_of::<(PostId, Option<Stored>)>()
    }
}

impl Newest {
    /// At least `max` posts, if there are as many.
    fn look_up(world: &World, source: &Source, max: usize, grip: Arc<Grip>) -> Result<Self, ArchiveError> {
        // Before anything is read: what is deleted meanwhile counts as deleted since.
        let tombstoned = world.posts.tombstoned();
        let Some(archive) = world.archive() else {
            return Ok(Self { positions: Vec::new(), floor: Position::MIN, tombstoned, grip });
        };
        let mut asked = max;
        loop {
            let mut positions = Vec::new();
            archive.copy(&source.id, Part::Whole, Span::ALL, Direction::Older, asked, &mut positions)?;
            let is_all = positions.len() < asked;
            let floor = positions.last().filter(|_| !is_all).copied().unwrap_or(Position::MIN);
            // What was deleted stands in the archive until the next round of tiering.
            positions.retain(|position| !world.posts.is_deleted(position.id));
            if is_all || positions.len() >= max {
                return Ok(Self { positions, floor, tombstoned, grip });
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
