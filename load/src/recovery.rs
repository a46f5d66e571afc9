//! The time that a design needs to recover from a burst.

use std::time::Duration;

use crate::report::{Case, Interval};

/// A p99 up to this value always counts as recovered, even if it was lower before.
const UNNOTICED_US: f64 = 1_000.0;

/// Tolerance for the ends of intervals, in seconds.
const ROUNDING_S: f64 = 1e-6;

/// Returns the time from the end of a burst until the p99 has recovered: at most twice the median before the burst, or a millisecond.
/// `over_time` has the p99 of each interval, `lasts` the time before, during and after the burst.
pub fn case(over_time: &[Interval], lasts: [Duration; 3]) -> Case {
    let case = Case { unit: "s".to_owned(), ..Case::default() };
    match recovery_s(over_time, lasts) {
        Some(recovery_s) => Case { median: recovery_s, rounds: vec![recovery_s], ..case },
        None => {
            let instead = format!("not back within {} s", lasts[2].as_secs_f64());
            Case { median: f64::NAN, instead: Some(instead), ..case }
        }
    }
}

/// Returns `None` if the p99 has not recovered at the end of the run.
fn recovery_s(over_time: &[Interval], [before, lasts, after]: [Duration; 3]) -> Option<f64> {
    let (calm_s, end_s) = (before.as_secs_f64(), (before + lasts).as_secs_f64());
    // Operations that end after the planned time are a few stragglers, too few for a p99.
    let over_s = (before + lasts + after).as_secs_f64() + ROUNDING_S;
    // An interval without a p99 had no completed operation.
    let known = || over_time.iter().filter(|interval| interval.p99_us > 0.0 && interval.at_s <= over_s);
    let mut calm: Vec<f64> =
        known().filter(|interval| interval.at_s <= calm_s).map(|interval| interval.p99_us).collect();
    calm.sort_by(f64::total_cmp);
    let back_us = calm.get(calm.len() / 2).map_or(0.0, |median| 2.0 * median).max(UNNOTICED_US);
    let is_bad = |interval: &&Interval| interval.p99_us > back_us || interval.p99_us <= 0.0;
    // After the burst, an interval in which no operation ended is a stall.
    let after = || over_time.iter().filter(|interval| interval.at_s > end_s && interval.at_s <= over_s);
    if after().next_back().is_some_and(|last| is_bad(&last)) {
        return None;
    }
    Some(after().rfind(is_bad).map_or(0.0, |last_bad| last_bad.at_s - end_s))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LASTS: [Duration; 3] = [Duration::from_secs(4), Duration::from_secs(2), Duration::from_secs(5)];

    /// Computes the recovery time from a p99 in milliseconds for each second.
    fn of(p99_ms: [f64; 11]) -> Option<f64> {
        let interval = |(nth, ms): (usize, f64)| Interval { at_s: nth as f64 + 1.0, value: 0.0, p99_us: ms * 1_000.0 };
        recovery_s(&p99_ms.into_iter().enumerate().map(interval).collect::<Vec<_>>(), LASTS)
    }

    #[test]
    fn operations_that_complete_after_the_end_do_not_count_in_the_recovery() {
        let at = |at_s, p99_ms: f64| Interval { at_s, value: 0.0, p99_us: p99_ms * 1_000.0 };
        let mut over_time: Vec<Interval> = (1..=11).map(|s| at(f64::from(s), 3.0)).collect();
        over_time.push(at(11.002, 90.0));
        assert_eq!(recovery_s(&over_time, LASTS), Some(0.0));
        over_time[10].p99_us = 90_000.0;
        assert_eq!(recovery_s(&over_time, LASTS), None);
    }

    #[test]
    fn recovery_ends_when_no_interval_exceeds_twice_the_calm_latency() {
        assert_eq!(of([3.0, 3.0, 3.0, 3.0, 90.0, 90.0, 5.0, 5.0, 5.0, 5.0, 5.0]), Some(0.0));
        assert_eq!(of([3.0, 3.0, 3.0, 3.0, 90.0, 90.0, 50.0, 5.0, 7.0, 5.0, 5.0]), Some(3.0));
    }

    #[test]
    fn a_pause_before_the_burst_does_not_raise_the_calm_latency() {
        assert_eq!(of([3.0, 80.0, 3.0, 3.0, 90.0, 90.0, 50.0, 50.0, 5.0, 5.0, 5.0]), Some(2.0));
    }

    #[test]
    fn a_run_that_has_not_recovered_at_the_end_has_no_recovery_time() {
        assert_eq!(of([3.0, 3.0, 3.0, 3.0, 90.0, 90.0, 50.0, 5.0, 5.0, 5.0, 50.0]), None);
        // In the last seconds no operation ended, because all were waiting.
        assert_eq!(of([3.0, 3.0, 3.0, 3.0, 90.0, 90.0, 50.0, 50.0, 50.0, 0.0, 0.0]), None);
        let reported = case(&[Interval { at_s: 7.0, value: 0.0, p99_us: 9_000.0 }], LASTS);
        assert_eq!(reported.instead.as_deref(), Some("not back within 5 s"));
        assert!(reported.rounds.is_empty() && reported.median.is_nan());
    }

    #[test]
    fn a_latency_below_a_millisecond_counts_as_recovered() {
        assert_eq!(of([0.1, 0.1, 0.1, 0.1, 9.0, 9.0, 0.9, 0.9, 0.9, 0.9, 1.0]), Some(0.0));
    }
}
