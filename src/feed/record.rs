//! The stored form of a post outside the journal: in snapshots and in the archive.
//!
//! The names of fields are part of the stored format.

use serde::{Deserialize, Serialize};

use crate::clock::UnixMicros;
use crate::feed::body::Body;
use crate::feed::kind::Kind;
use crate::feed::outbox::Route;
use crate::feed::position::Position;
use crate::id::{ExternalId, PostId};

/// A stored post. `S` is the identifier of a source: its number in a snapshot, its id in the archive.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PostRecord<S> {
    /// The position in feeds.
    pub at: Position,
    /// The time of acceptance, if it differs from the publish time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted_at: Option<UnixMicros>,
    /// The kind of the entry.
    #[serde(default, skip_serializing_if = "Kind::is_post")]
    pub kind: Kind,
    /// The content, as JSON text.
    pub body: Body,
    /// The author, the tags, the topic and the replies to the post that it answers, in this order. Earlier versions left out the replies.
    pub sources: Vec<S>,
    /// One bit for each source: set if the post was left to be pulled from it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub pulled: u32,
    /// One bit for each source: set if its outbox has the post in the archive only.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub archived: u32,
    /// True if the post is excluded from feeds.
    #[serde(default, skip_serializing_if = "is_false")]
    pub hidden: bool,
    /// The time of the last change of the body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edited_at: Option<UnixMicros>,
    /// The same as [`crate::feed::post::Post::repost_of`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repost_of: Option<PostId>,
    /// The post to which this one replies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<PostId>,
    /// The id of the post in another system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_id: Option<ExternalId>,
    /// The author of the post to which this one replies, if known.
    #[serde(default = "none", skip_serializing_if = "Option::is_none")]
    pub answered: Option<S>,
    /// The [`crate::feed::post::Draft::fingerprint`] of the post.
    pub fingerprint: u64,
}

impl<S> PostRecord<S> {
    /// Returns the route to the followers of its `nth` source, or `None` if that source's outbox has the post in the archive only.
    pub fn route(&self, nth: usize) -> Option<Route> {
        let route = if self.pulled & (1 << nth) != 0 { Route::Pull } else { Route::Push };
        (self.archived & (1 << nth) == 0).then_some(route)
    }
}

// A function, because `#[serde(default)]` alone would require that `S` implements `Default`.
fn none<S>() -> Option<S> {
    None
}

fn is_false(flag: &bool) -> bool {
    !flag
}

fn is_zero(bits: &u32) -> bool {
    *bits == 0
}
