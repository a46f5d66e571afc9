//! Identifiers: ids of sources and posts, and the dense slots that represent sources inside the process.
//!
//! Responsible for:
//! - validating and normalizing ids once, where they enter, so that no other module has to;
//! - distinguishing users, tags, topics and the replies to posts.

mod external;
mod name;
mod post_id;

pub use external::{ExternalId, ExternalIdError, PostName, PostNameError};
pub use name::NameError;
pub use post_id::{PostId, PostIdError};

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::Arc;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::limits::USER_ID_BYTES_MAX;

/// The validated id of a source. The id of a user has 1–128 characters of `[A-Za-z0-9._:@~-]`. It is neither `.` nor `..`, which proxies
/// and browsers remove from paths; data that earlier versions stored may contain these two. The id of a tag or a topic is `tag:` or
/// `topic:` and a name in any script, in its normalized form. Two ids are equal if their texts are equal. No id contains a character that
/// JSON escapes.
///
/// It is cheap to clone: a text of at most 15 bytes is stored inline, and a longer one is shared.
#[derive(Clone, PartialEq, Eq)]
pub struct SourceId(Characters);

/// The characters of an id, in 16 bytes.
#[derive(Clone, PartialEq, Eq)]
enum Characters {
    /// At most 15 bytes, padded with zeros, which no id contains.
    Within([u8; WITHIN_MAX]),
    /// More than 15 bytes. An `Arc<str>` has twice the size.
    Shared(Arc<Box<str>>),
}

const WITHIN_MAX: usize = 15;

/// The reason why a text is not a valid [`SourceId`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SourceIdError {
    /// The text is empty.
    #[error("an id must have at least 1 character")]
    Empty,
    /// The text is a tag or a topic, but has no valid name.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The text begins like the source of a post's replies, but no valid post follows.
    #[error("an id that begins with {REPLIES_PREFIX} must continue with the id of a post: {0}")]
    NoPost(PostNameError),
    /// The text is longer than the limit.
    #[error("an id may have at most {USER_ID_BYTES_MAX} characters, this one has {length}")]
    TooLong {
        /// The length in bytes.
        length: usize,
    },
    /// The text is a relative step in a path (`.` or `..`).
    #[error("an id must not be . or .., which have a special meaning in the path of a request")]
    PathStep,
    /// The text has a character outside the allowed set.
    #[error("an id may contain only letters, digits and the characters . _ : @ ~ - but has {found:?} at byte {at}")]
    BadCharacter {
        /// The first character that is not allowed.
        found: char,
        /// Its offset in bytes.
        at: usize,
    },
}

const TAG_PREFIX: &str = "tag:";
const TOPIC_PREFIX: &str = "topic:";
const REPLIES_PREFIX: &str = "replies:";

impl SourceId {
    /// Validates and normalizes `text`.
    ///
    /// # Errors
    /// Returns the reason why the text is not an id, and the place.
    pub fn new(text: &str) -> Result<Self, SourceIdError> {
        if matches!(text, "." | "..") {
            return Err(SourceIdError::PathStep);
        }
        if let Some(post) = text.strip_prefix(REPLIES_PREFIX) {
            return Ok(Self::replies_to(post.parse::<PostName>().map_err(SourceIdError::NoPost)?.id));
        }
        match (text.strip_prefix(TAG_PREFIX), text.strip_prefix(TOPIC_PREFIX)) {
            (Some(name), _) => Self::tag(name),
            (_, Some(name)) => Self::topic(name),
            _ => Self::plain(text),
        }
    }

    /// Validates an id that is read from storage.
    fn stored(text: &str) -> Result<Self, SourceIdError> {
        // Earlier versions distinguished tags by case, and stored ids that `new` now refuses.
        Self::plain(text).or_else(|_| Self::new(text))
    }

