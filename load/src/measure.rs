//! From runs to what is told of them.

use crate::drive::Run;
use crate::drive::recorder::{INTERVALS, Record, Stretch};
use crate::report::{Case, Interval, Latency};

/// What a case counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Figure {
    /// Feeds that got a post, a second.
    Deliveries,
    /// Operations, a second.
    Operations(&'static str),
    /// How long 99 in 100 operations took, in microseconds.
    P99,
}

impl Figure {
    fn unit(self) -> &'static str {
        match self {
            Self::Deliveries => "deliveries/s",
            Self::Operations(unit) => unit,
            Self::P99 => "us",
        }
    }

    fn of(self, run: &Run) -> f64 {
        let seconds = run.lasted.as_secs_f64().max(f64::EPSILON);
        match self {
            Self::Deliveries => run.record.deliveries as f64 / seconds,
            Self::Operations(_) => run.record.operations() as f64 / seconds,
            Self::P99 => p99_us(&run.record),
        }
    }
}

/// The p99 of the kind of operation that has the highest, in microseconds.
pub fn p99_us(record: &Record) -> f64 {
    record.latencies.values().map(|latencies| Latency::of(latencies).p99_us).fold(0.0, f64::max)
}

/// What is told of the rounds of a case.
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
        server_cores: middle.server_cores,
        client_cores: middle.client_cores,
        late_p99_us: lateness.map(|lateness| Latency::of(lateness).p99_us).reduce(f64::max),
        rounds,
    }
}

/// The place of the median; of an even number, of the lower of the two in the middle.
pub(crate) fn middle(rounds: &[f64]) -> Option<usize> {
    let mut places: Vec<usize> = (0..rounds.len()).collect();
    places.sort_by(|a, b| rounds[*a].total_cmp(&rounds[*b]));
    places.get(rounds.len().checked_sub(1)? / 2).copied()
}

fn over_time(run: &Run, figure: Figure) -> Vec<Interval> {
    let length_s = run.lasted.as_secs_f64() / f64::from(INTERVALS);
    let interval = |nth: u32| {
        let at_s = f64::from(nth + 1) * length_s;
        let Some(Stretch { done, deliveries, latencies }) = run.record.over_time.get(&nth) else {
            return Interval { at_s, ..Interval::default() };
        };
        let counted = if figure == Figure::Deliveries { *deliveries } else { *done };
        Interval { at_s, per_second: counted as f64 / length_s, p99_us: Latency::of(latencies).p99_us }
    };
    (0..INTERVALS).map(interval).collect()
}
