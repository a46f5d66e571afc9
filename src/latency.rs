//! Latency histograms: durations since the start of the process, counted in fixed buckets.
//!
//! Recording takes two relaxed atomic additions, which is cheap enough for every page. The metrics collector computes differences and
//! quantiles.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the buckets in microseconds, about three for each power of ten: from a page built in memory to a request that waits.
pub const BOUNDS_US: [u64; 18] = [
    10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000, 10_000_000,
];

/// A histogram of the durations of one operation since the start of the process.
#[derive(Debug, Default)]
pub struct Latency {
    /// Count of each bucket: durations of at most its bound and above the bound before it. The last bucket counts all that exceed every
    /// bound.
    buckets: [AtomicU64; BOUNDS_US.len() + 1],
    sum_ns: AtomicU64,
}

impl Latency {
    /// Records one duration.
    pub fn record(&self, took: Duration) {
        let us = took.as_nanos().div_ceil(1_000);
        let nth = BOUNDS_US.partition_point(|bound| u128::from(*bound) < us);
        self.buckets[nth].fetch_add(1, Ordering::Relaxed);
        self.sum_ns.fetch_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Returns the count of each bucket. The last bucket is above all bounds.
    pub fn counts(&self) -> [u64; BOUNDS_US.len() + 1] {
        std::array::from_fn(|nth| self.buckets[nth].load(Ordering::Relaxed))
    }

    /// Returns the sum of all recorded durations.
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.sum_ns.load(Ordering::Relaxed))
    }
}

/// Returns an estimate of a quantile, from 0 to 1, in microseconds. `counts` is the count of each bucket, such as the difference of the
/// counts of two instants. Values are assumed to be spread evenly within their bucket. Returns `None` if there are no values, and the
/// largest bound if the quantile is above all bounds.
pub fn quantile_us(counts: &[u64; BOUNDS_US.len() + 1], quantile: f64) -> Option<f64> {
    let all: u64 = counts.iter().sum();
    let (mut below, rank) = (0.0, quantile * all as f64);
    for (nth, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        let count = *count as f64;
        if below + count >= rank {
            let lower = nth.checked_sub(1).map_or(0.0, |before| BOUNDS_US[before] as f64);
            let upper = BOUNDS_US.get(nth).map_or(lower, |bound| *bound as f64);
            return Some(lower + (upper - lower) * ((rank - below) / count).clamp(0.0, 1.0));
        }
        below += count;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_lies_in_its_bucket() {
        let counted = |durations: &[u64]| {
            let latency = Latency::default();
            durations.iter().for_each(|us| latency.record(Duration::from_micros(*us)));
            latency.counts()
        };
        assert_eq!(quantile_us(&counted(&[]), 0.5), None);
        let even: Vec<u64> = (1..=100).collect();
        for (quantile, us) in [(0.5, 50.0), (0.99, 99.0), (0.05, 5.0), (1.0, 100.0)] {
            let estimate = quantile_us(&counted(&even), quantile).unwrap();
            assert!((estimate - us).abs() < 1.0, "{estimate} for {us}");
        }
        assert_eq!(quantile_us(&counted(&[600; 3]), 1.0), Some(1_000.0), "the bound of its bucket");
        assert_eq!(quantile_us(&counted(&[20_000_000]), 0.5), Some(10_000_000.0), "the largest bound");
    }

    #[test]
    fn a_bucket_includes_its_upper_bound() {
        let latency = Latency::default();
        for us in [0, 10, 11, 25, 10_000_000, 10_000_001] {
            latency.record(Duration::from_micros(us));
        }
        latency.record(Duration::from_nanos(10_001));
        let counts = latency.counts();
        assert_eq!((counts[0], counts[1], counts[2]), (2, 3, 0));
        assert_eq!((counts[BOUNDS_US.len() - 1], counts[BOUNDS_US.len()]), (1, 1));
        assert_eq!(latency.sum(), Duration::from_nanos(20_000_047_000 + 10_001));
    }
}
