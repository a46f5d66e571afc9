//! The way of one node to the store that all share, which may be cut off or slow.

use std::sync::{Arc, Condvar, Mutex};

use tidewire::feed::outbox::Part;
use tidewire::feed::position::{Direction, Position, Span};
use tidewire::id::{PostId, SourceId};
use tidewire::storage::archive::{
    Archive, ArchiveError, ArchivedCounts, ArchivedRecord, Batch, MemoryArchive, Rewrite,
};
use tidewire::storage::identity::Identity;
use tidewire::storage::journal::Sequence;

/// How the store answers one node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Answers {
    #[default]
    Always,
    /// Nothing is written or read.
    Never,
    /// Writes wait, and are made late.
    Late,
}

/// The way of one node to the store that all share.
pub struct Door {
    pub store: Arc<MemoryArchive>,
    pub identity: Arc<Mutex<Option<Identity>>>,
    pub answers: Mutex<Answers>,
    pub changed: Condvar,
}

impl Door {
    pub fn set(&self, answers: Answers) {
        *self.answers.lock().unwrap() = answers;
        self.changed.notify_all();
    }

    fn check(&self) -> Result<(), ArchiveError> {
        match *self.answers.lock().unwrap() {
            Answers::Never => Err(ArchiveError::Unavailable { place: self.place(), why: "it is cut off".to_owned() }),
            Answers::Always | Answers::Late => Ok(()),
        }
    }

    fn check_write(&self) -> Result<(), ArchiveError> {
        let answers = self.answers.lock().unwrap();
        drop(self.changed.wait_while(answers, |answers| *answers == Answers::Late).unwrap());
        self.check()
    }
}

impl Archive for Door {
    fn is_remote(&self) -> bool {
        true
    }

    fn counts_outboxes(&self) -> bool {
        false
    }

    fn write(&self, batch: &Batch) -> Result<(), ArchiveError> {
        // Part of the batch is written before the rest, or alone.
        let half = |batch: &Batch| Batch {
            posts: batch.posts[..batch.posts.len() / 2].to_vec(),
            placed: batch.placed[batch.placed.len() / 2..].to_vec(),
            ..Batch { as_of: batch.as_of, ..Batch::default() }
        };
        self.check()?;
        self.store.write(&half(batch))?;
        self.check_write()?;
        self.store.write(batch)
    }

    fn rewrite(&self, rewrite: &Rewrite<'_>) -> Result<(), ArchiveError> {
        self.check_write()?;
        self.store.rewrite(rewrite)
    }

    fn persist(&self, through: Sequence) -> Result<(), ArchiveError> {
        self.check_write()?;
        self.store.persist(through)
    }

    fn through(&self) -> Result<Sequence, ArchiveError> {
        self.check()?;
        self.store.through()
    }

    fn post(&self, id: PostId) -> Result<Option<ArchivedRecord>, ArchiveError> {
        self.check()?;
        self.store.post(id)
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
        self.check()?;
        self.store.copy(source, part, span, direction, max, into)
    }

    fn ids_from(&self, from: PostId, max: usize) -> Result<Vec<PostId>, ArchiveError> {
        self.store.ids_from(from, max)
    }

    fn archived_counts(&self) -> Result<Vec<(SourceId, ArchivedCounts)>, ArchiveError> {
        panic!("nothing is listed")
    }

    fn identity(&self) -> Result<Option<Identity>, ArchiveError> {
        Ok(*self.identity.lock().unwrap())
    }

    fn set_identity(&self, identity: Identity) -> Result<(), ArchiveError> {
        *self.identity.lock().unwrap() = Some(identity);
        Ok(())
    }

    fn close(&self) {}

    fn place(&self) -> String {
        "the shared store".to_owned()
    }

    fn may_have(&self, id: PostId) -> bool {
        self.store.may_have(id)
    }

    fn is_empty(&self) -> bool {
        self.store.is_empty()
    }
}
