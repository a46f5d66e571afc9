//! Tiering: moving posts that are too old for memory into the archive.
//!
//! Responsible for:
//! - detecting outboxes with too many posts in memory, and too many bytes of all posts together;
//! - choosing the posts that are written to the archive together, and removing them from memory once they are written;
//! - reading both tiers as one (outboxes: `state::tiering::both`, posts: `state::tiering::look_up`), writing around damaged pages
//!   (`state::tiering::parts`), the archive of a cluster (`state::tiering::replicated`), and a copy of it beside an older state
//!   (`state::tiering::newer`).
//!
//! A post is in memory as long as any outbox has it in memory, and in the archive as soon as any outbox has archived it. In between it is
//! in both, and a reader of both uses the version in memory. So nothing is missing at any moment, and writing the same data again after a
//! crash changes nothing.

mod both;
mod look_up;
mod newer;
mod parts;
mod replicated;
mod replies;

pub use parts::RoundOutcome;
pub use replicated::{Copied, changed_post};

use std::collections::HashSet;
use std::sync::Arc;

use crate::feed::outbox::{OutboxQuery, Part, Route};
use crate::feed::position::{Direction, Position, PositionRange};
use crate::feed::post::Post;
use crate::feed::record::PostRecord;
use crate::id::{PostId, SourceId, SourceSlot};
use crate::limits::{BUDGET_SAMPLE_POSTS, BUDGET_SOURCES_PER_ROUND, TOMBSTONES_IN_MEMORY_MAX};
use crate::state::records;
use crate::state::sources::Source;
use crate::state::unwritten::{Deletion, Lap, TIERING_SLACK, TieringLimits};
use crate::state::world::{StateMachine, World};
use crate::storage::archive::{ArchiveError, ArchivedRecord, Batch, Fate, RemoteArchive};
use crate::storage::frame::{pack, unpack};
use crate::storage::sequence::Sequence;

/// Maximum number of outbox entries that are moved to the archive in one round.
const TIERING_ENTRIES_MAX: usize = 8 * 1024;

/// One round of tiering.
#[derive(Clone, Debug, Default)]
pub struct Tiering {
    /// The last event whose effects it contains.
    as_of: Sequence,
    entries: Vec<(SourceSlot, Position, Route)>,
    posts: Vec<Arc<Post>>,
    rewrites: Vec<Arc<Post>>,
    tombstoned: Vec<Deletion>,
    /// The number of tombstones in memory that the archive has once this is written.
    tombstones: usize,
}

impl StateMachine {
    /// Returns true if there is enough to archive for a round.
    pub fn is_tiering_due(&self) -> bool {
        let backlog = &self.backlog;
        let posts_bytes = backlog.limits.map_or(usize::MAX, |limits| limits.posts_bytes);
        !backlog.full.is_empty()
            || backlog.rewrites.len() + backlog.tombstoned.len() >= TIERING_SLACK
            || self.world().posts.bytes() > posts_bytes
    }

    /// Collects what must be archived now, at most one round. `as_of` is the last event that was applied.
    pub fn collect_tiering(&mut self, as_of: Sequence) -> Tiering {
        let mut tiering = Tiering { as_of, ..Tiering::default() };
        let Some(limits) = self.backlog.limits else { return tiering };
        let full: Vec<SourceSlot> = self.backlog.full.iter().copied().collect();
        for slot in full {
            if tiering.entries.len() >= TIERING_ENTRIES_MAX {
                break;
            }
            if self.world().held_back.contains(slot) {
                self.backlog.full.remove(&slot);
                continue;
            }
            let excess = self.world().sources.at(slot).outbox().in_memory().saturating_sub(limits.outbox_posts);
            let taken = excess.min(TIERING_ENTRIES_MAX);
            self.collect_oldest(slot, taken, Position::MAX, &mut tiering);
            if taken == excess {
                self.backlog.full.remove(&slot);
            }
        }
        self.collect_for_budget(limits, &mut tiering);
        self.collect_replies(&mut tiering);
        let rewrites = std::mem::take(&mut self.backlog.rewrites);
        tiering.rewrites = rewrites.into_iter().filter_map(|id| self.world().posts.get(id)).collect();
        tiering.tombstoned = std::mem::take(&mut self.backlog.tombstoned);
        tiering.tombstones = self.backlog.tombstones.len();
        self.backlog.in_flight.extend(tiering.ids());
        tiering
    }

