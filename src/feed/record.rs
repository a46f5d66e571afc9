//! A post as it is stored outside the journal: in snapshots and in the archive.
//!
//! The names of fields are part of the stored format.

use serde::{Deserialize, Serialize};

use crate::clock::UnixMicros;
use crate::feed::outbox::Route;
use crate::feed::position::Position;
use crate::feed::post::{Body, Kind};
use crate::id::PostId;

/// A post. `S` is how sources are named: by number in a snapshot, by id in the archive.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PostRecord<S> {
    /// Where it stands.
    pub at: Position,
    /// When it was accepted, if not at the instant of its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted_at: Option<UnixMicros>,
    /// What it is.
    #[serde(default, skip_serializing_if = "Kind::is_post")]
    pub kind: Kind,
    /// Its content, JSON text.
    pub body: Body,
    /// Its author, its tags, its topic.
    pub sources: Vec<S>,
    /// To which of them it was left to be pulled: a bit each.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub pulled: u32,
    /// Whose outboxes have it in the archive only: a bit each.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub archived: u32,
    /// Whether it is kept out of feeds.
    #[serde(default, skip_serializing_if = "is_false")]
    pub hidden: bool,
    /// When its body was last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edited_at: Option<UnixMicros>,
    /// The post it repeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repost_of: Option<PostId>,
    /// The post it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<PostId>,
    /// Who published that, if it is known.
    #[serde(default = "none", skip_serializing_if = "Option::is_none")]
    pub answered: Option<S>,
    /// [`crate::feed::post::Draft::fingerprint`].
    pub fingerprint: u64,
}

impl<S> PostRecord<S> {
    /// How the post reaches the followers of its `nth` source, if that has it in memory.
    pub fn route(&self, nth: usize) -> Option<Route> {
        let route = if self.pulled & (1 << nth) != 0 { Route::Pull } else { Route::Push };
        (self.archived & (1 << nth) == 0).then_some(route)
    }
}

// Without it, a default would be asked of `S` as well.
fn none<S>() -> Option<S> {
    None
}

fn is_false(flag: &bool) -> bool {
    !flag
}

fn is_zero(bits: &u32) -> bool {
    *bits == 0
}
