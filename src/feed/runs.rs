//! A sorted set that is stored in runs: dense like an array, cheap at both ends, never slow in the middle.
//!
//! Responsible for:
//! - a set of small copyable keys that are mostly inserted in ascending order and mostly removed from the low end;
//! - iterating over it from any bound in either direction.
//!
//! A plain `BTreeMap` filled in ascending order leaves its nodes half empty and splits one every few insertions. Here the values of the
//! tree are packed runs of keys, and the newest keys are stored unpacked outside the tree: an insertion near the high end, which nearly
//! every delivery is, writes one small array. Only the lower half of this array, which is unlikely to change, is packed and moved into the
//! tree. So runs are full even if keys are inserted slightly out of order, as posts of interleaved fan-outs are.

pub mod packed;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use crate::feed::position::Direction;
use crate::feed::runs::packed::{Key, Packed};

/// Maximum number of keys outside the tree: 32 positions fill eight cache lines, a fifth of the memory of an inbox of 300.
const NEWEST_KEYS_MAX: usize = 32;

/// Number of the newest keys that are packed together. The others stay unpacked for a while, so that keys next to them can still be
/// inserted cheaply.
const SETTLED_KEYS: usize = NEWEST_KEYS_MAX / 2;

/// Number of settled keys up to which a run is extended. Larger runs save little, and leave more unused bytes when they are consumed from
/// the low end.
const PACKED_KEYS: usize = 2 * SETTLED_KEYS;

/// Maximum number of keys in one run, including those inserted later. One more splits the run.
const RUN_KEYS_MAX: usize = 2 * PACKED_KEYS;

/// A sorted set of `K`, stored in runs.
#[derive(Clone, Debug)]
pub struct SortedRuns<K> {
    /// The highest keys. Empty only if the set is empty.
    newest: VecDeque<K>,
    /// The other runs, none of them empty. The key of each is the base of its run: not above the smallest key of the run and above all keys
    /// before it.
    older: BTreeMap<K, Packed>,
    len: usize,
}

impl<K> Default for SortedRuns<K> {
    fn default() -> Self {
        Self { newest: VecDeque::new(), older: BTreeMap::new(), len: 0 }
    }
}

