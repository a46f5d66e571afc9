//! The readers that a change of a post concerns, even if the post is in the archive.

use crate::feed::position::Position;
use crate::feed::post::Post;
use crate::id::{PostId, SourceSlot};

/// The part of a post that determines which readers a change of it concerns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Affected {
    /// The position in feeds.
    pub position: Position,
    /// The original post, if it is a repost.
    pub repost_of: Option<PostId>,
    /// The sources whose outboxes contain it.
    pub sources: Box<[SourceSlot]>,
}

impl Affected {
    /// Returns this part of a post.
    pub fn of(post: &Post) -> Self {
        let sources = post.sources().iter().map(|source| source.slot).collect();
        Self { position: post.position, repost_of: post.repost_of, sources }
    }
}
