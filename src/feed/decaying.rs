//! Decaying counts: counts in which earlier occurrences have a lower weight.

use std::time::Duration;

use crate::clock::UnixMicros;

/// The time after which an occurrence counts half. A day averages over day and night, and is short compared with the week for which a
/// reader stays awake. A hundredfold rise of a rate is visible after a hundredth of this time.
pub const HALF_LIFE: Duration = Duration::from_secs(24 * 60 * 60);

/// Minimum time step in microseconds. A shorter step leaves the count unchanged, because the difference is not worth the computation.
const STEP_US: i64 = 1_000_000;

/// Returns the value at `now` of a count as of `since`. Returns `count` unchanged if the clock has stepped back.
pub fn decayed(count: f32, since: UnixMicros, now: UnixMicros) -> f32 {
    let elapsed_us = now.0.saturating_sub(since.0);
    if elapsed_us < STEP_US || count == 0.0 {
        return count;
    }
    count * (-(elapsed_us as f32) / HALF_LIFE.as_micros() as f32).exp2()
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: UnixMicros = UnixMicros(1_795_168_800_000_000);

    fn after(start: UnixMicros, half_lives: f64) -> UnixMicros {
        start.saturating_add(HALF_LIFE.mul_f64(half_lives))
    }

    #[test]
    fn an_occurrence_counts_half_after_each_half_life() {
        for start in [START, UnixMicros(0), UnixMicros(-5_000_000_000_000), UnixMicros(i64::MAX / 2)] {
            for (half_lives, expected) in [(0.0, 1.0), (1.0, 0.5), (2.0, 0.25), (7.0, 1.0 / 128.0)] {
                let count = decayed(1.0, start, after(start, half_lives));
                assert!((count - expected).abs() < 0.001, "{count} after {half_lives}");
            }
        }
    }

    #[test]
    fn a_clock_that_steps_back_does_not_change_the_count() {
        assert_eq!(decayed(3.0, START, UnixMicros(START.0 - 3_600_000_000)), 3.0);
        assert_eq!(decayed(3.0, UnixMicros(i64::MAX), UnixMicros(i64::MIN)), 3.0);
    }

    #[test]
    fn a_zero_count_stays_zero() {
        assert_eq!(decayed(0.0, UnixMicros(i64::MIN), START), 0.0);
    }
}
