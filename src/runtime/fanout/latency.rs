//! Fan-out latency: the recent times that posts took to reach all inboxes, by the number of followers.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

/// Maximum fan-out time that is reported; longer ones count as this.
const FANOUT_LATENCY_MAX: Duration = Duration::from_secs(3_600);

/// Length of one window in which fan-outs are timed. A report covers the last one to two windows.
const FANOUT_LATENCY_WINDOW: Duration = Duration::from_secs(10);

/// The classes of audiences by number of followers, each ten times as large as the one before.
pub const AUDIENCES: [&str; 6] = ["1-9", "10-99", "100-999", "1k-9k", "10k-99k", "100k+"];

/// Two significant digits: recorded values are within 1 % of the measured ones.
const SIGNIFICANT_DIGITS: u8 = 2;

type Window = [Histogram<u32>; AUDIENCES.len()];

/// The recent latencies of posts, by audience.
#[derive(Debug)]
pub struct FanoutLatency {
    current: Window,
    began: Instant,
    previous: Window,
}

/// The latencies of posts to audiences of one class, within 1 %, and at most about `FANOUT_LATENCY_MAX`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AudienceLatency {
    /// The class of audiences by number of followers, `"1-9"` to `"100k+"`.
    pub followers: &'static str,
    /// The number of posts.
    pub count: u64,
    /// The median in microseconds.
    pub p50_us: u64,
    /// The 99th percentile in microseconds.
    pub p99_us: u64,
    /// The maximum in microseconds.
    pub max_us: u64,
}

impl FanoutLatency {
    /// Creates an empty record whose first window begins at `now`.
    pub fn new(now: Instant) -> Self {
        Self { current: empty(), began: now, previous: empty() }
    }

    /// Records a post that took this long to reach all of its `followers`. A post without followers is not recorded.
    pub fn record(&mut self, now: Instant, took: Duration, followers: u64) {
        self.rotate(now);
        let Some(audience) = audience(followers) else { return };
        self.current[audience].saturating_record(micros(took));
    }

    /// Returns the figures of audiences with posts in either window, the smallest audience first.
    pub fn figures(&mut self, now: Instant) -> Vec<AudienceLatency> {
        self.rotate(now);
        let both = self.current.iter().zip(&self.previous);
        let merged = both.map(|(current, previous)| {
            let mut merged = current.clone();
            merged.add(previous).expect("all windows have the same bounds");
            merged
        });
        let figures = |(followers, latencies): (&'static str, Histogram<u32>)| AudienceLatency {
            followers,
            count: latencies.len(),
            p50_us: latencies.value_at_quantile(0.5),
            p99_us: latencies.value_at_quantile(0.99),
            max_us: latencies.max(),
        };
        AUDIENCES.into_iter().zip(merged).map(figures).filter(|figures| figures.count > 0).collect()
    }

    /// Starts as many new windows as have passed.
    fn rotate(&mut self, now: Instant) {
        let passed = now.duration_since(self.began).as_nanos() / FANOUT_LATENCY_WINDOW.as_nanos();
        if passed == 0 {
            return;
        }
        std::mem::swap(&mut self.current, &mut self.previous);
        self.current.iter_mut().for_each(Histogram::reset);
        if passed > 1 {
            self.previous.iter_mut().for_each(Histogram::reset);
        }
        self.began += FANOUT_LATENCY_WINDOW * u32::try_from(passed).unwrap_or(u32::MAX);
    }
}

/// Returns the index in [`AUDIENCES`] for this number of followers, or None if there are none.
pub fn audience(followers: u64) -> Option<usize> {
    Some((followers.checked_ilog10()? as usize).min(AUDIENCES.len() - 1))
}

fn empty() -> Window {
    std::array::from_fn(|_| {
        Histogram::new_with_bounds(1, micros(FANOUT_LATENCY_MAX), SIGNIFICANT_DIGITS)
            .expect("the bounds are at least a factor of two apart")
    })
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    fn counts(latency: &mut FanoutLatency, now: Instant) -> Vec<(&'static str, u64)> {
        latency.figures(now).iter().map(|figures| (figures.followers, figures.count)).collect()
    }

    #[test]
    fn posts_are_grouped_by_the_magnitude_of_their_audience() {
        let now = Instant::now();
        let mut latency = FanoutLatency::new(now);
        for followers in [0, 1, 9, 10, 99, 100, 999, 1_000, 9_999, 10_000, 99_999, 100_000, 1_000_000, u64::MAX] {
            latency.record(now, Duration::ZERO, followers);
        }
        let expected = [("1-9", 2), ("10-99", 2), ("100-999", 2), ("1k-9k", 2), ("10k-99k", 2), ("100k+", 3)];
        assert_eq!(counts(&mut latency, now), expected);
    }

    #[test]
    fn quantiles_are_in_microseconds_with_one_percent_precision() {
        let now = Instant::now();
        let mut latency = FanoutLatency::new(now);
        for took_us in 1..=1_000 {
            latency.record(now, Duration::from_micros(took_us), 5);
        }
        let of_small = latency.figures(now)[0];
        let figures = [(of_small.p50_us, 500), (of_small.p99_us, 990), (of_small.max_us, 1_000)];
        for (figure, meant) in figures {
            assert!(figure.abs_diff(meant) * 100 <= meant, "{figure} for {meant}");
        }
        assert_eq!(of_small.count, 1_000);
    }

    #[test]
    fn latencies_above_the_maximum_count_as_the_maximum() {
        let now = Instant::now();
        let mut latency = FanoutLatency::new(now);
        latency.record(now, FANOUT_LATENCY_MAX * 100, 1);
        let max_us = latency.figures(now)[0].max_us;
        let limit_us = micros(FANOUT_LATENCY_MAX);
        assert!(max_us >= limit_us && max_us < limit_us * 2, "{max_us}");
    }

    #[test]
    fn figures_cover_the_current_and_the_previous_window() {
        let began = Instant::now();
        let mut latency = FanoutLatency::new(began);
        let window = FANOUT_LATENCY_WINDOW;
        let just = Duration::from_nanos(1);
        latency.record(began, seconds(1), 1);
        latency.record(began + window, seconds(1), 10);
        assert_eq!(counts(&mut latency, began + 2 * window - just), [("1-9", 1), ("10-99", 1)]);
        assert_eq!(counts(&mut latency, began + 2 * window), [("10-99", 1)]);
        assert_eq!(counts(&mut latency, began + 3 * window), []);
        // Windows begin at multiples of their length, even after a long time without posts.
        latency.record(began + 5 * window + window / 2, seconds(1), 100);
        assert_eq!(counts(&mut latency, began + 7 * window - just), [("100-999", 1)]);
        assert_eq!(counts(&mut latency, began + 7 * window), []);
        latency.record(began + 7 * window, seconds(1), 100);
        assert_eq!(counts(&mut latency, began + 9 * window), [], "what is two windows old is gone at once");
    }
}
