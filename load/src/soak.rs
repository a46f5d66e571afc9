//! Long runs at a part of the maximum load, to detect drift.

use std::time::Duration;

use crate::report::{Case, Interval};

/// The results of one window of a long run.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Window {
    /// Operations per second.
    pub per_second: f64,
    /// The p99 latency in microseconds.
    pub p99_us: f64,
    /// Resident memory of the server at the end of the window.
    pub resident_bytes: u64,
    /// Open file descriptors of the server at the end of the window.
    pub descriptors: u64,
    /// Number of operations that failed or were refused.
    pub failed: u64,
}

/// The last quarter of a run compared with its first, as ratios of medians. Values over 1 are growth.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Drift {
    /// Ratio of the rates.
    pub per_second: f64,
    /// Ratio of the p99 latencies.
    pub p99: f64,
    /// Ratio of the resident memory.
    pub resident: f64,
    /// Ratio of the open file descriptors.
    pub descriptors: f64,
}

impl Drift {
    /// Computes the drift over these windows, or `None` if there are fewer than four.
    pub fn over(windows: &[Window]) -> Option<Self> {
        let quarter = windows.len() / 4;
        let (first, last) = (windows.get(..quarter)?, windows.get(windows.len() - quarter..)?);
        if quarter == 0 {
            return None;
        }
        let ratio = |figure: fn(&Window) -> f64| median(last, figure) / median(first, figure).max(f64::EPSILON);
        Some(Self {
            per_second: ratio(|window| window.per_second),
            p99: ratio(|window| window.p99_us),
            resident: ratio(|window| window.resident_bytes as f64),
            descriptors: ratio(|window| window.descriptors as f64),
        })
    }

    /// Returns the name and the case of each ratio.
    pub fn cases(self) -> [(String, Case); 4] {
        let case = |drift| Case { unit: "times".to_owned(), median: drift, rounds: vec![drift], ..Case::default() };
        [
            ("drift_of_rate", self.per_second),
            ("drift_of_p99", self.p99),
            ("drift_of_memory", self.resident),
            ("drift_of_open_files", self.descriptors),
        ]
        .map(|(name, drift)| (name.to_owned(), case(drift)))
    }
}

/// Returns the cases of these windows, each of which lasted `lasted`. `last` has the results of the last window.
pub fn cases(windows: &[Window], lasted: Duration, last: &Case) -> Vec<(String, Case)> {
    let case = |unit: &str, figure: fn(&Window) -> f64, p99_us: fn(&Window) -> f64| {
        let interval = |(nth, window): (usize, &Window)| Interval {
            at_s: (nth + 1) as f64 * lasted.as_secs_f64(),
            value: figure(window),
            p99_us: p99_us(window),
        };
        Case {
            unit: unit.to_owned(),
            median: median(windows, figure),
            over_time: windows.iter().enumerate().map(interval).collect(),
            rounds: windows.iter().map(figure).collect(),
            ..Case::default()
        }
    };
    let rate = case("operations/s", |window| window.per_second, |window| window.p99_us);
    let failed = windows.iter().map(|window| window.failed).sum();
    let soak = Case { failed, latencies: last.latencies.clone(), ..rate };
    let soak = Case { server_cores: last.server_cores, client_cores: last.client_cores, ..soak };
    let cases = [
        ("soak", Case { late_p99_us: last.late_p99_us, ..soak }),
        ("soak_p99", case("us", |window| window.p99_us, |window| window.p99_us)),
        ("resident", case("bytes", |window| window.resident_bytes as f64, |_| 0.0)),
    ];
    let cases = cases.into_iter().filter(|_| !windows.is_empty()).map(|(name, case)| (name.to_owned(), case));
    cases.chain(Drift::over(windows).into_iter().flat_map(Drift::cases)).collect()
}

fn median(windows: &[Window], figure: fn(&Window) -> f64) -> f64 {
    let mut figures: Vec<f64> = windows.iter().map(figure).collect();
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows(count: u64, resident: impl Fn(u64) -> u64) -> Vec<Window> {
        let window =
            |nth| Window { per_second: 10.0, p99_us: 5.0, resident_bytes: resident(nth), descriptors: 7, failed: 0 };
        (0..count).map(window).collect()
    }

    #[test]
    fn a_leak_is_reported_as_drift() {
        let leaking = Drift::over(&windows(40, |nth| 1_000 + nth * 100)).unwrap();
        assert!((2.0..4.0).contains(&leaking.resident), "{leaking:?}");
        assert_eq!((leaking.per_second, leaking.p99, leaking.descriptors), (1.0, 1.0, 1.0));
    }

    #[test]
    fn a_spike_in_the_middle_is_not_drift() {
        let calm = Drift::over(&windows(40, |nth| if nth == 20 { 9_000 } else { 1_000 })).unwrap();
        assert_eq!(calm.resident, 1.0);
    }

    #[test]
    fn memory_is_reported_in_bytes_and_the_p99_in_microseconds() {
        let windows = windows(3, |nth| 1_000 * (nth + 1));
        let cases: std::collections::BTreeMap<_, _> =
            cases(&windows, Duration::from_secs(20), &Case::default()).into_iter().collect();
        let reported =
            |name: &str| (cases[name].unit.as_str(), cases[name].over_time[2].value, cases[name].over_time[2].at_s);
        assert_eq!(reported("resident"), ("bytes", 3_000.0, 60.0));
        assert_eq!(reported("soak_p99"), ("us", 5.0, 60.0));
        assert_eq!(reported("soak"), ("operations/s", 10.0, 60.0));
        assert!(super::cases(&[], Duration::from_secs(20), &Case::default()).is_empty());
    }

    #[test]
    fn fewer_than_four_windows_have_no_drift() {
        assert_eq!(Drift::over(&windows(3, |_| 1)), None);
        assert!(Drift::over(&windows(4, |_| 1)).is_some());
    }
}
