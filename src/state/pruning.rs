//! What becomes of an archived post when users are erased.

use std::collections::HashSet;

use crate::id::SourceId;
use crate::state::tiering::{decode, seal};
use crate::storage::archive::Fate;

/// What becomes of a post that the archive keeps as these bytes, once these users are to be found nowhere in it.
pub fn fate(users: &HashSet<SourceId>, bytes: &[u8]) -> Fate {
    let Ok(mut record) = decode(bytes) else {
        // Nobody can read it, and it may be one of theirs.
        let names = |user: &SourceId| bytes.windows(user.as_str().len()).any(|part| part == user.as_str().as_bytes());
        return if users.iter().any(names) { Fate::Tombstone } else { Fate::Keep };
    };
    if record.sources.first().is_some_and(|author| users.contains(author)) {
        return Fate::Tombstone;
    }
    match record.answered.take_if(|answered| users.contains(answered)) {
        Some(_) => Fate::Replace(seal(&record)),
        None => Fate::Keep,
    }
}
