//! Computes the reported results from runs.

use crate::drive::Run;
use crate::drive::recorder::{INTERVALS, INTERVALS_MAX, Record, Stretch};
use crate::report::{Case, Interval, Latency};

/// The quantity that a case reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Figure {
    /// Feeds that received a post, per second.
    Deliveries,
    /// Operations per second, with the name of the unit.
    Operations(&'static str),
    /// Pages per second, if each operation reads this number of pages.
    Pages(usize),
    /// The p99 latency in microseconds.
    P99,
}

impl Figure {
    fn unit(self) -> &'static str {
        match self {
            Self::Deliveries => "deliveries/s",
            Self::Operations(unit) => unit,
            Self::Pages(_) => "pages/s",
            Self::P99 => "us",
        }
    }

    fn of(self, run: &Run) -> f64 {
        let seconds = run.lasted.as_secs_f64().max(f64::EPSILON);
        match self {
            Self::Deliveries => run.record.deliveries as f64 / seconds,
            Self::Operations(_) => run.record.operations() as f64 / seconds,
            Self::Pages(each) => run.record.operations() as f64 * each as f64 / seconds,
            Self::P99 => p99_us(&run.record),
        }
    }
}

/// Returns the highest p99 of all kinds of operations, in microseconds.
pub fn p99_us(record: &Record) -> f64 {
    record.latencies.values().map(|latencies| Latency::of(latencies).p99_us).fold(0.0, f64::max)
}

/// Returns the results of the rounds of a case.
pub fn case(runs: &[Run], figure: Figure) -> Case {
    let rounds: Vec<f64> = runs.iter().map(|run| figure.of(run)).collect();
    let mut all = Record::default();
    runs.iter().for_each(|run| all.merge(run.record.clone()));
    let Some(middle) = middle(&rounds).and_then(|nth| runs.get(nth)) else { return Case::default() };
    let lateness = runs.iter().map(|run| &run.lateness).filter(|lateness| !lateness.is_empty());
    Case {
        unit: figure.unit().to_owned(),
        median: figure.of(middle),
        latencies: all.latencies.iter().map(|(kind, latencies)| (*kind, Latency::of(latencies))).collect(),
        over_time: runs.last().map(|run| over_time(run, figure)).unwrap_or_default(),
        failed: all.failed,
        round_samples_min: runs.iter().map(samples).min().filter(|_| figure == Figure::P99),
        server_cores: middle.server_cores,
        client_cores: middle.client_cores,
        late_p99_us: lateness.map(|lateness| Latency::of(lateness).p99_us).reduce(f64::max),
        rounds,
        instead: None,
    }
}

/// Returns the index of the median. For an even count it is the lower of the two middle values.
pub(crate) fn middle(rounds: &[f64]) -> Option<usize> {
    let mut places: Vec<usize> = (0..rounds.len()).collect();
    places.sort_by(|a, b| rounds[*a].total_cmp(&rounds[*b]));
    places.get(rounds.len().checked_sub(1)? / 2).copied()
}

/// Returns the number of samples of the kind that has the fewest in a round.
fn samples(run: &Run) -> u64 {
    run.record.latencies.values().map(|latencies| latencies.len()).min().unwrap_or(0)
}

/// Returns the results by intervals of the planned duration, as many as the run needed. The last interval can be shorter.
fn over_time(run: &Run, figure: Figure) -> Vec<Interval> {
    let (lasted_s, length_s) = (run.lasted.as_secs_f64(), run.planned.as_secs_f64() / f64::from(INTERVALS));
    if length_s == 0.0 {
        return Vec::new();
    }
    // An operation that ends exactly at the end of the run belongs to the interval before.
    let count = ((lasted_s / length_s - 1e-6).ceil() as u32).clamp(1, INTERVALS_MAX);
    let interval = |nth: u32| {
        let (from_s, to_s) = (f64::from(nth) * length_s, f64::from(nth + 1) * length_s);
        let at_s = if nth + 1 == count { lasted_s } else { to_s };
        let Some(stretch) = run.record.over_time.get(&nth) else {
            return Interval { at_s, ..Interval::default() };
        };
        let Stretch { done, deliveries, .. } = stretch;
        let p99_us = Latency::of(&stretch.all_latencies()).p99_us;
        let a_second = |counted: u64| counted as f64 / (at_s - from_s).max(f64::EPSILON);
        let value = match figure {
            Figure::Deliveries => a_second(*deliveries),
            Figure::Operations(_) => a_second(*done),
            Figure::Pages(each) => a_second(*done * each as u64),
            Figure::P99 => p99_us,
        };
        Interval { at_s, value, p99_us }
    };
    (0..count).map(interval).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::recorder::{Done, histogram};
    use crate::operation::Kind;
    use std::time::Duration;

    /// Creates a run of `seconds` seconds instead of ten, with one page per half second. Its latency in ms is the elapsed time in s,
    /// rounded up.
    fn run(seconds: u64) -> Run {
        let mut record = Record::default();
        for half in 0..2 * seconds {
            let (at, latency) = (half as f64 / 20.0, Duration::from_millis(half / 2 + 1));
            record.add(Done { kind: Kind::Page, at, latency, deliveries: 3 });
        }
        let (lasted, planned) = (Duration::from_secs(seconds), Duration::from_secs(10));
        Run { record, lasted, planned, server_cores: 0.5, client_cores: 0.5, lateness: histogram() }
    }

    #[test]
    fn a_run_that_exceeds_its_plan_is_reported_in_elapsed_seconds() {
        let reported = over_time(&run(15), Figure::P99);
        assert_eq!(reported.len(), 90);
        assert_eq!((reported[59].at_s, reported[89].at_s), (10.0, 15.0));
        assert!(reported.iter().filter(|interval| interval.value > 0.0).count() == 30, "{reported:?}");
        // The operation that ended at 10.5 s took 11 ms.
        let (interval, p99) = (reported[63], 11_000.0);
        assert!(interval.at_s > 10.5 && (interval.value - p99).abs() < p99 / 100.0, "{interval:?}");
    }

    #[test]
    fn rates_are_computed_over_the_elapsed_seconds() {
        let sum = |seconds, figure| {
            let reported = over_time(&run(seconds), figure);
            let starts = std::iter::once(0.0).chain(reported.iter().map(|interval| interval.at_s));
            reported.iter().zip(starts).map(|(interval, from_s)| interval.value * (interval.at_s - from_s)).sum::<f64>()
        };
        for seconds in [5, 10, 15, 200] {
            assert!((sum(seconds, Figure::Operations("pages/s")) - 2.0 * seconds as f64).abs() < 1e-6);
            assert!((sum(seconds, Figure::Pages(5)) - 10.0 * seconds as f64).abs() < 1e-6);
            assert!((sum(seconds, Figure::Deliveries) - 6.0 * seconds as f64).abs() < 1e-6);
        }
    }

    #[test]
    fn a_p99_result_needs_enough_samples_in_each_round() {
        let runs = [run(15), run(10), run(20)];
        assert_eq!(case(&runs, Figure::P99).round_samples_min, Some(20));
        assert_eq!(case(&runs, Figure::Deliveries).round_samples_min, None);
    }
}
