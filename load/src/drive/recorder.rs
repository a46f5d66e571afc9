//! The results of one thread of a run: latencies by kind, and the course over time.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::operation::Kind;

/// Number of intervals that a run of its planned duration is split into.
pub const INTERVALS: u32 = 60;

/// Maximum number of intervals of a run that lasts longer. The last interval has all the rest.
pub const INTERVALS_MAX: u32 = 10 * INTERVALS;

/// Highest latency that the histograms can record. Longer ones are recorded as this value.
const LATENCY_MAX: Duration = Duration::from_secs(600);

/// Significant digits of latencies.
const DIGITS: u8 = 3;

/// Returns an empty histogram for latencies in nanoseconds, with three significant digits.
pub fn histogram() -> Histogram<u64> {
    with_digits(DIGITS)
}

fn with_digits(digits: u8) -> Histogram<u64> {
    Histogram::new_with_max(LATENCY_MAX.as_nanos() as u64, digits).expect("the bounds are good")
}

/// Records a latency.
pub fn record(into: &mut Histogram<u64>, latency: Duration) {
    into.saturating_record(latency.min(LATENCY_MAX).as_nanos() as u64);
}

/// The results of the operations of a run, or of one thread of it.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// Latencies of completed operations by kind.
    pub latencies: BTreeMap<Kind, Histogram<u64>>,
    /// Number of completed operations by kind.
    pub done: BTreeMap<Kind, u64>,
    /// Number of feeds that received a post.
    pub deliveries: u64,
    /// Number of refused operations. Each retry that is refused counts again.
    pub refused: u64,
    /// Time from a request to its refusal.
    pub refusals: Option<Histogram<u64>>,
    /// Number of failed operations.
    pub failed: u64,
    /// The message of the first failure.
    pub first_failure: Option<String>,
    /// Results by the number of the interval in which the operations ended.
    pub over_time: BTreeMap<u32, Stretch>,
}

/// The results of one interval of a run.
#[derive(Clone, Debug, Default)]
pub struct Stretch {
    /// Number of completed operations.
    pub done: u64,
    /// Number of refused operations.
    pub refused: u64,
    /// Number of feeds that received a post.
    pub deliveries: u64,
    /// Latencies of the completed operations by kind.
    pub latencies: BTreeMap<Kind, Histogram<u64>>,
}

impl Stretch {
    /// Returns the latencies of all kinds together.
    pub fn all_latencies(&self) -> Histogram<u64> {
        let mut all = with_digits(STRETCH_DIGITS);
        for latencies in self.latencies.values() {
            // Adding cannot fail: all histograms have the same bounds.
            let _ = all.add(latencies);
        }
        all
    }

    fn merge(&mut self, other: Self) {
        self.done += other.done;
        self.refused += other.refused;
        self.deliveries += other.deliveries;
        merge(&mut self.latencies, other.latencies, STRETCH_DIGITS);
    }
}

/// Significant digits of latencies within one interval.
const STRETCH_DIGITS: u8 = 2;

fn merge(into: &mut BTreeMap<Kind, Histogram<u64>>, other: BTreeMap<Kind, Histogram<u64>>, digits: u8) {
    for (kind, latencies) in other {
        // Adding cannot fail: all histograms have the same bounds.
        let _ = into.entry(kind).or_insert_with(|| with_digits(digits)).add(&latencies);
    }
}

/// A completed operation.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    /// The kind of the operation.
    pub kind: Kind,
    /// End of the operation, as a share of the planned duration. It is over 1 if the run takes longer.
    pub at: f64,
    /// Time since the intended start of the operation.
    pub latency: Duration,
    /// Number of feeds that received a post.
    pub deliveries: u64,
}

