//! The last slow requests, for operators.
//!
//! Responsible for:
//! - keeping the last [`SLOW_REQUESTS_MAX`], without what the path, the query or the body has of users.
//!
//! Not responsible for:
//! - deciding what is slow, and logging it (`http::middleware::pipeline`).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use tidewire::clock::UnixMicros;

/// Number of slow requests that are kept. Each takes 100 bytes and its id, which has 32 unless the client chose one of up to 128: 20 KB in all.
pub const SLOW_REQUESTS_MAX: usize = 100;

/// A request that took long.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::http) struct SlowRequest {
    /// When it was answered, or its client disconnected.
    pub(in crate::http) at: UnixMicros,
    pub(in crate::http) operation: &'static str,
    pub(in crate::http) method: &'static str,
    /// The path pattern, with placeholders instead of ids.
    pub(in crate::http) route: &'static str,
    /// The status of the response, and the id of the request. `None` if the client disconnected before the response.
    pub(in crate::http) answer: Option<(u16, Box<str>)>,
    pub(in crate::http) took_ms: u64,
}

/// The last slow requests, and their number since the start.
#[derive(Debug, Default)]
pub struct SlowRequests(Mutex<(u64, VecDeque<SlowRequest>)>);

/// The slow requests, and from which duration on a request is slow.
pub(in crate::http) struct SlowLog {
    pub(in crate::http) threshold: Duration,
    pub(in crate::http) requests: Arc<SlowRequests>,
}

impl SlowRequests {
    /// Adds a request. Forgets the oldest one beyond the limit.
    pub(in crate::http) fn add(&self, request: SlowRequest) {
        let (count, requests) = &mut *self.0.lock();
        *count += 1;
        if requests.len() == SLOW_REQUESTS_MAX {
            requests.pop_front();
        }
        requests.push_back(request);
    }

    /// Returns the number since the start, and the last ones, newest first.
    pub(in crate::http) fn newest(&self) -> (u64, Vec<SlowRequest>) {
        let (count, requests) = &*self.0.lock();
        (*count, requests.iter().rev().cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ones_are_kept_newest_first() {
        let slow = SlowRequests::default();
        let last = SLOW_REQUESTS_MAX as u64 + 2;
        for took_ms in 0..=last {
            let (operation, method, route) = ("read_feed", "GET", "/v1/users/{user}/feed");
            slow.add(SlowRequest { at: UnixMicros(7), operation, method, route, answer: None, took_ms });
        }
        let (count, newest) = slow.newest();
        assert_eq!((count, newest.len()), (last + 1, SLOW_REQUESTS_MAX));
        assert_eq!((newest[0].took_ms, newest[SLOW_REQUESTS_MAX - 1].took_ms), (last, 3));
    }
}
