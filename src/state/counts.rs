//! The numbers of replies to a post and of its reposts.

use crate::id::{PostId, SourceId};
use crate::state::world::World;

/// The numbers of replies and reposts of one post.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PostCounts {
    /// The replies that are not hidden, archived ones included.
    pub replies: usize,
    /// The reposts that are not hidden.
    pub reposts: usize,
}

impl World {
    /// Returns the counts of a post: the replies and reposts on all their pages together, as everybody sees them. Posts of a user who is
    /// being erased count until they are deleted. The call takes the same time however many there are.
    pub fn counts(&self, post: PostId) -> PostCounts {
        let replies = self.sources.get(&SourceId::replies_to(post));
        PostCounts {
            replies: replies.map_or(0, |replies| replies.outbox().shown()),
            reposts: self.reposts.shown_of(post),
        }
    }
}