    /// Collects the oldest eighth of all posts when they take too many bytes, source by source as the pass reaches their outboxes.
    fn collect_for_budget(&mut self, limits: TieringLimits, tiering: &mut Tiering) {
        if self.world().posts.bytes() <= limits.posts_bytes {
            return;
        }
        let sources = self.world().sources.len();
        // In a replay no reader waits for this, and no later call would continue the pass.
        let looks = if self.is_replaying() { 2 * sources } else { BUDGET_SOURCES_PER_ROUND.min(sources) };
        for _ in 0..looks {
            if tiering.entries.len() >= TIERING_ENTRIES_MAX {
                break;
            }
            let lap = match self.backlog.lap.filter(|lap| lap.next < sources) {
                Some(lap) => lap,
                None if tiering.entries.is_empty() => Lap { next: 0, cutoff: self.oldest_eighth() },
                // The collected posts are still in memory: another pass now would collect them again.
                None => break,
            };
            let capacity = TIERING_ENTRIES_MAX - tiering.entries.len();
            self.collect_oldest(SourceSlot(lap.next as u32), capacity, lap.cutoff, tiering);
            self.backlog.lap = Some(Lap { next: lap.next + 1, ..lap });
        }
    }

    /// Returns a position above about an eighth of all posts in memory.
    fn oldest_eighth(&self) -> Position {
        let mut sample = self.world().posts.sample(BUDGET_SAMPLE_POSTS);
        if sample.is_empty() {
            return Position::MAX;
        }
        let eighth = sample.len() / 8;
        sample.select_nth_unstable(eighth).1.next_up()
    }

    /// Collects the oldest posts of an outbox: at most `max`, below `cutoff`.
    fn collect_oldest(&self, slot: SourceSlot, max: usize, cutoff: Position, tiering: &mut Tiering) {
        if self.world().held_back.contains(slot) {
            return;
        }
        let mut oldest = Vec::new();
        let outbox = self.world().sources.at(slot).outbox();
        outbox.copy(
            Part::Whole,
            PositionRange { below: cutoff, ..PositionRange::ALL },
            Direction::Newer,
            max,
            &mut oldest,
        );
        for position in oldest {
            let route = outbox.route(position).expect("it was copied from this outbox, and only this thread writes");
            tiering.entries.push((slot, position, route));
            tiering.posts.extend(self.world().posts.get(position.id));
        }
    }

    /// Removes a round from memory after the archive has stored it.
    pub fn finish_tiering(&mut self, tiering: Tiering) {
        self.clear_in_flight(&tiering);
        let held = self.world().held.now();
        for (slot, position, _) in &tiering.entries {
            if held.has_outbox(*slot) && self.may_remain(*slot) {
                // A command that has not been validated yet relies on this outbox being in memory.
                self.backlog.full.insert(*slot);
                self.leave_behind(*slot, *position);
                continue;
            }
            self.move_to_archive(*slot, *position);
        }
        for post in tiering.posts.iter().chain(&tiering.rewrites) {
            let id = post.id();
            let now = self.world().posts.get(id);
            if now.is_some_and(|now| !Arc::ptr_eq(&now, post)) {
                // The post was edited while it was being written.
                self.backlog.rewrites.insert(id);
            } else if held.has_post(id) {
                self.backlog.rewrites.insert(id);
            } else if !self.is_in_an_outbox(post) {
                self.world().posts.forget(id);
                self.free_ids.note(id);
            }
        }
        let archived = tiering.tombstones + tiering.tombstoned.len();
        self.backlog.tombstones.extend(tiering.tombstoned.into_iter().map(|deletion| deletion.id));
        for _ in TOMBSTONES_IN_MEMORY_MAX..self.backlog.tombstones.len().min(archived) {
            match self.backlog.tombstones.pop_front() {
                Some(oldest) if held.has_post(oldest) => self.backlog.tombstones.push_back(oldest),
                Some(oldest) => {
                    // The tombstone also hides posts that were read from the archive before another node has written the tombstone there.
                    if let Some(archive) = self.world().archive().and_then(|archive| archive.remote()) {
                        archive.invalidate(&mut std::iter::once(oldest), &mut std::iter::empty());
                    }
                    self.world().posts.forget_deleted(oldest);
                    self.free_ids.note(oldest);
                }
                None => {}
            }
        }
    }

    /// Returns true if a held outbox may remain in memory. An outbox with more than twice the limit is released instead, even if further
    /// commands keep holding it.
    fn may_remain(&self, slot: SourceSlot) -> bool {
        let posts_max =
            self.backlog.limits.map_or(usize::MAX, |limits| limits.outbox_posts.saturating_add(TIERING_SLACK));
        let may_remain = self.world().sources.at(slot).outbox().in_memory() <= posts_max.saturating_mul(2);
        if !may_remain {
            self.world().held.release(slot);
        }
        may_remain
    }

