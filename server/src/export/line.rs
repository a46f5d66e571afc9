//! The lines of an export, as JSON.

use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use tidewire::clock::UnixMicros;
use tidewire::feed::kind::Kind;
use tidewire::feed::position::Position;
use tidewire::feed::rules::Rules;
use tidewire::id::{ExternalId, ListName, PostId, SourceId};

/// The format that this version writes, and the latest that it can read.
pub(crate) const FORMAT: u32 = 1;

/// The counts of an export.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) sources: u64,
    pub(crate) follows: u64,
    pub(crate) posts: u64,
    pub(crate) deleted: u64,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sources, follows, posts, deleted } = self;
        write!(
            f,
            "{sources} users, tags, topics and threads, {follows} follows, {posts} posts, {deleted} ids of deleted posts"
        )
    }
}

/// One line: an object with one field, named after its kind. The lines are in the order of these variants.
#[derive(Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Line {
    Export(Head),
    Source(SourceLine),
    Follows(FollowsLine),
    Preferences(PreferencesLine),
    Reposts(RepostsLine),
    Revoked(RevokedLine),
    Post(PostLine),
    /// Ids of deleted posts, which cannot be reused.
    Deleted(Vec<Id>),
    End(End),
}

/// A time as in the API, in UTC with microseconds. An instant outside of the calendar is its number of microseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Time(pub(crate) UnixMicros);

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let number = || text.parse().ok().map(UnixMicros);
        text.parse().ok().or_else(number).map(Self).ok_or_else(|| D::Error::custom(format!("{text:?} is not a time")))
    }
}

/// The id of a post, as in the API: digits in a string.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Id(pub(crate) PostId);

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map(|id| Self(PostId(id))).map_err(|_| D::Error::custom(format!("{text:?} is not a post id")))
    }
}

/// The position of a post in feeds.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct At {
    pub(crate) published_at: Time,
    pub(crate) id: Id,
}

impl From<Position> for At {
    fn from(Position { published_at, id }: Position) -> Self {
        Self { published_at: Time(published_at), id: Id(id) }
    }
}

impl From<At> for Position {
    fn from(At { published_at, id }: At) -> Self {
        Self { published_at: published_at.0, id: id.0 }
    }
}

/// The first line: the last event of the state, and the values of the clock.
#[derive(Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct Head {
    pub(crate) format: u32,
    pub(crate) sequence: u64,
    pub(crate) last_instant: Time,
    /// The drift of instants over displayed times, in microseconds.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[serde(rename = "lead_us")]
    pub(crate) drift_us: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tokens_from: Option<Time>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) revealed: Vec<Revealed>,
}

/// A post that became known after its replies, and the time.
#[derive(Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct Revealed {
    pub(crate) at: Time,
    pub(crate) id: Id,
}

/// A user, tag, topic or the replies to a post. Every source in another line has such a line.
#[derive(Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct SourceLine {
    pub(crate) id: SourceId,
    /// The time at which the user last read the feed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) last_seen: Option<Time>,
    /// The last posts that arrived late.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) late: Vec<Late>,
    /// Posts that arrived late until this instant may be missing from `late`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) late_forgotten: Option<Time>,
    /// The hidden posts, if this source is the replies to a post.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) hidden: Vec<Id>,
    /// The time at which the erasure of the user began. `id` is then not that of the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) erased_at: Option<Time>,
}

/// A post that arrived after younger ones, and the time.
#[derive(Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct Late {
    pub(crate) arrived_at: Time,
    pub(crate) published_at: Time,
    pub(crate) id: Id,
}

/// The sources that a user follows, and the retained posts of unfollowed sources.
#[derive(Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct FollowsLine {
    pub(crate) follower: SourceId,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) follows: Vec<Follow>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) kept: Vec<Kept>,
}

#[derive(Serialize, Deserialize, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct Follow {
    pub(crate) source: SourceId,
    pub(crate) since: Time,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) hidden: bool,
    /// The first post that the follow brings. Without it, the follow brings all posts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) start: Option<At>,
}

/// Posts of a source that stay in a feed after an unfollow, from one position to another.
#[derive(Serialize, Deserialize, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct Kept {
    pub(crate) source: SourceId,
    pub(crate) from: At,
    pub(crate) until: At,
    pub(crate) since: Time,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) hidden: bool,
}

/// The preferences of a reader.
#[derive(Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct PreferencesLine {
    pub(crate) user: SourceId,
    pub(crate) rules: Rules,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) mutes: Vec<Since>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) blocks: Vec<Since>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) marker: Option<MarkerLine>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) lists: Vec<ListLine>,
}

/// A source, and the time at which it was muted, blocked or added to a list.
#[derive(Serialize, Deserialize, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct Since {
    pub(crate) source: SourceId,
    pub(crate) since: Time,
}

/// The position up to which a reader has read.
#[derive(Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct MarkerLine {
    pub(crate) at: At,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) seen: Option<Seen>,
}

/// The delivery watermark at the time at which the reader moved the marker.
#[derive(Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct Seen {
    pub(crate) through: Time,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) ahead_us: i64,
}

#[derive(Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListLine {
    pub(crate) name: ListName,
    pub(crate) members: Vec<Since>,
}

/// Reposts of a post. A post with many reposts has several lines.
#[derive(Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct RepostsLine {
    pub(crate) of: Id,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) reposts: Vec<RepostLine>,
    /// Redirected reposts: reposts of a repost of this post that was published later.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) redirected: Vec<Id>,
}

#[derive(Serialize, Deserialize, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct RepostLine {
    pub(crate) at: At,
    pub(crate) source: SourceId,
    pub(crate) author: SourceId,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) hidden: bool,
}

/// The server refuses tokens of a user that were issued before this time.
#[derive(Serialize, Deserialize, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct RevokedLine {
    pub(crate) user: SourceId,
    pub(crate) not_before: Time,
}

/// A post that was not deleted.
#[derive(Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct PostLine {
    pub(crate) id: Id,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) external_id: Option<ExternalId>,
    pub(crate) author: SourceId,
    pub(crate) published_at: Time,
    /// Absent if it equals `published_at`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) accepted_at: Option<Time>,
    #[serde(default, skip_serializing_if = "Kind::is_post")]
    pub(crate) kind: Kind,
    /// The tags, the topic, and the source of replies to the post that it answers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) sources: Vec<SourceId>,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) hidden: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) edited_at: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) repost_of: Option<Id>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reply_to: Option<Id>,
    /// The author of the answered post, if the author is known and was not erased.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) answered: Option<SourceId>,
    /// A hash in hexadecimal that detects if a post that is published again is the same.
    pub(crate) fingerprint: String,
    /// The body as JSON text in a string, so that each byte is preserved.
    pub(crate) body: String,
}

/// The last line.
#[derive(Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct End {
    /// The number of lines before this one.
    pub(crate) lines: u64,
    /// SHA-256 of these lines, including line ends, in hexadecimal. Exports of equal states have the same value.
    pub(crate) sha256: String,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

fn is_zero(number: &i64) -> bool {
    *number == 0
}
