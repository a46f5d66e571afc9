//! A sorted set of numbers in runs of at most `RUN_MAX`.
//!
//! Each number takes four bytes, however scattered they are. In a bitmap, a number that is alone in its range takes sixty.

use crate::feed::heap::allocated;

/// Maximum length of a run: one kilobyte, which is moved when a number is added.
pub(super) const RUN_MAX: usize = 256;

/// Runs that have together at most this many numbers become one.
const MERGED_MAX: usize = RUN_MAX / 2;

/// A run without spare capacity: allocators round sizes up, and grow in place.
pub(super) type Run = Box<[u32]>;

/// Inserts a number into a run.
pub(super) fn insert_at(run: &mut Run, at: usize, number: u32) {
    let mut numbers = std::mem::take(run).into_vec();
    numbers.reserve_exact(1);
    numbers.insert(at, number);
    *run = numbers.into_boxed_slice();
}

/// Removes a number from a run.
pub(super) fn remove_at(run: &mut Run, at: usize) {
    let mut numbers = std::mem::take(run).into_vec();
    numbers.remove(at);
    *run = numbers.into_boxed_slice();
}

pub(super) fn run_bytes(run: &Run) -> usize {
    allocated(size_of_val(&**run))
}

/// A sorted set of numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct PlaceSet {
    /// Runs in ascending order, none of them empty.
    runs: Vec<Run>,
    len: usize,
    /// The bytes of all runs.
    runs_bytes: usize,
}

impl PlaceSet {
    /// Creates the set of a sorted run of at most `RUN_MAX`.
    pub(super) fn of(run: Run) -> Self {
        Self { len: run.len(), runs_bytes: run_bytes(&run), runs: if run.is_empty() { Vec::new() } else { vec![run] } }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the numbers, in ascending order.
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        self.runs.iter().flatten().copied()
    }

    /// Returns the first number and every `step`-th after it. Reads no run that has none of them.
    pub(super) fn every(&self, step: usize) -> Vec<u32> {
        let (mut found, mut skipped) = (Vec::with_capacity(self.len.div_ceil(step)), 0);
        for run in &self.runs {
            found.extend(run.iter().skip(skipped).step_by(step));
            let taken = run.len().saturating_sub(skipped).div_ceil(step);
            skipped = (skipped + taken * step).saturating_sub(run.len());
        }
        found
    }

    /// Adds a number. Returns false if it was there.
    pub(super) fn insert(&mut self, number: u32) -> bool {
        let nth = self.run_of(number);
        let Some(run) = self.runs.get_mut(nth) else {
            *self = Self::of(Box::new([number]));
            return true;
        };
        let Err(at) = run.binary_search(&number) else { return false };
        self.runs_bytes -= run_bytes(run);
        insert_at(run, at, number);
        self.len += 1;
        if run.len() > RUN_MAX {
            // The last run grows at its end. It is split there, so that the lower part stays full.
            let is_appended = at == RUN_MAX && nth + 1 == self.runs.len();
            let run = &mut self.runs[nth];
            let start = if is_appended { RUN_MAX } else { RUN_MAX / 2 };
            let upper: Run = run[start..].into();
            *run = run[..start].into();
            self.runs_bytes += run_bytes(&upper);
            self.runs.insert(nth + 1, upper);
        }
        self.runs_bytes += run_bytes(&self.runs[nth]);
        true
    }

    /// Removes a number. Returns false if it was not there.
    pub(super) fn remove(&mut self, number: u32) -> bool {
        let nth = self.run_of(number);
        let Some(run) = self.runs.get_mut(nth) else { return false };
        let Ok(at) = run.binary_search(&number) else { return false };
        self.runs_bytes -= run_bytes(run);
        remove_at(run, at);
        self.len -= 1;
        self.runs_bytes += run_bytes(run);
        self.merge(nth);
        true
    }

    /// Returns a cursor at the first number from `from` on.
    pub(super) fn from(&self, from: u32) -> Cursor<'_> {
        let mut cursor = Cursor { run: &[], rest: &self.runs };
        cursor.advance_to(from);
        cursor
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.runs_bytes + allocated(self.runs.capacity() * size_of::<Run>())
    }

    /// Returns the index of the run that contains a number, or would contain it.
    fn run_of(&self, number: u32) -> usize {
        self.runs.partition_point(|run| run[0] <= number).saturating_sub(1)
    }

    /// Removes a run that is empty, or joins it with a neighbour if both are short.
    fn merge(&mut self, nth: usize) {
        if self.runs[nth].is_empty() {
            self.runs.remove(nth);
            return;
        }
        let is_short = |lower: usize| {
            self.runs.get(lower + 1).is_some_and(|upper| self.runs[lower].len() + upper.len() <= MERGED_MAX)
        };
        let Some(lower) = [nth.checked_sub(1), Some(nth)].into_iter().flatten().find(|lower| is_short(*lower)) else {
            return;
        };
        let upper = self.runs.remove(lower + 1);
        let run = &mut self.runs[lower];
        self.runs_bytes -= run_bytes(run) + run_bytes(&upper);
        *run = [&**run, &*upper].concat().into();
        self.runs_bytes += run_bytes(run);
    }
}

