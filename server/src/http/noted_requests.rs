//! The last slow and the last refused requests, for operators.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::http::operation::Operation;
use tidewire::clock::UnixMicros;

/// Number of requests that are retained of each kind. Each takes 100 bytes plus its id: 32 bytes, or up to 128 if the client chose it. So
/// a kind takes at most 23 KB.
pub const NOTED_REQUESTS_MAX: usize = 100;

/// A request that took long.
#[derive(Clone)]
pub(in crate::http) struct SlowRequest {
    /// The time of the response, or of the client's disconnect.
    pub(in crate::http) at: UnixMicros,
    pub(in crate::http) operation: &'static Operation,
    /// The status of the response, and the id of the request. `None` if the client disconnected before the response.
    pub(in crate::http) answer: Option<(u16, Box<str>)>,
    pub(in crate::http) took_ms: u64,
}

/// A request that was refused.
#[derive(Clone)]
pub(in crate::http) struct RefusedRequest {
    /// The time of the refusal.
    pub(in crate::http) at: UnixMicros,
    /// `None` if the request matches no operation.
    pub(in crate::http) operation: Option<&'static Operation>,
    pub(in crate::http) code: &'static str,
    pub(in crate::http) status: u16,
    pub(in crate::http) request_id: Box<str>,
}

/// The last requests of a kind, and the number of all since the start.
pub struct Newest<T>(Mutex<(u64, VecDeque<T>)>);

impl<T> Default for Newest<T> {
    fn default() -> Self {
        Self(Mutex::new((0, VecDeque::new())))
    }
}

impl<T: Clone> Newest<T> {
    /// Adds a request, and removes the oldest one beyond the limit.
    pub(in crate::http) fn add(&self, request: T) {
        let (count, requests) = &mut *self.0.lock();
        *count += 1;
        if requests.len() == NOTED_REQUESTS_MAX {
            requests.pop_front();
        }
        requests.push_back(request);
    }

    /// Returns the number since the start, and the last ones, newest first.
    pub(in crate::http) fn newest(&self) -> (u64, Vec<T>) {
        let (count, requests) = &*self.0.lock();
        (*count, requests.iter().rev().cloned().collect())
    }
}

/// The slow and refused requests, retained for operators.
#[derive(Default)]
pub struct NotedRequests {
    pub(in crate::http) slow: Newest<SlowRequest>,
    pub(in crate::http) refused: Newest<RefusedRequest>,
}

/// The noted requests, and the duration above which a request is slow.
pub(in crate::http) struct RequestNotes {
    pub(in crate::http) threshold: Duration,
    pub(in crate::http) requests: Arc<NotedRequests>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_requests_are_listed_newest_first() {
        let noted = Newest::default();
        let last = NOTED_REQUESTS_MAX + 2;
        (0..=last).for_each(|nth| noted.add(nth));
        let (count, newest) = noted.newest();
        assert_eq!((count, newest.len()), (last as u64 + 1, NOTED_REQUESTS_MAX));
        assert_eq!((newest[0], newest[NOTED_REQUESTS_MAX - 1]), (last, 3));
    }
}
