//! An archive that a test observes: the test can count, delay or fail reads, and inspect writes before they run.

use tidewire::feed::outbox::OutboxQuery;
use tidewire::feed::position::Position;
use tidewire::id::{PostId, SourceId};
use tidewire::storage::archive::{Archive, ArchiveError, ArchivedRecord, Batch, EachOutbox, RemoteArchive, Rewrite};
use tidewire::storage::identity::Identity;
use tidewire::storage::sequence::Sequence;

/// A read or a write that is about to run.
pub enum Read<'a> {
    /// One post.
    Post,
    /// A part of the outbox of a source.
    Outbox(&'a SourceId),
    /// A list of ids.
    Ids,
    /// No read: this batch is about to be written.
    Nothing(&'a Batch),
}

type BeforeRead = dyn Fn(&Read<'_>) -> Result<(), ArchiveError> + Send + Sync;

/// An archive that passes every read and every write to `before` first.
pub struct ObservedArchive<A> {
    pub archive: A,
    before: Box<BeforeRead>,
}

impl<A> ObservedArchive<A> {
    pub fn new(archive: A, before: impl Fn(&Read<'_>) -> Result<(), ArchiveError> + Send + Sync + 'static) -> Self {
        Self { archive, before: Box::new(before) }
    }
}

impl<A: Archive> Archive for ObservedArchive<A> {
    fn write(&self, batch: &Batch) -> Result<(), ArchiveError> {
        (self.before)(&Read::Nothing(batch))?;
        self.archive.write(batch)
    }

    fn persist(&self, through: Sequence) -> Result<(), ArchiveError> {
        self.archive.persist(through)
    }

    fn rewrite(&self, rewrite: &Rewrite<'_>) -> Result<(), ArchiveError> {
        self.archive.rewrite(rewrite)
    }

    fn through(&self) -> Result<Sequence, ArchiveError> {
        self.archive.through()
    }

    fn post(&self, id: PostId) -> Result<Option<ArchivedRecord>, ArchiveError> {
        (self.before)(&Read::Post)?;
        self.archive.post(id)
    }

    fn positions(&self, source: &SourceId, query: OutboxQuery, into: &mut Vec<Position>) -> Result<(), ArchiveError> {
        (self.before)(&Read::Outbox(source))?;
        self.archive.positions(source, query, into)
    }

    fn ids_from(&self, from: PostId, max: usize) -> Result<Option<Vec<PostId>>, ArchiveError> {
        (self.before)(&Read::Ids)?;
        self.archive.ids_from(from, max)
    }

    fn each_outbox(&self, each: EachOutbox<'_>) -> Result<(), ArchiveError> {
        self.archive.each_outbox(each)
    }

    fn identity(&self) -> Result<Option<Identity>, ArchiveError> {
        Ok(None)
    }

    fn set_identity(&self, _: Identity) -> Result<(), ArchiveError> {
        Ok(())
    }

    fn stop_waiting(&self) {}

    fn close(&self) {}

    fn remote(&self) -> Option<&dyn RemoteArchive> {
        self.archive.remote()
    }

    fn place(&self) -> String {
        self.archive.place()
    }

    fn may_have(&self, id: PostId) -> bool {
        self.archive.may_have(id)
    }

    fn is_empty(&self) -> bool {
        self.archive.is_empty()
    }
}
