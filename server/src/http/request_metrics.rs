//! Request metrics: responses by operation and status class, latencies by operation, and refusals by code.

use std::collections::BTreeMap;
use std::time::Duration;

use actix_web::http::StatusCode;
use parking_lot::Mutex;

use crate::http::operation::WorkKind;
use tidewire::latency::Latency;
use tidewire::runtime::counters::Counter;

/// The status classes, as named in metrics. The last one counts requests whose client disconnected before the response.
const CLASSES: [&str; 6] = ["1xx", "2xx", "3xx", "4xx", "5xx", "client_gone"];

/// The codes of refusals that alerts in `ops/alerts.yml` watch. Their series begin with 0: Prometheus sees no increase in the first value
/// of a series, and would miss the first refusals.
const CODES_OF_ALERTS: [&str; 1] = ["disk_full"];

/// The metrics of one operation.
#[derive(Debug, Default)]
pub(super) struct OperationMetrics {
    answered: [Counter; CLASSES.len()],
    /// Time from the head of a request to the head of its response, or until the client disconnected.
    pub(super) latency: Latency,
}

impl OperationMetrics {
    /// Returns the number of responses by status class.
    pub(super) fn answered(&self) -> impl Iterator<Item = (&'static str, u64)> {
        CLASSES.into_iter().zip(self.answered.iter().map(Counter::get))
    }

    fn count(&self, class: usize, took: Duration) {
        self.answered[class].add(1);
        self.latency.record(took);
    }
}

/// The request metrics of all operations, in the order of their table.
#[derive(Debug)]
pub struct RequestMetrics {
    /// One entry for each operation, with its name and its kind of work. The last entry counts requests that match no operation.
    by_operation: Box<[(&'static str, WorkKind, OperationMetrics)]>,
    /// Refusals by problem code. The codes are a fixed set, so the map is bounded.
    refusals: Mutex<BTreeMap<&'static str, u64>>,
}

impl RequestMetrics {
    /// Creates metrics for operations with these names and kinds of work.
    pub(super) fn new(operations: impl Iterator<Item = (&'static str, WorkKind)>) -> Self {
        let by_operation = operations
            .chain([("none", WorkKind::None)])
            .map(|(name, work)| (name, work, OperationMetrics::default()))
            .collect();
        let refusals = CODES_OF_ALERTS.into_iter().map(|code| (code, 0)).collect();
        Self { by_operation, refusals: Mutex::new(refusals) }
    }

    /// Counts a response to the operation with this index in the table.
    pub(super) fn count(&self, operation: usize, status: StatusCode, took: Duration) {
        let class = usize::from(status.as_u16() / 100).clamp(1, CLASSES.len() - 1) - 1;
        self.by_operation[operation].2.count(class, took);
    }

    /// Counts a response to a request that matches no operation.
    pub(super) fn count_nowhere(&self, status: StatusCode, took: Duration) {
        self.count(self.by_operation.len() - 1, status, took);
    }

    /// Counts a request whose client disconnected before the response.
    pub(super) fn count_gone(&self, operation: usize, took: Duration) {
        self.by_operation[operation].2.count(CLASSES.len() - 1, took);
    }

    /// Counts a refusal by its problem code.
    pub(super) fn count_refusal(&self, code: &'static str) {
        *self.refusals.lock().entry(code).or_default() += 1;
    }

    /// Returns the metrics of each operation with its name.
    pub(super) fn by_operation(&self) -> impl Iterator<Item = (&'static str, &OperationMetrics)> {
        self.by_operation.iter().map(|(name, _, of)| (*name, of))
    }

    /// Returns the latency of the operation of this name.
    pub(super) fn latency_of(&self, name: &str) -> Option<&Latency> {
        self.by_operation.iter().find(|(known, ..)| *known == name).map(|(_, _, of)| &of.latency)
    }

    /// Returns the number of requests by kind of work.
    pub(super) fn by_work(&self) -> impl Iterator<Item = (WorkKind, u64)> {
        self.by_operation.iter().map(|(_, work, of)| (*work, of.answered.iter().map(Counter::get).sum()))
    }

    /// Returns the number of refusals by problem code.
    pub(super) fn refusals(&self) -> Vec<(&'static str, u64)> {
        self.refusals.lock().iter().map(|(code, count)| (*code, *count)).collect()
    }
}
