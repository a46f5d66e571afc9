//! The largest ids in an archive, in memory.
//!
//! Most ids ascend, so new posts have larger ids than all archived posts. But callers may choose any ids: a few ids above all ids of the
//! coming years must not cause a read for every new id. So the largest ids are stored one by one, with one bound for all others.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::RwLock;

use crate::id::PostId;

/// The number of ids that are stored one by one.
pub const LARGEST_IDS_MAX: usize = 1_024;

/// The largest ids of posts and tombstones. Any number of threads can ask while others note ids.
#[derive(Debug, Default)]
pub struct LargestIds {
    has_any: AtomicBool,
    /// No id is larger.
    largest: AtomicU64,
    known: RwLock<Known>,
}

#[derive(Clone, Debug, Default)]
struct Known {
    /// At most [`LARGEST_IDS_MAX`] ids.
    ids: BTreeSet<PostId>,
    /// Every other id is at most this one. None if there is no other.
    others: Option<PostId>,
}

impl Known {
    fn note(&mut self, id: PostId) {
        if self.others >= Some(id) || !self.ids.insert(id) || self.ids.len() <= LARGEST_IDS_MAX {
            return;
        }
        self.others = self.ids.pop_first();
    }
}

impl LargestIds {
    /// Restores the ids from the result of [`LargestIds::parts`].
    #[must_use]
    pub fn restored(ids: impl IntoIterator<Item = PostId>, others: Option<PostId>) -> Self {
        let restored = Self { known: RwLock::new(Known { ids: BTreeSet::new(), others }), ..Self::default() };
        restored.note_at_least(others);
        restored.note(ids);
        restored
    }

    /// Notes ids. Call it before any reader can find one of them. Otherwise a thread could find a post whose id counts as absent here.
    pub fn note(&self, ids: impl IntoIterator<Item = PostId>) {
        let mut known = self.known.write();
        let mut largest = None;
        for id in ids {
            known.note(id);
            largest = largest.max(Some(id));
        }
        drop(known);
        self.note_at_least(largest);
    }

    fn note_at_least(&self, id: Option<PostId>) {
        if let Some(id) = id {
            self.largest.fetch_max(id.0, Ordering::Release);
            self.has_any.store(true, Ordering::Release);
        }
    }

    /// Returns true if no id was noted.
    pub fn is_empty(&self) -> bool {
        !self.has_any.load(Ordering::Acquire)
    }

    /// Returns false if this id was certainly not noted.
    pub fn may_have(&self, id: PostId) -> bool {
        // The first check answers nearly all calls.
        if self.is_empty() || id.0 > self.largest.load(Ordering::Acquire) {
            return false;
        }
        let known = self.known.read();
        known.others >= Some(id) || known.ids.contains(&id)
    }

    /// Returns at most `max` of the noted ids, ascending, starting with `from`, if all ids from there on are known one by one.
    pub fn ids_from(&self, from: PostId, max: usize) -> Option<Vec<PostId>> {
        let known = self.known.read();
        (known.others < Some(from)).then(|| known.ids.range(from..).take(max).copied().collect())
    }

    /// Returns the ids that are known one by one, and the bound of all others if there are any.
    pub fn parts(&self) -> (Vec<PostId>, Option<PostId>) {
        let known = self.known.read();
        (known.ids.iter().copied().collect(), known.others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANY: u64 = 3 * LARGEST_IDS_MAX as u64;

    fn noted(ids: impl IntoIterator<Item = u64>) -> LargestIds {
        let largest = LargestIds::default();
        ids.into_iter().for_each(|id| largest.note([PostId(id)]));
        largest
    }

    #[test]
    fn no_id_may_exist_before_one_was_noted() {
        let largest = LargestIds::default();
        largest.note([]);
        assert!(largest.is_empty() && !largest.may_have(PostId(0)) && !largest.may_have(PostId(u64::MAX)));
        largest.note([PostId(0)]);
        assert!(!largest.is_empty() && largest.may_have(PostId(0)) && !largest.may_have(PostId(1)));
    }

    #[test]
    fn a_few_huge_ids_do_not_cause_a_read_for_every_new_id() {
        let odd = (0..100).map(|nth| u64::MAX - 7 * nth);
        let largest = noted(odd.clone().chain(0..MANY));
        for id in MANY..2 * MANY {
            assert!(!largest.may_have(PostId(id)), "{id}");
        }
        assert!((0..MANY).chain(odd).all(|id| largest.may_have(PostId(id))));
        assert!(!largest.may_have(PostId(u64::MAX - 1)));
    }

    #[test]
    fn ids_are_found_in_any_order_of_insertion() {
        let shuffled: Vec<u64> = (0..MANY).map(|nth| nth * 7_919 % MANY * 2).collect();
        for ids in [shuffled, (0..MANY).map(|id| 2 * id).collect(), (0..MANY).rev().map(|id| 2 * id).collect()] {
            let largest = noted(ids.clone());
            assert!(ids.into_iter().all(|id| largest.may_have(PostId(id))));
            // The largest ids are exact, and those above the others are listed.
            let first_exact = 2 * (MANY - LARGEST_IDS_MAX as u64);
            assert!((first_exact..2 * MANY).all(|id| largest.may_have(PostId(id)) == (id % 2 == 0)));
            let listed = largest.ids_from(PostId(first_exact + 1), 3);
            assert_eq!(listed, Some([2, 4, 6].map(|id| PostId(first_exact + id)).to_vec()));
            assert_eq!(largest.ids_from(PostId(first_exact - 2), 3), None);
        }
    }

    #[test]
    fn restored_largest_ids_give_the_same_answers() {
        for ids in [0, 5, MANY] {
            let largest = noted(0..ids);
            let (known, others) = largest.parts();
            let restored = LargestIds::restored(known, others);
            assert_eq!((restored.parts(), restored.is_empty()), (largest.parts(), ids == 0));
            assert!((0..2 * MANY).all(|id| restored.may_have(PostId(id)) == largest.may_have(PostId(id))));
        }
    }
}
