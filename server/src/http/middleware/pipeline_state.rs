//! The shared state that the steps of the pipeline use.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::http::header::HeaderValue;

use crate::http::admission::Admission;
use crate::http::auth::Access;
#[cfg(feature = "cluster")]
use crate::http::cluster::Peers;
use crate::http::engine_cell::EngineCell;
use crate::http::middleware::open_paths::OpenPaths;
use crate::http::middleware::pace::Pace;
#[cfg(feature = "otel")]
use crate::http::middleware::spans::Spans;
use crate::http::noted_requests::{NotedRequests, RefusedRequest, SlowRequest};
use crate::http::operation::{Needs, Operation};
use crate::http::request_metrics::RequestMetrics;
use tidewire::clock::{Clock as _, SystemClock};

/// The shared state that the steps of the pipeline use.
pub(in crate::http) struct PipelineState {
    pub(in crate::http) engine_cell: EngineCell,
    pub(in crate::http) access: Arc<Access>,
    pub(in crate::http) open_paths: Arc<OpenPaths>,
    pub(in crate::http) admission: Arc<Admission>,
    pub(in crate::http) pace: Pace,
    pub(in crate::http) recovery_wait_max: Duration,
    pub(in crate::http) requests: Arc<RequestMetrics>,
    /// The duration above which a request is logged as slow.
    pub(in crate::http) slow: Duration,
    /// The last slow requests, and the last refused ones.
    pub(in crate::http) noted: Arc<NotedRequests>,
    /// The minimum size in bytes of responses that are compressed.
    pub(in crate::http) compress_min_bytes: Option<NonZeroUsize>,
    /// The other nodes, if this server is part of a cluster.
    #[cfg(feature = "cluster")]
    pub(in crate::http) peers: Option<Peers>,
    #[cfg(feature = "otel")]
    pub(in crate::http) spans: Option<Spans>,
}

impl PipelineState {
    /// Returns true if each read has to be a request: another node may have to answer it, or a collector receives its span.
    pub(in crate::http) fn needs_requests(&self) -> bool {
        #[cfg(feature = "cluster")]
        if self.peers.is_some() {
            return true;
        }
        #[cfg(feature = "otel")]
        if self.spans.is_some() {
            return true;
        }
        false
    }

    /// Returns true if a request took too long. Requests that wait for events or for the recovery are never slow.
    pub(super) fn is_slow(&self, operation: &Operation, took: Duration) -> bool {
        took >= self.slow && !operation.lasts
    }

    /// Stores a slow request for operators, with the status and the id of its response.
    pub(super) fn note_slow(&self, operation: &'static Operation, took: Duration, answer: Option<(u16, Box<str>)>) {
        let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        self.noted.slow.add(SlowRequest { at: SystemClock.now(), operation, answer, took_ms });
    }

    /// Counts a refused request and stores it for operators, except on open paths: the probes of a load balancer would evict all others.
    pub(super) fn note_refused(
        &self,
        operation: Option<&'static Operation>,
        code: &'static str,
        status: StatusCode,
        id: &HeaderValue,
    ) {
        self.requests.count_refusal(code);
        if operation.is_some_and(|operation| operation.needs == Needs::Nothing) {
            return;
        }
        self.noted.refused.add(RefusedRequest {
            at: SystemClock.now(),
            operation,
            code,
            status: status.as_u16(),
            request_id: id.to_str().unwrap_or_default().into(),
        });
    }
}
