//! The visible followers of a source that has many, by the age of their edges.
//!
//! A follower takes four bytes. Each run also has the instant from which on edges belong to it. New edges are the youngest, so almost all
//! are added to the last run. An edge of another age may require that its run is split, for which the caller looks up the instants of that
//! run.

use crate::clock::UnixMicros;
use crate::feed::followers::place_set::{RUN_MAX, Run, insert_at, remove_at, run_bytes};
use crate::feed::heap::allocated;
use crate::id::SourceSlot;

/// Runs that have together at most this many followers become one.
const MERGED_MAX: usize = RUN_MAX / 2;

/// The followers whose edges were made from `from` on, until the next run begins.
#[derive(Clone, Debug)]
struct AgeRun {
    from: UnixMicros,
    slots: Run,
}

/// Followers in runs.
#[derive(Clone, Debug)]
pub(super) struct AgeRuns {
    /// In ascending order. The first one is from the beginning of time.
    runs: Vec<AgeRun>,
    /// An edge that is made after this instant is the youngest one.
    newest: UnixMicros,
    len: usize,
    /// The bytes of all runs.
    runs_bytes: usize,
}

impl AgeRuns {
    /// Stores followers whose instants are known.
    pub(super) fn of(ages: Vec<(UnixMicros, SourceSlot)>) -> Self {
        let newest = ages.iter().map(|age| age.0).max().unwrap_or(UnixMicros(i64::MIN));
        let len = ages.len();
        let mut runs = split(ages, UnixMicros(i64::MIN));
        if runs.is_empty() {
            runs.push(AgeRun { from: UnixMicros(i64::MIN), slots: Run::default() });
        }
        let runs_bytes = runs.iter().map(|run| run_bytes(&run.slots)).sum();
        Self { runs, newest, len, runs_bytes }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the run that has to be split before an edge of this instant is inserted, if one has to.
    pub(super) fn full_run(&self, since: UnixMicros) -> Option<&[u32]> {
        let run = &self.runs[self.run_of(since)].slots;
        // Edges of the same instant cannot be split. Only stored data of unknown origin has so many; such a run grows, and a split is
        // attempted only at powers of two.
        let is_full = run.len() >= RUN_MAX && run.len().is_power_of_two();
        (since <= self.newest && is_full).then_some(run)
    }

    /// Splits the run to which `since` belongs. `ages` contains the instants of all its followers.
    pub(super) fn split(&mut self, since: UnixMicros, ages: Vec<(UnixMicros, SourceSlot)>) {
        let nth = self.run_of(since);
        let from = self.runs[nth].from;
        let runs = split(ages, from);
        self.runs_bytes += runs.iter().map(|run| run_bytes(&run.slots)).sum::<usize>();
        self.runs_bytes -= self.runs.splice(nth..=nth, runs).map(|run| run_bytes(&run.slots)).sum::<usize>();
    }

    /// Adds a follower that is not there. The run to which it belongs must not be full, except if its edge is the youngest.
    pub(super) fn insert(&mut self, since: UnixMicros, follower: SourceSlot) {
        let mut nth = self.run_of(since);
        if since > self.newest && self.runs[nth].slots.len() >= RUN_MAX {
            nth += 1;
            self.runs.push(AgeRun { from: since, slots: Run::default() });
        }
        let slots = &mut self.runs[nth].slots;
        self.runs_bytes -= run_bytes(slots);
        insert_at(slots, slots.len(), follower.0);
        self.runs_bytes += run_bytes(slots);
        self.newest = self.newest.max(since);
        self.len += 1;
    }

    /// Removes a follower by the instant of its edge. Does nothing if it is not there.
    pub(super) fn remove(&mut self, since: UnixMicros, follower: SourceSlot) {
        let nth = self.run_of(since);
        let slots = &mut self.runs[nth].slots;
        let Some(at) = slots.iter().position(|slot| *slot == follower.0) else { return };
        self.runs_bytes -= run_bytes(slots);
        remove_at(slots, at);
        self.runs_bytes += run_bytes(slots);
        self.len -= 1;
        let is_short = |lower: usize| {
            let upper = self.runs.get(lower + 1);
            upper.is_some_and(|upper| self.runs[lower].slots.len() + upper.slots.len() <= MERGED_MAX)
        };
        if let Some(lower) = [nth.checked_sub(1), Some(nth)].into_iter().flatten().find(|lower| is_short(*lower)) {
            self.merge(lower);
        }
    }

    /// Returns the youngest run with edges from before `before`, and the instant at which the run begins.
    pub(super) fn before(&self, before: UnixMicros) -> Option<(UnixMicros, &[u32])> {
        let nth = self.runs.partition_point(|run| run.from < before).checked_sub(1)?;
        Some((self.runs[nth].from, &self.runs[nth].slots))
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.runs_bytes + allocated(self.runs.capacity() * size_of::<AgeRun>())
    }

    /// Checks the counters against the stored followers.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let lengths: usize = self.runs.iter().map(|run| run.slots.len()).sum();
        let bytes: usize = self.runs.iter().map(|run| run_bytes(&run.slots)).sum();
        assert_eq!((self.len, self.runs_bytes), (lengths, bytes));
        assert!(self.runs.is_sorted_by(|one, next| one.from < next.from));
    }

    /// Joins a run with the next one.
    fn merge(&mut self, lower: usize) {
        let upper = self.runs.remove(lower + 1).slots;
        let run = &mut self.runs[lower].slots;
        self.runs_bytes -= run_bytes(run) + run_bytes(&upper);
        *run = [&**run, &*upper].concat().into();
        self.runs_bytes += run_bytes(run);
    }

    fn run_of(&self, since: UnixMicros) -> usize {
        self.runs.partition_point(|run| run.from <= since).saturating_sub(1)
    }
}

/// Puts followers into runs that are half full. The first one begins with `from`.
fn split(mut ages: Vec<(UnixMicros, SourceSlot)>, from: UnixMicros) -> Vec<AgeRun> {
    ages.sort_unstable();
    let mut runs: Vec<AgeRun> = Vec::new();
    while !ages.is_empty() {
        // Edges of one instant stay together. No two have the same, except in stored data of unknown origin.
        let mut end = ages.len().min(RUN_MAX / 2);
        end += ages[end..].iter().take_while(|age| age.0 == ages[end - 1].0).count();
        let from = if runs.is_empty() { from } else { ages[0].0 };
        runs.push(AgeRun { from, slots: ages.drain(..end).map(|age| age.1.0).collect() });
    }
    runs
}
