//! Events: what the journal holds, and all that state is made of.
//!
//! Every event carries what replay needs, names sources by their external ids, and is idempotent: applied twice it
//! leaves the state it left the first time. Deliveries are no events, since inboxes are derived.

use crate::clock::UnixMicros;
use crate::feed::position::Position;
use crate::feed::post::{Body, Draft};
use crate::id::{PostId, SourceId};

/// A change of state that was accepted.
#[derive(Clone, Debug)]
pub enum Event {
    /// A post was published. Key: its author.
    Published {
        /// Its final place.
        position: Position,
        /// Its content.
        draft: Draft,
    },
    /// A post was changed. Key: the post.
    Edited {
        /// The post.
        id: PostId,
        /// Its new body, if that changed.
        body: Option<Body>,
        /// Whether it is kept out of feeds, if that changed.
        hidden: Option<bool>,
        /// When.
        at: UnixMicros,
    },
    /// A post was deleted for good. Key: the post.
    Deleted {
        /// The post.
        id: PostId,
    },
    /// Sources were followed, together. Key: each follower.
    Followed {
        /// The new edges, in order; the first is made at `since`, each other one microsecond after the one before.
        edges: Vec<NewEdge>,
        /// When the first was made.
        since: UnixMicros,
    },
    /// A source is not followed any more. Key: the follower.
    Unfollowed {
        /// Who followed.
        follower: SourceId,
        /// Whom.
        source: SourceId,
    },
}

/// One edge that is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewEdge {
    /// Who follows.
    pub follower: SourceId,
    /// Whom.
    pub source: SourceId,
    /// A virtual follow: it works, but shows in no list and no count.
    pub hidden: bool,
}
