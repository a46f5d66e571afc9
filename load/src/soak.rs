//! Hours at a part of what is possible: does anything drift?
//!
//! Responsible for:
//! - comparing the last quarter of a long run with its first.
//!
//! Not responsible for:
//! - running (`drive`); what is measured in each window is given.

use crate::report::Case;

/// What was seen in one window of a long run.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Window {
    /// Operations a second.
    pub per_second: f64,
    /// 99 in 100 took at most this.
    pub p99_us: f64,
    /// Memory of the server at its end.
    pub resident_bytes: u64,
    /// Open files of the server at its end.
    pub descriptors: u64,
    /// Operations that failed or were refused.
    pub failed: u64,
}

/// How the last quarter of a run compares with its first, as ratios of medians; more than 1 is growth.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Drift {
    /// Of the rate.
    pub per_second: f64,
    /// Of the p99.
    pub p99: f64,
    /// Of memory.
    pub resident: f64,
    /// Of open files.
    pub descriptors: f64,
}

impl Drift {
    /// The drift over these windows; none if there are fewer than four.
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

    /// Name and figure of each, as cases are told.
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
    fn a_leak_is_drift() {
        let leaking = Drift::over(&windows(40, |nth| 1_000 + nth * 100)).unwrap();
        assert!((2.0..4.0).contains(&leaking.resident), "{leaking:?}");
        assert_eq!((leaking.per_second, leaking.p99, leaking.descriptors), (1.0, 1.0, 1.0));
    }

    #[test]
    fn a_spike_in_the_middle_is_none() {
        let calm = Drift::over(&windows(40, |nth| if nth == 20 { 9_000 } else { 1_000 })).unwrap();
        assert_eq!(calm.resident, 1.0);
    }

    #[test]
    fn less_than_four_windows_tell_nothing() {
        assert_eq!(Drift::over(&windows(3, |_| 1)), None);
        assert!(Drift::over(&windows(4, |_| 1)).is_some());
    }
}
