//! Rate limit for log lines about events that unauthenticated connections can cause at any rate.

use std::time::Duration;
use std::time::Instant;

use parking_lot::Mutex;

/// Minimum interval of the log lines of one kind that unauthenticated connections can cause: denials, malformed requests, refused
/// connections and similar events.
const LOG_THROTTLE_PERIOD: Duration = Duration::from_secs(10);

/// Permits one log line in each `LOG_THROTTLE_PERIOD`, and counts the suppressed ones.
#[derive(Debug, Default)]
pub struct Throttle(Mutex<Logged>);

#[derive(Debug, Default)]
struct Logged {
    last: Option<Instant>,
    suppressed: u64,
}

impl Throttle {
    /// Creates a throttle that permits the first line at once.
    pub const fn new() -> Self {
        Self(Mutex::new(Logged { last: None, suppressed: 0 }))
    }

    /// Returns the number of lines suppressed since the last one if a line may be written now, and `None` otherwise.
    pub fn due(&self) -> Option<u64> {
        self.0.lock().due(Instant::now())
    }
}

impl Logged {
    fn due(&mut self, now: Instant) -> Option<u64> {
        if self.last.is_some_and(|last| now.duration_since(last) < LOG_THROTTLE_PERIOD) {
            self.suppressed += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_throttled_line_includes_the_number_of_omitted_lines() {
        let (mut logged, start) = (Logged::default(), Instant::now());
        let mut due = |millis| logged.due(start + Duration::from_millis(millis));
        let dues = [0, 1, 9_999, 10_000, 10_001, 30_000, 50_000].map(&mut due);
        assert_eq!(dues, [Some(0), None, None, Some(2), None, Some(1), Some(0)]);
    }
}
