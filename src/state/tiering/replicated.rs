//! The state of a node of a cluster with an archive, to which one node copies changes behind the log.

use super::{decode, encode_record};
use crate::feed::event::Event;
use crate::feed::outbox::{Part, Route};
use crate::feed::position::{Direction, PositionRange};
use crate::feed::post::{Membership, Post};
use crate::id::{PostId, SourceId};
use crate::state::posts::Stored;
use crate::state::records;
use crate::state::world::World;
use crate::storage::archive::{ArchiveError, ArchivedRecord, Batch, ReplicatedArchive};
use crate::storage::sequence::Sequence;

/// Returns the post that an event changes.
pub fn changed_post(event: &Event) -> Option<PostId> {
    match event {
        Event::Published { position, .. } => Some(position.id),
        Event::Edited { id, .. } | Event::Deleted { id, .. } => Some(*id),
        _ => None,
    }
}

/// Changes of posts, as batches for the archive of a cluster.
#[derive(Debug, Default)]
pub struct Copied {
    /// Written first: the archived form of a deleted post names the entries to remove.
    pub removed: Batch,
    /// Written after `removed`.
    pub rest: Batch,
}

impl World {
    /// Returns the archive of the cluster, if this is the world of a node that has one.
    pub fn replicated_archive(&self) -> Option<&ReplicatedArchive> {
        self.replicated_archive.as_deref()
    }

    /// Returns the present state of posts that the events up to `as_of` have changed. Blocks on reads of the archive.
    ///
    /// # Errors
    /// Fails if the archive cannot be read. A post that is damaged there is left out, because reads of it fail.
    pub fn copied(&self, ids: &[PostId], as_of: Sequence) -> Result<Copied, ArchiveError> {
        let mut copied = Copied::default();
        (copied.removed.as_of, copied.rest.as_of) = (as_of, as_of);
        for id in ids {
            match self.posts.stored(*id) {
                Some(Stored::Live(post)) => self.copy(&post, &mut copied.rest),
                Some(Stored::Deleted) => self.copy_deleted(*id, &mut copied)?,
                // The post was edited, and is only in the archive. Its entries are there.
                None => match self.archived(*id) {
                    Ok(Some(Stored::Live(post))) => copied.rest.posts.push((*id, self.archived_form(&post))),
                    Ok(Some(Stored::Deleted) | None) => {}
                    Err(cause @ ArchiveError::Damaged { .. }) => self.read_failures.note(&cause),
                    Err(cause) => return Err(cause),
                },
            }
        }
        Ok(copied)
    }

    /// Returns the entries of an outbox that memory has, as a batch for the archive of a cluster. All events up to `as_of` are applied.
    pub fn entries_in_memory(&self, id: &SourceId, as_of: Sequence) -> Batch {
        let mut positions = Vec::new();
        if let Some(source) = self.sources.get(id) {
            source.outbox().copy(Part::Whole, PositionRange::ALL, Direction::Older, usize::MAX, &mut positions);
        }
        let placed = positions.into_iter().map(|position| (id.clone(), position, Route::Pull)).collect();
        Batch { as_of, placed, ..Batch::default() }
    }

    /// Returns all posts and tombstones in memory, and the edited ones that only the archive has.
    pub fn all_to_copy(&self) -> Vec<PostId> {
        let edited = self.replicated_archive().map(ReplicatedArchive::edited).unwrap_or_default();
        self.posts.ids().into_iter().chain(self.posts.deleted()).chain(edited).collect()
    }

    fn copy(&self, post: &Post, batch: &mut Batch) {
        batch.posts.push((post.id(), self.archived_form(post)));
        let entry = |source: &Membership| (source.id.clone(), post.position, Route::Pull);
        batch.placed.extend(post.sources().iter().map(entry));
    }

    fn copy_deleted(&self, id: PostId, copied: &mut Copied) -> Result<(), ArchiveError> {
        // If its record is damaged, the tombstone is enough: no page shows an entry of a deleted post.
        let known = match self.archive().map_or(Ok(None), |archive| archive.post(id)) {
            Err(cause @ ArchiveError::Damaged { .. }) => {
                self.read_failures.note(&cause);
                None
            }
            known => known?,
        };
        if let Some(ArchivedRecord::Post(bytes)) = known
            && let Ok(record) = decode(&bytes)
        {
            copied.removed.removed.extend(record.sources.into_iter().map(|source| (source, record.at)));
        }
        copied.rest.posts.push((id, ArchivedRecord::Deleted));
        Ok(())
    }

    /// Encodes a post without the fields that differ between nodes.
    fn archived_form(&self, post: &Post) -> ArchivedRecord {
        let mut record = records::record(self, post, |source| source.id.clone());
        (record.pulled, record.archived) = (0, 0);
        if post.answered.as_ref().is_some_and(|answered| self.sources.at(answered.slot).is_erased()) {
            record.answered = None;
        }
        ArchivedRecord::Post(encode_record(&record))
    }
}
