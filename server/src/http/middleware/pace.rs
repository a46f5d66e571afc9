//! Pace: how fast clients have to be, so that slow ones do not hold for long what there is for all.

use std::time::Duration;

use tidewire::limits::{
    BODY_BYTES_PER_SECOND_MIN, BODY_TIME, BODY_TIME_MAX, RESPONSE_BYTES_PER_SECOND_MIN, RESPONSE_STALL_BYTES_MIN,
    RESPONSE_STALL_MAX,
};

/// How fast clients have to be.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// How long any body may take. Default 5 s.
    pub body_time: Duration,
    /// Bytes of a body that earn a second more. Default 4 KiB.
    pub body_bytes_per_second: usize,
    /// How long a body may take, however large. Default 30 s.
    pub body_time_max: Duration,
    /// How long what is sent may wait for a client to take some of it. Default 30 s.
    pub stall_max: Duration,
    /// How many bytes are some. Default 256 KiB.
    pub stall_bytes: usize,
    /// Bytes of an answer, beyond what a connection is handed at once, that earn a second more than that. Default 64 KiB.
    pub response_bytes_per_second: usize,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            body_time: BODY_TIME,
            body_bytes_per_second: BODY_BYTES_PER_SECOND_MIN,
            body_time_max: BODY_TIME_MAX,
            stall_max: RESPONSE_STALL_MAX,
            stall_bytes: RESPONSE_STALL_BYTES_MIN,
            response_bytes_per_second: RESPONSE_BYTES_PER_SECOND_MIN,
        }
    }
}

impl Pace {
    /// How long a body may have taken of which so many bytes are there.
    pub(in crate::http) fn allows(&self, bytes: usize) -> Duration {
        let earned = Duration::from_secs_f64(bytes as f64 / self.body_bytes_per_second as f64);
        self.body_time.saturating_add(earned).min(self.body_time_max)
    }

    /// How long a client may have taken for so many bytes of an answer.
    pub(in crate::http) fn allows_taking(&self, bytes: usize) -> Duration {
        self.stall_max.saturating_add(Duration::from_secs_f64(bytes as f64 / self.response_bytes_per_second as f64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_has_its_time_and_more_for_each_byte_up_to_a_most() {
        let pace = Pace::default();
        for (bytes, millis) in
            [(0, 5_000), (2 << 10, 5_500), (80 << 10, 25_000), (100 << 10, 30_000), (1 << 40, 30_000)]
        {
            assert_eq!(pace.allows(bytes), Duration::from_millis(millis), "{bytes} bytes");
        }
    }
}
