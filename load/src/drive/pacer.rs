//! The schedule of an open loop: the intended time of each operation. It does not read a clock.
//!
//! Clients also perform late operations, and measure their latency from the intended time. So the latencies of a stall include all
//! operations that waited, not only those that were sent during the stall (this avoids coordinated omission).

use std::time::Duration;

use crate::operation::User;

/// The intended times of operations, relative to the start.
#[derive(Clone, PartialEq, Debug)]
pub enum Pacer {
    /// Periods, each with a constant rate.
    Stretches(Vec<Stretch>),
    /// A recorded activity.
    Recorded {
        /// Times from the start and authors, ordered by time.
        activity: Vec<(Duration, User)>,
        /// Number of operations of the mix between two recorded posts, at even intervals.
        between: u64,
    },
}

/// A period with a constant rate.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Stretch {
    /// Duration of the period.
    pub lasts: Duration,
    /// Operations per second.
    pub per_second: f64,
}

/// One scheduled operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Due {
    /// Intended time, relative to the start.
    pub at: Duration,
    /// The author of a recorded post; `None` for an operation of the mix.
    pub publish_by: Option<User>,
}

impl Pacer {
    /// Creates a schedule with one constant rate.
    pub fn steady(per_second: f64, lasts: Duration) -> Self {
        Self::Stretches(vec![Stretch { lasts, per_second }])
    }

    /// Replays a recorded activity `speed` times as fast, with `between` operations of the mix between two posts. `activity` is ordered
    /// by time.
    ///
    /// Recordings have a resolution of one second: the posts of one second are spread evenly over it, because otherwise all of them would
    /// be due at the same time.
    pub fn recorded(activity: &[(u64, User)], speed: f64, between: u64) -> Self {
        let second = |posts: &[(u64, User)]| {
            let (count, of_second) = (posts.len() as f64, posts.to_vec());
            let at = move |nth: usize, at_ms: u64| {
                Duration::from_secs_f64((at_ms as f64 / 1_000.0 + nth as f64 / count) / speed)
            };
            of_second.into_iter().enumerate().map(move |(nth, (at_ms, author))| (at(nth, at_ms), author))
        };
        let activity = activity.chunk_by(|one, other| one.0 == other.0).flat_map(second).collect();
        Self::Recorded { activity, between }
    }

    /// Returns the same schedule with a period of this duration before it, at the initial rate. A recorded activity is not changed.
    #[must_use]
    pub fn beginning_with(self, lasts: Duration) -> Self {
        match self {
            Self::Stretches(mut stretches) => {
                let first = stretches.first().map(|first| Stretch { lasts, ..*first });
                stretches.splice(..0, first);
                Self::Stretches(stretches)
            }
            recorded @ Self::Recorded { .. } => recorded,
        }
    }

    /// Creates a schedule with a burst between two periods at the normal rate.
    pub fn burst(per_second: f64, times: f64, (before, burst, after): (Duration, Duration, Duration)) -> Self {
        Self::Stretches(vec![
            Stretch { lasts: before, per_second },
            Stretch { lasts: burst, per_second: per_second * times },
            Stretch { lasts: after, per_second },
        ])
    }

    /// Returns the `nth` operation, counted from 0, or `None` after the last one.
    pub fn due(&self, nth: u64) -> Option<Due> {
        match self {
            Self::Stretches(stretches) => due_in(stretches, nth),
            Self::Recorded { activity, between } => {
                let (post, after_it) = (nth / (between + 1), nth % (between + 1));
                let (at, author) = *activity.get(post as usize)?;
                let next = activity.get(post as usize + 1).map_or(at, |(at, _)| *at);
                let at = at + next.saturating_sub(at).mul_f64(after_it as f64 / (*between + 1) as f64);
                Some(Due { at, publish_by: (after_it == 0).then_some(author) })
            }
        }
    }

    /// Returns the duration of the schedule.
    pub fn lasts(&self) -> Duration {
        match self {
            Self::Stretches(stretches) => stretches.iter().map(|stretch| stretch.lasts).sum(),
            Self::Recorded { activity, .. } => activity.last().map_or(Duration::ZERO, |(at, _)| *at),
        }
    }
}

fn due_in(stretches: &[Stretch], mut nth: u64) -> Option<Due> {
    let mut before = Duration::ZERO;
    for Stretch { lasts, per_second } in stretches {
        let count = (lasts.as_secs_f64() * per_second) as u64;
        if nth < count {
            let at = before + Duration::from_secs_f64(nth as f64 / per_second);
            return Some(Due { at, publish_by: None });
        }
        nth -= count;
        before += *lasts;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_ms(pacer: &Pacer) -> Vec<u64> {
        (0..).map_while(|nth| pacer.due(nth)).map(|due| due.at.as_millis() as u64).collect()
    }

    #[test]
    fn a_steady_rate_is_evenly_spread() {
        let pacer = Pacer::steady(4.0, Duration::from_secs(2));
        assert_eq!(at_ms(&pacer), [0, 250, 500, 750, 1_000, 1_250, 1_500, 1_750]);
        assert_eq!(at_ms(&Pacer::steady(0.0, Duration::from_secs(2))), [0u64; 0]);
    }

    #[test]
    fn the_warm_up_runs_at_the_initial_rate() {
        let second = Duration::from_secs(1);
        let pacer = Pacer::burst(2.0, 3.0, (second, second, second)).beginning_with(2 * second);
        assert_eq!(at_ms(&pacer)[..7], [0, 500, 1_000, 1_500, 2_000, 2_500, 3_000]);
        assert_eq!((at_ms(&pacer)[7], pacer.lasts()), (3_166, 5 * second));
    }

    #[test]
    fn a_burst_lies_between_two_calm_periods() {
        let second = Duration::from_secs(1);
        let pacer = Pacer::burst(2.0, 3.0, (second, second, second));
        assert_eq!(at_ms(&pacer), [0, 500, 1_000, 1_166, 1_333, 1_500, 1_666, 1_833, 2_000, 2_500]);
        assert_eq!(pacer.lasts(), 3 * second);
    }

    #[test]
    fn recorded_posts_are_replayed_at_speed_with_operations_between() {
        let pacer = Pacer::recorded(&[(0, 7), (4_000, 8)], 2.0, 3);
        assert_eq!(at_ms(&pacer), [0, 500, 1_000, 1_500, 2_000, 2_000, 2_000, 2_000]);
        let authors: Vec<_> = (0..5).map(|nth| pacer.due(nth).and_then(|due| due.publish_by)).collect();
        assert_eq!(authors, [Some(7), None, None, None, Some(8)]);
        assert_eq!(pacer.lasts(), Duration::from_secs(2));
    }

    #[test]
    fn recorded_posts_of_one_second_are_spread_evenly_over_it() {
        let activity = [(0, 1), (0, 2), (0, 3), (0, 4), (1_000, 1), (3_000, 1), (3_000, 2)];
        assert_eq!(at_ms(&Pacer::recorded(&activity, 1.0, 0)), [0, 250, 500, 750, 1_000, 3_000, 3_500]);
        let fast = Pacer::recorded(&activity, 10.0, 0);
        assert_eq!(at_ms(&fast), [0, 25, 50, 75, 100, 300, 350]);
        assert_eq!((fast.lasts(), Pacer::recorded(&[], 1.0, 9).due(0)), (Duration::from_millis(350), None));
    }
}
