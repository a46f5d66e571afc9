//! Rules: what of the posts that reach a reader the reader wants to see.
//!
//! The names of fields are part of the stored format, and of the HTTP contract.

use std::num::NonZeroUsize;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use crate::json::{Name, Whole};

/// Which answers to posts show.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Replies {
    /// Those to posts of authors whom the reader follows, and of the reader.
    #[default]
    Followed,
    /// All.
    All,
    /// None.
    None,
}

/// The rules of one reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    /// Whether the reader's own posts show.
    pub show_own: bool,
    /// Which answers show.
    pub replies: Replies,
    /// Whether reposts are a reason to show a post.
    pub reposts: bool,
    /// How many entries of one author a page has at most.
    pub per_source_max: Option<NonZeroUsize>,
}

impl Default for Rules {
    fn default() -> Self {
        Self { show_own: true, replies: Replies::default(), reposts: true, per_source_max: None }
    }
}

/// Rules to be changed; the others stay. Null is a value as any other: only a limit can be lifted by it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RulesPatch {
    /// [`Rules::show_own`].
    #[serde(deserialize_with = "given")]
    pub show_own: Option<bool>,
    /// [`Rules::replies`].
    #[serde(deserialize_with = "given_name")]
    pub replies: Option<Replies>,
    /// [`Rules::reposts`].
    #[serde(deserialize_with = "given")]
    pub reposts: Option<bool>,
    /// [`Rules::per_source_max`]; an inner nothing lifts the limit.
    #[serde(deserialize_with = "given_number")]
    pub per_source_max: Option<Option<NonZeroUsize>>,
}

/// Tells a field that is null from one that is not there.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

/// The same of a name.
fn given_name<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    Name::deserialize(from).map(|Name(name)| Some(name))
}

/// The same of a number.
fn given_number<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Option<NonZeroUsize>>, D::Error> {
    let Some(Whole(number)) = Option::deserialize(from)? else { return Ok(Some(None)) };
    let number = NonZeroUsize::new(number).ok_or_else(|| D::Error::custom("at least one entry has to be allowed"))?;
    Ok(Some(Some(number)))
}

impl Rules {
    /// These rules, but for what `patch` names.
    #[must_use]
    pub fn patched(self, patch: RulesPatch) -> Self {
        Self {
            show_own: patch.show_own.unwrap_or(self.show_own),
            replies: patch.replies.unwrap_or(self.replies),
            reposts: patch.reposts.unwrap_or(self.reposts),
            per_source_max: patch.per_source_max.unwrap_or(self.per_source_max),
        }
    }
}
