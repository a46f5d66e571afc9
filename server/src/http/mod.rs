//! The HTTP API: JSON over HTTP and WebSockets, implemented with the [`Engine`].
//!
//! Responsible for:
//! - validating requests, and converting engine results into responses and every refusal into a problem document.
//!
//! Not responsible for:
//! - decisions about feeds: a handler calls the engine once and forwards its result.

pub mod admission;
mod answer;
pub mod auth;
mod client;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod handlers;
mod live;
pub mod middleware;
pub mod openapi;
mod operation;
mod page_json;
pub mod problem;
mod request;
mod routes;
pub mod serve;
pub mod slot;
pub mod sockets;
pub mod tls;
mod upgrade;

use std::sync::Arc;
use std::time::Duration;

use crate::http::admission::{Admission, AdmissionLimits};
use crate::http::auth::Access;
use crate::http::middleware::open_paths::OpenPaths;
use crate::http::middleware::pace::Pace;
use crate::http::middleware::request_metrics::Requests;
use crate::http::slot::Slot;
use crate::http::sockets::places::{ConnectionLimits, Connections};
use crate::http::sockets::proxies::Proxies;
use crate::http::tls::Certificate;
use tidewire::engine::Engine;

/// Default duration above which a request is logged as slow.
const SLOW: Duration = Duration::from_secs(1);

/// The state that all workers share. Clones refer to the same state.
#[derive(Clone)]
pub struct Api {
    /// The slot of the engine, which is empty during recovery.
    pub slot: Slot,
    /// The limits on concurrent work.
    pub admission: Arc<Admission>,
    /// The minimum transfer rates of clients.
    pub pace: Pace,
    /// The request counters and latencies.
    pub requests: Arc<Requests>,
    /// The TLS certificate; without it the server does not use TLS.
    pub certificate: Option<Arc<Certificate>>,
    /// The duration above which a request is logged as slow.
    pub slow: Duration,
    /// Authentication and authorization of requests.
    pub access: Arc<Access>,
    /// The open connections and their limits.
    pub connections: Arc<Connections>,
    /// The rate limits of paths that need no credentials.
    pub open_paths: Arc<OpenPaths>,
    /// The exporter for request spans, if there is one.
    #[cfg(feature = "otel")]
    pub spans: Option<middleware::spans::Spans>,
}

impl Api {
    /// Creates the state with default settings for everything but `limits`.
    pub fn new(slot: Slot, limits: AdmissionLimits) -> Self {
        Self {
            slot,
            admission: Admission::new(limits),
            pace: Pace::default(),
            requests: Arc::new(Requests::new(operations().map(|(name, ..)| name))),
            certificate: None,
            slow: SLOW,
            access: Arc::default(),
            connections: Arc::default(),
            open_paths: Arc::new(OpenPaths::new(Proxies::default())),
            #[cfg(feature = "otel")]
            spans: None,
        }
    }

    /// Replaces the limits on connections. Must be called before the first connection is accepted.
    #[must_use]
    pub fn with_connections(self, limits: ConnectionLimits) -> Self {
        let open_paths = Arc::new(OpenPaths::new(limits.proxies.clone()));
        Self { connections: Arc::new(Connections::new(limits)), open_paths, ..self }
    }
}

/// Returns the OpenAPI description, as served at `/openapi.json`.
pub fn description() -> serde_json::Value {
    openapi::document(routes::OPERATIONS)
}

/// Returns the name, the method and the path of every operation.
pub fn operations() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    let operations = routes::OPERATIONS.iter();
    operations.map(|operation| (operation.name, operation.method.as_str(), operation.path))
}

impl From<Slot> for Api {
    /// Uses the default limits and no authentication.
    fn from(slot: Slot) -> Self {
        Self::new(slot, AdmissionLimits::default())
    }
}

impl From<Engine> for Api {
    fn from(engine: Engine) -> Self {
        Slot::from(engine).into()
    }
}
