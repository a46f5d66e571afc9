//! A sorted set in runs: dense like an array, cheap at both ends, never slow in the middle.
//!
//! Responsible for:
//! - a set of small copyable keys that mostly arrive in ascending order and mostly leave from the low end;
//! - walking it from any bound in either direction.
//!
//! Not responsible for:
//! - what the keys mean, how many there may be.
//!
//! A plain `BTreeMap` filled in ascending order leaves its nodes half empty and splits one every few insertions. Here
//! the tree's values are runs of up to [`RUN_KEYS_MAX`] keys, and the newest keys stand outside the tree: adding near the
//! high end, which is what nearly every delivery does, writes one small array. Only its settled lower half moves into
//! the tree, so runs are full even when keys arrive a little out of order, as posts fanned out in turns do.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use crate::feed::position::Direction;

/// Keys in one run. 32 positions fill eight cache lines; longer runs save little more and cost more in the middle.
pub const RUN_KEYS_MAX: usize = 32;

/// Keys outside the tree.
const NEWEST_KEYS_MAX: usize = 2 * RUN_KEYS_MAX;

/// A sorted set of `K`, in runs.
#[derive(Clone, Debug)]
pub struct SortedRuns<K> {
    /// The highest keys. Empty only if the set is.
    newest: VecDeque<K>,
    /// The other runs, none of them empty, each under a key no larger than its smallest and larger than all before it.
    older: BTreeMap<K, VecDeque<K>>,
    len: usize,
}

impl<K> Default for SortedRuns<K> {
    fn default() -> Self {
        Self { newest: VecDeque::new(), older: BTreeMap::new(), len: 0 }
    }
}

impl<K: Copy + Ord> SortedRuns<K> {
    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The smallest key.
    pub fn first(&self) -> Option<K> {
        let run = self.older.first_key_value().map_or(&self.newest, |(_, run)| run);
        run.front().copied()
    }

    /// The largest key.
    pub fn last(&self) -> Option<K> {
        self.newest.back().copied()
    }

    /// Whether `key` is in the set.
    pub fn contains(&self, key: &K) -> bool {
        // Nearly every key asked for is a new one.
        let within = self.last().is_some_and(|last| *key <= last);
        within && self.run_of(key).is_some_and(|run| run.binary_search(key).is_ok())
    }

    /// Adds a key; false if it was there already.
    pub fn insert(&mut self, key: K) -> bool {
        let added = match self.newest.back() {
            Some(&last) if key <= last => self.insert_below(key),
            _ => {
                self.append(key);
                true
            }
        };
        self.len += usize::from(added);
        added
    }

    /// Takes a key out; false if it was not there.
    pub fn remove(&mut self, key: &K) -> bool {
        let in_newest = self.newest.front().is_some_and(|first| key >= first);
        let removed = if in_newest {
            let removed = remove_sorted(&mut self.newest, key);
            self.refill_newest();
            removed
        } else if let Some((&name, run)) = self.older.range_mut(..=*key).next_back() {
            let removed = remove_sorted(run, key);
            if run.is_empty() {
                self.older.remove(&name);
            }
            removed
        } else {
            false
        };
        self.len -= usize::from(removed);
        removed
    }

    /// Takes out the smallest key.
    pub fn pop_first(&mut self) -> Option<K> {
        let key = match self.older.first_entry() {
            Some(mut oldest) => {
                let key = oldest.get_mut().pop_front();
                if oldest.get().is_empty() {
                    oldest.remove();
                }
                key
            }
            None => self.newest.pop_front(),
        };
        self.len -= usize::from(key.is_some());
        key
    }

    /// The keys below `bound`, largest first.
    pub fn below(&self, bound: K) -> impl Iterator<Item = K> {
        let newest = self.newest.range(..self.newest.partition_point(|key| *key < bound)).rev();
        let older = self.older.range(..bound).rev().enumerate().flat_map(move |(nth, (_, run))| {
            // Only the first run met can hold keys beyond the bound.
            let end = if nth == 0 { run.partition_point(|key| *key < bound) } else { run.len() };
            run.range(..end).rev()
        });
        newest.chain(older).copied()
    }

    /// The keys above `bound`, smallest first.
    pub fn above(&self, bound: K) -> impl Iterator<Item = K> {
        // The run that starts at or before the bound may still reach beyond it.
        let start = self.older.range(..=bound).next_back().map_or(Bound::Unbounded, |(&name, _)| Bound::Included(name));
        let older = self.older.range((start, Bound::Unbounded)).enumerate().flat_map(move |(nth, (_, run))| {
            let begin = if nth == 0 { run.partition_point(|key| *key <= bound) } else { 0 };
            run.range(begin..)
        });
        let newest = self.newest.range(self.newest.partition_point(|key| *key <= bound)..);
        older.chain(newest).copied()
    }

    /// Appends to `into` at most `max` keys strictly between `above` and `below`, nearest first in `direction`.
    pub fn copy_between(&self, above: K, below: K, direction: Direction, max: usize, into: &mut Vec<K>) {
        match direction {
            Direction::Older => into.extend(self.below(below).take(max).take_while(|key| *key > above)),
            Direction::Newer => into.extend(self.above(above).take(max).take_while(|key| *key < below)),
        }
    }

    /// Bytes on the heap, without the allocator's own.
    pub fn heap_bytes(&self) -> usize {
        // A tree node has room for 11 entries; filled in ascending order it holds 6, split at random about 8.
        const NODE_ENTRIES: usize = 6;
        let key = size_of::<K>();
        let nodes = self.older.len().div_ceil(NODE_ENTRIES);
        let node = 11 * (key + size_of::<VecDeque<K>>()) + 16;
        let keys = self.newest.capacity() + self.older.values().map(VecDeque::capacity).sum::<usize>();
        keys * key + nodes * node
    }