    /// Validates an id that is neither a tag nor a topic, or the name of a list.
    fn plain(text: &str) -> Result<Self, SourceIdError> {
        if text.is_empty() {
            return Err(SourceIdError::Empty);
        }
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | ':' | '@' | '~' | '-');
        if let Some((at, found)) = text.char_indices().find(|&(_, c)| !allowed(c)) {
            return Err(SourceIdError::BadCharacter { found, at });
        }
        if text.len() > USER_ID_BYTES_MAX {
            return Err(SourceIdError::TooLong { length: text.len() });
        }
        Ok(Self::valid(text))
    }

    fn valid(text: &str) -> Self {
        let mut within = [0; WITHIN_MAX];
        match within.get_mut(..text.len()) {
            Some(space) => space.copy_from_slice(text.as_bytes()),
            None => return Self(Characters::Shared(Arc::new(text.into()))),
        }
        Self(Characters::Within(within))
    }

    /// Returns the source that collects the posts with the tag `name`.
    ///
    /// # Errors
    /// Returns the reason why the name is invalid.
    pub fn tag(name: &str) -> Result<Self, SourceIdError> {
        Ok(Self::prefixed(TAG_PREFIX, &name::tag(name)?))
    }

    /// Returns the source that collects the posts on the topic `name`.
    ///
    /// # Errors
    /// Returns the reason why the name is invalid.
    pub fn topic(name: &str) -> Result<Self, SourceIdError> {
        Ok(Self::prefixed(TOPIC_PREFIX, &name::topic(name)?))
    }

    /// Returns the source that collects the replies to a post.
    pub fn replies_to(post: PostId) -> Self {
        Self::prefixed(REPLIES_PREFIX, itoa::Buffer::new().format(post.0))
    }

    fn prefixed(prefix: &str, name: &str) -> Self {
        Self::valid(&format!("{prefix}{name}"))
    }

    /// Returns the text of the id.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Characters::Within(within) => {
                let mut number = [0; WITHIN_MAX + 1];
                number[..WITHIN_MAX].copy_from_slice(within);
                let zeros = u128::from_le_bytes(number).leading_zeros() / u8::BITS;
                let length = WITHIN_MAX + 1 - zeros as usize;
                str::from_utf8(&within[..length]).expect("these are the bytes of a text")
            }
            Characters::Shared(text) => text,
        }
    }

    /// Returns the bytes of each of its two heap allocations; 0 for one that does not exist.
    pub fn heap_bytes(&self) -> [usize; 2] {
        match &self.0 {
            Characters::Within(_) => [0; 2],
            Characters::Shared(text) => [2 * size_of::<usize>() + size_of::<Box<str>>(), text.len()],
        }
    }

    /// Returns the tag's name, if this is a tag.
    pub fn tag_name(&self) -> Option<&str> {
        self.as_str().strip_prefix(TAG_PREFIX)
    }

    /// Returns the topic's name, if this is a topic.
    pub fn topic_name(&self) -> Option<&str> {
        self.as_str().strip_prefix(TOPIC_PREFIX)
    }

    /// Returns the post, if this is the source of its replies.
    pub fn replied_post(&self) -> Option<PostId> {
        self.as_str().strip_prefix(REPLIES_PREFIX)?.parse().ok()
    }

    /// Returns true if this is a user (or another kind of account that can publish), and neither a tag, a topic nor the replies to a post.
    pub fn is_user(&self) -> bool {
        self.tag_name().is_none() && self.topic_name().is_none() && self.replied_post().is_none()
    }
}

/// The name of a reader's list. It allows the same characters as the id of a user.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize)]
#[serde(transparent)]
pub struct ListName(SourceId);

impl ListName {
    /// Returns the text of the name.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl FromStr for ListName {
    type Err = SourceIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if matches!(text, "." | "..") {
            return Err(SourceIdError::PathStep);
        }
        SourceId::plain(text).map(Self)
    }
}

/// The name of a consumer of changes. It has the form of a list's name.
pub type ConsumerName = ListName;

/// Reads a name from storage.
impl<'de> Deserialize<'de> for ListName {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_str(Text(|text: &str| SourceId::plain(text).map(Self)))
    }
}

impl Borrow<str> for SourceId {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

/// Hashes like the text, so that a map of ids can be searched by a text.
impl Hash for SourceId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl PartialOrd for SourceId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for SourceId {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_str().cmp(other.as_str())
    }
}

impl Serialize for SourceId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl FromStr for SourceId {
    type Err = SourceIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::new(text)
    }
}

/// Reads an id from storage. Ids in requests are validated by [`SourceId::new`].
impl<'de> Deserialize<'de> for SourceId {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_str(Text(Self::stored))
    }
}

/// Deserializes a value from borrowed text, without an intermediate allocation.
pub struct Text<F>(pub F);

impl<T, E: fmt::Display, F: FnOnce(&str) -> Result<T, E>> Visitor<'_> for Text<F> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_str<D: de::Error>(self, text: &str) -> Result<T, D> {
        (self.0)(text).map_err(D::custom)
    }
}

impl fmt::Display for SourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for SourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The dense number that represents a source inside this process. It never leaves the process: after a restart the same source may have
/// another slot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct SourceSlot(pub u32);

impl SourceSlot {
    /// The slot of a source that is not registered in any [`Sources`](crate::state::sources::Sources) yet.
    pub const NONE: Self = Self(u32::MAX);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::BuildHasher;

