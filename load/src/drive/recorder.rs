//! What one thread of a run saw: latencies by kind, and how it went over time.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::operation::Kind;

/// Stretches that a run is told in, if it lasts as long as it is to.
pub const INTERVALS: u32 = 60;

/// Stretches of a run that lasts longer, at most: the last of them is as long as it must be.
pub const INTERVALS_MAX: u32 = 10 * INTERVALS;

/// Longest latency that is told apart; what takes longer counts as this.
const LATENCY_MAX: Duration = Duration::from_secs(600);

/// Digits to which latencies are told apart.
const DIGITS: u8 = 3;

/// Latencies in nanoseconds, to three digits.
pub fn histogram() -> Histogram<u64> {
    with_digits(DIGITS)
}

fn with_digits(digits: u8) -> Histogram<u64> {
    Histogram::new_with_max(LATENCY_MAX.as_nanos() as u64, digits).expect("the bounds are good")
}

/// Adds a latency.
pub fn record(into: &mut Histogram<u64>, latency: Duration) {
    into.saturating_record(latency.min(LATENCY_MAX).as_nanos() as u64);
}

/// What became of the operations of a run, or of a thread's share of them.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// Latencies of operations that were done.
    pub latencies: BTreeMap<Kind, Histogram<u64>>,
    /// Operations done, by kind.
    pub done: BTreeMap<Kind, u64>,
    /// Feeds that got a post.
    pub deliveries: u64,
    /// Operations that were refused; if they were tried again, each time.
    pub refused: u64,
    /// From when one was asked for until it was refused.
    pub refusals: Option<Histogram<u64>>,
    /// Operations that failed.
    pub failed: u64,
    /// What the first of these said.
    pub first_failure: Option<String>,
    /// By the stretch in which they were done.
    pub over_time: BTreeMap<u32, Stretch>,
}

/// A short stretch of a run.
#[derive(Clone, Debug, Default)]
pub struct Stretch {
    /// Operations done.
    pub done: u64,
    /// Operations that were refused.
    pub refused: u64,
    /// Feeds that got a post.
    pub deliveries: u64,
    /// Latencies of those done, by kind.
    pub latencies: BTreeMap<Kind, Histogram<u64>>,
}

impl Stretch {
    /// Latencies of all kinds.
    pub fn all_latencies(&self) -> Histogram<u64> {
        let mut all = with_digits(STRETCH_DIGITS);
        for latencies in self.latencies.values() {
            // They have the same bounds.
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

/// Digits to which latencies of a stretch are told apart.
const STRETCH_DIGITS: u8 = 2;

fn merge(into: &mut BTreeMap<Kind, Histogram<u64>>, other: BTreeMap<Kind, Histogram<u64>>, digits: u8) {
    for (kind, latencies) in other {
        // They have the same bounds.
        let _ = into.entry(kind).or_insert_with(|| with_digits(digits)).add(&latencies);
    }
}

/// An operation that was done.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    /// What it was.
    pub kind: Kind,
    /// When it was done, as a share of the time that the run is to take; 1 and more if it takes longer.
    pub at: f64,
    /// From when it was to be done.
    pub latency: Duration,
    /// Feeds that got a post.
    pub deliveries: u64,
}

impl Record {
    /// Adds what was done.
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

    /// Adds what was refused at this share of the time that the run is to take, so long after it was asked for.
    pub fn add_refusal(&mut self, at: f64, took: Duration) {
        self.refused += 1;
        record(self.refusals.get_or_insert_with(histogram), took);
        self.stretch(at).refused += 1;
    }

    fn stretch(&mut self, at: f64) -> &mut Stretch {
        let stretch = ((at * f64::from(INTERVALS)) as u32).min(INTERVALS_MAX - 1);
        self.over_time.entry(stretch).or_default()
    }

    /// Adds a failure.
    pub fn add_failure(&mut self, message: String) {
        self.failed += 1;
        self.first_failure.get_or_insert(message);
    }

    /// Adds what another thread, or another run, saw.
    pub fn merge(&mut self, other: Self) {
        merge(&mut self.latencies, other.latencies, DIGITS);
        if let Some(refusals) = other.refusals {
            // They have the same bounds.
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

    /// Operations done, of all kinds.
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
    fn what_threads_saw_is_added_up() {
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
    fn a_run_that_does_not_end_has_so_many_stretches_and_no_more() {
        let mut record = Record::default();
        record.add(done(Kind::Page, 9.999, 1));
        record.add(done(Kind::Page, 1e12, 1));
        assert_eq!(record.over_time.into_keys().collect::<Vec<_>>(), [INTERVALS_MAX - 1]);
    }

    #[test]
    fn a_latency_beyond_all_bounds_counts_as_the_longest() {
        let mut record = Record::default();
        record.add(Done { latency: Duration::from_secs(86_400), ..done(Kind::Page, 0.5, 0) });
        assert!(record.latencies[&Kind::Page].max() >= 599_000_000_000);
    }
}
