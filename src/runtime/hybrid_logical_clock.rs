//! The hybrid logical clock: instants and post ids that always increase, and the times shown to people, which follow
//! the system clock.
//!
//! The drift is 0 as long as the clock is correct. A jump changes only the drift. So if a clock shows the year 2036 for
//! one post, ids do not move ahead by ten years, and posts published after the correction have correct dates.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tracing::warn;

use crate::clock::{Clock, Timestamp, UnixMicros, micros};
use crate::id::PostId;
use crate::limits::{CLOCK_EARLIEST, CLOCK_STEP_MAX};
use crate::runtime::counters::Counter;

/// Maximum time by which the clock may be ahead of all stored data at a start without a log message: longer than most servers are stopped.
const CLOCK_GAP_REPORTED: Duration = Duration::from_secs(30 * 24 * 3_600);

/// Issues instants and ids. Each instant is issued once.
pub struct HybridLogicalClock {
    clock: Arc<dyn Clock>,
    /// The values of both clocks when they were last read.
    seen: Seen,
    last: UnixMicros,
    /// Microseconds by which logical instants are ahead of the times shown; negative if they are behind.
    drift_us: i64,
    last_id: u64,
    /// The drift that was in effect when the earlier process ended.
    kept_drift_us: i64,
    /// True while the clock shows a time before [`CLOCK_EARLIEST`], after it has shown a later time.
    is_disbelieved: bool,
    report: Arc<ClockReport>,
}

#[derive(Clone, Copy)]
struct Seen {
    now: UnixMicros,
    monotonic: Duration,
}

/// Jumps of the clock, for operators.
#[derive(Debug, Default)]
pub struct ClockReport {
    /// The number of times that the clock was ahead of the monotonic clock.
    pub jumps_ahead: Counter,
    /// The number of times that the clock was behind the times already shown.
    pub jumps_back: Counter,
    /// The last jump in microseconds; 0 if there was none.
    last_jump_us: AtomicI64,
    /// A copy of [`HybridLogicalClock::drift_us`].
    drift_us: AtomicI64,
}

impl ClockReport {
    /// Returns the seconds by which the clock last jumped, negative if back; 0 if it has not jumped.
    pub fn last_jump_seconds(&self) -> i64 {
        self.last_jump_us.load(Ordering::Relaxed) / 1_000_000
    }

    /// Returns the seconds by which ids and instants of edges are ahead of the clock.
    pub fn drift_seconds(&self) -> i64 {
        self.drift_us.load(Ordering::Relaxed) / 1_000_000
    }

    /// Returns the time to show to people for this logical instant.
    pub fn shown(&self, at: UnixMicros, now: UnixMicros) -> UnixMicros {
        // An instant in the future was issued with about the current drift; otherwise it would have been in the future
        // at that time.
        let is_ahead = at > now.saturating_add(CLOCK_STEP_MAX);
        let drift_us = if is_ahead { self.drift_us.load(Ordering::Relaxed).max(0) } else { 0 };
        UnixMicros(at.0.saturating_sub(drift_us))
    }

    fn jumped(&self, by_us: i64) {
        self.last_jump_us.store(by_us, Ordering::Relaxed);
        if by_us > 0 { self.jumps_ahead.add(1) } else { self.jumps_back.add(1) }
    }
}

/// The bits of an id below the microsecond, for ids that are issued faster than the clock ticks.
const ID_SUB_BITS: u32 = 12;

/// The end of the range of ids, in the year 2112.
const END: UnixMicros = UnixMicros((u64::MAX >> ID_SUB_BITS) as i64);

/// The latest time at which the clock is believed, one year before [`END`]. A clock that once showed a later time
/// would leave no ids for the time after its correction.
const LATEST: UnixMicros = UnixMicros(END.0 - 366 * 24 * 3_600 * 1_000_000);

