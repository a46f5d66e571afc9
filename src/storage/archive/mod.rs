//! The archive: posts that are too old for memory, and their entries in the outboxes of their sources.
//!
//! Responsible for:
//! - the interface between outboxes in memory and the storage of older entries;
//! - the contract of an archive. One test suite (`contract::archive` in `testkit`) checks it for every implementation.

mod detached;
mod error;
#[cfg(any(test, feature = "testing"))]
pub mod faulty;
mod largest_ids;
#[cfg(any(test, feature = "testing"))]
mod memory;
mod redb;
mod replicated;
pub mod samples;

pub use crate::feed::outbox::{ArchivedCounts, RouteCount};
pub use detached::DetachedArchive;
pub use error::ArchiveError;
pub use largest_ids::{LARGEST_IDS_MAX, LargestIds};
#[cfg(any(test, feature = "testing"))]
pub use memory::MemoryArchive;
pub use redb::{ArchiveFromChunks, ReadOnlyArchive, RedbArchive, Totals, identity_in, identity_without_lock};
pub use replicated::{Due, PendingEdit, ReplicatedArchive};

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;

use crate::feed::outbox::{OutboxQuery, Route};
use crate::feed::position::Position;
use crate::id::{PostId, SourceId};
use crate::storage::identity::Identity;
use crate::storage::sequence::Sequence;

/// The content that the archive stores under a post id.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ArchivedRecord {
    /// The bytes of a post, as encoded by the caller.
    Post(Vec<u8>),
    /// A tombstone: the post was deleted, and its id cannot be used again.
    Deleted,
}

/// Changes that are written together. Writing a batch twice leaves the same posts and entries as writing it once.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Batch {
    /// The last journal event whose effects the changes contain. It ascends from batch to batch, except that a replay begins again with
    /// earlier ones. A store across a network writes with it as the time: what a replay, or a write that was overtaken, writes late does
    /// not replace anything newer.
    pub as_of: Sequence,
    /// Posts and tombstones to insert or replace. Of several with the same id, the last one is stored.
    pub posts: Vec<(PostId, ArchivedRecord)>,
    /// Entries to add to outboxes. An entry that exists already keeps its first route.
    pub placed: Vec<(SourceId, Position, Route)>,
    /// Entries to remove from outboxes, after all others were added. A missing entry is not an error.
    pub removed: Vec<(SourceId, Position)>,
}

/// Name of the archive file in a data directory. The checksums are in a separate file.
pub const FILE: &str = "archive.redb";

/// Name of the file with the checksums of the archive.
pub const SUMS_FILE: &str = "archive.sums";

/// The treatment of a post when an archive is rewritten.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fate {
    /// The post is copied unchanged.
    Keep,
    /// The post is replaced by these bytes.
    Replace(Vec<u8>),
    /// The post is replaced by a tombstone.
    Tombstone,
}

/// The data that a rewrite of the archive removes.
pub struct Rewrite<'a> {
    /// Sources to remove, with the entries in their outboxes and their names.
    pub without: &'a [SourceId],
    /// Returns the treatment of a post, given its bytes.
    pub fate: &'a dyn Fn(&[u8]) -> Fate,
    /// The archive has everything up to this event, and nothing that is written later names the sources. What a store that orders writes has of
    /// later events stays as it is.
    pub as_of: Sequence,
}

/// One state of an archive, which later writes do not change.
pub trait ArchiveSnapshot: Debug + Send + Sync {
    /// Calls `each` with chunks that together contain everything, until it returns false. [`ArchiveFromChunks`] creates an archive from
    /// them. Chunks without a change since an earlier view are the same bytes.
    ///
    /// # Errors
    /// Fails if the archive could not be read.
    fn chunks(&self, each: &mut dyn FnMut(Vec<u8>) -> bool) -> Result<(), ArchiveError>;
}

/// Counts of a store across a network, since it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RemoteFigures {
    /// Statements that read.
    pub reads: u64,
    /// Statements that wrote, each one or several rows.
    pub writes: u64,
    /// Statements that failed.
    pub errors: u64,
    /// Reads that were answered from memory.
    pub cache_hits: u64,
    /// Reads that were not.
    pub cache_misses: u64,
    /// Bytes in memory of what was read.
    pub cache_bytes: u64,
    /// Connections to the nodes of the store that are open now.
    pub connections: u64,
    /// Connections that were not made in time.
    pub connection_timeouts: u64,
    /// Statements that the driver gave up since no node answered in time.
    pub statement_timeouts: u64,
    /// Statements that the driver sent again, to the same node or another.
    pub retries: u64,
    /// The event with which the archive was persisted last.
    pub through: Sequence,
}

/// Is called with the source of an outbox, and with what is archived of it.
pub type EachOutbox<'a> = &'a mut dyn FnMut(SourceId, ArchivedCounts) -> Result<(), ArchiveError>;

