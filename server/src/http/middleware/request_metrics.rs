//! What became of requests, in numbers: how many of each operation were answered how, how long that took, and why those were
//! refused that were.

use std::collections::BTreeMap;
use std::time::Duration;

use actix_web::http::StatusCode;
use parking_lot::Mutex;

use tidewire::latency::Latency;
use tidewire::runtime::counters::Counter;

/// Classes of statuses, as they are told; the last is of requests whose client went away before they were answered.
const CLASSES: [&str; 6] = ["1xx", "2xx", "3xx", "4xx", "5xx", "client_gone"];

/// The requests for one operation.
#[derive(Debug, Default)]
pub(in crate::http) struct OfOperation {
    answered: [Counter; CLASSES.len()],
    /// From the head of a request to the head of its answer, or until its client went away.
    pub(in crate::http) latency: Latency,
}

impl OfOperation {
    /// How many were answered, by class of status.
    pub(in crate::http) fn answered(&self) -> impl Iterator<Item = (&'static str, u64)> {
        CLASSES.into_iter().zip(self.answered.iter().map(Counter::get))
    }

    fn count(&self, class: usize, took: Duration) {
        self.answered[class].add(1);
        self.latency.record(took);
    }
}

/// The requests for all operations, in the order of their table, and for none.
#[derive(Debug)]
pub struct Requests {
    /// Each with its name; the last of those that lead to no operation.
    by_operation: Box<[(&'static str, OfOperation)]>,
    /// By code, of which the program has so many and no more.
    refusals: Mutex<BTreeMap<&'static str, u64>>,
}

impl Requests {
    /// Counts requests for operations of these names.
    pub(in crate::http) fn new(operations: impl Iterator<Item = &'static str>) -> Self {
        let by_operation = operations.chain(["none"]).map(|name| (name, OfOperation::default())).collect();
        Self { by_operation, refusals: Mutex::default() }
    }

    /// Counts an answer to a request for the operation that has this place in the table.
    pub(in crate::http) fn count(&self, operation: usize, status: StatusCode, took: Duration) {
        let class = usize::from(status.as_u16() / 100).clamp(1, CLASSES.len() - 1) - 1;
        self.by_operation[operation].1.count(class, took);
    }

    /// Counts an answer to a request that leads to no operation.
    pub(in crate::http) fn count_nowhere(&self, status: StatusCode, took: Duration) {
        self.count(self.by_operation.len() - 1, status, took);
    }

    /// Counts a request whose client went away before it was answered.
    pub(in crate::http) fn count_gone(&self, operation: usize, took: Duration) {
        self.by_operation[operation].1.count(CLASSES.len() - 1, took);
    }

    /// Counts a refusal.
    pub(in crate::http) fn count_refusal(&self, code: &'static str) {
        *self.refusals.lock().entry(code).or_default() += 1;
    }

    /// Those of each operation, with its name.
    pub(in crate::http) fn by_operation(&self) -> impl Iterator<Item = (&'static str, &OfOperation)> {
        self.by_operation.iter().map(|(name, of)| (*name, of))
    }

    /// How many were refused, by the code of the problem.
    pub(in crate::http) fn refusals(&self) -> Vec<(&'static str, u64)> {
        self.refusals.lock().iter().map(|(code, count)| (*code, *count)).collect()
    }
}
