//! The kinds of posts.

use serde::{Deserialize, Serialize};

/// The kind of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A post that an author published.
    #[default]
    Post,
    /// A recommended user.
    User,
    /// An advertisement in the feed.
    Ad,
}

impl Kind {
    /// Returns true for ordinary posts, the default kind.
    pub fn is_post(&self) -> bool {
        *self == Self::Post
    }

    /// Returns the name that JSON uses for this kind.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Post => "post",
            Self::User => "user",
            Self::Ad => "ad",
        }
    }
}
