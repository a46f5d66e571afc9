//! A design under overload: the throughput, the latencies, and the time to recover.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::drive::Run;
use crate::drive::recorder::{INTERVALS, Stretch, histogram};
use crate::measure::{self, Figure};
use crate::operation::Kind;
use crate::recovery;
use crate::report::{Case, Latency, figure};

/// A run with three phases: normal load, overload, and normal load again.
#[derive(Clone, Debug)]
pub struct Overload {
    /// The overload rate as a multiple of the maximum throughput.
    pub times: f64,
    /// Maximum throughput in operations per second, by kind.
    pub most: BTreeMap<Kind, f64>,
    /// Duration of each of the three phases.
    pub lasts: [Duration; 3],
    /// The results of the run.
    pub run: Run,
    /// Highest resident memory of the server during the run, in bytes.
    pub resident_most: Option<u64>,
}

/// The results of one phase.
#[derive(Clone, Debug, Default)]
struct Phase {
    lasted_s: f64,
    refused: u64,
    latencies: BTreeMap<Kind, Histogram<u64>>,
}

impl Phase {
    fn a_second(&self, count: u64) -> f64 {
        count as f64 / self.lasted_s.max(f64::EPSILON)
    }

    fn done(&self) -> u64 {
        self.latencies.values().map(Histogram::len).sum()
    }

    fn latencies(&self) -> BTreeMap<Kind, Latency> {
        self.latencies.iter().map(|(kind, of)| (*kind, Latency::of(of))).collect()
    }

    fn p99(&self, kind: Kind) -> String {
        self.latencies.get(&kind).map_or(figure::NONE.to_owned(), |of| figure::time_us(Latency::of(of).p99_us))
    }
}

impl Overload {
    /// Sums up the intervals of one phase.
    fn phase(&self, nth: usize) -> Phase {
        let seconds = |phases: &[Duration]| phases.iter().sum::<Duration>().as_secs_f64();
        let stretch = |at_s: f64| (at_s / seconds(&self.lasts) * f64::from(INTERVALS)).round() as u32;
        let (from, to) = (stretch(seconds(&self.lasts[..nth])), stretch(seconds(&self.lasts[..=nth])));
        let mut phase = Phase { lasted_s: self.lasts[nth].as_secs_f64(), ..Phase::default() };
        for (_, Stretch { refused, latencies, .. }) in self.run.record.over_time.range(from..to) {
            phase.refused += refused;
            for (kind, latencies) in latencies {
                // Adding cannot fail: the bounds are the same, with at least as many digits.
                let _ = phase.latencies.entry(*kind).or_insert_with(histogram).add(latencies);
            }
        }
        phase
    }

    /// Returns the throughput under overload as a share of the maximum, for the kind of operation where it is lowest.
    fn of_most(&self, overload: &Phase) -> f64 {
        let done = |kind: &Kind| overload.latencies.get(kind).map_or(0, Histogram::len);
        let share = |(kind, most): (&Kind, &f64)| overload.a_second(done(kind)) / most.max(f64::EPSILON);
        self.most.iter().map(share).reduce(f64::min).unwrap_or(0.0)
    }