/// A read that is about to be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wanted<'a> {
    /// A part of the outbox of a source.
    Outbox(&'a SourceId, OutboxQuery),
    /// The post under an id.
    Post(PostId),
}

/// Stores posts and outbox entries. Any number of threads can read while one writes. Every operation may block, except where its description
/// says that it is answered from memory.
pub trait Archive: Send + Sync + 'static {
    /// Writes a batch. Readers see it as soon as this returns; it is durable after [`Archive::persist`].
    ///
    /// # Errors
    /// Fails if the batch could not be written. Then readers see none of it, except that a store across a network may have written any part.
    /// Writing the same again is safe, and succeeds later if the error is temporary.
    fn write(&self, batch: &Batch) -> Result<(), ArchiveError>;

    /// Replaces the files of the archive by new ones that contain the current data without the removed data. Nothing else is in the new
    /// files, not even data that was overwritten earlier. Afterwards all of it survives a power loss. The caller persists the archive
    /// before and writes nothing meanwhile. Reads continue.
    ///
    /// # Errors
    /// Fails if the new files could not be written, or the archive is about to be closed. The archive is unchanged then.
    fn rewrite(&self, rewrite: &Rewrite<'_>) -> Result<(), ArchiveError>;

    /// Makes all previous writes survive a power loss, if the archive is durable at all. If the disk becomes full, this waits for space.
    /// `through` is the last journal event whose effects were written; it is stored, too. A store across a network keeps the larger one if it
    /// has one.
    ///
    /// # Errors
    /// Fails if it is not certain that the writes are durable.
    fn persist(&self, through: Sequence) -> Result<(), ArchiveError>;

    /// The journal event with which the archive was persisted last, or 0 if it never was.
    ///
    /// # Errors
    /// Fails if the archive could not be read.
    fn through(&self) -> Result<Sequence, ArchiveError>;

    /// Returns the post or tombstone that is stored under an id.
    ///
    /// # Errors
    /// Fails if the archive could not be read.
    fn post(&self, id: PostId) -> Result<Option<ArchivedRecord>, ArchiveError>;

    /// Appends to `into` the requested positions of an outbox, without duplicates.
    ///
    /// # Errors
    /// Fails if the archive could not be read. Nothing is appended then.
    fn positions(&self, source: &SourceId, query: OutboxQuery, into: &mut Vec<Position>) -> Result<(), ArchiveError>;

    /// Returns at most `max` ids of posts and tombstones, ascending, starting with `from`, or none if the archive has no such list and would have to
    /// read all of itself. It is called only while [`Archive::may_have`] is true for `from`, an id that may be issued next. Without a list each id
    /// that is issued is looked up.
    ///
    /// # Errors
    /// Fails if the archive could not be read.
    fn ids_from(&self, from: PostId, max: usize) -> Result<Option<Vec<PostId>>, ArchiveError>;

    /// Calls `each` with a summary of every outbox that ever had an archived entry, until a call fails. `each` may read the archive: no lock
    /// is held. The engine does this when it starts. A remote archive reads everything for it; it is called only if the
    /// snapshot has no counts, because another archive had them.
    ///
    /// # Errors
    /// Fails if the archive could not be read, or with the error of `each`.
    fn each_outbox(&self, each: EachOutbox<'_>) -> Result<(), ArchiveError>;

    /// Returns the identity of the data directory that the archive belongs to, if it has one.
    ///
    /// # Errors
    /// Fails if the archive could not be read.
    fn identity(&self) -> Result<Option<Identity>, ArchiveError>;

    /// Stores the identity in an archive that has none.
    ///
    /// # Errors
    /// Fails if the archive could not be written.
    fn set_identity(&self, identity: Identity) -> Result<(), ArchiveError>;

    /// Returns false if the archive surely has neither a post nor a tombstone under an id. It is answered from memory, and never false while
    /// a reader could find one.
    fn may_have(&self, id: PostId) -> bool;

    /// Returns true if no post and no tombstone was ever written. It is answered from memory, and never true while a reader could find one.
    fn is_empty(&self) -> bool;

    /// The place of the archive, for messages: the path of its file, or its address.
    fn place(&self) -> String;

    /// Makes operations fail instead of waiting for space on a full disk, or for nodes that do not answer: the engine stops. Operations that
    /// have to wait for neither succeed, except rewrites, which take long.
    fn stop_waiting(&self);

    /// Closes the file, so that it can be opened again. Later operations fail.
    fn close(&self);

    /// Returns the operations of an archive of this machine, if it is one.
    fn local(&self) -> Option<&dyn LocalArchive> {
        None
    }

    /// Returns the operations of an archive across a network, if it is one.
    fn remote(&self) -> Option<&dyn RemoteArchive> {
        None
    }

    /// Returns true if the archive is across a network: a power loss of this machine takes back nothing that was written. It does not count its
    /// outboxes, so that snapshots have these counts, and [`Archive::each_outbox`] takes long.
    fn is_remote(&self) -> bool {
        self.remote().is_some()
    }

    /// Returns what [`Archive::each_outbox`] lists.
    ///
    /// # Errors
    /// Fails if the archive could not be read.
    fn archived_counts(&self) -> Result<Vec<(SourceId, ArchivedCounts)>, ArchiveError> {
        let mut all = Vec::new();
        self.each_outbox(&mut |source, counts| {
            all.push((source, counts));
            Ok(())
        })?;
        Ok(all)
    }

    /// Returns the sources of all outboxes with archived entries, and possibly of some without.
    ///
    /// # Errors
    /// Fails if the archive could not be read.
    fn sources(&self) -> Result<Vec<SourceId>, ArchiveError> {
        match self.remote() {
            Some(archive) => archive.list_sources(),
            None => Ok(self.archived_counts()?.into_iter().map(|(source, _)| source).collect()),
        }
    }
}

/// An archive of this machine, in files or in memory.
pub trait LocalArchive: Archive {
    /// Returns a snapshot of the current state, or `None` if the archive is in memory. While it exists, the archive does not reuse the space of
    /// superseded data.
    ///
    /// # Errors
    /// Fails if the archive could not be read.
    fn snapshot(&self) -> Result<Option<Arc<dyn ArchiveSnapshot>>, ArchiveError>;

    /// Checks the consistency of the archive as far as possible without reading all of it, at the start of the engine.
    ///
    /// # Errors
    /// Returns an error that describes the inconsistency.
    fn check(&self) -> Result<(), ArchiveError>;

    /// Writes the data that was buffered because the disk was full, if there is any.
    ///
    /// # Errors
    /// Fails if the disk is still full. Then persisting would wait for space.
    fn catch_up(&self) -> Result<(), ArchiveError>;
}

/// An archive across a network, which several machines may share.
pub trait RemoteArchive: Archive {
    /// Returns true if posts may leave the archive by themselves after some time: one that is missing is no damage.
    fn expires(&self) -> bool;

    /// The largest [`Batch::as_of`] with which anything may have been written, if what is older replaces nothing that is newer; otherwise 0. It is
    /// stored before the batch is. A journal that ends before it must not go on: the archive would ignore what it writes next.
    ///
    /// # Errors
    /// Fails if the archive could not be read.
    fn written(&self) -> Result<Sequence, ArchiveError>;

    /// Returns the sources that are held back: the archive of a cluster may lack entries of theirs that are older than [`Archive::through`], because
    /// what it has of their outboxes is damaged and cannot be written. Every node keeps these entries in memory. It is read after
    /// [`Archive::through`]: then it has every source of which an entry up to there is missing.
    ///
    /// # Errors
    /// Fails if the archive could not be read.
    fn held_back(&self) -> Result<BTreeSet<SourceId>, ArchiveError>;

    /// Stores the sources that are held back, unless another machine has stored them since this one read or stored them last.
    ///
    /// # Errors
    /// Fails if the archive could not be written, or another machine has stored them.
    fn set_held_back(&self, sources: &BTreeSet<SourceId>) -> Result<(), ArchiveError>;

    /// Reads which ids other machines have written until now, for [`Archive::may_have`]. A node of a cluster calls it before it replays the log:
    /// it may start from the snapshot of another node, from whose memory posts have left meanwhile.
    ///
    /// # Errors
    /// Fails if the archive could not be read.
    fn refresh_ids(&self) -> Result<(), ArchiveError>;

    /// Invalidates cached reads of these posts and outboxes, because other machines may have written them. A node of a cluster calls it before it
    /// relies on their writes.
    fn invalidate(&self, posts: &mut dyn Iterator<Item = PostId>, outboxes: &mut dyn Iterator<Item = &SourceId>);

    /// Invalidates everything that is cached, because other machines may have written anything. A node of a cluster calls it when it becomes the
    /// one that writes.
    fn invalidate_all(&self);

    /// Makes these reads side by side and caches the results for the calls that follow at once. A read that is not answered within the time limit
    /// of the archive fails in its call, as unavailable.
    fn prefetch(&self, wanted: &mut dyn Iterator<Item = Wanted<'_>>);

    /// Returns the sources of all outboxes with archived entries, and possibly of some without.
    ///
    /// # Errors
    /// Fails if the archive could not be read.
    fn list_sources(&self) -> Result<Vec<SourceId>, ArchiveError>;

    /// Announces a copy of another archive, in batches whose `as_of` is 0. They replace the writes of earlier copies, and none of a server.
    ///
    /// # Errors
    /// Fails if the archive could not be written.
    fn begin_copy(&self) -> Result<(), ArchiveError>;

    /// Returns the counts of a store across a network. They are read from memory.
    fn figures(&self) -> RemoteFigures;
}
