//! A state in memory beside a copy of the archive that is at least as new: the copied archive of a cluster, beside the snapshot of a node.

use crate::clock::UnixMicros;
use crate::id::PostId;
use crate::state::tiering::decode;
use crate::state::world::StateMachine;
use crate::storage::archive::{Archive, ArchiveError, ArchivedRecord};

/// Number of ids that are read together.
const IDS_TOGETHER: usize = 10_000;

impl StateMachine {
    /// Replaces posts in memory by newer versions or tombstones in the archive, and creates sources that only its posts name. Entries of
    /// outboxes remain, so the state can be read by the ids of posts alone, as an export does. Returns the latest instant at which a post
    /// of the archive was accepted or edited.
    ///
    /// # Errors
    /// Fails if the archive cannot be read.
    pub fn take_newer_posts(&self, archive: &dyn Archive) -> Result<Option<UnixMicros>, ArchiveError> {
        let (mut from, mut latest) = (Some(PostId(0)), None);
        while let Some(first) = from {
            let ids = archive.ids_from(first, IDS_TOGETHER)?.unwrap_or_default();
            for id in &ids {
                latest = latest.max(self.take_newer_post(archive, *id)?);
            }
            from = ids.last().and_then(|last| last.0.checked_add(1)).map(PostId);
        }
        Ok(latest)
    }

    fn take_newer_post(&self, archive: &dyn Archive, id: PostId) -> Result<Option<UnixMicros>, ArchiveError> {
        let world = self.world();
        let record = match archive.post(id)? {
            Some(ArchivedRecord::Post(bytes)) => match decode(&bytes) {
                Ok(record) => record,
                // It replaces nothing. If the post is not in memory, whoever reads it gets the error.
                Err(_) => return Ok(None),
            },
            Some(ArchivedRecord::Deleted) => {
                world.posts.forget(id);
                return Ok(None);
            }
            None => return Ok(None),
        };
        for source in &record.sources {
            world.sources.intern(source);
        }
        // Otherwise memory is kept: it also has what events of other posts changed, such as the original of a redirected repost.
        let is_newer = world.posts.get(id).is_some_and(|post| {
            (post.body(), post.edited_at, post.hidden) != (record.body.as_str(), record.edited_at, record.hidden)
        });
        if is_newer {
            world.posts.forget(id);
        }
        let edited_at = record.edited_at.map(|at| UnixMicros(at.0.saturating_add(world.delivery.ahead_us())));
        Ok(Some(record.accepted_at.unwrap_or(record.at.published_at)).max(edited_at))
    }
}