impl HybridLogicalClock {
    /// Creates a logical clock on `clock` that reports its jumps to `report`.
    pub fn new(clock: Arc<dyn Clock>, report: Arc<ClockReport>) -> Self {
        let seen = Seen { now: clock.now().min(LATEST), monotonic: clock.monotonic() };
        Self {
            clock,
            seen,
            last: UnixMicros(i64::MIN),
            drift_us: 0,
            last_id: 0,
            kept_drift_us: 0,
            is_disbelieved: false,
            report,
        }
    }

    /// Continues after `last`, which an earlier process issued. The time since then is unknown. A clock that is ahead
    /// of `last` is believed. If the clock is far behind, one of the two is wrong, more likely `last`.
    #[must_use]
    pub fn after(mut self, last: Timestamp) -> Self {
        self.kept_drift_us = last.drift_us;
        // Issued instants are never near the end, whatever a journal contains.
        let possible = |at: UnixMicros| if at.0 < LATEST.0 + (END.0 - LATEST.0) / 2 { at } else { LATEST };
        self.last = possible(last.instant);
        let shown = possible(UnixMicros(self.last.0.saturating_sub(last.drift_us)));
        self.drift_us = self.last.0.saturating_sub(shown.0);
        // The monotonic clock starts with the process, so it does not measure the time between.
        self.seen = Seen { now: shown, monotonic: self.clock.monotonic() };
        let now = self.believe(shown);
        if is_behind(now, shown) {
            self.set_back(now);
        } else {
            if shown > UnixMicros(i64::MIN) && now > shown.saturating_add(CLOCK_GAP_REPORTED) {
                warn!("the clock shows {now}, {} days after the newest stored data", days(now, shown));
            }
            let next = now.0.max(shown.0.saturating_add(1));
            // Instants that were behind the times shown catch up. A positive drift shrinks by the time that has passed.
            self.last = self.last.max(shown);
            self.drift_us = self.last.0.saturating_add(1).saturating_sub(next).max(0);
        }
        self.seen = Seen { now, ..self.seen };
        self.report.drift_us.store(self.drift_us, Ordering::Relaxed);
        self.last_id = id_at(self.last) | ((1 << ID_SUB_BITS) - 1);
        self
    }

    /// Continues after `last`, which another process issued, as [`Self::after`] does.
    pub fn resume(&mut self, last: Timestamp) {
        let fresh = Self::new(Arc::clone(&self.clock), Arc::clone(&self.report));
        *self = fresh.after(last);
    }

    /// Returns the last issued instant.
    pub fn last(&self) -> Timestamp {
        Timestamp { instant: self.last, drift_us: self.drift_us }
    }

    /// Returns the drift that was in effect when the earlier process ended.
    pub fn kept_drift_us(&self) -> i64 {
        self.kept_drift_us
    }

    /// Returns the current time without issuing an instant.
    pub fn now(&self) -> UnixMicros {
        self.believed().unwrap_or_else(|_| self.expected(self.clock.monotonic()))
    }

    /// Issues `count` consecutive instants, one microsecond apart, and returns the first.
    pub fn take(&mut self, count: usize) -> Timestamp {
        let now = self.look();
        let wanted = now.0.saturating_add(self.drift_us).min(LATEST.0);
        let first = wanted.max(self.last.0.saturating_add(1));
        self.last = UnixMicros(first + count.max(1) as i64 - 1);
        Timestamp { instant: UnixMicros(first), drift_us: self.drift_us }
    }

    /// Returns the smallest id that [`Self::mint`] may issue next.
    pub fn next_id(&self) -> PostId {
        PostId(
            id_at(UnixMicros(self.now().0.saturating_add(self.drift_us)).min(LATEST))
                .max(self.last_id.saturating_add(1)),
        )
    }

    /// Issues an id in time order: microseconds since 1970 in the upper bits (until the year 2112), a count in the
    /// lower ones.
    pub fn mint(&mut self, at: UnixMicros) -> PostId {
        self.last_id = id_at(at).max(self.last_id + 1);
        PostId(self.last_id)
    }

