//! The archive: posts too old for memory, and where they stand in the outboxes of their sources.
//!
//! Responsible for:
//! - the seam between outboxes in memory and whatever keeps the rest of them;
//! - what every archive promises, which one suite of tests (`contract`) checks for all of them.
//!
//! Not responsible for:
//! - which posts are too old, and joining both levels into one outbox (the callers);
//! - how a post is encoded: its bytes are opaque here;
//! - keeping what nobody archived: that is the journal's.

#[cfg(test)]
mod contract;
mod error;
pub mod faulty;
mod memory;
mod redb;

pub use crate::feed::outbox::{Shelf, Stock};
pub use error::ArchiveError;
pub use memory::MemoryArchive;
pub use redb::{ReadOnlyArchive, RedbArchive, Totals, identity_in};

use std::path::PathBuf;

use crate::feed::outbox::{Part, Route};
use crate::feed::position::{Direction, Position, Span};
use crate::id::{PostId, SourceId};
use crate::storage::identity::Identity;
use crate::storage::journal::Sequence;

/// What the archive has under a post id.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kept {
    /// A post, as the caller encoded it.
    Post(Vec<u8>),
    /// A tombstone: there was a post, and its id cannot be used again.
    Deleted,
}

/// Changes written together, all or none. Writing a batch twice leaves the same posts and entries as writing it once.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Batch {
    /// Put or replaced. Of two under one id the later stays.
    pub posts: Vec<(PostId, Kept)>,
    /// Entries put into outboxes. One that is there keeps the route it first had.
    pub placed: Vec<(SourceId, Position, Route)>,
    /// Entries taken out of outboxes, after all were placed. One that is not there is no error.
    pub removed: Vec<(SourceId, Position)>,
}

/// The file of a data directory's archive. Checksums are beside it.
pub const FILE: &str = "archive.redb";

/// The file of its checksums.
pub const SUMS_FILE: &str = "archive.sums";

/// What becomes of a post when an archive is rewritten.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It stays as it is.
    Keep,
    /// It is kept as other bytes.
    Replace(Vec<u8>),
    /// A tombstone takes its place.
    Tombstone,
}

/// What an archive is to be rewritten without.
pub struct Rewrite<'a> {
    /// Sources of which nothing is kept: neither entries in their outboxes nor their names.
    pub without: &'a [SourceId],
    /// What becomes of a post, by its bytes.
    pub fate: &'a dyn Fn(&[u8]) -> Fate,
}

/// Keeps posts and outbox entries. Read from any thread while one writes.
pub trait Archive: Send + Sync + 'static {
    /// Writes a batch. Readers see it at once; it is durable after [`Archive::persist`].
    ///
    /// # Errors
    /// When it could not be written. Readers see nothing of it then. After a full disk the same succeeds once there is room.
    fn write(&self, batch: &Batch) -> Result<(), ArchiveError>;

    /// Replaces everything that was ever written by what is kept now, less what is to go: nothing else is in the archive's files afterwards,
    /// also not where something was written over. It all survives a loss of power then; whoever calls it has persisted the archive, and
    /// writes nothing meanwhile. Reads go on.
    ///
    /// # Errors
    /// When it could not be written, or the archive is about to be closed. It is as it was then.
    fn rewrite(&self, rewrite: &Rewrite<'_>) -> Result<(), ArchiveError>;

    /// Makes everything written so far survive a loss of power, as far as the archive survives anything. On a disk that runs
    /// full just then it waits for room. The last event of the journal that is behind it is kept along.
    ///
    /// # Errors
    /// When that cannot be known to have happened.
    fn persist(&self, through: Sequence) -> Result<(), ArchiveError>;

    /// The event it was persisted with last; 0 if it never was.
    ///
    /// # Errors
    /// When it could not be read.
    fn through(&self) -> Result<Sequence, ArchiveError>;

    /// What is kept under an id.
    ///
    /// # Errors
    /// When it could not be read.
    fn post(&self, id: PostId) -> Result<Option<Kept>, ArchiveError>;

    /// Appends to `into` at most `max` positions of `part` inside `span`, nearest first in `direction`, each once.
    ///
    /// # Errors
    /// When they could not be read. Nothing was appended then.
    fn copy(
        &self,
        source: &SourceId,
        part: Part,
        span: Span,
        direction: Direction,
        max: usize,
        into: &mut Vec<Position>,
    ) -> Result<(), ArchiveError>;

    /// At most `max` of the ids that something is kept under, from this one on, ascending.
    ///
    /// # Errors
    /// When they could not be read.
    fn ids_from(&self, from: PostId, max: usize) -> Result<Vec<PostId>, ArchiveError>;

    /// What there is of every outbox in which anything was ever placed, by source id. Meant to be read once, at start.
    ///
    /// # Errors
    /// When it could not be read.
    fn shelves(&self) -> Result<Vec<(SourceId, Shelf)>, ArchiveError>;

    /// The identity of the data directory that it belongs to, if it has one.
    ///
    /// # Errors
    /// When it could not be read.
    fn identity(&self) -> Result<Option<Identity>, ArchiveError> {
        Ok(None)
    }

    /// Gives it one that has none.
    ///
    /// # Errors
    /// When it could not be written.
    fn set_identity(&self, _: Identity) -> Result<(), ArchiveError> {
        Ok(())
    }

    /// Compares what can be compared without reading all of it: meant for a start.
    ///
    /// # Errors
    /// Says what does not agree.
    fn check(&self) -> Result<(), ArchiveError> {
        Ok(())
    }

    /// Writes what found no room on a full disk before, if there is anything.
    ///
    /// # Errors
    /// When there still is no room: persisting would wait for it.
    fn catch_up(&self) -> Result<(), ArchiveError> {
        Ok(())
    }

    /// From now on nothing waits for room on a full disk, but fails: the archive is about to be closed.
    fn stop_waiting(&self) {}

    /// Lets go of the file, so that it can be opened again. Whatever is asked later fails.
    fn close(&self);

    /// The file it is in, for messages.
    fn place(&self) -> PathBuf;

    /// The largest id of a post or tombstone, or a larger one: what is above it need not be looked up. Cheap. Never
    /// smaller while a reader could find a larger one.
    fn largest_id(&self) -> Option<PostId>;

    /// Whether no post and no tombstone was ever written. Cheap. Never true while a reader could find one.
    fn is_empty(&self) -> bool {
        self.largest_id().is_none()
    }
}
