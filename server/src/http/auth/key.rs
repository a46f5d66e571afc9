//! Hashes, permissions and uses of keys.

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use tidewire::clock::UnixMicros;
use tidewire::runtime::counters::Counter;

/// The time of the last use of a key that was not used.
const NEVER: i64 = i64::MIN;

const SECOND_US: i64 = 1_000_000;

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

/// The use of one key since the start of the server.
#[derive(Debug)]
pub(super) struct KeyUse {
    requests: Counter,
    /// The time of the last use, in seconds.
    last_used: AtomicI64,
}

impl Default for KeyUse {
    fn default() -> Self {
        Self { requests: Counter::new(), last_used: AtomicI64::new(NEVER) }
    }
}

impl KeyUse {
    /// Counts a request. Writes the time at most once per second, because all workers read it.
    pub(super) fn note(&self, now: UnixMicros) {
        self.requests.add(1);
        let second = now.0.div_euclid(SECOND_US);
        if self.last_used.load(Ordering::Relaxed) != second {
            self.last_used.store(second, Ordering::Relaxed);
        }
    }
}

/// A key of the access file, without the key itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct KeyFigures {
    /// The name in the access file.
    pub(in crate::http) name: Option<Box<str>>,
    /// The scope of a server key; `None` for a key that verifies tokens.
    pub(in crate::http) scope: Option<KeyScope>,
    /// The number of requests that used the key, or tokens that it verified.
    pub(in crate::http) requests: u64,
    /// The time of the last of these requests, in whole seconds.
    pub(in crate::http) last_used: Option<UnixMicros>,
}

impl KeyFigures {
    pub(super) fn new(name: Option<&str>, scope: Option<KeyScope>, of: &KeyUse) -> Self {
        let last_used = match of.last_used.load(Ordering::Relaxed) {
            NEVER => None,
            second => Some(UnixMicros(second.saturating_mul(SECOND_US))),
        };
        Self { name: name.map(Into::into), scope, requests: of.requests.get(), last_used }
    }
}
