//! Tiering: moving what is too old for memory into the archive.
//!
//! Responsible for:
//! - noticing which outboxes have too many posts in memory, and whether all posts take too many bytes;
//! - what is written to the archive together, and taking it out of memory once that is done;
//! - reading both levels as one (outboxes: `state::tiering::both`), and writing around damaged pages (`state::tiering::parts`).
//!
//! Not responsible for:
//! - how the archive keeps things (`storage::archive`), on which thread it is written (`runtime::background::archiver`).
//!
//! A post is in memory as long as any outbox in memory has it, and in the archive as soon as any outbox has shelved it. In
//! between it is in both, and whoever reads both takes what memory says. So nothing is missing at any moment, and writing
//! the same again, after a crash, changes nothing.

mod both;
mod parts;

pub use parts::Written;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

use rustc_hash::FxHashSet;

use crate::feed::outbox::{Part, Route};
use crate::feed::position::{Direction, Position, Span};
use crate::feed::post::{Membership, Post};
use crate::feed::record::PostRecord;
use crate::id::{PostId, SourceId, SourceSlot};
use crate::limits::{
    BUDGET_SAMPLE_POSTS, BUDGET_SOURCES_PER_ROUND, TIERING_ENTRIES_MAX, TIERING_SLACK, TOMBSTONES_IN_MEMORY_MAX,
};
use crate::state::posts::Stored;
use crate::state::records;
use crate::state::sources::Source;
use crate::state::world::{World, Writer};
use crate::storage::archive::{ArchiveError, Batch, Kept};
use crate::storage::frame::{pack, unpack};

/// How much stays in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TieringLimits {
    /// Posts of one outbox.
    pub outbox_posts: usize,
    /// Bytes of all posts, beyond which outboxes keep less than they may.
    pub posts_bytes: usize,
}

/// What the archive is to be told.
#[derive(Default)]
pub(super) struct Backlog {
    limits: Option<TieringLimits>,
    /// Sources with more posts in memory than they may have.
    full: FxHashSet<SourceSlot>,
    /// Archived posts that were edited, and are in memory until the archive has them anew.
    rewrites: FxHashSet<PostId>,
    /// Deleted posts: their entries go from the archive, their tombstones into it.
    tombstoned: Vec<Arc<Post>>,
    /// Tombstones that the archive has, oldest first.
    tombstones: VecDeque<PostId>,
    /// Posts that are being written.
    in_flight: FxHashSet<PostId>,
    lap: Option<Lap>,
    /// While a snapshot is loaded: bytes of posts up to which nothing is compared with the archive.
    load_bytes_max: usize,
}

/// A lap over all outboxes, made when posts take too many bytes: it takes what is older than most.
#[derive(Clone, Copy)]
struct Lap {
    /// The source to look at next.
    next: usize,
    /// Posts below it go.
    cutoff: Position,
}

/// One round of tiering.
#[derive(Clone, Debug, Default)]
pub struct Tiering {
    entries: Vec<(SourceSlot, Position, Route)>,
    posts: Vec<Arc<Post>>,
    rewrites: Vec<Arc<Post>>,
    tombstoned: Vec<Arc<Post>>,
}

impl Backlog {
    pub(super) fn new(limits: Option<TieringLimits>) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Looks at how much of an outbox is in memory, after a post came in.
    pub(super) fn note_size(&mut self, source: &Source) {
        let Some(limits) = self.limits else { return };
        if source.outbox().in_memory() > limits.outbox_posts + TIERING_SLACK.min(limits.outbox_posts) {
            self.full.insert(source.slot);
        }
    }

    pub(super) fn rewrite(&mut self, id: PostId) {
        self.rewrites.insert(id);
    }

    /// Whether the archive may be about to hold an older version of a post than memory.
    pub(super) fn is_in_flight(&self, id: PostId) -> bool {
        self.in_flight.contains(&id)
    }

    /// Takes note of a tombstone that the archive has.
    pub(super) fn note_tombstone(&mut self, id: PostId) {
        if self.limits.is_some() {
            self.tombstones.push_back(id);
        }
    }

    pub(super) fn bury_as_tombstone(&mut self, post: &Arc<Post>) {
        if self.limits.is_some() {
            self.rewrites.remove(&post.id());
            self.tombstoned.push(Arc::clone(post));
        }
    }
}

