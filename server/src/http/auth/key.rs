//! Hashes and permissions of keys.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// The SHA-256 hash of a server key.
pub type KeyHash = [u8; 32];

/// A short hash that identifies a key without revealing it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct KeyId(pub(super) u64);

impl KeyId {
    pub(super) fn of(kind: &[u8], material: &[u8]) -> Self {
        let [a, b, c, d, e, f, g, h, ..] = hash_of_parts(&[kind, material]);
        Self(u64::from_le_bytes([a, b, c, d, e, f, g, h]))
    }

    pub(super) fn of_kid(kid: &str) -> Self {
        Self::of(b"kid", kid.as_bytes())
    }
}

/// Returns the hash under which a server key is stored.
pub fn hash(key: &str) -> KeyHash {
    hash_of_parts(&[key.as_bytes()])
}

fn hash_of_parts(parts: &[&[u8]]) -> KeyHash {
    let mut hasher = Sha256::new();
    parts.iter().for_each(|part| hasher.update(part));
    hasher.finalize().into()
}

/// The permissions of a server key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum KeyScope {
    /// Permits every operation
    #[default]
    All,
    /// Permits reading everything, and moving consumers of changes
    Read,
    /// Permits reading metrics only
    Metrics,
}

impl fmt::Display for KeyScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::All => "all",
            Self::Read => "read",
            Self::Metrics => "metrics",
        })
    }
}

/// Parses the hash of a key in an access file.
pub(super) fn unhex(text: &str) -> Option<KeyHash> {
    let mut hash = KeyHash::default();
    if text.len() != 2 * hash.len() || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    for (nth, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * nth..2 * nth + 2], 16).ok()?;
    }
    Some(hash)
}
