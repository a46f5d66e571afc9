//! Writing a round of tiering to an archive that has damaged pages.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use tracing::{error, warn};

use super::Tiering;
use crate::feed::post::Post;
use crate::id::{PostId, SourceSlot};
use crate::limits::TIERING_WRITES_MAX;
use crate::state::world::{StateMachine, World};
use crate::storage::archive::{Archive, ArchiveError, Batch};
use crate::storage::sequence::Sequence;

/// The result of writing a round.
#[derive(Debug, Default)]
pub struct RoundOutcome {
    /// The part that is in the archive now.
    pub done: Tiering,
    /// The part that remains in memory and in snapshots, and is not retried before a restart.
    pub held_back: Tiering,
    /// The part that must be retried, and the reason why it could not be written.
    pub failed: Option<(Tiering, ArchiveError)>,
}

/// Number of edits and deletions of archived posts that a replay leaves to the engine. They are written in one round, and deleted posts do
/// not count among the bytes of all posts.
const CHANGES_LEFT_MAX: usize = 1_024;

/// Maximum number of sources named in one line of the log; the others are counted.
const NAMED_MAX: usize = 20;

impl Tiering {
    /// Writes the round, as a whole if possible.
    pub fn write(self, world: &World, archive: &dyn Archive) -> RoundOutcome {
        if self.is_empty() {
            return RoundOutcome::default();
        }
        match archive.write(&self.batch(world)) {
            Ok(()) => RoundOutcome { done: self, ..RoundOutcome::default() },
            Err(cause @ ArchiveError::Damaged { .. }) => self.write_in_parts(world, archive, cause),
            Err(cause) => RoundOutcome { failed: Some((self, cause)), ..RoundOutcome::default() },
        }
    }

    /// Halves the parts that cannot be written until only those that need a damaged page are left, or the maximum number of writes for one
    /// round is reached.
    fn write_in_parts(self, world: &World, archive: &dyn Archive, mut cause: ArchiveError) -> RoundOutcome {
        let (mut written, mut failed) = (RoundOutcome::default(), Self::default());
        let mut units = self.units();
        let rest = units.split_off(units.len() / 2);
        // The caller could not write all of them together.
        let mut todo: Vec<_> = [rest, units].into_iter().filter(|units| !units.is_empty()).collect();
        for _ in 0..TIERING_WRITES_MAX {
            let Some(mut units) = todo.pop() else { break };
            let part = Self::of(&units);
            match archive.write(&part.batch(world)) {
                Ok(()) => written.done.append(part),
                Err(why @ ArchiveError::Damaged { .. }) if units.len() > 1 => {
                    cause = why;
                    todo.push(units.split_off(units.len() / 2));
                    todo.push(units);
                }
                Err(why @ ArchiveError::Damaged { .. }) => {
                    cause = why;
                    part.handle_unwritable(world, archive, &mut written, &mut failed);
                }
                Err(why) => {
                    cause = why;
                    failed.append(part);
                    break;
                }
            }
        }
        todo.iter().for_each(|units| failed.append(Self::of(units)));
        written.held_back.report(world, &cause);
        written.failed = (!failed.is_empty()).then_some((failed, cause));
        written
    }

    /// Handles a smallest part that cannot be written: one source, one edited post, or one deleted post.
    fn handle_unwritable(self, world: &World, archive: &dyn Archive, written: &mut RoundOutcome, failed: &mut Self) {
        let source = self.entries.first().map(|(slot, ..)| *slot);
        // The tombstone is enough if the entries to be removed are on a page that cannot be read.
        let tombstone = Batch { removed: Vec::new(), ..self.batch(world) };
        if source.is_some_and(|slot| world.held_back.insert(slot)) {
            written.held_back.append(self);
        } else if !self.tombstoned.is_empty() && archive.write(&tombstone).is_ok() {
            written.done.append(self);
        } else {
            failed.append(self);
        }
    }

