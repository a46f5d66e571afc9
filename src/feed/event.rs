//! Events: what the journal holds, and all that state is made of.
//!
//! Every event carries what replay needs, names sources by their external ids, and is idempotent: applied twice it
//! leaves the state it left the first time. Deliveries are no events, since inboxes are derived.
//!
//! The names of variants and fields are part of the stored format (`storage::frame` holds its version).

use serde::{Deserialize, Serialize};

use crate::clock::UnixMicros;
use crate::feed::position::Position;
use crate::feed::post::{Body, Draft};
use crate::id::{PostId, SourceId};

/// A change of state that was accepted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Event {
    /// A post was published. Key: its author.
    Published {
        /// Its final place.
        position: Position,
        /// Its content.
        draft: Draft,
        /// When it was accepted, by the server's clock.
        accepted_at: UnixMicros,
    },
    /// A post was changed. Key: the post.
    Edited {
        /// The post.
        id: PostId,
        /// Its new body, if that changed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        body: Option<Body>,
        /// Whether it is kept out of feeds, if that changed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
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
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewEdge {
    /// Who follows.
    pub follower: SourceId,
    /// Whom.
    pub source: SourceId,
    /// A virtual follow: it works, but shows in no list and no count.
    #[serde(default, skip_serializing_if = "is_false")]
    pub hidden: bool,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

impl Event {
    /// The last instant of the server's clock that the event took.
    pub fn last_instant(&self) -> Option<UnixMicros> {
        match self {
            Self::Published { accepted_at, .. } => Some(*accepted_at),
            Self::Edited { at, .. } => Some(*at),
            Self::Followed { edges, since } => Some(UnixMicros(since.0.saturating_add(edges.len() as i64 - 1))),
            Self::Deleted { .. } | Self::Unfollowed { .. } => None,
        }
    }
}