impl Writer {
    /// Whether there is enough to be shelved for a round.
    pub fn is_tiering_due(&self) -> bool {
        let backlog = &self.backlog;
        let posts_bytes = backlog.limits.map_or(usize::MAX, |limits| limits.posts_bytes);
        !backlog.full.is_empty()
            || backlog.rewrites.len() + backlog.tombstoned.len() >= TIERING_SLACK
            || self.world().posts.bytes() > posts_bytes
    }

    /// What is to be shelved now, at most one round of it.
    pub fn collect_tiering(&mut self) -> Tiering {
        let mut tiering = Tiering::default();
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
        let rewrites = std::mem::take(&mut self.backlog.rewrites);
        tiering.rewrites = rewrites.into_iter().filter_map(|id| self.world().posts.get(id)).collect();
        tiering.tombstoned = std::mem::take(&mut self.backlog.tombstoned);
        self.backlog.in_flight.extend(tiering.ids());
        tiering
    }

    /// When all posts take too many bytes, the oldest eighth of them goes, as the hand comes round to their outboxes.
    fn collect_for_budget(&mut self, limits: TieringLimits, tiering: &mut Tiering) {
        if self.world().posts.bytes() <= limits.posts_bytes {
            return;
        }
        let sources = self.world().sources.len();
        // While it replays nobody waits for it, and nothing else makes it go on.
        let looks = if self.is_replaying() { 2 * sources } else { BUDGET_SOURCES_PER_ROUND.min(sources) };
        for _ in 0..looks {
            if tiering.entries.len() >= TIERING_ENTRIES_MAX {
                break;
            }
            let lap = match self.backlog.lap.filter(|lap| lap.next < sources) {
                Some(lap) => lap,
                None if tiering.entries.is_empty() => Lap { next: 0, cutoff: self.oldest_eighth() },
                // What it took is still in memory: another lap now would meet it again.
                None => break,
            };
            let room = TIERING_ENTRIES_MAX - tiering.entries.len();
            self.collect_oldest(SourceSlot(lap.next as u32), room, lap.cutoff, tiering);
            self.backlog.lap = Some(Lap { next: lap.next + 1, ..lap });
        }
    }

