//! Looking up posts in the archive.

use std::sync::Arc;

use super::{damaged, decode};
use crate::feed::post::{Membership, Post};
use crate::id::{PostId, SourceId};
use crate::state::posts::Stored;
use crate::state::sources::Source;
use crate::state::world::World;
use crate::storage::archive::{Archive, ArchiveError, ArchivedRecord, PendingEdit};

/// Maximum number of times that a post is read again because its edits have changed meanwhile.
const REREADS_MAX: usize = 8;

impl World {
    /// Returns the archived post or tombstone of an id. Blocks on disk reads.
    ///
    /// # Errors
    /// Fails if the archive cannot be read.
    pub fn archived(&self, id: PostId) -> Result<Option<Stored>, ArchiveError> {
        self.archived_by(id, |source| self.sources.known(source))
    }

    /// Returns the same, with sources looked up by `source`.
    pub(in crate::state) fn archived_by(
        &self,
        id: PostId,
        source: impl Fn(&SourceId) -> Option<Arc<Source>>,
    ) -> Result<Option<Stored>, ArchiveError> {
        let Some(archive) = self.archive().filter(|_| self.may_have_archived(id)) else { return Ok(None) };
        match self.archived_alone(&**archive, id, &source)? {
            Some(Stored::Live(post)) => Ok(Some(Stored::Live(self.with_answered(&**archive, post, &source)?))),
            other => Ok(other),
        }
    }

    /// Returns the same without looking up the parent of a reply.
    fn archived_alone(
        &self,
        archive: &dyn Archive,
        id: PostId,
        source: &impl Fn(&SourceId) -> Option<Arc<Source>>,
    ) -> Result<Option<Stored>, ArchiveError> {
        let Some(behind) = self.replicated_archive() else {
            return Ok(read(archive, id, source)?.map(|stored| self.redirected(stored)));
        };
        // A stored edit is dropped once the archive contains it. The read is consistent only if the edit is the same before and
        // after it.
        let mut edit = behind.edit(id);
        for _ in 0..REREADS_MAX {
            let stored = read(archive, id, source)?;
            let now = behind.edit(id);
            if now == edit {
                return Ok(stored.map(|stored| self.redirected(edited(stored, edit.as_ref()))));
            }
            edit = now;
        }
        let why = format!("post {id} was edited repeatedly while it was read");
        Err(ArchiveError::Unavailable { place: archive.place(), why })
    }

    /// Adds the author whom an archived reply answers, if its parent has become known since the reply was archived.
    fn with_answered(
        &self,
        archive: &dyn Archive,
        reply: Arc<Post>,
        source: &impl Fn(&SourceId) -> Option<Arc<Source>>,
    ) -> Result<Arc<Post>, ArchiveError> {
        let Some(parent) = reply.reply_to.filter(|_| reply.answered.is_none()) else { return Ok(reply) };
        let found = match self.posts.stored(parent) {
            None if self.may_have_archived(parent) => match read(archive, parent, source) {
                // The reply itself can be read.
                Err(cause @ ArchiveError::Damaged { .. }) => {
                    self.read_failures.note(&cause);
                    None
                }
                read => read?,
            },
            in_memory => in_memory,
        };
        Ok(match found {
            Some(Stored::Live(parent)) => Arc::new(reply.answering(parent.author().clone())),
            Some(Stored::Deleted) | None => reply,
        })
    }

    /// Returns an archived post with the changes that were applied since it was read and that the archive may not contain.
    pub(in crate::state) fn with_later_changes(&self, id: PostId, stored: Stored) -> Stored {
        self.redirected(edited(stored, self.replicated_archive().and_then(|archive| archive.edit(id)).as_ref()))
    }

    fn redirected(&self, stored: Stored) -> Stored {
        let origin = |post: &Post| post.repost_of.and_then(|_| self.reposts.redirected_to(post.id()));
        match stored {
            Stored::Live(post) => match origin(&post) {
                Some(origin) if post.repost_of != Some(origin) => Stored::Live(Arc::new(post.repeating(origin))),
                _ => Stored::Live(post),
            },
            Stored::Deleted => Stored::Deleted,
        }
    }

    /// Returns the post or tombstone of an id, from memory or the archive. Blocks on disk reads.
    ///
    /// # Errors
    /// Fails if the archive cannot be read.
    pub fn find(&self, id: PostId) -> Result<Option<Stored>, ArchiveError> {
        match self.posts.stored(id) {
            Some(stored) => Ok(Some(stored)),
            // Memory is checked again: an edit may have brought the post back meanwhile.
            None => Ok(self.archived(id)?.map(|archived| self.posts.stored(id).unwrap_or(archived))),
        }
    }
}

fn edited(stored: Stored, edit: Option<&PendingEdit>) -> Stored {
    match (stored, edit) {
        (Stored::Live(post), Some(edit)) => Stored::Live(Arc::new(edit.applied_to(&post))),
        (stored, _) => stored,
    }
}

fn read(
    archive: &dyn Archive,
    id: PostId,
    source: impl Fn(&SourceId) -> Option<Arc<Source>>,
) -> Result<Option<Stored>, ArchiveError> {
    match archive.post(id)? {
        None => Ok(None),
        Some(ArchivedRecord::Deleted) => Ok(Some(Stored::Deleted)),
        Some(ArchivedRecord::Post(bytes)) => {
            let record = decode(&bytes).map_err(|cause| damaged(archive.place(), id, &cause))?;
            let member = |id: &SourceId| Some(Membership { slot: source(id)?.slot, id: id.clone() });
            // Other sources may be unknown if their events are lost. The author is the first source, and every post has one.
            let sources: Box<[Membership]> = record.sources.iter().filter_map(member).collect();
            let (first, author) = (sources.first().map(|first| &first.id), record.sources.first());
            if author.is_none() || first != author {
                return Err(damaged(archive.place(), id, "its author is not a known source"));
            }
            let answered = record.answered.as_ref().and_then(member);
            Ok(Some(Stored::Live(Arc::new(Post::restored(&record, sources, answered)))))
        }
    }
}