    /// Puts a round that could not be written back into the backlog.
    pub fn give_up_tiering(&mut self, tiering: Tiering) {
        self.clear_in_flight(&tiering);
        self.backlog.full.extend(tiering.entries.iter().map(|(slot, ..)| *slot));
        tiering.entries.iter().for_each(|(slot, position, _)| self.leave_behind(*slot, *position));
        self.backlog.rewrites.extend(tiering.rewrites.iter().map(|post| post.id()));
        self.backlog.tombstoned.extend(tiering.tombstoned);
    }

    fn clear_in_flight(&mut self, tiering: &Tiering) {
        for id in tiering.ids() {
            self.backlog.in_flight.remove(&id);
        }
    }

    fn is_in_an_outbox(&self, post: &Post) -> bool {
        post.sources().iter().any(|source| self.world().sources.at(source.slot).outbox().contains(post.position))
    }

    /// Records the counts of archived posts of each outbox, if the archive counts them or `lists_all` is true. Removes from memory the
    /// posts of a snapshot that were archived after it was taken.
    ///
    /// # Errors
    /// Fails if the archive cannot be read.
    pub fn note_archived_counts(&mut self, lists_all: bool) -> Result<(), ArchiveError> {
        let archive = self.world().archive().filter(|archive| lists_all || !archive.is_remote()).cloned();
        let Some(archive) = archive else { return Ok(()) };
        archive.each_outbox(&mut |id, archived_counts| {
            let source = self.world().sources.intern(&id);
            source.change_outbox(|outbox| outbox.set_archived_counts(archived_counts));
            for (part, newest) in
                [(Part::Pushed, archived_counts.pushed.newest), (Part::Pulled, archived_counts.pulled.newest)]
            {
                newest.into_iter().try_for_each(|newest| self.drop_archived(&source, part, newest))?;
            }
            self.list_archived_replies(&*archive, &source)
        })?;
        self.world().renew_pulled_epoch();
        Ok(())
    }

    /// While a snapshot is loaded: records the contents of the archive early if posts exceed their maximum bytes. Each part of a snapshot
    /// has the posts that were in memory when the traversal reached it, and together these may be more than were in memory at any one
    /// moment.
    ///
    /// # Errors
    /// Fails if the archive cannot be read.
    pub fn keep_load_within_limit(&mut self) -> Result<(), ArchiveError> {
        let Some(limits) = self.backlog.limits else { return Ok(()) };
        let most = limits.posts_bytes / 7 * 8;
        if self.world().posts.bytes() <= self.backlog.load_bytes_max.max(most) {
            return Ok(());
        }
        self.note_archived_counts(false)?;
        // The remaining posts are not in the archive: without a margin all of them would be compared again after every batch.
        self.backlog.load_bytes_max = self.world().posts.bytes() + most / 8;
        Ok(())
    }

    fn drop_archived(&mut self, source: &Source, part: Part, newest: Position) -> Result<(), ArchiveError> {
        let mut in_memory = Vec::new();
        let span = PositionRange { below: newest.next_up(), ..PositionRange::ALL };
        source.outbox().copy(part, span, Direction::Older, usize::MAX, &mut in_memory);
        for position in in_memory {
            match self.world().is_archived(source, part, position) {
                Ok(true) => {}
                Ok(false) => continue,
                // The post remains in memory, which is harmless even if the archive has it too.
                Err(cause @ ArchiveError::Damaged { .. }) => {
                    self.world().read_failures.note(&cause);
                    continue;
                }
                Err(cause) => return Err(cause),
            }
            source.change_outbox(|outbox| outbox.remove(position));
            if let Some(post) = self.world().posts.get(position.id)
                && !self.is_in_an_outbox(&post)
            {
                self.world().posts.forget(position.id);
            }
        }
        Ok(())
    }
}

impl Tiering {
    /// Returns true if the round contains nothing.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.rewrites.is_empty() && self.tombstoned.is_empty()
    }

    fn ids(&self) -> impl Iterator<Item = PostId> {
        self.posts.iter().chain(&self.rewrites).map(|post| post.id())
    }

    /// Builds the batch to be written to the archive.
    pub fn batch(&self, world: &World) -> Batch {
        let name = |slot: SourceSlot| world.sources.at(slot).id.clone();
        let post = |post: &Arc<Post>| (post.id(), ArchivedRecord::Post(encode(world, post)));
        let tombstone = |deletion: &Deletion| (deletion.id, ArchivedRecord::Deleted);
        let removed = |post: &Arc<Post>| {
            let at = post.position;
            post.sources().iter().map(move |source| (source.id.clone(), at)).collect::<Vec<_>>()
        };
        Batch {
            as_of: self.as_of,
            posts: (self.posts.iter().chain(&self.rewrites).map(post))
                .chain(self.tombstoned.iter().map(tombstone))
                .collect(),
            placed: self.entries.iter().map(|(slot, position, route)| (name(*slot), *position, *route)).collect(),
            removed: self.tombstoned.iter().filter_map(|deletion| deletion.post.as_ref()).flat_map(removed).collect(),
        }
    }
}