    /// Issues an id as of now, without an instant.
    pub fn mint_now(&mut self) -> PostId {
        let id = self.next_id();
        self.last_id = id.0;
        id
    }

    /// Reads both clocks, and changes the drift if the system clock has jumped.
    fn look(&mut self) -> UnixMicros {
        let monotonic = self.clock.monotonic();
        let expected = self.expected(monotonic);
        let now = self.believe(expected);
        self.seen = Seen { now, monotonic };
        let shown = UnixMicros(self.last.0.saturating_sub(self.drift_us));
        if now > expected.saturating_add(CLOCK_STEP_MAX) {
            let by_us = now.0.saturating_sub(expected.0);
            self.set_drift(self.drift_us.saturating_sub(by_us), by_us);
            warn!("the clock jumped ahead by {} s to {now}; new posts are dated by the new time", by_us / 1_000_000);
        } else if is_behind(now, shown) {
            self.set_back(now);
        }
        now
    }

    /// Returns the time that the clock would show without a jump since it was last read.
    fn expected(&self, monotonic: Duration) -> UnixMicros {
        self.seen.now.saturating_add(monotonic.saturating_sub(self.seen.monotonic))
    }

    /// Returns the time of the clock, as an error if it is certainly wrong: some machines start without a valid time,
    /// and get one a minute later.
    fn believed(&self) -> Result<UnixMicros, UnixMicros> {
        let now = self.clock.now().min(LATEST);
        if now < CLOCK_EARLIEST && self.seen.now >= CLOCK_EARLIEST { Err(now) } else { Ok(now) }
    }

    /// Returns the time of the clock if it is believed, otherwise the expected time.
    fn believe(&mut self, expected: UnixMicros) -> UnixMicros {
        let believed = self.believed();
        if let Err(now) = believed
            && !self.is_disbelieved
        {
            self.report.jumped(now.0.saturating_sub(expected.0));
            warn!(
                "the clock shows {now}, which is implausible; posts are dated from {expected} on until it is corrected"
            );
        }
        self.is_disbelieved = believed.is_err();
        believed.unwrap_or(expected)
    }

    /// Handles a clock that shows a time long before times already shown: from now on the times shown follow it.
    fn set_back(&mut self, now: UnixMicros) {
        let shown = UnixMicros(self.last.0.saturating_sub(self.drift_us));
        let drift_us = self.last.0.saturating_add(1).saturating_sub(now.0).max(0);
        let by_us = now.0.saturating_sub(shown.0);
        self.set_drift(drift_us, by_us);
        let by_seconds = by_us / 1_000_000;
        warn!("the clock shows {now}, {by_seconds} s from the last issued time; new posts are dated by the new time");
    }

    fn set_drift(&mut self, drift_us: i64, jumped_us: i64) {
        // A corrected clock is never exact to the microsecond. A drift within one step counts as zero.
        self.drift_us = if drift_us.unsigned_abs() <= micros(CLOCK_STEP_MAX).unsigned_abs() { 0 } else { drift_us };
        self.report.jumped(jumped_us);
        self.report.drift_us.store(self.drift_us, Ordering::Relaxed);
    }
}

/// Returns true if a clock is too far behind the times shown to wait until it catches up.
fn is_behind(now: UnixMicros, shown: UnixMicros) -> bool {
    shown > now.saturating_add(CLOCK_STEP_MAX)
}

fn days(now: UnixMicros, before: UnixMicros) -> i64 {
    now.0.saturating_sub(before.0) / (24 * 3_600 * 1_000_000)
}

