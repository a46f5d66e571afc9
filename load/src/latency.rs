//! Summaries of latency histograms, which are in nanoseconds.

use hdrhistogram::Histogram;

use crate::report::Latency;

/// Maximum number of points of a curve.
pub const CURVE_POINTS_MAX: usize = 60;

/// Number of nines that a curve goes to: a run has too few samples beyond 99.999 %.
const CURVE_NINES: f64 = 5.0;

impl Latency {
    /// Summarizes a histogram of nanoseconds. All values are 0 if it is empty.
    pub fn of(nanoseconds: &Histogram<u64>) -> Self {
        if nanoseconds.is_empty() {
            return Self::default();
        }
        let at = |share: f64| microseconds(nanoseconds.value_at_quantile(share));
        Self {
            count: nanoseconds.len(),
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: microseconds(nanoseconds.max()),
            curve: curve(nanoseconds),
        }
    }
}

/// Returns points at even distances on an axis where each further nine has the same width, up to the last sample.
fn curve(nanoseconds: &Histogram<u64>) -> Vec<(f64, f64)> {
    let steps = CURVE_POINTS_MAX - 2;
    let shares = (0..=steps).map(|step| 1.0 - 10_f64.powf(-CURVE_NINES * step as f64 / steps as f64));
    // Beyond this share there is less than one sample, so the curve would show values that were not measured.
    let seen = 1.0 - 1.0 / nanoseconds.len() as f64;
    let shares: Vec<f64> = shares.take_while(|share| *share <= seen).collect();
    // Reads all quantiles in one pass over the histogram.
    let values = nanoseconds.value_at_quantiles(shares.iter().copied());
    let mut points: Vec<(f64, f64)> =
        shares.iter().zip(values).map(|(share, value)| (round(*share), microseconds(value))).collect();
    points.push((1.0, microseconds(nanoseconds.max())));
    points
}

/// Rounds to a millionth: this is exact enough for five nines, and short in JSON.
fn round(share: f64) -> f64 {
    (share * 1e6).round() / 1e6
}

fn microseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: impl IntoIterator<Item = u64>) -> Latency {
        let mut histogram = Histogram::new(3).unwrap();
        for value in values {
            histogram.record(value).unwrap();
        }
        Latency::of(&histogram)
    }

    #[test]
    fn an_empty_recording_has_zero_latencies() {
        let latency = of([]);
        assert_eq!((latency.count, latency.max_us, latency.curve.len()), (0, 0.0, 0));
    }

    #[test]
    fn a_single_sample_is_every_quantile() {
        let latency = of([2_000]);
        assert_eq!((latency.count, latency.p50_us, latency.p999_us), (1, latency.max_us, latency.max_us));
        assert_eq!(latency.curve.len(), 2);
    }

    #[test]
    fn quantiles_are_microseconds_within_the_histogram_s_precision() {
        let latency = of((1..=100_000).map(|value| value * 10));
        let reported = [latency.p50_us, latency.p90_us, latency.p99_us, latency.p999_us, latency.max_us];
        for (reported, exact) in reported.into_iter().zip([500.0, 900.0, 990.0, 999.0, 1_000.0]) {
            assert!((reported - exact).abs() <= exact / 500.0, "{reported} is not {exact}");
        }
    }

    #[test]
    fn a_curve_rises_to_the_last_sample_and_is_bounded() {
        for samples in [1_u64, 2, 10, 999, 200_000] {
            let curve = of((1..=samples).map(|value| value * 7)).curve;
            assert!(curve.len() <= CURVE_POINTS_MAX, "{} points of {samples}", curve.len());
            assert!(curve.windows(2).all(|two| two[0].0 <= two[1].0 && two[0].1 <= two[1].1), "{curve:?}");
            assert_eq!(curve.last().unwrap().0, 1.0);
        }
    }

    #[test]
    fn a_curve_is_dense_towards_one() {
        let curve = of(1..=1_000_000).curve;
        let above = |share: f64| curve.iter().filter(|point| point.0 > share).count();
        assert!(above(0.9) > 40 && above(0.999) > 20, "{} and {}", above(0.9), above(0.999));
    }
}
