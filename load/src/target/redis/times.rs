//! Where ids stand in the order of feeds, for lists of ids that do not tell it themselves.
//!
//! Responsible for:
//! - remembering when posts were published, where their ids are in no order.
//!
//! Not responsible for:
//! - keeping that durably: the posts in Redis say it too.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use crate::mint::Ids;
use crate::operation::Post;

/// What the fan-out worker knows of the order of ids.
#[derive(Debug)]
pub(super) enum Times {
    /// They are in the order of time.
    InIds,
    /// When each was published. Kept for as long as the server runs, as the posts are.
    Kept(RwLock<HashMap<u64, i64>>),
}

impl Times {
    pub(super) fn new(ids: Ids) -> Self {
        if ids.are_in_order() { Self::InIds } else { Self::Kept(RwLock::default()) }
    }

    /// Whether they are remembered.
    pub(super) fn are_kept(&self) -> bool {
        matches!(self, Self::Kept(_))
    }

    /// Remembers a post.
    pub(super) fn published(&self, post: &Post) {
        if let Self::Kept(times) = self {
            // Nothing panics while it has the lock.
            times.write().unwrap_or_else(PoisonError::into_inner).insert(post.id, post.published_at_us);
        }
    }

    /// These ids with where they stand: of two, the greater comes first.
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
    fn ids_stand_by_time_if_they_do_not_tell_it() {
        assert_eq!(positions(Ids::Random), [(1, 9), (2, 5)]);
        assert_eq!(positions(Ids::Snowflake), [(0, 5), (0, 9)]);
    }
}