/// A place between two numbers of a set, or of one run.
pub(super) struct Cursor<'a> {
    run: &'a [u32],
    rest: &'a [Run],
}

impl<'a> Cursor<'a> {
    /// Returns a cursor at the first number of a sorted run from `from` on.
    pub(super) fn within(run: &'a [u32], from: u32) -> Self {
        Self { run: &run[run.partition_point(|number| *number < from)..], rest: &[] }
    }

    /// Advances past one number and returns it.
    pub(super) fn next(&mut self) -> Option<u32> {
        if self.run.is_empty() {
            let (first, rest) = self.rest.split_first()?;
            (self.run, self.rest) = (first, rest);
        }
        let (number, run) = self.run.split_first()?;
        self.run = run;
        Some(*number)
    }

    /// Advances past all numbers below `to`. The work grows with the logarithm of their number.
    pub(super) fn advance_to(&mut self, to: u32) {
        if self.run.last().is_none_or(|last| *last < to) {
            let passed = self.rest.partition_point(|run| run.last().is_some_and(|last| *last < to));
            self.rest = &self.rest[passed..];
            let Some((first, rest)) = self.rest.split_first() else {
                self.run = &[];
                return;
            };
            (self.run, self.rest) = (first, rest);
        }
        // The target is usually among the next few numbers, so the search begins with these.
        let mut step = 1;
        while self.run.get(step).is_some_and(|number| *number < to) {
            step *= 2;
        }
        let near = &self.run[step / 2..self.run.len().min(step + 1)];
        self.run = &self.run[step / 2 + near.partition_point(|number| *number < to)..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[derive(Clone, Debug)]
    enum Op {
        Insert(u32),
        Append(u16),
        Remove(u32),
        RemoveFrom(u32, u16),
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            8 => (0..3_000u32).prop_map(Op::Insert),
            2 => (0..400u16).prop_map(Op::Append),
            4 => (0..3_000u32).prop_map(Op::Remove),
            2 => (0..3_000u32, 0..400u16).prop_map(|(from, count)| Op::RemoveFrom(from, count)),
        ]
    }

    proptest! {
        #[test]
        fn a_place_set_agrees_with_a_sorted_set(
            ops in prop::collection::vec(op(), 0..60),
            jumps in prop::collection::vec(prop_oneof![0..3_000u32, Just(u32::MAX)], 0..40),
        ) {
            let (mut set, mut model) = (PlaceSet::default(), BTreeSet::new());
            for op in ops {
                match op {
                    Op::Insert(number) => prop_assert_eq!(set.insert(number), model.insert(number)),
                    Op::Append(count) => for _ in 0..count {
                        let next = model.last().map_or(0, |last| last + 1);
                        prop_assert_eq!(set.insert(next), model.insert(next));
                    },
                    Op::Remove(number) => prop_assert_eq!(set.remove(number), model.remove(&number)),
                    Op::RemoveFrom(from, count) => for number in from..from + u32::from(count) {
                        prop_assert_eq!(set.remove(number), model.remove(&number));
                    },
                }
                prop_assert!(set.iter().eq(model.iter().copied()));
                prop_assert_eq!(set.len(), model.len());
                prop_assert!(set.runs.iter().all(|run| (1..=RUN_MAX).contains(&run.len())));
                prop_assert!(set.runs.windows(2).all(|pair| pair[0].len() + pair[1].len() > MERGED_MAX));
                prop_assert_eq!(set.runs_bytes, set.runs.iter().map(run_bytes).sum::<usize>());
            }
            // A cursor that moves forward by jumps and by steps in turn.
            let (mut cursor, mut at) = (set.from(0), 0);
            for jump in jumps {
                cursor.advance_to(jump);
                at = at.max(jump);
                let next = model.range(at..).next().copied();
                prop_assert_eq!(cursor.next(), next);
                at = next.map_or(at, |next| next + 1);
                prop_assert_eq!(set.from(at).next(), model.range(at..).next().copied());
            }
        }
    }

    #[test]
    fn ascending_numbers_fill_their_runs() {
        let mut set = PlaceSet::default();
        (0..2_560).for_each(|number| assert!(set.insert(number * 70_000)));
        assert!(set.runs.iter().all(|run| run.len() == RUN_MAX));
        assert!(set.heap_bytes() <= 2_560 * 4 + 16 * 16);
    }
}
