//! Events: what the journal holds, and all that state is made of.
//!
//! Every event carries what replay needs, names sources by their external ids, and is idempotent: applied twice it
//! leaves the state it left the first time. Deliveries are no events, since inboxes are derived.
//!
//! The names of variants and fields are part of the stored format (`storage::frame` holds its version).

use serde::{Deserialize, Serialize};

use crate::clock::{Taken, UnixMicros};
use crate::feed::position::Position;
use crate::feed::post::{Body, Draft};
use crate::feed::resume::Settled;
use crate::feed::rules::Rules;
use crate::id::{ListName, PostId, SourceId};

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
        /// The logical instant at which it was accepted (see `runtime::monotonic_clock`).
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
        /// When, as people are shown it.
        at: UnixMicros,
    },
    /// A post was deleted for good. Key: the post.
    Deleted {
        /// The post.
        id: PostId,
        /// What it repeated: a replay may find it gone already, but not its trace there.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        repost_of: Option<PostId>,
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
        /// What the edge brought up to here stays in the feed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        keep_until: Option<Position>,
    },
    /// A reader muted or blocked a source, or does not any more. Key: the reader, and for a block the source as well.
    Silenced {
        /// The reader.
        reader: SourceId,
        /// Of whom nothing shows.
        source: SourceId,
        /// A mute or a block.
        how: MuteOrBlock,
        /// When; nothing if it is taken back.
        since: Option<UnixMicros>,
    },
    /// A reader has other rules. Key: the reader.
    Ruled {
        /// The reader.
        reader: SourceId,
        /// All of them.
        rules: Rules,
    },
    /// A reader has read up to a position. Key: the reader.
    Marked {
        /// The reader.
        reader: SourceId,
        /// The position.
        at: Position,
        /// Up to when posts had arrived by then.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seen: Option<Settled>,
    },
    /// A source is on a list, or not any more. Key: the reader.
    Listed {
        /// Whose list.
        reader: SourceId,
        /// Its name. A list begins with its first member.
        list: ListName,
        /// The source.
        source: SourceId,
        /// When; nothing if it is taken off.
        since: Option<UnixMicros>,
    },
    /// A list is gone. Key: the reader.
    Unlisted {
        /// Whose list.
        reader: SourceId,
        /// Its name.
        list: ListName,
    },
    /// Tokens of a user were revoked. Key: the user.
    Revoked {
        /// The user.
        user: SourceId,
        /// Those made before it are refused, unless an earlier event named a later instant.
        not_before: UnixMicros,
        /// Revocations before it are forgotten: what they refuse has expired.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        forget_before: Option<UnixMicros>,
    },
    /// A user is to be erased. From here on the user is nobody's name and what they published shows to nobody; what goes of it goes by
    /// events that follow. Key: the user, and whoever they follow or block.
    Erased {
        /// The user.
        user: SourceId,
        /// When, which is the name of the erasure from here on.
        at: UnixMicros,
    },
    /// The archive has nothing of a user who is being erased any more, and neither has the state. Key: the erasure.
    ErasureScrubbed {
        /// When the erasure began.
        at: UnixMicros,
    },
    /// Nothing is left of an erased user: neither snapshots nor segments of before are. Key: the erasure.
    ErasureEnded {
        /// When the erasure began.
        at: UnixMicros,
    },
    /// The clock jumped, or what is kept had been written while it was ahead. Before the event that took the instant. Key: none.
    ClockJumped {
        /// The first logical instant since.
        at: UnixMicros,
        /// Microseconds by which logical instants are ahead of times shown from then on; negative if behind.
        lead_us: i64,
    },
}

/// How a reader keeps a source out of the feed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MuteOrBlock {
    /// Nothing of it shows.
    Mute,
    /// Nothing of it shows, and there are no edges between the two.
    Block,
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
    /// Posts below it do not come by this edge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<Position>,
    /// How many earlier posts may come by this edge, if not all. Not stored: an edge that is made has a start.
    #[serde(skip)]
    pub backfill: Option<usize>,
}

impl NewEdge {
    /// An edge that shows, and brings everything.
    pub fn new(follower: SourceId, source: SourceId) -> Self {
        Self { follower, source, hidden: false, start: None, backfill: None }
    }
}

fn is_false(flag: &bool) -> bool {
    !flag
}

impl Event {
    /// The last logical instant that the event took, while the lead over times shown was `lead_us`.
    pub fn taken(&self, lead_us: i64) -> Option<Taken> {
        let instant = match self {
            Self::Published { accepted_at, .. } => *accepted_at,
            Self::Edited { at, .. } => UnixMicros(at.0.saturating_add(lead_us)),
            Self::Followed { edges, since } => UnixMicros(since.0.saturating_add(edges.len() as i64 - 1)),
            Self::Silenced { since, .. } | Self::Listed { since, .. } => (*since)?,
            Self::Erased { at, .. } => *at,
            Self::ClockJumped { at, lead_us } => return Some(Taken { instant: *at, lead_us: *lead_us }),
            Self::Deleted { .. }
            | Self::Unfollowed { .. }
            | Self::Ruled { .. }
            | Self::Marked { .. }
            | Self::Unlisted { .. }
            | Self::Revoked { .. }
            | Self::ErasureScrubbed { .. }
            | Self::ErasureEnded { .. } => return None,
        };
        Some(Taken { instant, lead_us })
    }
}