impl<K: Key> SortedRuns<K> {
    /// Creates a set of few ascending keys, all of them unpacked. It is for reading: a copy of a part of another set.
    pub fn unpacked(ascending: Vec<K>) -> Self {
        Self { len: ascending.len(), newest: ascending.into(), older: BTreeMap::new() }
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if the set is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the smallest key.
    pub fn first(&self) -> Option<K> {
        match self.older.first_key_value() {
            Some((base, run)) => Some(run.get(*base, 0)),
            None => self.newest.front().copied(),
        }
    }

    /// Returns the largest key.
    pub fn last(&self) -> Option<K> {
        self.newest.back().copied()
    }

    /// Returns true if `key` is in the set.
    pub fn contains(&self, key: &K) -> bool {
        // Most look-ups are for keys above all others.
        if self.last().is_none_or(|last| *key > last) {
            return false;
        }
        if self.is_among_newest(key) {
            return self.newest.binary_search(key).is_ok();
        }
        let run = self.older.range(..=*key).next_back();
        run.is_some_and(|(base, run)| run.search(*base, *key).is_ok())
    }

    /// Adds a key. Returns false if it was there.
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

    /// Removes a key. Returns false if it was not there.
    pub fn remove(&mut self, key: &K) -> bool {
        let removed = if self.is_among_newest(key) { self.remove_newest(key) } else { self.remove_older(key) };
        self.len -= usize::from(removed);
        removed
    }

    /// Removes the smallest key and returns it.
    pub fn pop_first(&mut self) -> Option<K> {
        let key = match self.older.first_entry() {
            Some(mut oldest) => {
                let key = oldest.get().get(*oldest.key(), 0);
                oldest.get_mut().remove(0);
                if oldest.get().is_empty() {
                    oldest.remove();
                }
                Some(key)
            }
            None => self.newest.pop_front(),
        };
        self.len -= usize::from(key.is_some());
        key
    }

    /// Returns the keys below `bound`, largest first.
    pub fn below(&self, bound: K) -> impl Iterator<Item = K> {
        let newest = self.newest.range(..self.newest.partition_point(|key| *key < bound)).rev();
        let older = self.older.range(..bound).rev().enumerate().flat_map(move |(nth, (base, run))| {
            // Only the first run visited can have keys beyond the bound.
            let end = if nth == 0 { run.partition_point(*base, |key| key < bound) } else { run.len() };
            run.range(*base, 0..end).rev()
        });
        newest.copied().chain(older)
    }

    /// Returns the keys above `bound`, smallest first.
    pub fn above(&self, bound: K) -> impl Iterator<Item = K> {
        // The run whose base is at or before the bound may still have keys beyond it.
        let start = self.older.range(..=bound).next_back().map_or(Bound::Unbounded, |(&base, _)| Bound::Included(base));
        let older = self.older.range((start, Bound::Unbounded)).enumerate().flat_map(move |(nth, (base, run))| {
            let begin = if nth == 0 { run.partition_point(*base, |key| key <= bound) } else { 0 };
            run.range(*base, begin..run.len())
        });
        let newest = self.newest.range(self.newest.partition_point(|key| *key <= bound)..);
        older.chain(newest.copied())
    }

    /// Appends to `into` at most `max` keys strictly between `above` and `below`, nearest first in `direction`.
    pub fn copy_between(&self, above: K, below: K, direction: Direction, max: usize, into: &mut Vec<K>) {
        match direction {
            Direction::Older => into.extend(self.below(below).take(max).take_while(|key| *key > above)),
            Direction::Newer => into.extend(self.above(above).take(max).take_while(|key| *key < below)),
        }
    }

    /// Appends to `into` the `max` largest keys, largest first. Faster than [`SortedRuns::below`]: nothing is searched, and the unpacked
    /// keys are copied as slices.
    pub fn copy_largest(&self, max: usize, into: &mut Vec<K>) {
        let (lower, upper) = self.newest.as_slices();
        into.extend(upper.iter().rev().chain(lower.iter().rev()).take(max));
        let mut left = max.saturating_sub(self.newest.len());
        for (base, run) in self.older.iter().rev() {
            if left == 0 {
                break;
            }
            into.extend(run.range(*base, run.len().saturating_sub(left)..run.len()).rev());
            left = left.saturating_sub(run.len());
        }
    }

    /// Returns the bytes on the heap, without the overhead of the allocator.
    pub fn heap_bytes(&self) -> usize {
        // A tree node has space for 11 entries. In a tree of several nodes, those filled in ascending order hold 6, those split at random
        // about 8.
        const NODE_ROOM: usize = 11;
        const NODE_ENTRIES: usize = 6;
        let runs = self.older.len();
        let nodes = if runs <= NODE_ROOM { runs.min(1) } else { runs.div_ceil(NODE_ENTRIES) };
        let node = NODE_ROOM * (size_of::<K>() + size_of::<Packed>()) + 16;
        let rows = self.older.values().map(Packed::heap_bytes).sum::<usize>();
        self.newest.capacity() * size_of::<K>() + rows + nodes * node
    }

    fn is_among_newest(&self, key: &K) -> bool {
        self.newest.front().is_some_and(|first| key >= first)
    }

    fn append(&mut self, key: K) {
        if self.newest.len() >= NEWEST_KEYS_MAX {
            self.settle();
        }
        self.newest.push_back(key);
    }

    /// Packs the lower half of the newest keys.
    fn settle(&mut self) {
        let settled = &self.newest.make_contiguous()[..SETTLED_KEYS];
        match self.older.last_entry() {
            Some(mut last) if last.get().len() + SETTLED_KEYS <= PACKED_KEYS => {
                let base = *last.key();
                last.get_mut().extend(base, settled);
            }
            _ => {
                self.older.insert(settled[0], Packed::of(settled[0], settled));
            }
        }
        self.newest.drain(..SETTLED_KEYS);
    }

    fn insert_below(&mut self, key: K) -> bool {
        if self.newest.len() >= NEWEST_KEYS_MAX {
            self.settle();
        }
        if self.is_among_newest(&key) {
            return insert_sorted(&mut self.newest, key);
        }
        let Some((&base, run)) = self.older.range_mut(..=key).next_back() else {
            self.insert_lowest(key);
            return true;
        };
        let Err(place) = run.search(base, key) else { return false };
        if run.len() < RUN_KEYS_MAX {
            run.insert(base, place, key);
            return true;
        }
        let mut lower: Vec<K> = run.keys(base).collect();
        lower.insert(place, key);
        let upper = lower.split_off(RUN_KEYS_MAX / 2);
        *run = Packed::of(base, &lower);
        self.older.insert(upper[0], Packed::of(upper[0], &upper));
        true
    }

    /// Adds a key below all others: to the front of the first run while it has space.
    fn insert_lowest(&mut self, key: K) {
        let mut keys = vec![key];
        match self.older.first_entry() {
            Some(first) if first.get().len() < RUN_KEYS_MAX => {
                let (base, run) = first.remove_entry();
                keys.extend(run.keys(base));
            }
            None if self.newest.len() < NEWEST_KEYS_MAX => return self.newest.push_front(key),
            _ => {}
        }
        self.older.insert(key, Packed::of(key, &keys));
    }

    fn remove_newest(&mut self, key: &K) -> bool {
        let Ok(place) = self.newest.binary_search(key) else { return false };
        self.newest.remove(place);
        if self.newest.is_empty()
            && let Some((base, run)) = self.older.pop_last()
        {
            self.newest.extend(run.keys(base));
        }
        true
    }

    fn remove_older(&mut self, key: &K) -> bool {
        let Some((&base, run)) = self.older.range_mut(..=*key).next_back() else { return false };
        let Ok(place) = run.search(base, *key) else { return false };
        run.remove(place);
        if run.is_empty() {
            self.older.remove(&base);
        }
        true
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::position::{Position, at};
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::fmt::Debug;

    #[derive(Clone, Debug)]
    enum Op<K> {
        Insert(K),
        /// Appends this many keys above all others, one after the other.
        Append(u8),
        Remove(K),
        PopFirst(u8),
    }

    fn op<K: Debug>(key: impl Strategy<Value = K> + Clone) -> impl Strategy<Value = Op<K>> {
        prop_oneof![
            8 => key.clone().prop_map(Op::Insert),
            3 => (0..60u8).prop_map(Op::Append),
            6 => key.prop_map(Op::Remove),
            1 => (0..90u8).prop_map(Op::PopFirst),
        ]
    }

    impl Key for u16 {
        type Numbers = [u64; 1];

        fn count_from(self, base: Self, _: u8) -> [u64; 1] {
            [u64::from(self - base)]
        }

        fn count_to(base: Self, [above]: [u64; 1], _: u8) -> Self {
            base + above as u16
        }
    }

    /// Generates few enough positions that some occur again, at various distances, including the largest and the smallest.
    fn position() -> impl Strategy<Value = Position> + Clone {
        let time = prop_oneof![
            8 => 0..30i64,
            2 => (0..30i64).prop_map(|nth| nth * 600_000_000 - 9_000_000_000),
            1 => Just(i64::MIN),
            1 => Just(i64::MAX),
        ];
        let id = prop_oneof![0..4u64, Just(u64::MAX), Just(1 << 63), Just((1 << 63) - 1)];
        (time, id, any::<bool>()).prop_map(|(time, id, minted)| {
            at(time, if minted { (time << 12).cast_unsigned().wrapping_add(id) } else { id })
        })
    }

    fn check_shape<K: Key + Debug>(set: &SortedRuns<K>) {
        assert!(set.older.values().all(|run| !run.is_empty() && run.len() <= RUN_KEYS_MAX));
        assert!(set.older.iter().all(|(base, run)| *base <= run.get(*base, 0)));
        assert!(!set.newest.is_empty() || set.older.is_empty());
        assert!(set.newest.len() <= RUN_KEYS_MAX);
    }

    fn check<K: Key + Debug>(ops: Vec<Op<K>>, bounds: Vec<K>, start: K, next: impl Fn(K) -> Option<K>) {
        let mut set = SortedRuns::default();
        let mut model = BTreeSet::new();
        for op in ops {
            match op {
                Op::Insert(key) => assert_eq!(set.insert(key), model.insert(key)),
                Op::Append(count) => {
                    for _ in 0..count {
                        let Some(next) = model.last().map_or(Some(start), |last| next(*last)) else { break };
                        assert_eq!(set.insert(next), model.insert(next));
                    }
                }
                Op::Remove(key) => assert_eq!(set.remove(&key), model.remove(&key)),
                Op::PopFirst(count) => (0..count).for_each(|_| assert_eq!(set.pop_first(), model.pop_first())),
            }
            check_shape(&set);
            assert_eq!(set.len(), model.len());
            assert_eq!((set.first(), set.last()), (model.first().copied(), model.last().copied()));
        }
        for max in [0, 1, 20, 42, model.len(), usize::MAX] {
            let mut largest = Vec::new();
            set.copy_largest(max, &mut largest);
            assert!(largest.iter().eq(model.iter().rev().take(max)));
        }
        for bound in bounds {
            assert_eq!(set.contains(&bound), model.contains(&bound));
            assert!(set.below(bound).eq(model.range(..bound).rev().copied()));
            assert!(set.above(bound).eq(model.range((Bound::Excluded(bound), Bound::Unbounded)).copied()));
        }
    }

    proptest! {
        #[test]
        fn runs_agree_with_a_sorted_set(
            ops in prop::collection::vec(op(0..900u16), 0..300),
            bounds in prop::collection::vec(0..2_000u16, 8),
        ) {
            check(ops, bounds, 100, |last| last.checked_add(1));
        }

        #[test]
        fn runs_of_any_positions_agree_with_a_sorted_set(
            ops in prop::collection::vec(op(position()), 0..300),
            bounds in prop::collection::vec(position(), 8),
            step in prop_oneof![Just(0), Just(1), Just(600_000_000), 0..i64::MAX / 200],
        ) {
            let next = |last: Position| {
                let time = last.published_at.0.checked_add(step)?;
                Some(at(time, (time << 12).cast_unsigned())).filter(|next| *next > last)
            };
            check(ops, bounds, at(-9, 9), next);
        }
    }

    #[test]
    fn ascending_keys_fill_their_runs() {
        let mut set = SortedRuns::default();
        (0..320u16).for_each(|key| assert!(set.insert(key)));
        assert!(set.older.values().all(|run| run.len() == PACKED_KEYS));
        assert_eq!(set.older.len(), 9);
    }

    #[test]
    fn slightly_unordered_keys_fill_their_runs() {
        let mut set = SortedRuns::default();
        (0..320u16).for_each(|key| assert!(set.insert(key ^ 7)));
        assert!(set.older.values().all(|run| run.len() == PACKED_KEYS && run.heap_bytes() == PACKED_KEYS));
    }

    #[test]
    fn descending_keys_fill_their_runs() {
        let mut set = SortedRuns::default();
        (0..336u16).rev().for_each(|key| assert!(set.insert(key)));
        assert!(set.older.values().all(|run| run.len() == RUN_KEYS_MAX));
    }
}
