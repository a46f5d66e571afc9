//! What became of requests, in numbers: how many of each operation were answered how, and how long that took.

use std::time::Duration;

use actix_web::http::StatusCode;

use crate::actor::counters::Counter;
use crate::api::operation::OPERATIONS;
use crate::latency::Latency;

/// Classes of statuses, as they are told.
pub(super) const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// The requests for one operation.
#[derive(Debug, Default)]
pub(super) struct OfOperation {
    answered: [Counter; CLASSES.len()],
    /// From the head of a request to the head of its answer.
    pub(super) latency: Latency,
}

impl OfOperation {
    /// How many were answered, by class of status.
    pub(super) fn answered(&self) -> impl Iterator<Item = (&'static str, u64)> {
        CLASSES.into_iter().zip(self.answered.iter().map(Counter::get))
    }
}

/// The requests for all operations, in the order of [`OPERATIONS`].
#[derive(Debug)]
pub struct Requests(Box<[OfOperation]>);

impl Default for Requests {
    fn default() -> Self {
        Self(OPERATIONS.iter().map(|_| OfOperation::default()).collect())
    }
}

impl Requests {
    /// Counts an answer to a request for the operation that has this place in the table.
    pub(super) fn count(&self, operation: usize, status: StatusCode, took: Duration) {
        let of = &self.0[operation];
        let class = usize::from(status.as_u16() / 100).clamp(1, CLASSES.len()) - 1;
        of.answered[class].add(1);
        of.latency.record(took);
    }

    /// Those of each operation, with its name.
    pub(super) fn by_operation(&self) -> impl Iterator<Item = (&'static str, &OfOperation)> {
        OPERATIONS.iter().map(|operation| operation.name).zip(&self.0)
    }
}
