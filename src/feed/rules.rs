//! Rules: a reader's choice of the posts that are shown, among those that reach the reader.
//!
//! The names of fields are part of the stored format, and of the HTTP contract.

use std::num::NonZeroUsize;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use crate::json::{Name, Whole};

/// The replies that are shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Replies {
    /// Replies to posts of the reader and of authors whom the reader follows, and to posts whose replies the reader follows.
    #[default]
    Followed,
    /// All replies are shown.
    All,
    /// No replies are shown.
    None,
}

/// The rules of one reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    /// True if the reader's own posts are shown.
    pub show_own: bool,
    /// The replies that are shown.
    pub replies: Replies,
    /// True if a repost is a reason to show a post.
    pub reposts: bool,
    /// Maximum number of entries of one author on a page.
    pub per_source_max: Option<NonZeroUsize>,
    /// True if other systems are notified of posts that the reader misses while asleep. It is stored only if it is set, for compatibility
    /// with earlier versions.
    #[serde(default, skip_serializing_if = "is_false")]
    pub notify: bool,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

impl Default for Rules {
    fn default() -> Self {
        Self { show_own: true, replies: Replies::default(), reposts: true, per_source_max: None, notify: false }
    }
}

/// A change of rules; the rules that are absent stay unchanged. Null is not the same as absent: only `per_source_max` accepts it, to remove
/// the limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RulesPatch {
    /// The new value of [`Rules::show_own`].
    #[serde(deserialize_with = "given")]
    pub show_own: Option<bool>,
    /// The new value of [`Rules::replies`].
    #[serde(deserialize_with = "given_name")]
    pub replies: Option<Replies>,
    /// The new value of [`Rules::reposts`].
    #[serde(deserialize_with = "given")]
    pub reposts: Option<bool>,
    /// The new value of [`Rules::per_source_max`]; `Some(None)` removes the limit.
    #[serde(deserialize_with = "given_number")]
    pub per_source_max: Option<Option<NonZeroUsize>>,
    /// The new value of [`Rules::notify`].
    #[serde(deserialize_with = "given")]
    pub notify: Option<bool>,
}

/// Deserializes a field that is present, so that null is not treated as absent.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

/// The same for a name.
fn given_name<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    Name::deserialize(from).map(|Name(name)| Some(name))
}

/// The same for a number.
fn given_number<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Option<NonZeroUsize>>, D::Error> {
    let Some(Whole(number)) = Option::deserialize(from)? else { return Ok(Some(None)) };
    let number = NonZeroUsize::new(number).ok_or_else(|| D::Error::custom("at least one entry has to be allowed"))?;
    Ok(Some(Some(number)))
}

impl Rules {
    /// Returns these rules with the values of `patch` in place of the old ones.
    #[must_use]
    pub fn patched(self, patch: RulesPatch) -> Self {
        Self {
            show_own: patch.show_own.unwrap_or(self.show_own),
            replies: patch.replies.unwrap_or(self.replies),
            reposts: patch.reposts.unwrap_or(self.reposts),
            per_source_max: patch.per_source_max.unwrap_or(self.per_source_max),
            notify: patch.notify.unwrap_or(self.notify),
        }
    }
}