    /// A position above about an eighth of all posts in memory.
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
        outbox.copy(Part::Whole, Span { below: cutoff, ..Span::ALL }, Direction::Newer, max, &mut oldest);
        for position in oldest {
            let route = outbox.route(position).expect("it was copied from there, and nobody else writes");
            tiering.entries.push((slot, position, route));
            tiering.posts.extend(self.world().posts.get(position.id));
        }
    }

    /// Takes out of memory what is in the archive now.
    pub fn finish_tiering(&mut self, tiering: Tiering) {
        self.land(&tiering);
        let held = self.world().held.now();
        for (slot, position, _) in &tiering.entries {
            if held.has_outbox(*slot) && self.may_wait(*slot) {
                // A command waits that was looked up beside what is in memory.
                self.backlog.full.insert(*slot);
                continue;
            }
            self.world().sources.at(*slot).change_outbox(|outbox| outbox.shelve(*position));
        }
        for post in tiering.posts.iter().chain(&tiering.rewrites) {
            let id = post.id();
            let now = self.world().posts.get(id);
            if now.is_some_and(|now| !Arc::ptr_eq(&now, post)) {
                // Edited while it was being written.
                self.backlog.rewrites.insert(id);
            } else if held.has_post(id) {
                self.backlog.rewrites.insert(id);
            } else if !self.is_in_an_outbox(post) {
                self.world().posts.forget(id);
                self.free_ids.note(id);
            }
        }
        for post in tiering.tombstoned {
            self.backlog.tombstones.push_back(post.id());
        }
        for _ in TOMBSTONES_IN_MEMORY_MAX..self.backlog.tombstones.len() {
            match self.backlog.tombstones.pop_front() {
                Some(oldest) if held.has_post(oldest) => self.backlog.tombstones.push_back(oldest),
                Some(oldest) => {
                    self.world().posts.forget_deleted(oldest);
                    self.free_ids.note(oldest);
                }
                None => {}
            }
        }
    }

    /// Whether an outbox that is held may stay in memory. One with twice what it may have is let go instead, however many
    /// commands one after the other hold it.
    fn may_wait(&self, slot: SourceSlot) -> bool {
        let posts_max = self.backlog.limits.map_or(usize::MAX, |limits| limits.outbox_posts + TIERING_SLACK);
        let may_wait = self.world().sources.at(slot).outbox().in_memory() <= posts_max.saturating_mul(2);
        if !may_wait {
            self.world().held.let_go(slot);
        }
        may_wait
    }

    /// Puts back what could not be written.
    pub fn give_up_tiering(&mut self, tiering: Tiering) {
        self.land(&tiering);
        self.backlog.full.extend(tiering.entries.iter().map(|(slot, ..)| *slot));
        self.backlog.rewrites.extend(tiering.rewrites.iter().map(|post| post.id()));
        self.backlog.tombstoned.extend(tiering.tombstoned);
    }

    fn land(&mut self, tiering: &Tiering) {
        for id in tiering.ids() {
            self.backlog.in_flight.remove(&id);
        }
    }

    fn is_in_an_outbox(&self, post: &Post) -> bool {
        post.sources().iter().any(|source| self.world().sources.at(source.slot).outbox().contains(post.position))
    }

    /// Takes note of what the archive has of each outbox. What a snapshot brought back that was shelved after it goes again.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn note_shelves(&mut self) -> Result<(), ArchiveError> {
        let Some(archive) = self.world().archive() else { return Ok(()) };
        for (id, shelf) in archive.shelves()? {
            let source = self.world().sources.intern(&id);
            source.change_outbox(|outbox| outbox.set_shelf(shelf));
            for (part, newest) in [(Part::Pushed, shelf.pushed.newest), (Part::Pulled, shelf.pulled.newest)] {
                newest.into_iter().try_for_each(|newest| self.drop_archived(&source, part, newest))?;
            }
        }
        self.world().renew_pulled_epoch();
        Ok(())
    }

    /// While a snapshot is loaded: takes note of the archive early when posts take more bytes than they ever may. A snapshot has what was
    /// in memory when its walk came there, which may be more in all than there was at any moment.
    ///
    /// # Errors
    /// When the archive cannot be read.
    pub fn keep_load_within_limit(&mut self) -> Result<(), ArchiveError> {
        let Some(limits) = self.backlog.limits else { return Ok(()) };
        let most = limits.posts_bytes / 7 * 8;
        if self.world().posts.bytes() <= self.backlog.load_bytes_max.max(most) {
            return Ok(());
        }
        self.note_shelves()?;
        // What stays is not in the archive: without a margin all would be compared again with every batch.
        self.backlog.load_bytes_max = self.world().posts.bytes() + most / 8;
        Ok(())
    }

    fn drop_archived(&mut self, source: &Source, part: Part, newest: Position) -> Result<(), ArchiveError> {
        let mut in_memory = Vec::new();
        let span = Span { below: newest.next_up(), ..Span::ALL };
        source.outbox().copy(part, span, Direction::Older, usize::MAX, &mut in_memory);
        for position in in_memory {
            match self.world().is_archived(source, part, position) {
                Ok(true) => {}
                Ok(false) => continue,
                // It stays in memory, where it does no harm if it is in the archive as well.
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
    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.rewrites.is_empty() && self.tombstoned.is_empty()
    }

    fn ids(&self) -> impl Iterator<Item = PostId> {
        self.posts.iter().chain(&self.rewrites).map(|post| post.id())
    }

    /// What is to be written.
    pub fn batch(&self, world: &World) -> Batch {
        let name = |slot: SourceSlot| world.sources.at(slot).id.clone();
        let post = |post: &Arc<Post>| (post.id(), Kept::Post(encode(world, post)));
        let tombstone = |post: &Arc<Post>| (post.id(), Kept::Deleted);
        let removed = |post: &Arc<Post>| {
            let at = post.position;
            post.sources().iter().map(move |source| (source.id.clone(), at)).collect::<Vec<_>>()
        };
        Batch {
            posts: (self.posts.iter().chain(&self.rewrites).map(post))
                .chain(self.tombstoned.iter().map(tombstone))
                .collect(),
            placed: self.entries.iter().map(|(slot, position, route)| (name(*slot), *position, *route)).collect(),
            removed: self.tombstoned.iter().flat_map(removed).collect(),
        }
    }
}

fn damaged(path: PathBuf, id: PostId, why: &str) -> ArchiveError {
    ArchiveError::Damaged { path, what: format!("post {id}: {why}") }
}

/// A post as the archive keeps it: MessagePack, maps with named fields, and behind it the CRC-32C of that, since the archive
/// itself does not notice when bytes change on disk.
fn encode(world: &World, post: &Post) -> Vec<u8> {
    let mut record = records::record(world, post, |source| source.id.clone());
    // An author who was erased is named nowhere, and the post that was answered is gone.
    if post.answered.as_ref().is_some_and(|answered| world.sources.at(answered.slot).is_erased()) {
        record.answered = None;
    }
    seal(&record)
}

/// A record as the archive keeps it.
pub(super) fn seal(record: &PostRecord<SourceId>) -> Vec<u8> {
    let mut bytes = Vec::new();
    pack(record, &mut bytes);
    bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
    bytes
}

/// The post that the archive keeps as these bytes.
///
/// # Errors
/// Says what is wrong with them.
pub fn decode(bytes: &[u8]) -> Result<PostRecord<SourceId>, String> {
    let (packed, checksum) = bytes.split_last_chunk::<4>().ok_or("it is shorter than its checksum")?;
    if crc32c::crc32c(packed).to_le_bytes() != *checksum {
        return Err("its checksum is wrong".to_owned());
    }
    unpack(packed)
}

impl World {
    /// What the archive has under an id. Waits for a disk.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn archived(&self, id: PostId) -> Result<Option<Stored>, ArchiveError> {
        self.archived_by(id, |source| self.sources.known(source))
    }

    /// The same, with sources found by `source`.
    pub(super) fn archived_by(
        &self,
        id: PostId,
        source: impl Fn(&SourceId) -> Option<Arc<Source>>,
    ) -> Result<Option<Stored>, ArchiveError> {
        let Some(archive) = self.archive().filter(|_| self.may_have_archived(id)) else { return Ok(None) };
        match archive.post(id)? {
            None => Ok(None),
            Some(Kept::Deleted) => Ok(Some(Stored::Deleted)),
            Some(Kept::Post(bytes)) => {
                let record = decode(&bytes).map_err(|cause| damaged(archive.place(), id, &cause))?;
                let member = |id: &SourceId| Some(Membership { slot: source(id)?.slot, id: id.clone() });
                // Tags and topics may be unknown where events are gone. The author comes first, and there is no post without.
                let sources: Box<[Membership]> = record.sources.iter().filter_map(member).collect();
                let (first, author) = (sources.first().map(|first| &first.id), record.sources.first());
                if author.is_none() || first != author {
                    return Err(damaged(archive.place(), id, "nothing else knows its author"));
                }
                let answered = record.answered.as_ref().and_then(member);
                Ok(Some(Stored::Live(Arc::new(Post::restored(&record, sources, answered)))))
            }
        }
    }

    /// Takes note that the archive lacks a post that an outbox or inbox names.
    pub(super) fn note_missing(&self, id: PostId) {
        if let Some(archive) = self.archive() {
            self.read_failures.note(&damaged(archive.place(), id, "an outbox or inbox names it, and it is not there"));
        }
    }

    /// Whether the archive may have anything under an id. Waits for nothing.
    pub fn may_have_archived(&self, id: PostId) -> bool {
        // Ids mostly grow, so that those of new posts are above all that are archived.
        self.archive().is_some_and(|archive| archive.largest_id() >= Some(id))
    }

    /// What is known under an id, in memory or in the archive. Waits for a disk.
    ///
    /// # Errors
    /// When the archive cannot be read.
    pub fn find(&self, id: PostId) -> Result<Option<Stored>, ArchiveError> {
        match self.posts.stored(id) {
            Some(stored) => Ok(Some(stored)),
            // Memory once more: an edit may have brought it back meanwhile.
            None => Ok(self.archived(id)?.map(|archived| self.posts.stored(id).unwrap_or(archived))),
        }
    }

    /// Whether an outbox has shelved a post. Waits for a disk.
    ///
    /// # Errors
    /// When the archive cannot be read.
    pub(super) fn is_archived(&self, source: &Source, part: Part, position: Position) -> Result<bool, ArchiveError> {
        let Some(archive) = self.archive().filter(|_| source.outbox().archived(part) >= Some(position)) else {
            return Ok(false);
        };
        let mut newest = Vec::with_capacity(1);
        let span = Span { below: position.next_up(), ..Span::ALL };
        archive.copy(&source.id, part, span, Direction::Older, 1, &mut newest)?;
        Ok(newest == [position])
    }

    /// Whether anything is in the archive.
    pub fn has_archived(&self) -> bool {
        self.archive().is_some_and(|archive| !archive.is_empty())
    }
}

#[cfg(test)]
mod tests;
