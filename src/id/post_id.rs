//! Ids of posts.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The id of a post. It is written as a decimal string in JSON, since some JSON parsers do not preserve 64 bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PostId(pub u64);

/// The text is not a valid [`PostId`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a post id is a whole number from 0 to 18446744073709551615 in decimal digits, without sign or leading zeros")]
pub struct PostIdError;

impl FromStr for PostId {
    type Err = PostIdError;

    fn from_str(text: &str) -> Result<Self, PostIdError> {
        let digits_only = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let canonical = text == "0" || !text.starts_with('0');
        if !(digits_only && canonical) {
            return Err(PostIdError);
        }
        text.parse().map(Self).map_err(|_| PostIdError)
    }
}

impl fmt::Display for PostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
