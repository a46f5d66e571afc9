//! The work of building a page, and its limit.
//!
//! With a limit of time alone, tests of the limits would depend on the speed of the machine; with counts alone, the latency of pages would.
//! So the same counters serve both: they limit the page, and they decide when to check the clock.

use std::cell::Cell;
use std::fmt;

use crate::limits::{PAGE_WORK_MAX, PAGE_WORK_ON_SHARD_MAX};

/// Work for a page whose time is spent before any candidate is known: a hundred candidates, so that the page shows something.
const PAGE_WORK_GRACE: u64 = 20_000;

/// Work between two checks of the clock: some fifty microseconds.
const PAGE_WORK_PER_CLOCK_LOOK: u64 = 5_000;

/// The operations that building a page took.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Work {
    /// Candidates that were checked for visibility.
    pub candidates: u64,
    /// Times an outbox was read.
    pub pulls: u64,
    /// Positions copied out of outboxes.
    pub positions: u64,
    /// Reposts examined, to find those that count for the reader.
    pub reposts: u64,
    /// Searches among edges, mutes, blocks and in the inbox, for single reposts.
    pub lookups: u64,
    /// Times a disk may have been read.
    pub disk_reads: u64,
}

impl Work {
    /// Returns the work as one number, in units of about ten nanoseconds when the data is not in the processor's cache. Disk reads are not
    /// included, since their time varies; a check of the clock follows each of them.
    pub fn units(self) -> u64 {
        200 * self.candidates + 20 * self.pulls + self.positions + 2 * self.reposts + 10 * self.lookups
    }
}

/// The maximum work for one page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allowance {
    /// Maximum units of work.
    pub units_max: u64,
    /// True if no larger allowance follows: data that could not be read by then is omitted, so that the rest is shown.
    pub is_last: bool,
    /// Seed for the order in which outboxes are read, so that not always the same ones are omitted.
    pub seed: u64,
}

impl Allowance {
    /// The allowance on a shared shard thread. Pages that need more are built elsewhere.
    pub const ON_SHARD: Self = Self { units_max: PAGE_WORK_ON_SHARD_MAX, is_last: false, seed: 0 };

    /// No limit, for work that is bounded in another way.
    pub const UNLIMITED: Self = Self { units_max: u64::MAX, is_last: false, seed: 0 };

    /// Returns the allowance on a thread for which no other work waits.
    pub fn last(seed: u64) -> Self {
        Self { units_max: PAGE_WORK_MAX, is_last: true, seed }
    }
}

/// Counts the work of a page, and reports when its limit is reached.
pub struct Budget<'a> {
    allowance: Allowance,
    is_late: Option<&'a dyn Fn() -> bool>,
    /// True after an extension: the clock is no longer checked.
    is_extended: Cell<bool>,
    candidates: Cell<u64>,
    pulls: Cell<u64>,
    positions: Cell<u64>,
    reposts: Cell<u64>,
    lookups: Cell<u64>,
    disk_reads: Cell<u64>,
    units_max: Cell<u64>,
    /// The number of units at which the clock is checked next.
    next_look: Cell<u64>,
    was_late: Cell<bool>,
}

impl<'a> Budget<'a> {
    /// Creates a budget that is spent when its units are used up, or once `is_late` returns true.
    pub fn new(allowance: Allowance, is_late: &'a dyn Fn() -> bool) -> Self {
        Self { is_late: Some(is_late), ..Self::untimed(allowance) }
    }

    /// Creates a budget that is spent when its units are used up.
    pub fn untimed(allowance: Allowance) -> Self {
        let zero = || Cell::new(0);
        Self {
            allowance,
            is_late: None,
            is_extended: Cell::new(false),
            candidates: zero(),
            pulls: zero(),
            positions: zero(),
            reposts: zero(),
            lookups: zero(),
            disk_reads: zero(),
            units_max: Cell::new(allowance.units_max),
            next_look: Cell::new(PAGE_WORK_PER_CLOCK_LOOK),
            was_late: Cell::new(false),
        }
    }

    /// Returns the initial allowance.
    pub fn allowance(&self) -> Allowance {
        self.allowance
    }

    /// Counts one candidate.
    pub fn candidate(&self) {
        add(&self.candidates, 1);
    }

    /// Counts a read of an outbox, and the copied positions.
    pub fn pull(&self, positions: usize) {
        add(&self.pulls, 1);
        add(&self.positions, positions);
    }

    /// Counts examined reposts.
    pub fn reposts(&self, reposts: usize) {
        add(&self.reposts, reposts);
    }

    /// Counts searches among edges, mutes, blocks and in the inbox.
    pub fn lookups(&self, lookups: usize) {
        add(&self.lookups, lookups);
    }

    /// Counts a possible disk read. It may have taken long, so the clock is checked next.
    pub fn disk_read(&self) {
        add(&self.disk_reads, 1);
        self.next_look.set(self.next_look.get().min(self.work().units()));
    }

    /// Returns the work done so far.
    pub fn work(&self) -> Work {
        Work {
            candidates: self.candidates.get(),
            pulls: self.pulls.get(),
            positions: self.positions.get(),
            reposts: self.reposts.get(),
            lookups: self.lookups.get(),
            disk_reads: self.disk_reads.get(),
        }
    }

    /// Returns true if no more work may be done.
    pub fn is_spent(&self) -> bool {
        let units = self.work().units();
        if units >= self.units_max.get() || self.was_late.get() {
            return true;
        }
        if let Some(is_late) = self.is_late.filter(|_| !self.is_extended.get())
            && units >= self.next_look.get()
        {
            self.next_look.set(units + PAGE_WORK_PER_CLOCK_LOOK);
            self.was_late.set(is_late());
        }
        self.was_late.get()
    }

    /// Permits [`PAGE_WORK_GRACE`] more units, whatever the time: enough to show something.
    pub fn extend_a_little(&self) {
        self.was_late.set(false);
        self.is_extended.set(true);
        self.units_max.set(self.work().units() + PAGE_WORK_GRACE);
    }
}

impl fmt::Debug for Budget<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget").field("allowance", &self.allowance).field("work", &self.work()).finish_non_exhaustive()
    }
}

fn add(counter: &Cell<u64>, count: usize) {
    counter.set(counter.get() + count as u64);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_ends_with_its_units_and_reads_the_clock_rarely() {
        let looks = Cell::new(0_u64);
        let is_late = || {
            looks.set(looks.get() + 1);
            false
        };
        let budget = Budget::new(Allowance::ON_SHARD, &is_late);
        while !budget.is_spent() {
            budget.candidate();
        }
        assert_eq!(budget.work().units(), PAGE_WORK_ON_SHARD_MAX);
        assert!(
            (1..=PAGE_WORK_ON_SHARD_MAX / PAGE_WORK_PER_CLOCK_LOOK).contains(&looks.get()),
            "{} looks",
            looks.get()
        );
    }

    #[test]
    fn a_late_budget_ends_and_can_be_extended_a_little() {
        let budget = Budget::new(Allowance::last(0), &|| true);
        assert!(!budget.is_spent(), "a page of little work needs no clock");
        budget.disk_read();
        assert!(budget.is_spent() && budget.is_spent());
        budget.extend_a_little();
        while !budget.is_spent() {
            budget.pull(3);
            budget.disk_read();
        }
        let units = budget.work().units();
        assert!((PAGE_WORK_GRACE..PAGE_WORK_GRACE + 100).contains(&units), "{units} units");
    }
}