    /// Splits the round into parts that can be written alone: the entries of a source with their posts, one edited
    /// post, or one deleted post.
    fn units(self) -> Vec<Self> {
        let as_of = self.as_of;
        let posts: FxHashMap<PostId, Arc<Post>> = self.posts.into_iter().map(|post| (post.id(), post)).collect();
        let mut by_source: FxHashMap<SourceSlot, Self> = FxHashMap::default();
        for entry in self.entries {
            let unit = by_source.entry(entry.0).or_insert_with(|| Self { as_of, ..Self::default() });
            unit.entries.push(entry);
            unit.posts.extend(posts.get(&entry.1.id).cloned());
        }
        let rewrites = self.rewrites.into_iter().map(|post| Self { as_of, rewrites: vec![post], ..Self::default() });
        let tombstoned =
            self.tombstoned.into_iter().map(|post| Self { as_of, tombstoned: vec![post], ..Self::default() });
        // Each round retries posts that cannot be written. If there are more of them than writes, each round begins at another one. The
        // deleted posts come first: their tombstones need fewer pages.
        let (mut rewrites, mut tombstoned): (Vec<_>, Vec<_>) = (rewrites.collect(), tombstoned.collect());
        for posts in [&mut rewrites, &mut tombstoned] {
            let first = fastrand::usize(..posts.len().max(1));
            posts.rotate_left(first);
        }
        tombstoned.into_iter().chain(by_source.into_values()).chain(rewrites).collect()
    }

    fn of(units: &[Self]) -> Self {
        let mut all = Self::default();
        units.iter().for_each(|unit| all.append(unit.clone()));
        all
    }

    fn append(&mut self, mut other: Self) {
        self.as_of = self.as_of.max(other.as_of);
        self.entries.append(&mut other.entries);
        self.posts.append(&mut other.posts);
        self.rewrites.append(&mut other.rewrites);
        self.tombstoned.append(&mut other.tombstoned);
    }

    fn report(&self, world: &World, cause: &ArchiveError) {
        let mut slots: Vec<SourceSlot> = self.entries.iter().map(|(slot, ..)| *slot).collect();
        slots.dedup();
        if slots.is_empty() {
            return;
        }
        let named: Vec<&str> = slots.iter().take(NAMED_MAX).map(|slot| world.sources.at(*slot).id.as_str()).collect();
        let others = match slots.len() - named.len() {
            0 => String::new(),
            others => format!(" and {others} others"),
        };
        error!(
            "{}; posts of {}{others} are kept in memory until the next start, and posts of other sources are still archived",
            cause.with_sources(),
            named.join(", ")
        );
    }
}

impl RoundOutcome {
    /// Converts the result to that of a round that the archive did not make durable.
    #[must_use]
    pub fn not_persisted(mut self, cause: ArchiveError) -> Self {
        self.failed = Some((std::mem::take(&mut self.done), cause));
        self
    }
}

impl StateMachine {
    /// Returns true if posts do not exceed their maximum bytes.
    fn is_within_store(&self) -> bool {
        self.backlog.limits.is_none_or(|limits| self.world().posts.bytes() <= limits.posts_bytes / 7 * 8)
    }

    /// Removes the written part from memory, and returns the failed part to the backlog.
    ///
    /// # Errors
    /// Returns the cause if anything must be retried.
    pub fn finish_round(&mut self, RoundOutcome { done, held_back, failed }: RoundOutcome) -> Result<(), ArchiveError> {
        self.finish_tiering(done);
        self.clear_in_flight(&held_back);
        let Some((failed, cause)) = failed else { return Ok(()) };
        self.give_up_tiering(failed);
        Err(cause)
    }

    /// Returns true if a replay has to archive before it continues. Writes to an archive on the network take long, so a replay leaves them
    /// to the engine as long as memory has space. A node of a cluster writes nothing here: posts that the archive has leave memory at once.
    fn must_archive_replayed(&self) -> bool {
        let (world, backlog) = (self.world(), &self.backlog);
        if world.archive().is_none_or(|archive| !archive.is_remote() || world.replicated_archive().is_some()) {
            return self.is_tiering_due();
        }
        backlog.rewrites.len() + backlog.tombstoned.len() >= CHANGES_LEFT_MAX
            || backlog.limits.is_some_and(|limits| world.posts.bytes() > limits.posts_bytes)
    }

    /// Keeps memory within its limits while a replay adds far more than fits into it. `as_of` is the last event that was applied.
    ///
    /// # Errors
    /// Fails if the archive cannot be written. A damaged page is not an error here: the engine retries. Neither is an archive that is
    /// unavailable, until memory exceeds its limit.
    pub fn archive_replayed(&mut self, as_of: Sequence) -> Result<(), ArchiveError> {
        while self.must_archive_replayed() {
            let tiering = self.collect_tiering(as_of);
            let world = self.world();
            let Some(archive) = world.archive().filter(|_| !tiering.is_empty()) else { break };
            let written = tiering.write(world, &**archive);
            match self.finish_round(written) {
                Err(ArchiveError::Damaged { .. }) => break,
                Err(cause) if cause.is_unavailable() && self.is_within_store() => {
                    warn!("{cause}; the replay goes on, and it is tried again");
                    break;
                }
                written => written?,
            }
        }
        Ok(())
    }
}