/// Returns the first id of an instant.
fn id_at(at: UnixMicros) -> u64 {
    u64::try_from(at.0).unwrap_or(0) << ID_SUB_BITS
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::clock::ManualClock;

    const NOW: i64 = 1_800_000_000_000_000;
    const SECOND: i64 = 1_000_000;
    const YEAR: i64 = 366 * 24 * 3_600 * SECOND;

    fn clock(at: i64) -> Arc<ManualClock> {
        Arc::new(ManualClock::new(UnixMicros(at)))
    }

    fn logical_clock(clock: &Arc<ManualClock>, last: Timestamp) -> HybridLogicalClock {
        HybridLogicalClock::new(Arc::clone(clock) as Arc<dyn Clock>, Arc::default()).after(last)
    }

    #[test]
    fn a_restarted_clock_continues_where_the_last_one_ended() {
        let clock = clock(1_000);
        let mut first = logical_clock(&clock, Timestamp::NONE);
        let instant = first.take(7).instant;
        let id = first.mint(instant);
        clock.set(UnixMicros(3));
        let mut second = logical_clock(&clock, first.last());
        let next = second.take(1).instant;
        assert!(next > first.last().instant && second.mint(next) > id);
    }

    #[test]
    fn instants_and_ids_increase_when_the_clock_steps_back() {
        let clock = clock(1_000);
        let mut logical_clock = logical_clock(&clock, Timestamp::NONE);
        let mut taken = vec![logical_clock.take(3), logical_clock.take(1)];
        clock.set(UnixMicros(5));
        taken.push(logical_clock.take(1));
        clock.set(UnixMicros(2_000));
        taken.push(logical_clock.take(1));
        assert_eq!(taken, [1_000, 1_003, 1_004, 2_000].map(|at| Timestamp::from(UnixMicros(at))));
        let instants = taken.iter().map(|taken| taken.instant);
        let ids: Vec<PostId> = instants.chain([UnixMicros(7)]).map(|at| logical_clock.mint(at)).collect();
        assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "{ids:?}");
    }

    /// An action on the clock, in seconds. The cases list the times shown after it, as seconds after the start, and the
    /// drifts.
    #[derive(Clone, Copy)]
    enum Does {
        Set(i64),
        Pass(i64),
        Restart,
    }

    #[test]
    fn shown_times_follow_the_clock_and_logical_instants_do_not() {
        use Does::{Pass, Restart, Set};
        const Y: i64 = YEAR / SECOND;
        let step = CLOCK_STEP_MAX.as_secs() as i64;
        for (name, steps) in [
            ("time passes", vec![(Pass(Y), Y, 0), (Restart, Y, 0), (Pass(9), Y + 9, 0)]),
            (
                "a small step ahead and back",
                vec![(Set(step), step, 0), (Set(0), step, 0), (Pass(step + 1), step + 1, 0)],
            ),
            ("a jump ahead and back", vec![(Set(10 * Y), 10 * Y, -10 * Y), (Set(1), 1, 0), (Pass(9), 10, 0)]),
            (
                "ahead, restarted, back",
                vec![(Set(Y), Y, -Y), (Restart, Y, 0), (Set(2), 2, Y - 2), (Pass(9), 11, Y - 2)],
            ),
            ("ahead, back at a restart", vec![(Set(Y), Y, -Y), (Set(5), 5, 0), (Restart, 5, 0)]),
            ("restarted ahead", vec![(Set(Y), Y, -Y), (Restart, Y, 0), (Restart, Y, 0), (Set(5), 5, Y - 5)]),
            (
                "back by an hour, and on",
                vec![(Set(-3_600), -3_600, 3_600), (Pass(60), -3_540, 3_600), (Set(61), 61, 0)],
            ),
            ("no clock", vec![(Set(-NOW / SECOND), 0, 0), (Pass(60), 60, 0), (Restart, 60, 0), (Set(Y), Y, 60 - Y)]),
            (
                "after the last instant that is believed",
                vec![(Set(5_000 * Y), (LATEST.0 - NOW) / SECOND, (NOW - LATEST.0) / SECOND)],
            ),
        ] {
            let clock = clock(NOW);
            let mut ticking = logical_clock(&clock, Timestamp::NONE);
            let mut last = ticking.take(1);
            let mut id = ticking.mint(last.instant);
            for (nth, (does, shown, lead)) in steps.into_iter().enumerate() {
                match does {
                    Set(to) => clock.set(UnixMicros(NOW + to * SECOND)),
                    Pass(by) => clock.advance(Duration::from_secs(by as u64)),
                    Restart => ticking = logical_clock(&clock, ticking.last()),
                }
                let taken = ticking.take(1);
                let is_near = |micros: i64, seconds: i64| (micros - seconds * SECOND).abs() < SECOND;
                assert!(is_near(taken.shown().0 - NOW, shown), "{name}, {nth}: {} s", (taken.shown().0 - NOW) / SECOND);
                assert!(is_near(taken.drift_us, lead), "{name}, {nth}: a lead of {} s", taken.drift_us / SECOND);
                let minted = ticking.mint(taken.instant);
                assert!(taken.instant > last.instant && minted > id, "{name}, {nth}");
                (last, id) = (taken, minted);
            }
        }
    }

    #[test]
    fn the_drift_shrinks_by_the_downtime_of_the_server() {
        let clock = clock(NOW);
        let mut first = logical_clock(&clock, Timestamp::from(UnixMicros(NOW + YEAR)));
        assert_eq!(first.take(1), Timestamp { instant: UnixMicros(NOW + YEAR + 1), drift_us: YEAR + 1 });
        clock.advance(Duration::from_secs(100));
        let mut second = logical_clock(&clock, first.last());
        let taken = second.take(1);
        assert_eq!((taken.shown(), taken.drift_us), (UnixMicros(NOW + 100 * SECOND), YEAR + 2 - 100 * SECOND));
    }

    proptest! {
        /// Instants and ids increase after any actions on the clock. The times shown are limited by the times that the
        /// clock has shown.
        #[test]
        fn instants_and_ids_increase_and_shown_times_too_unless_the_clock_steps_far_back(
            steps in prop::collection::vec((0..4u8, any::<i32>(), 1..2_000usize), 1..60),
            first in prop_oneof![Just(i64::MIN), any::<i64>(), Just(NOW), Just(NOW + 10 * YEAR)],
            drift_us in prop_oneof![3 => Just(0), 1 => any::<i64>()],
        ) {
            let clock = clock(NOW);
            let mut ticking = logical_clock(&clock, Timestamp { instant: UnixMicros(first), drift_us });
            let (mut last, mut shown, mut id) = (ticking.last().instant, ticking.last().shown(), PostId(0));
            let mut has_shown = false;
            for (what, by, count) in steps {
                match what {
                    0 => clock.set(UnixMicros(clock.now().0.saturating_add(i64::from(by) * 60 * SECOND))),
                    1 => clock.set(UnixMicros(clock.now().0.saturating_add(i64::from(by % 200) * SECOND))),
                    2 => clock.advance(Duration::from_micros(u64::from(by.unsigned_abs()))),
                    _ => ticking = logical_clock(&clock, ticking.last()),
                }
                let taken = ticking.take(count);
                prop_assert!(taken.instant > last && taken.instant < END);
                let minted = ticking.mint(taken.instant);
                prop_assert!(minted > id);
                // A shown time decreases only if the clock was set back, and then it follows the clock.
                let now = clock.now().min(LATEST);
                let is_set_back = shown > now.saturating_add(CLOCK_STEP_MAX);
                prop_assert!(!has_shown || taken.shown() > shown || is_set_back, "{taken:?} after {shown}");
                let is_ahead = taken.shown() > now.saturating_add(CLOCK_STEP_MAX + Duration::from_secs(1));
                prop_assert!(!is_ahead || now < CLOCK_EARLIEST, "{taken:?} at {now}");
                (last, shown, id) = (ticking.last().instant, ticking.last().shown(), minted);
                has_shown = true;
            }
        }
    }
}
