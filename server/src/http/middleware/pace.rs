//! Minimum transfer rates of clients, so that slow clients do not occupy shared resources for long.

use std::time::Duration;

use tidewire::limits::{RESPONSE_STALL_BYTES_MIN, RESPONSE_STALL_MAX};

/// Maximum time for a request body of any size. Bodies of users end earlier at the minimum rate; only servers send larger ones.
const BODY_TIME_MAX: Duration = Duration::from_secs(30);

/// Bytes of a body that extend its time limit by one second: the rate of the slowest mobile networks.
const BODY_BYTES_PER_SECOND_MIN: usize = 4 * 1024;

/// Base time limit of every request body: lost packets are retransmitted within it, even on bad networks.
const BODY_TIME: Duration = Duration::from_secs(5);

/// Bytes of a large response that extend its time limit by one second beyond [`RESPONSE_STALL_MAX`]: the rate of a poor mobile
/// connection. Slower clients would hold the reserved bytes for too long.
const RESPONSE_BYTES_PER_SECOND_MIN: usize = 64 * 1024;

/// The same as [`RESPONSE_STALL_MAX`] for data that the system has accepted but the client has not acknowledged.
const UNACKNOWLEDGED_MAX: Duration = RESPONSE_STALL_MAX;

/// The minimum transfer rates and timeouts.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// The base time for receiving a request body. Default 5 s.
    pub body_time: Duration,
    /// Bytes received that extend the time by one second. Default 4 KiB.
    pub body_bytes_per_second: usize,
    /// Maximum time for receiving a request body of any size. Default 30 s.
    pub body_time_max: Duration,
    /// Maximum time in which a client must receive `stall_bytes` of pending data. Default 30 s.
    pub stall_max: Duration,
    /// Bytes that a client must receive within `stall_max`. Default 256 KiB.
    pub stall_bytes: usize,
    /// Maximum time that sent data stays unacknowledged before the system closes the connection (`TCP_USER_TIMEOUT`). Default 30 s.
    pub unacknowledged_max: Duration,
    /// Bytes received of a response that extend the time for sending by one second beyond `stall_max`. Default 64 KiB.
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
            unacknowledged_max: UNACKNOWLEDGED_MAX,
            response_bytes_per_second: RESPONSE_BYTES_PER_SECOND_MIN,
        }
    }
}

impl Pace {
    /// Returns the maximum time for receiving this number of bytes of a request body.
    pub(in crate::http) fn allows(&self, bytes: usize) -> Duration {
        let earned = Duration::from_secs_f64(bytes as f64 / self.body_bytes_per_second as f64);
        self.body_time.saturating_add(earned).min(self.body_time_max)
    }

    /// Returns the maximum time for a client to receive this number of response bytes.
    pub(in crate::http) fn allows_taking(&self, bytes: usize) -> Duration {
        self.stall_max.saturating_add(Duration::from_secs_f64(bytes as f64 / self.response_bytes_per_second as f64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_limit_of_a_body_grows_with_its_length_up_to_a_maximum() {
        let pace = Pace::default();
        for (bytes, millis) in
            [(0, 5_000), (2 << 10, 5_500), (80 << 10, 25_000), (100 << 10, 30_000), (1 << 40, 30_000)]
        {
            assert_eq!(pace.allows(bytes), Duration::from_millis(millis), "{bytes} bytes");
        }
    }
}