    /// Returns the cases of the report by name.
    pub fn cases(&self) -> Vec<(String, Case)> {
        let (calm, overload, record) = (self.phase(0), self.phase(1), &self.run.record);
        let figure = |unit: &str, figure: f64| Case {
            unit: unit.to_owned(),
            median: figure,
            rounds: vec![figure],
            ..Case::default()
        };
        let whole = |figure| measure::case(std::slice::from_ref(&self.run), figure);
        let goodput = overload.a_second(overload.done());
        let done = Case {
            median: goodput,
            rounds: vec![goodput],
            latencies: overload.latencies(),
            failed: record.failed.saturating_sub(record.refused),
            ..whole(Figure::Operations("operations/s"))
        };
        let before = Case { latencies: calm.latencies(), ..figure("operations/s", calm.a_second(calm.done())) };
        let refusal_us = record.refusals.as_ref().map(|took| Latency::of(took).p99_us);
        let all = [
            ("", Some(done)),
            ("_before", Some(before)),
            ("_asked_for", Some(figure("operations/s", self.times * self.most.values().sum::<f64>()))),
            ("_of_most", Some(figure("times", self.of_most(&overload)))),
            ("_refused", Some(figure("operations/s", overload.a_second(overload.refused)))),
            ("_refusal_p99", refusal_us.map(|p99_us| figure("us", p99_us))),
            ("_memory", self.resident_most.map(|bytes| figure("bytes", bytes as f64))),
            ("_recovery", Some(recovery::case(&whole(Figure::P99).over_time, self.lasts))),
        ];
        let named = |(name, case): (&str, Option<Case>)| Some((format!("overload_{}x{name}", self.times), case?));
        all.into_iter().filter_map(named).collect()
    }

    /// Returns a one-line summary for people.
    pub fn summary(&self) -> String {
        let (calm, overload) = (self.phase(0), self.phase(1));
        let asked_for = self.times * self.most.values().sum::<f64>();
        let summary = [
            format!(
                "{} done of {} requested",
                figure::rate(overload.a_second(overload.done())),
                figure::rate(asked_for)
            ),
            format!("each kind at least {:.0} % of its maximum", 100.0 * self.of_most(&overload)),
            format!("{} refused", figure::rate(overload.a_second(overload.refused))),
        ];
        let kind = |kind: &Kind| format!("{} p99 {} ({} before)", kind.label(), overload.p99(*kind), calm.p99(*kind));
        summary.into_iter().chain(overload.latencies.keys().map(kind)).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::recorder::{Done, Record};

    /// Three phases of ten seconds: normal load, overload and normal load. Ten pages per second are done; they take 1 ms each, and 50 ms
    /// in the overload, where 90 per second are also refused.
    fn overload() -> Overload {
        let mut record = Record::default();
        for nth in 0..300 {
            let (at, is_over) = ((f64::from(nth) + 0.5) / 300.0, (100..200).contains(&nth));
            let latency = Duration::from_millis(if is_over { 50 } else { 1 });
            record.add(Done { kind: Kind::Page, at, latency, deliveries: 0 });
            (0..if is_over { 9 } else { 0 }).for_each(|_| record.add_refusal(at, Duration::from_micros(200)));
        }
        record.failed = record.refused;
        let (planned, lasts) = (Duration::from_secs(30), [Duration::from_secs(10); 3]);
        let run = Run { record, lasted: planned, planned, server_cores: 1.0, client_cores: 0.5, lateness: histogram() };
        Overload { times: 10.0, most: [(Kind::Page, 12.5)].into(), lasts, run, resident_most: Some(1_000) }
    }

    #[test]
    fn results_under_overload_are_reported_apart_from_the_calm_period() {
        let cases: BTreeMap<String, Case> = overload().cases().into_iter().collect();
        let of = |name: &str| cases[&format!("overload_10x{name}")].clone();
        assert_eq!((of("").median, of("_before").median, of("_of_most").median), (10.0, 10.0, 0.8));
        assert_eq!((of("_refused").median, of("").failed), (90.0, 0));
        let p99_ms = |case: Case| (case.latencies[&Kind::Page].p99_us / 1_000.0).round();
        assert_eq!((p99_ms(of("")), p99_ms(of("_before"))), (50.0, 1.0));
        assert!((of("_refusal_p99").median - 200.0).abs() < 1.0);
        assert_eq!((of("_memory").median, of("_recovery").median), (1_000.0, 0.0));
    }

    #[test]
    fn the_summary_has_rates_refusals_and_latencies_in_one_line() {
        let summary = overload().summary();
        assert!(
            summary.starts_with(
                "10.0/s done of 125/s requested, each kind at least 80 % of its maximum, 90.0/s refused, feed page p99 "
            ),
            "{summary}"
        );
        assert!(summary.ends_with("(1.0 ms before)"), "{summary}");
    }
}
