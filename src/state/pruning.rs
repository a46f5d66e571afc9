//! Pruning: changes archived posts when users are erased.

use std::collections::HashSet;

use crate::id::SourceId;
use crate::state::tiering::{decode, encode_record};
use crate::storage::archive::Fate;

/// Decides the fate of an archived post, so that the archive no longer contains the given users. `bytes` is its stored
/// encoding.
pub fn fate(users: &HashSet<SourceId>, bytes: &[u8]) -> Fate {
    let Ok(mut record) = decode(bytes) else {
        // The post cannot be decoded, and its author may be one of the users.
        let names = |user: &SourceId| bytes.windows(user.as_str().len()).any(|part| part == user.as_str().as_bytes());
        return if users.iter().any(names) { Fate::Tombstone } else { Fate::Keep };
    };
    if record.sources.first().is_some_and(|author| users.contains(author)) {
        return Fate::Tombstone;
    }
    match record.answered.take_if(|answered| users.contains(answered)) {
        Some(_) => Fate::Replace(encode_record(&record)),
        None => Fate::Keep,
    }
}
