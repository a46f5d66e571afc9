//! Events: the content of the journal, from which all state is derived.
//!
//! Every event contains all that a replay needs, names sources by their external ids, and is idempotent: applied twice it leaves the same
//! state as applied once. Deliveries are not events, since inboxes are derived.
//!
//! The names of variants and fields are part of the stored format (`storage::frame` holds its version).

use serde::{Deserialize, Serialize};

use crate::clock::{Timestamp, UnixMicros};
use crate::feed::position::Position;
use crate::feed::post::{Body, Draft};
use crate::feed::resume::DeliveryWatermark;
use crate::feed::rules::Rules;
use crate::id::{ListName, PostId, SourceId};

/// An accepted change of state.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Event {
    /// A post was published. Key: its author.
    Published {
        /// Its final position in feeds.
        position: Position,
        /// The content of the post.
        draft: Draft,
        /// The logical instant at which it was accepted (see `runtime::hybrid_logical_clock`).
        accepted_at: UnixMicros,
    },
    /// A post was edited. Key: the post.
    Edited {
        /// The id of the post.
        id: PostId,
        /// The new body, if it changed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        body: Option<Body>,
        /// The new value of `hidden`, if it changed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hidden: Option<bool>,
        /// The time of the edit, as displayed to users.
        at: UnixMicros,
        /// The post before the change, in a cluster with an archive.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        post: Option<Box<ChangedPost>>,
    },
    /// A post was deleted for good. Key: the post.
    Deleted {
        /// The id of the post.
        id: PostId,
        /// The post that it reposted: a replay may find the repost already deleted, but not its record with that post.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        repost_of: Option<PostId>,
        /// The post before the change, in a cluster with an archive. For a reply it is always stored: a replay may find the reply already
        /// deleted, but still counted as hidden.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        post: Option<Box<ChangedPost>>,
    },
    /// Sources were followed, in one request. Key: each follower.
    Followed {
        /// The new edges, in order. The first is created at `since`, each other one microsecond after the one before it.
        edges: Vec<NewEdge>,
        /// The instant of the first edge.
        since: UnixMicros,
    },
    /// A source was unfollowed. Key: the follower.
    Unfollowed {
        /// The user who followed.
        follower: SourceId,
        /// The source that was followed.
        source: SourceId,
        /// The posts that the edge delivered up to this position stay in the feed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        keep_until: Option<Position>,
    },
    /// Sources were followed and unfollowed, in one request. One event contains the whole request, so that it is applied either completely
    /// or not at all. Key: each follower.
    FollowsChanged {
        /// The new edges, in order, as in `Followed`.
        follows: Vec<NewEdge>,
        /// The instant of the first of them.
        since: UnixMicros,
        /// The edges that are removed after that, in order.
        unfollows: Vec<OldEdge>,
    },
    /// A reader muted, blocked, unmuted or unblocked a source. Key: the reader, and for a block the source as well.
    #[serde(rename = "silenced")]
    MuteChanged {
        /// The id of the reader.
        reader: SourceId,
        /// The source that is muted or blocked.
        source: SourceId,
        /// A mute or a block.
        how: MuteOrBlock,
        /// The instant of the change; none if the mute or block is removed.
        since: Option<UnixMicros>,
    },
    /// A reader changed the rules. Key: the reader.
    #[serde(rename = "ruled")]
    RulesChanged {
        /// The id of the reader.
        reader: SourceId,
        /// All rules, changed or not.
        rules: Rules,
    },
    /// A reader moved the read marker. Key: the reader.
    #[serde(rename = "marked")]
    MarkerMoved {
        /// The id of the reader.
        reader: SourceId,
        /// The position of the last entry that was read.
        at: Position,
        /// The delivery watermark at that time.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seen: Option<DeliveryWatermark>,
    },
    /// A source was added to a list or removed from it. Key: the reader.
    #[serde(rename = "listed")]
    ListMemberChanged {
        /// The owner of the list.
        reader: SourceId,
        /// The name of the list. The first member creates the list.
        list: ListName,
        /// The source that was added or removed.
        source: SourceId,
        /// The instant of the change; none if the source is removed.
        since: Option<UnixMicros>,
    },
    /// A list was deleted. Key: the reader.
    #[serde(rename = "unlisted")]
    ListDeleted {
        /// The owner of the list.
        reader: SourceId,
        /// The name of the list.
        list: ListName,
    },
    /// Tokens of a user were revoked. Key: the user.
    Revoked {
        /// The owner of the tokens.
        user: SourceId,
        /// Tokens issued before this instant are refused, unless an earlier event set a later instant.
        not_before: UnixMicros,
        /// Revocations before this instant are deleted: the tokens that they refuse have expired.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        forget_before: Option<UnixMicros>,
    },
    /// The erasure of a user began. From here on the user's id is not registered and the user's posts are shown to nobody. The events that
    /// follow delete the data. Key: the user, and the users whom the user follows or blocks.
    Erased {
        /// The user who is being erased.
        user: SourceId,
        /// The instant of this event, which identifies the erasure from here on.
        at: UnixMicros,
    },
    /// Neither the archive nor the state contains data of a user who is being erased any more. Key: the erasure.
    ErasureScrubbed {
        /// The instant at which the erasure began.
        at: UnixMicros,
    },
    /// An erasure is complete: the earlier snapshots and journal segments are deleted too. Key: the erasure.
    ErasureEnded {
        /// The instant at which the erasure began.
        at: UnixMicros,
    },
    /// The clock jumped, or stored data was written while the clock was ahead. It precedes the event that was assigned the instant. Key:
    /// none.
    ClockJumped {
        /// The first logical instant after the jump.
        at: UnixMicros,
        /// Microseconds by which logical instants are ahead of displayed times from then on; negative if they are behind.
        #[serde(rename = "lead_us")]
        drift_us: i64,
    },
}