    fn append(&mut self, key: K) {
        if self.newest.len() == NEWEST_KEYS_MAX {
            self.settle();
        }
        self.newest.push_back(key);
    }

    /// Moves the lower half of the newest keys into the tree.
    fn settle(&mut self) {
        let run: VecDeque<K> = self.newest.drain(..RUN_KEYS_MAX).collect();
        self.older.insert(run[0], run);
    }

    fn insert_below(&mut self, key: K) -> bool {
        if self.newest.len() == NEWEST_KEYS_MAX {
            self.settle();
        }
        if self.newest.front().is_some_and(|first| key >= *first) {
            return insert_sorted(&mut self.newest, key);
        }
        let Some((_, run)) = self.older.range_mut(..=key).next_back() else {
            return self.insert_lowest(key);
        };
        if run.len() < RUN_KEYS_MAX {
            return insert_sorted(run, key);
        }
        let mut upper = run.split_off(RUN_KEYS_MAX / 2);
        let half = if key < upper[0] { run } else { &mut upper };
        let added = insert_sorted(half, key);
        self.older.insert(upper[0], upper);
        added
    }

    /// Adds a key below all others: in front of the first run while there is room.
    fn insert_lowest(&mut self, key: K) -> bool {
        let mut run = match self.older.first_entry() {
            Some(first) if first.get().len() < RUN_KEYS_MAX => first.remove(),
            None if self.newest.len() < NEWEST_KEYS_MAX => {
                self.newest.push_front(key);
                return true;
            }
            _ => VecDeque::new(),
        };
        run.push_front(key);
        self.older.insert(key, run);
        true
    }

    fn refill_newest(&mut self) {
        if self.newest.is_empty()
            && let Some((_, run)) = self.older.pop_last()
        {
            self.newest = run;
        }
    }

    fn run_of(&self, key: &K) -> Option<&VecDeque<K>> {
        if self.newest.front().is_some_and(|first| key >= first) {
            return Some(&self.newest);
        }
        self.older.range(..=*key).next_back().map(|(_, run)| run)
    }
}

fn insert_sorted<K: Ord>(run: &mut VecDeque<K>, key: K) -> bool {
    match run.binary_search(&key) {
        Ok(_) => false,
        Err(at) => {
            run.insert(at, key);
            true
        }
    }
}

fn remove_sorted<K: Ord>(run: &mut VecDeque<K>, key: &K) -> bool {
    match run.binary_search(key) {
        Ok(at) => {
            run.remove(at);
            true
        }
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[derive(Clone, Debug)]
    enum Op {
        Insert(u16),
        Append,
        Remove(u16),
        PopFirst,
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            4 => (0..400u16).prop_map(Op::Insert),
            4 => Just(Op::Append),
            3 => (0..400u16).prop_map(Op::Remove),
            1 => Just(Op::PopFirst),
        ]
    }

    fn check_shape(set: &SortedRuns<u16>) {
        assert!(set.older.values().all(|run| !run.is_empty() && run.len() <= RUN_KEYS_MAX));
        assert!(set.older.iter().all(|(name, run)| *name <= run[0]));
        assert!(!set.newest.is_empty() || set.older.is_empty());
        assert!(set.newest.len() <= NEWEST_KEYS_MAX);
    }

    proptest! {
        #[test]
        fn it_is_a_sorted_set(ops in prop::collection::vec(op(), 0..600), bounds in prop::collection::vec(0..700u16, 8)) {
            let mut set = SortedRuns::default();
            let mut model = BTreeSet::new();
            for op in ops {
                match op {
                    Op::Insert(key) => prop_assert_eq!(set.insert(key), model.insert(key)),
                    Op::Append => {
                        let next = model.last().map_or(0, |last| last + 1);
                        prop_assert_eq!(set.insert(next), model.insert(next));
                    }
                    Op::Remove(key) => prop_assert_eq!(set.remove(&key), model.remove(&key)),
                    Op::PopFirst => prop_assert_eq!(set.pop_first(), model.pop_first()),
                }
                check_shape(&set);
                prop_assert_eq!(set.len(), model.len());
                prop_assert_eq!((set.first(), set.last()), (model.first().copied(), model.last().copied()));
            }
            for bound in bounds {
                prop_assert_eq!(set.contains(&bound), model.contains(&bound));
                prop_assert!(set.below(bound).eq(model.range(..bound).rev().copied()));
                prop_assert!(set.above(bound).eq(model.range((Bound::Excluded(bound), Bound::Unbounded)).copied()));
            }
        }
    }

    #[test]
    fn ascending_keys_fill_their_runs() {
        let mut set = SortedRuns::default();
        (0..320u32).for_each(|key| assert!(set.insert(key)));
        assert!(set.older.values().all(|run| run.len() == RUN_KEYS_MAX));
        assert_eq!(set.older.len(), 8);
    }

    #[test]
    fn keys_a_little_out_of_order_fill_their_runs_too() {
        let mut set = SortedRuns::default();
        (0..320u32).for_each(|key| assert!(set.insert(key ^ 7)));
        assert!(set.older.values().all(|run| run.len() == RUN_KEYS_MAX && run.capacity() == RUN_KEYS_MAX));
    }

    #[test]
    fn descending_keys_fill_their_runs() {
        let mut set = SortedRuns::default();
        (0..320u32).rev().for_each(|key| assert!(set.insert(key)));
        assert!(set.older.values().all(|run| run.len() == RUN_KEYS_MAX));
    }
}