impl Record {
    /// Adds a completed operation.
    pub fn add(&mut self, done: Done) {
        let latencies = self.latencies.entry(done.kind).or_insert_with(histogram);
        record(latencies, done.latency);
        *self.done.entry(done.kind).or_default() += 1;
        self.deliveries += done.deliveries;
        let stretch = self.stretch(done.at);
        stretch.done += 1;
        stretch.deliveries += done.deliveries;
        record(stretch.latencies.entry(done.kind).or_insert_with(|| with_digits(STRETCH_DIGITS)), done.latency);
    }

    /// Adds a refusal: `at` is the share of the planned duration, `took` the time since the request was sent.
    pub fn add_refusal(&mut self, at: f64, took: Duration) {
        self.refused += 1;
        record(self.refusals.get_or_insert_with(histogram), took);
        self.stretch(at).refused += 1;
    }

    fn stretch(&mut self, at: f64) -> &mut Stretch {
        let stretch = ((at * f64::from(INTERVALS)) as u32).min(INTERVALS_MAX - 1);
        self.over_time.entry(stretch).or_default()
    }

    /// Adds a failed operation.
    pub fn add_failure(&mut self, message: String) {
        self.failed += 1;
        self.first_failure.get_or_insert(message);
    }

    /// Adds the results of another thread or of another run.
    pub fn merge(&mut self, other: Self) {
        merge(&mut self.latencies, other.latencies, DIGITS);
        if let Some(refusals) = other.refusals {
            // Adding cannot fail: all histograms have the same bounds.
            let _ = self.refusals.get_or_insert_with(histogram).add(&refusals);
        }
        for (kind, done) in other.done {
            *self.done.entry(kind).or_default() += done;
        }
        self.deliveries += other.deliveries;
        self.refused += other.refused;
        self.failed += other.failed;
        self.first_failure = self.first_failure.take().or(other.first_failure);
        for (at, theirs) in other.over_time {
            self.over_time.entry(at).or_default().merge(theirs);
        }
    }

    /// Returns the number of completed operations of all kinds.
    pub fn operations(&self) -> u64 {
        self.done.values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(kind: Kind, at: f64, ms: u64) -> Done {
        Done { kind, at, latency: Duration::from_millis(ms), deliveries: 2 }
    }

    #[test]
    fn records_of_several_threads_are_merged() {
        let (mut one, mut other) = (Record::default(), Record::default());
        one.add(done(Kind::Page, 0.0, 1));
        other.add(done(Kind::Page, 1.01, 3));
        other.add(done(Kind::Publish, 0.001, 5));
        other.add_failure("full".to_owned());
        other.add_refusal(0.001, Duration::from_millis(2));
        one.merge(other);
        assert_eq!((one.refused, one.over_time[&0].refused, one.refusals.as_ref().unwrap().len()), (1, 1, 1));
        assert_eq!((one.operations(), one.deliveries, one.failed), (3, 6, 1));
        assert_eq!(one.first_failure.as_deref(), Some("full"));
        let stretches: Vec<_> = one.over_time.iter().map(|(at, stretch)| (*at, stretch.done)).collect();
        assert_eq!(stretches, [(0, 2), (INTERVALS, 1)]);
        assert_eq!(one.over_time[&0].all_latencies().max() / 1_000_000, 5);
        let pages = &one.latencies[&Kind::Page];
        assert_eq!((pages.len(), pages.max() / 1_000_000), (2, 3));
    }

    #[test]
    fn the_number_of_intervals_of_an_endless_run_is_bounded() {
        let mut record = Record::default();
        record.add(done(Kind::Page, 9.999, 1));
        record.add(done(Kind::Page, 1e12, 1));
        assert_eq!(record.over_time.into_keys().collect::<Vec<_>>(), [INTERVALS_MAX - 1]);
    }

    #[test]
    fn a_latency_above_the_maximum_counts_as_the_maximum() {
        let mut record = Record::default();
        record.add(Done { latency: Duration::from_secs(86_400), ..done(Kind::Page, 0.5, 0) });
        assert!(record.latencies[&Kind::Page].max() >= 599_000_000_000);
    }
}
