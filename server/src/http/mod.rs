//! The HTTP door: JSON in, JSON out, over the [`Engine`](tidewire::engine::Engine).
//!
//! Responsible for:
//! - checking requests, turning engine answers into responses, and every refusal into a problem document.
//!
//! Not responsible for:
//! - any decision about feeds: a handler calls the engine once and forwards what it says.

mod answer;
pub mod auth;
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

use crate::http::auth::Access;
use crate::http::middleware::admission::{Admission, AdmissionLimits};
use crate::http::middleware::open_paths::OpenPaths;
use crate::http::middleware::pace::Pace;
use crate::http::middleware::request_metrics::Requests;
use crate::http::slot::Slot;
use crate::http::sockets::places::{ConnectionLimits, Connections};
use crate::http::sockets::proxies::Proxies;
use crate::http::tls::Certificate;
use tidewire::engine::Engine;

/// How long a request may take without being told of in the log, unless something else is set.
const SLOW: Duration = Duration::from_secs(1);

/// What the server works with. Clones are the same.
#[derive(Clone)]
pub struct Api {
    /// Where the engine is, once it is there.
    pub slot: Slot,
    /// How much may be under way.
    pub admission: Arc<Admission>,
    /// How fast clients have to be.
    pub pace: Pace,
    /// What became of requests.
    pub requests: Arc<Requests>,
    /// What is shown to clients that come by TLS; without it there is none.
    pub certificate: Option<Arc<Certificate>>,
    /// From when on a request that takes so long is told of in the log.
    pub slow: Duration,
    /// Who may do what.
    pub access: Arc<Access>,
    /// The connections there are, and how many there may be.
    pub connections: Arc<Connections>,
    /// Who asked for what needs no credentials.
    pub open_paths: Arc<OpenPaths>,
    /// Where spans of requests go, if anywhere.
    #[cfg(feature = "otel")]
    pub spans: Option<spans::Spans>,
}

impl Api {
    /// Nothing was asked for yet.
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

    /// With other limits on connections, before any is there.
    #[must_use]
    pub fn with_connections(self, limits: ConnectionLimits) -> Self {
        let open_paths = Arc::new(OpenPaths::new(limits.proxies.clone()));
        Self { connections: Arc::new(Connections::new(limits)), open_paths, ..self }
    }
}

/// The description of the interface, as `/openapi.json` has it.
pub fn description() -> serde_json::Value {
    openapi::document(routes::OPERATIONS)
}

/// All that can be asked for: the name, the method and the path of each operation.
pub fn operations() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    let operations = routes::OPERATIONS.iter();
    operations.map(|operation| (operation.name, operation.method.as_str(), operation.path))
}

impl From<Slot> for Api {
    /// With default limits, for anybody.
    fn from(slot: Slot) -> Self {
        Self::new(slot, AdmissionLimits::default())
    }
}

impl From<Engine> for Api {
    fn from(engine: Engine) -> Self {
        Slot::from(engine).into()
    }
}
