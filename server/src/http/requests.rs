//! What became of requests, in numbers: how many of each operation were answered how, how long that took, and why those were
//! refused that were.

use std::collections::BTreeMap;
use std::time::Duration;

use actix_web::http::StatusCode;
use parking_lot::Mutex;

use crate::http::operation::OPERATIONS;
use tidewire::actor::counters::Counter;
use tidewire::latency::Latency;

/// Classes of statuses, as they are told; the last is of requests whose client went away before they were answered.
const CLASSES: [&str; 6] = ["1xx", "2xx", "3xx", "4xx", "5xx", "client_gone"];

/// Where those are counted that lead to no operation.
pub(super) static NOWHERE: usize = OPERATIONS.len();

/// The requests for one operation.
#[derive(Debug, Default)]
pub(super) struct OfOperation {
    answered: [Counter; CLASSES.len()],
    /// From the head of a request to the head of its answer, or until its client went away.
    pub(super) latency: Latency,
}

impl OfOperation {
    /// How many were answered, by class of status.
    pub(super) fn answered(&self) -> impl Iterator<Item = (&'static str, u64)> {
        CLASSES.into_iter().zip(self.answered.iter().map(Counter::get))
    }

    fn count(&self, class: usize, took: Duration) {
        self.answered[class].add(1);
        self.latency.record(took);
    }
}

/// The requests for all operations, in the order of [`OPERATIONS`], and for none.
#[derive(Debug)]
pub struct Requests {
    by_operation: Box<[OfOperation]>,
    /// By code, of which the program has so many and no more.
    refusals: Mutex<BTreeMap<&'static str, u64>>,
}

impl Default for Requests {
    fn default() -> Self {
        let by_operation = (0..=NOWHERE).map(|_| OfOperation::default()).collect();
        Self { by_operation, refusals: Mutex::default() }
    }
}

impl Requests {
    /// Counts an answer to a request for the operation that has this place in the table.
    pub(super) fn count(&self, operation: usize, status: StatusCode, took: Duration) {
        let class = usize::from(status.as_u16() / 100).clamp(1, CLASSES.len() - 1) - 1;
        self.by_operation[operation].count(class, took);
    }

    /// Counts a request whose client went away before it was answered.
    pub(super) fn count_gone(&self, operation: usize, took: Duration) {
        self.by_operation[operation].count(CLASSES.len() - 1, took);
    }

    /// Counts a refusal.
    pub(super) fn count_refusal(&self, code: &'static str) {
        *self.refusals.lock().entry(code).or_default() += 1;
    }

    /// Those of each operation, with its name.
    pub(super) fn by_operation(&self) -> impl Iterator<Item = (&'static str, &OfOperation)> {
        OPERATIONS.iter().map(|operation| operation.name).chain(["none"]).zip(&self.by_operation)
    }

    /// How many were refused, by the code of the problem.
    pub(super) fn refusals(&self) -> Vec<(&'static str, u64)> {
        self.refusals.lock().iter().map(|(code, count)| (*code, *count)).collect()
    }
}
