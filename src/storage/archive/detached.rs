//! Stands for an archive across a network while a state that relies on it is rebuilt without it: from a backup, which contains no such
//! archive.

use std::collections::BTreeSet;

use parking_lot::Mutex;

use crate::feed::outbox::OutboxQuery;
use crate::feed::position::Position;
use crate::id::{PostId, SourceId};
use crate::storage::archive::{
    Archive, ArchiveError, ArchivedRecord, Batch, EachOutbox, RemoteArchive, RemoteFigures, Rewrite, Wanted,
};
use crate::storage::identity::Identity;
use crate::storage::sequence::Sequence;

/// An archive that has everything up to one event, and can be neither read nor written. Behind a [`ReplicatedArchive`], a replay up to this
/// event reads nothing of it: events that change archived posts contain what changes in memory. Starts with the rebuilt state compare it
/// with the real archive.
///
/// [`ReplicatedArchive`]: crate::storage::archive::ReplicatedArchive
#[derive(Debug)]
pub struct DetachedArchive {
    through: Sequence,
    identity: Mutex<Option<Identity>>,
}

impl DetachedArchive {
    /// Creates an archive that has everything up to this event.
    pub fn new(through: Sequence) -> Self {
        Self { through, identity: Mutex::new(None) }
    }

    fn refused<T>(&self) -> Result<T, ArchiveError> {
        let why = "the state is rebuilt without it".to_owned();
        Err(ArchiveError::Unavailable { place: self.place(), why })
    }
}

impl Archive for DetachedArchive {
    fn write(&self, _: &Batch) -> Result<(), ArchiveError> {
        self.refused()
    }

    fn rewrite(&self, _: &Rewrite<'_>) -> Result<(), ArchiveError> {
        self.refused()
    }

    fn persist(&self, through: Sequence) -> Result<(), ArchiveError> {
        if through <= self.through { Ok(()) } else { self.refused() }
    }

    fn through(&self) -> Result<Sequence, ArchiveError> {
        Ok(self.through)
    }

    fn post(&self, _: PostId) -> Result<Option<ArchivedRecord>, ArchiveError> {
        self.refused()
    }

    fn positions(&self, _: &SourceId, _: OutboxQuery, _: &mut Vec<Position>) -> Result<(), ArchiveError> {
        self.refused()
    }

    fn ids_from(&self, _: PostId, _: usize) -> Result<Option<Vec<PostId>>, ArchiveError> {
        Ok(None)
    }

    fn each_outbox(&self, _: EachOutbox<'_>) -> Result<(), ArchiveError> {
        self.refused()
    }

    fn identity(&self) -> Result<Option<Identity>, ArchiveError> {
        Ok(*self.identity.lock())
    }

    fn set_identity(&self, identity: Identity) -> Result<(), ArchiveError> {
        *self.identity.lock() = Some(identity);
        Ok(())
    }

    fn stop_waiting(&self) {}

    fn close(&self) {}

    fn place(&self) -> String {
        "of old posts".to_owned()
    }

    fn may_have(&self, _: PostId) -> bool {
        true
    }

    fn is_empty(&self) -> bool {
        false
    }

    fn remote(&self) -> Option<&dyn RemoteArchive> {
        Some(self)
    }
}

impl RemoteArchive for DetachedArchive {
    fn expires(&self) -> bool {
        false
    }

    fn written(&self) -> Result<Sequence, ArchiveError> {
        Ok(Sequence(0))
    }

    fn held_back(&self) -> Result<BTreeSet<SourceId>, ArchiveError> {
        Ok(BTreeSet::new())
    }

    fn set_held_back(&self, _: &BTreeSet<SourceId>) -> Result<(), ArchiveError> {
        self.refused()
    }

    fn refresh_ids(&self) -> Result<(), ArchiveError> {
        Ok(())
    }

    fn invalidate(&self, _: &mut dyn Iterator<Item = PostId>, _: &mut dyn Iterator<Item = &SourceId>) {}

    fn invalidate_all(&self) {}

    fn prefetch(&self, _: &mut dyn Iterator<Item = Wanted<'_>>) {}

    fn list_sources(&self) -> Result<Vec<SourceId>, ArchiveError> {
        self.refused()
    }

    fn begin_copy(&self) -> Result<(), ArchiveError> {
        self.refused()
    }

    fn figures(&self) -> RemoteFigures {
        RemoteFigures::default()
    }
}
