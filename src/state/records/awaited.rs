//! The record of replies that may become visible when the post that they answer is known.
//!
//! A start finds the replies in the snapshot by the posts of the snapshot. Replies that are only in the archive would be missing, so beside
//! an archive a snapshot has a record of each.

use serde::{Deserialize, Serialize};

use crate::feed::position::Position;
use crate::id::{PostId, SourceSlot};
use crate::state::posts::Affected;
use crate::state::records::{InvalidRecordError, POST_SOURCES_MAX, RecordTraversal, invalid};
use crate::state::world::StateMachine;

/// The replies to one post that is not known.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AwaitedRecord {
    /// The post that they answer.
    pub post: PostId,
    /// The position of each reply, the post that it repeats if it is also a repost, and the indexes of its sources.
    pub replies: Vec<(Position, Option<PostId>, Vec<u32>)>,
}

/// Maximum number of awaited posts whose replies are copied while the command processor waits.
const POSTS_PER_PART: usize = 1_024;

impl RecordTraversal<'_> {
    /// Returns the records of all replies that wait; none if there is no archive. Must be called before the sources are visited: a reply
    /// that becomes visible in between is then recorded as late in its sources.
    pub fn awaited(self) -> Vec<AwaitedRecord> {
        let is_known = |reply: &Affected| reply.sources.iter().all(|source| (source.0 as usize) < self.sources);
        let reply =
            |reply: Affected| (reply.position, reply.repost_of, reply.sources.iter().map(|source| source.0).collect());
        let (mut records, mut from) = (Vec::new(), self.world.archive().map(|_| 0));
        while let Some(number) = from {
            let (part, next) = self.world.awaited.lock().from(number, POSTS_PER_PART);
            records.extend(part.into_iter().map(|(post, replies)| AwaitedRecord {
                post,
                replies: replies.into_iter().filter(is_known).map(reply).collect(),
            }));
            from = next;
        }
        records
    }
}

impl StateMachine {
    /// Restores the replies to one post.
    ///
    /// # Errors
    /// Fails if a source is not known, or a reply has too many sources.
    pub fn restore_awaited(&mut self, record: &AwaitedRecord) -> Result<(), InvalidRecordError> {
        let known = self.world().sources.len();
        let mut awaited = self.world().awaited.lock();
        for (position, repost_of, sources) in &record.replies {
            if sources.len() > POST_SOURCES_MAX || sources.iter().any(|source| *source as usize >= known) {
                return invalid(format!("a reply to {} belongs to sources that do not exist", record.post));
            }
            let sources = sources.iter().map(|source| SourceSlot(*source)).collect();
            awaited.note(record.post, Affected { position: *position, repost_of: *repost_of, sources });
        }
        Ok(())
    }
}