    #[test]
    fn source_ids_accept_their_alphabet_up_to_the_maximum_length() {
        let longest = "x".repeat(USER_ID_BYTES_MAX);
        for good in ["a", "Ann.Lee_7", "tag:rust", "topic:42", "u@host", "~-", longest.as_str()] {
            assert_eq!(SourceId::new(good).unwrap().as_str(), good);
        }
        let one_over = "x".repeat(USER_ID_BYTES_MAX + 1);
        let length = one_over.len();
        for (bad, why) in [
            ("", SourceIdError::Empty),
            ("a b", SourceIdError::BadCharacter { found: ' ', at: 1 }),
            ("ab/é", SourceIdError::BadCharacter { found: '/', at: 2 }),
            ("é", SourceIdError::BadCharacter { found: 'é', at: 0 }),
            ("a\0", SourceIdError::BadCharacter { found: '\0', at: 1 }),
            (one_over.as_str(), SourceIdError::TooLong { length }),
            ("tag:", SourceIdError::Name(NameError::Empty)),
            ("topic:", SourceIdError::Name(NameError::Empty)),
            ("replies:", SourceIdError::NoPost(PostNameError::Id(PostIdError))),
            ("replies:bob", SourceIdError::NoPost(PostNameError::Id(PostIdError))),
            ("replies:07", SourceIdError::NoPost(PostNameError::Id(PostIdError))),
            (".", SourceIdError::PathStep),
            ("..", SourceIdError::PathStep),
        ] {
            assert_eq!(SourceId::new(bad).unwrap_err(), why, "{bad:?}");
        }
        for good in ["...", ".a", "a..", "tag:.", "~."] {
            assert_eq!(SourceId::new(good).unwrap().as_str(), good);
        }
    }

    #[test]
    fn short_and_long_ids_are_ordered_and_hashed_as_their_texts() {
        let hasher = std::hash::RandomState::new();
        let texts: Vec<String> = (1..40).flat_map(|length| ["a", "~", "aB"].map(|text| text.repeat(length))).collect();
        for one in &texts {
            let id = SourceId::new(one).unwrap();
            assert_eq!((id.as_str(), id.clone().to_string()), (one.as_str(), one.clone()));
            assert_eq!(hasher.hash_one(&id), hasher.hash_one(one.as_str()), "{one}");
            assert_eq!(serde_json::to_value(&id).unwrap(), serde_json::json!(one));
            for other in &texts {
                let other_id = SourceId::new(other).unwrap();
                assert_eq!((id == other_id, id.cmp(&other_id)), (one == other, one.cmp(other)), "{one} {other}");
            }
        }
        assert_eq!(size_of::<SourceId>(), 16);
    }

    #[test]
    fn ids_of_earlier_versions_are_still_read_from_storage() {
        for step in [".", ".."] {
            assert_eq!(serde_json::from_value::<SourceId>(step.into()).unwrap().as_str(), step);
            assert_eq!(serde_json::from_value::<ListName>(step.into()).unwrap().as_str(), step);
        }
        assert!(serde_json::from_value::<SourceId>("a b".into()).is_err());
    }

    #[test]
    fn tags_topics_and_replies_are_not_users() {
        let tag = SourceId::tag("rust").unwrap();
        assert_eq!((tag.as_str(), tag.tag_name(), tag.is_user()), ("tag:rust", Some("rust"), false));
        let topic = SourceId::topic("42").unwrap();
        assert_eq!((topic.as_str(), topic.topic_name(), topic.is_user()), ("topic:42", Some("42"), false));
        let replies = SourceId::replies_to(PostId(u64::MAX));
        assert_eq!((replies.as_str(), replies.is_user()), ("replies:18446744073709551615", false));
        assert_eq!((replies.replied_post(), topic.replied_post()), (Some(PostId(u64::MAX)), None));
        let name = "ext:AAAA+A==".parse::<PostName>().unwrap();
        assert_eq!(SourceId::new("replies:ext:AAAA+A=="), Ok(SourceId::replies_to(name.id)));
        // Earlier versions accepted such ids.
        assert!(serde_json::from_value::<SourceId>("replies:bob".into()).unwrap().is_user());
        assert!(SourceId::new("tagged").unwrap().is_user());
        assert_eq!(SourceId::tag(""), Err(SourceIdError::Name(NameError::Empty)));
    }

    #[test]
    fn post_ids_have_one_spelling() {
        for (text, id) in [("0", 0), ("7", 7), ("18446744073709551615", u64::MAX)] {
            assert_eq!(text.parse(), Ok(PostId(id)));
            assert_eq!(PostId(id).to_string(), text);
        }
        for bad in ["", "-1", "+1", "01", "1.0", "0x1", " 1", "18446744073709551616", "１"] {
            assert_eq!(bad.parse::<PostId>(), Err(PostIdError), "{bad:?}");
        }
    }
}
