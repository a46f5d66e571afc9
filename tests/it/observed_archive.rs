//! An archive that a test watches: it may count what is read, delay it or make it fail, and see what is about to be written.

use tidewire::feed::outbox::Part;
use tidewire::feed::position::{Direction, Position, Span};
use tidewire::id::{PostId, SourceId};
use tidewire::storage::archive::{Archive, ArchiveError, ArchivedCounts, ArchivedRecord, Batch, Rewrite};
use tidewire::storage::journal::Sequence;

/// What is about to be read or written.
pub enum Read<'a> {
    /// One post.
    Post,
    /// A part of the outbox of a source.
    Outbox(&'a SourceId),
    /// A list of ids.
    Ids,
    /// Nothing: this batch is about to be written.
    Nothing(&'a Batch),
}

type BeforeRead = dyn Fn(&Read<'_>) -> Result<(), ArchiveError> + Send + Sync;

/// An archive in front of which every read and every write is shown to `before`.
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
    fn is_remote(&self) -> bool {
        self.archive.is_remote()
    }

    fn counts_outboxes(&self) -> bool {
        self.archive.counts_outboxes()
    }

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

    fn copy(
        &self,
        source: &SourceId,
        part: Part,
        span: Span,
        direction: Direction,
        max: usize,
        into: &mut Vec<Position>,
    ) -> Result<(), ArchiveError> {
        (self.before)(&Read::Outbox(source))?;
        self.archive.copy(source, part, span, direction, max, into)
    }

    fn ids_from(&self, from: PostId, max: usize) -> Result<Vec<PostId>, ArchiveError> {
        (self.before)(&Read::Ids)?;
        self.archive.ids_from(from, max)
    }

    fn archived_counts(&self) -> Result<Vec<(SourceId, ArchivedCounts)>, ArchiveError> {
        self.archive.archived_counts()
    }

    fn close(&self) {}

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