/// The post as the sequencer knew it when it judged a change. A node that has the post only in the archive applies the change to this data.
/// It does not read the archive, which may be newer or older than the event. All nodes therefore apply the change alike.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChangedPost {
    /// The position in feeds.
    pub at: Position,
    /// The sources whose outboxes contain it, without a user who is being erased.
    pub sources: Vec<SourceId>,
    /// The original post, if it is a repost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repost_of: Option<PostId>,
    /// True if the post was hidden before the change.
    #[serde(default, skip_serializing_if = "is_false")]
    pub hidden: bool,
}

/// The way in which a reader excludes a source from the feed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MuteOrBlock {
    /// No post of the source is shown.
    Mute,
    /// No post of the source is shown, and there are no edges between the two.
    Block,
}

/// A requested follow edge.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewEdge {
    /// The source that follows.
    pub follower: SourceId,
    /// The source to be followed.
    pub source: SourceId,
    /// True for a hidden follow: it delivers posts, but no list and no count includes it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub hidden: bool,
    /// Posts below this position are not delivered by this edge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<Position>,
    /// The number of earlier posts that the edge may deliver, if not all. It is not stored: the edge that is created has a start.
    #[serde(skip)]
    pub backfill: Option<usize>,
}

/// A follow edge that is removed.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OldEdge {
    /// The source that follows.
    pub follower: SourceId,
    /// The source that is followed.
    pub source: SourceId,
}

impl NewEdge {
    /// Creates a request for a visible edge that delivers everything.
    pub fn new(follower: SourceId, source: SourceId) -> Self {
        Self { follower, source, hidden: false, start: None, backfill: None }
    }
}

fn is_false(flag: &bool) -> bool {
    !flag
}

impl Event {
    /// Returns the name of the kind of event, as it is stored (`docs/storage.md`).
    pub fn stored_name(&self) -> &'static str {
        match self {
            Self::Published { .. } => "published",
            Self::Edited { .. } => "edited",
            Self::Deleted { .. } => "deleted",
            Self::Followed { .. } => "followed",
            Self::Unfollowed { .. } => "unfollowed",
            Self::FollowsChanged { .. } => "follows_changed",
            Self::MuteChanged { .. } => "silenced",
            Self::RulesChanged { .. } => "ruled",
            Self::MarkerMoved { .. } => "marked",
            Self::ListMemberChanged { .. } => "listed",
            Self::ListDeleted { .. } => "unlisted",
            Self::Revoked { .. } => "revoked",
            Self::Erased { .. } => "erased",
            Self::ErasureScrubbed { .. } => "erasure_scrubbed",
            Self::ErasureEnded { .. } => "erasure_ended",
            Self::ClockJumped { .. } => "clock_jumped",
        }
    }

    /// Returns the last logical instant that was assigned to the event, given the drift at that moment.
    pub fn taken(&self, drift_us: i64) -> Option<Timestamp> {
        let instant = match self {
            Self::Published { accepted_at, .. } => *accepted_at,
            Self::Edited { at, .. } => UnixMicros(at.0.saturating_add(drift_us)),
            Self::FollowsChanged { follows, .. } if follows.is_empty() => return None,
            Self::Followed { edges, since } | Self::FollowsChanged { follows: edges, since, .. } => {
                UnixMicros(since.0.saturating_add(edges.len() as i64 - 1))
            }
            Self::MuteChanged { since, .. } | Self::ListMemberChanged { since, .. } => (*since)?,
            Self::Erased { at, .. } => *at,
            Self::ClockJumped { at, drift_us } => return Some(Timestamp { instant: *at, drift_us: *drift_us }),
            Self::Deleted { .. }
            | Self::Unfollowed { .. }
            | Self::RulesChanged { .. }
            | Self::MarkerMoved { .. }
            | Self::ListDeleted { .. }
            | Self::Revoked { .. }
            | Self::ErasureScrubbed { .. }
            | Self::ErasureEnded { .. } => return None,
        };
        Some(Timestamp { instant, drift_us })
    }
}
