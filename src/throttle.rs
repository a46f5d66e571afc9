//! How often the log reports what may happen at any rate, since strangers cause it.

use std::time::Instant;

use parking_lot::Mutex;

use crate::limits::LOG_THROTTLE_PERIOD;

/// Lets one line into the log in each [`LOG_THROTTLE_PERIOD`], and counts the others.
#[derive(Debug, Default)]
pub struct Throttle(Mutex<Logged>);

#[derive(Debug, Default)]
struct Logged {
    last: Option<Instant>,
    left_out: u64,
}

impl Throttle {
    /// Nothing was written yet.
    pub const fn new() -> Self {
        Self(Mutex::new(Logged { last: None, left_out: 0 }))
    }

    /// Whether a line is to be written now, and then how many were left out since the last one.
    pub fn due(&self) -> Option<u64> {
        self.0.lock().due(Instant::now())
    }
}

impl Logged {
    fn due(&mut self, now: Instant) -> Option<u64> {
        if self.last.is_some_and(|last| now.duration_since(last) < LOG_THROTTLE_PERIOD) {
            self.left_out += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_line_is_due_now_and_then_and_says_how_many_were_left_out() {
        let (mut logged, start) = (Logged::default(), Instant::now());
        let mut due = |millis| logged.due(start + Duration::from_millis(millis));
        let dues = [0, 1, 9_999, 10_000, 10_001, 30_000, 50_000].map(&mut due);
        assert_eq!(dues, [Some(0), None, None, Some(2), None, Some(1), Some(0)]);
    }
}
