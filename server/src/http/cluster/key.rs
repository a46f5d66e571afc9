//! The key that all nodes of a cluster share.
//!
//! A node sends the key itself, as clients do with theirs, and the receiver compares hashes in constant time. A signature of each request
//! would hide the key from an eavesdropper, but not the content of the request. Between machines, only TLS protects both.

use std::fmt;
use std::path::{Path, PathBuf};

use actix_web::http::header::HeaderValue;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::bounded::read_text;

/// The name of the header with the key.
pub const KEY_HEADER: &str = "tidewire-cluster-key";

/// Minimum length of a key. 32 hexadecimal digits have 128 bits.
const KEY_BYTES_MIN: usize = 32;

/// Maximum length of a key, and of the file that contains it.
const KEY_BYTES_MAX: usize = 512;

/// The key of a cluster. Its text appears in no log and no error.
#[derive(Clone)]
pub struct ClusterKey {
    sent: HeaderValue,
    hash: [u8; 32],
}

/// The reason a key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file cannot be read.
    #[error("cannot read the key of the cluster from {}: {cause}", file.display())]
    Unreadable {
        /// The path of the file.
        file: PathBuf,
        /// The underlying error.
        cause: std::io::Error,
    },
    /// The text is too short, too long, or contains characters that are not printable ASCII.
    #[error("the key of a cluster has {KEY_BYTES_MIN} to {KEY_BYTES_MAX} printable characters without spaces")]
    Invalid,
}

impl ClusterKey {
    /// Creates a key from its text.
    ///
    /// # Errors
    /// Fails if the text is too short, too long, or contains characters that are not printable ASCII.
    pub fn new(text: &str) -> Result<Self, KeyError> {
        let is_valid = (KEY_BYTES_MIN..=KEY_BYTES_MAX).contains(&text.len());
        let is_valid = is_valid && text.bytes().all(|letter| letter.is_ascii_graphic());
        let mut sent = HeaderValue::from_str(text).ok().filter(|_| is_valid).ok_or(KeyError::Invalid)?;
        sent.set_sensitive(true);
        Ok(Self { sent, hash: hash(text.as_bytes()) })
    }

    /// Reads a key from a file. Ignores spaces and line ends around it.
    ///
    /// # Errors
    /// Fails if the file cannot be read or contains no valid key.
    pub fn read(file: &Path) -> Result<Self, KeyError> {
        let text = read_text(file, KEY_BYTES_MAX as u64)
            .map_err(|cause| KeyError::Unreadable { file: file.to_owned(), cause })?;
        Self::new(text.trim())
    }

    /// Returns the header by which a node authenticates.
    pub fn header(&self) -> &HeaderValue {
        &self.sent
    }

    /// Returns true if this is the same key. Takes constant time.
    pub(super) fn is(&self, given: &[u8]) -> bool {
        self.hash[..].ct_eq(&hash(given)[..]).into()
    }
}

impl fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterKey")
    }
}

fn hash(text: &[u8]) -> [u8; 32] {
    Sha256::digest(text).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_key_is_long_and_printable_and_not_shown_in_debug_output() {
        let letters = |count: usize| "k".repeat(count);
        for (text, is_valid) in [
            (letters(KEY_BYTES_MIN), true),
            (letters(KEY_BYTES_MIN - 1), false),
            (letters(KEY_BYTES_MAX), true),
            (letters(KEY_BYTES_MAX + 1), false),
            (format!("{} {}", letters(20), letters(20)), false),
            ("ü".repeat(40), false),
        ] {
            assert_eq!(ClusterKey::new(&text).is_ok(), is_valid, "{text:?}");
        }
        let key = ClusterKey::new(&letters(40)).unwrap();
        assert!(key.is(letters(40).as_bytes()) && !key.is(letters(41).as_bytes()) && !key.is(b""));
        let options = crate::http::cluster::ClusterOptions::new(key.clone());
        assert!(!format!("{options:?} {:?}", key.header()).contains("kk"));
    }

    #[test]
    fn a_cluster_key_file_contains_only_the_key() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), format!("  {}\n", "k".repeat(40))).unwrap();
        assert!(ClusterKey::read(file.path()).unwrap().is("k".repeat(40).as_bytes()));
        std::fs::write(file.path(), "k".repeat(KEY_BYTES_MAX + 1)).unwrap();
        assert!(matches!(ClusterKey::read(file.path()), Err(KeyError::Unreadable { .. })));
    }
}