fn damaged(place: String, id: PostId, why: &str) -> ArchiveError {
    ArchiveError::Damaged { place, what: format!("post {id}: {why}") }
}

/// Encodes a post for the archive: MessagePack, maps with named fields, followed by its CRC-32C, because the archive itself does not
/// detect changed bytes on disk.
fn encode(world: &World, post: &Post) -> Vec<u8> {
    let mut record = records::record(world, post, |source| source.id.clone());
    // An erased author must not be named anywhere, and the parent post no longer exists.
    if post.answered.as_ref().is_some_and(|answered| world.sources.at(answered.slot).is_erased()) {
        record.answered = None;
    }
    encode_record(&record)
}

/// Encodes a record for the archive.
pub fn encode_record(record: &PostRecord<SourceId>) -> Vec<u8> {
    let mut bytes = Vec::new();
    pack(record, &mut bytes);
    bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
    bytes
}

/// Decodes a post from the bytes stored in the archive.
///
/// # Errors
/// Returns a description of the defect in the bytes.
pub fn decode(bytes: &[u8]) -> Result<PostRecord<SourceId>, String> {
    let (packed, checksum) = bytes.split_last_chunk::<4>().ok_or("it is shorter than its checksum")?;
    if crc32c::crc32c(packed).to_le_bytes() != *checksum {
        return Err("its checksum is wrong".to_owned());
    }
    unpack(packed)
}

/// Decides the fate of an archived post, so that the archive no longer contains the given users. `bytes` is its stored
/// encoding.
pub fn fate(users: &HashSet<SourceId>, bytes: &[u8]) -> Fate {
    let Ok(mut record) = decode(bytes) else {
        // The post cannot be decoded, and its author may be one of the users.
        let names = |user: &SourceId| bytes.windows(user.as_str().len()).any(|part| part == user.as_str().as_bytes());
        return if users.iter().any(names) { Fate::Tombstone } else { Fate::Keep };
    };
    if record.sources.first().is_some_and(|author| users.contains(author)) {
        return Fate::Tombstone;
    }
    match record.answered.take_if(|answered| users.contains(answered)) {
        Some(_) => Fate::Replace(encode_record(&record)),
        None => Fate::Keep,
    }
}

impl World {
    /// Records that the archive lacks a post that is named by an outbox or inbox. Returns false if that is not damage, because the post may
    /// have expired.
    pub(super) fn note_missing(&self, id: PostId) -> bool {
        if let Some(archive) = self.archive() {
            if archive.remote().is_some_and(RemoteArchive::expires) {
                return false;
            }
            self.read_failures.note(&damaged(
                archive.place(),
                id,
                "an outbox or inbox names it, but the archive does not contain it",
            ));
        }
        true
    }

    /// Returns true if the archive may contain a post or tombstone with this id. Does not block.
    pub fn may_have_archived(&self, id: PostId) -> bool {
        self.archive().is_some_and(|archive| archive.may_have(id))
    }

    /// Returns true if an outbox has archived a post. Blocks on disk reads.
    ///
    /// # Errors
    /// Fails if the archive cannot be read.
    pub(super) fn is_archived(&self, source: &Source, part: Part, position: Position) -> Result<bool, ArchiveError> {
        let Some(archive) = self.archive().filter(|_| source.outbox().archived(part) >= Some(position)) else {
            return Ok(false);
        };
        let mut newest = Vec::with_capacity(1);
        let span = PositionRange { below: position.next_up(), ..PositionRange::ALL };
        let query = OutboxQuery { part, span, direction: Direction::Older, max: 1 };
        archive.positions(&source.id, query, &mut newest)?;
        Ok(newest == [position])
    }

    /// Returns true if an outbox has archived posts.
    pub fn has_archived_posts(&self) -> bool {
        self.sources.iter().any(|source| source.outbox().archived(Part::Whole).is_some())
    }

    /// Returns true if the archive contains anything.
    pub fn has_archived(&self) -> bool {
        self.archive().is_some_and(|archive| !archive.is_empty())
    }
}

#[cfg(test)]
mod tests;
