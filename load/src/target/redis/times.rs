//! The positions of ids in feeds, for lists of ids that do not include the time.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use crate::mint::Ids;
use crate::operation::Post;

/// How the fan-out worker orders ids.
#[derive(Debug)]
pub(super) enum Times {
    /// The ids are ordered by time.
    InIds,
    /// The time of each post. An entry is kept as long as the server runs, like the post itself.
    Kept(RwLock<HashMap<u64, i64>>),
}

impl Times {
    pub(super) fn new(ids: Ids) -> Self {
        if ids.are_in_order() { Self::InIds } else { Self::Kept(RwLock::default()) }
    }

    /// Returns true if the times are stored here.
    pub(super) fn are_kept(&self) -> bool {
        matches!(self, Self::Kept(_))
    }

    /// Stores the time of a post.
    pub(super) fn published(&self, post: &Post) {
        if let Self::Kept(times) = self {
            // No code panics while it holds the lock, so a poisoned lock can be used.
            times.write().unwrap_or_else(PoisonError::into_inner).insert(post.id, post.published_at_us);
        }
    }

    /// Returns the ids with their positions. The greater position is listed first.
    pub(super) fn positions(&self, ids: Vec<u64>) -> Vec<(i64, u64)> {
        match self {
            Self::InIds => ids.into_iter().map(|id| (0, id)).collect(),
            Self::Kept(times) => {
                let times = times.read().unwrap_or_else(PoisonError::into_inner);
                ids.into_iter().map(|id| (times.get(&id).copied().unwrap_or(i64::MIN), id)).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn positions(ids: Ids) -> Vec<(i64, u64)> {
        let times = Times::new(ids);
        for (id, published_at_us) in [(9, 1), (5, 2)] {
            times.published(&Post { id, author: 1, published_at_us, body: String::new() });
        }
        let mut positions = times.positions(vec![5, 9]);
        positions.sort_unstable();
        positions
    }

    #[test]
    fn random_ids_are_ordered_by_their_stored_times() {
        assert_eq!(positions(Ids::Random), [(1, 9), (2, 5)]);
        assert_eq!(positions(Ids::Snowflake), [(0, 5), (0, 9)]);
    }
}
