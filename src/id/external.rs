//! Ids that other systems gave to posts.
//!
//! The id of such a post is computed from the external id, so no index is stored. Clients can use both ids before the post is published,
//! and posts without an external id need no extra memory.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::id::post_id::{PostId, PostIdError};
use crate::limits::EXTERNAL_ID_BYTES_MAX;

/// Upper bound of the ids that are computed from external ids. All ids that the engine has minted since March 2024 are above it. A minted
/// id is therefore known to be free without a look-up in the archive, as long as no stored id is above it.
const COMPUTED_IDS: u64 = 7_000_000_000_000_000_000;

/// The beginning of an external id where the id of a post is expected.
const PREFIX: &str = "ext:";

/// The id of a post in another system, such as a UUID or a URN.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct ExternalId(Box<str>);

/// The text is not an [`ExternalId`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an external id has 1 to {EXTERNAL_ID_BYTES_MAX} of the characters A-Z a-z 0-9 . _ : @ ~ + = -")]
pub struct ExternalIdError;

impl ExternalId {
    /// Checks an external id.
    ///
    /// # Errors
    /// Fails if it is empty, too long, or has a character with a meaning in paths, lists of ids or JSON.
    pub fn new(text: &str) -> Result<Self, ExternalIdError> {
        let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"._:@~+=-".contains(&byte);
        let has_length = (1..=EXTERNAL_ID_BYTES_MAX).contains(&text.len());
        if has_length && text.bytes().all(is_good) { Ok(Self(text.into())) } else { Err(ExternalIdError) }
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the id of the post that has this external id: the first 8 bytes of the SHA-256 of the text, big-endian, modulo 7 × 10¹⁸. The
    /// computation is part of the stored format and of the API: clients compute the id, too. Among a billion posts, the probability that
    /// any two get the same id is 7 %; the later one is refused.
    pub fn post_id(&self) -> PostId {
        let hash = Sha256::digest(self.0.as_bytes());
        let first = hash.iter().take(size_of::<u64>()).fold(0, |number, byte| number << u8::BITS | u64::from(*byte));
        PostId(first % COMPUTED_IDS)
    }
}

impl FromStr for ExternalId {
    type Err = ExternalIdError;

    fn from_str(text: &str) -> Result<Self, ExternalIdError> {
        Self::new(text)
    }
}

impl TryFrom<String> for ExternalId {
    type Error = ExternalIdError;

    fn try_from(text: String) -> Result<Self, ExternalIdError> {
        Self::new(&text)
    }
}

impl From<ExternalId> for String {
    fn from(id: ExternalId) -> Self {
        id.0.into()
    }
}

impl fmt::Display for ExternalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name of a post in a request: its id, or `ext:` and its external id, from which the id is computed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PostName {
    /// The id of the post.
    pub id: PostId,
    /// Its external id, if the request used it.
    pub external: Option<ExternalId>,
}

/// The text does not name a post.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PostNameError {
    /// The text begins with `ext:`, but no external id follows.
    #[error(transparent)]
    External(#[from] ExternalIdError),
    /// The text is neither a post id nor `ext:` and an external id.
    #[error("{0}, or ext: and an external id")]
    Id(PostIdError),
}

impl FromStr for PostName {
    type Err = PostNameError;

    fn from_str(text: &str) -> Result<Self, PostNameError> {
        match text.strip_prefix(PREFIX) {
            Some(external) => {
                let external = ExternalId::new(external)?;
                Ok(Self { id: external.post_id(), external: Some(external) })
            }
            None => Ok(Self { id: text.parse().map_err(PostNameError::Id)?, external: None }),
        }
    }
}

impl fmt::Display for PostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.external {
            Some(external) => write!(f, "{PREFIX}{external}"),
            None => self.id.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_other_systems_are_accepted_without_characters_reserved_in_paths() {
        for good in [
            "1",
            "550e8400-e29b-41d4-a716-446655440000",
            "01ARZ3NDEKTSV4RRFFQ69G5FAV",
            "1541815603606036480",
            "urn:uuid:6e8bc430-9c3a-11d9-9669-0800200c9a66",
            "AAAAAAAAAAAAAAAA+A==",
            "ext:1",
            &"x".repeat(64),
        ] {
            assert_eq!(good.parse::<ExternalId>().unwrap().as_str(), good);
        }
        for bad in ["", "a b", "a/b", "a,b", "a%b", "a\"b", "a\\b", "ä", "a\n", &"x".repeat(65)] {
            assert_eq!(bad.parse::<ExternalId>(), Err(ExternalIdError), "{bad:?}");
        }
    }

    #[test]
    fn a_post_name_is_its_id_or_its_external_id() {
        let named: PostName = "ext:550e8400-e29b-41d4-a716-446655440000".parse().unwrap();
        // Stored ids depend on this value: it never changes.
        assert_eq!(named.id, PostId(4_793_205_509_806_541_490));
        assert_eq!("7".parse(), Ok(PostName { id: PostId(7), external: None }));
        let reasons: [(&str, &str); 3] = [
            ("ext:", "an external id has 1 to 64"),
            ("ext:a/b", "an external id has 1 to 64"),
            ("07", "a post id is a whole number"),
        ];
        for (bad, why) in reasons {
            let refused = bad.parse::<PostName>().unwrap_err().to_string();
            assert!(refused.starts_with(why), "{bad}: {refused}");
        }
    }
}
