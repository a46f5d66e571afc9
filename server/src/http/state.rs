//! The state of the HTTP server, which all workers share.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use actix_web::web::{Data, ServiceConfig};

use crate::backup::figures::BackupFigures;
use crate::http::admission::{Admission, AdmissionLimits};
use crate::http::auth::Access;
use crate::http::changes::streams::ChangeStreams;
#[cfg(feature = "cluster")]
use crate::http::cluster::{Cluster, Peers};
use crate::http::collected::Collected;
use crate::http::engine_cell::EngineCell;
use crate::http::history::History;
use crate::http::middleware::open_paths::OpenPaths;
use crate::http::middleware::pace::Pace;
use crate::http::middleware::pipeline_state::PipelineState;
#[cfg(feature = "otel")]
use crate::http::middleware::spans::Spans;
use crate::http::noted_requests::{NotedRequests, RequestNotes};
use crate::http::proxies::Proxies;
use crate::http::request_metrics::RequestMetrics;
use crate::http::routes::OPERATIONS;
use crate::http::sockets::connection_slots::{ConnectionLimits, Connections};
use crate::http::tls::Certificate;
use tidewire::engine::{AllUsers, Engine, PostIds};
use tidewire::limits::OPEN_REQUESTS_PER_SECOND;

/// Default duration above which a request is logged as slow.
const SLOW: Duration = Duration::from_secs(1);

/// Default time that a request for an event stream waits for the end of the recovery: less than the response timeouts of clients and
/// proxies.
const RECOVERY_WAIT_MAX: Duration = Duration::from_secs(5);

/// Applies the log level of the settings file again, and logs the result. Reads a file.
pub type ReloadLogLevel = Arc<dyn Fn() + Send + Sync>;

/// The state that all workers share. Clones refer to the same state.
#[derive(Clone)]
pub struct HttpState {
    /// The cell of the engine, which is empty during recovery.
    pub engine_cell: EngineCell,
    /// The limits on concurrent work.
    pub admission: Arc<Admission>,
    /// The minimum transfer rates of clients.
    pub pace: Pace,
    /// Maximum time that a request for an event stream waits for the end of the recovery.
    pub recovery_wait_max: Duration,
    /// The request counters and latencies.
    pub requests: Arc<RequestMetrics>,
    /// The TLS certificate; without it the server does not use TLS.
    pub certificate: Option<Arc<Certificate>>,
    /// The duration above which a request is logged as slow.
    pub slow: Duration,
    /// The last slow and the last refused requests.
    pub noted_requests: Arc<NotedRequests>,
    /// The figures of the last hour and of the last day.
    pub history: Arc<History>,
    /// The minimum size in bytes of responses that are compressed for clients that accept it. `None` disables compression.
    pub compress_min_bytes: Option<NonZeroUsize>,
    /// Authentication and authorization of requests.
    pub access: Arc<Access>,
    /// The open connections and their limits.
    pub connections: Arc<Connections>,
    /// The rate limits of paths that need no credentials.
    pub open_paths: Arc<OpenPaths>,
    /// The open streams of changes.
    pub changes: Arc<ChangeStreams>,
    /// The ids of all posts, for pages of them.
    pub listed_posts: Arc<Collected<PostIds>>,
    /// All users, for pages of them.
    pub listed_users: Arc<Collected<AllUsers>>,
    /// Applies the log level of the settings file again, if the file sets one.
    pub reload_log_level: Option<ReloadLogLevel>,
    /// The figures of backups.
    pub backups: Arc<BackupFigures>,
    /// The cluster node of this server, if it is part of a cluster.
    #[cfg(feature = "cluster")]
    pub cluster: Option<Arc<Cluster>>,
    /// The exporter for request spans, if tracing is configured.
    #[cfg(feature = "otel")]
    pub spans: Option<Spans>,
}

impl HttpState {
    /// Creates the state with default settings for everything but `limits`.
    pub fn new(engine_cell: EngineCell, limits: AdmissionLimits) -> Self {
        Self {
            engine_cell,
            admission: Admission::new(limits),
            pace: Pace::default(),
            recovery_wait_max: RECOVERY_WAIT_MAX,
            requests: Arc::new(RequestMetrics::new(
                OPERATIONS.iter().map(|operation| (operation.name, operation.work)),
            )),
            certificate: None,
            slow: SLOW,
            noted_requests: Arc::default(),
            history: Arc::default(),
            compress_min_bytes: None,
            access: Arc::default(),
            connections: Arc::default(),
            open_paths: Arc::new(OpenPaths::new(OPEN_REQUESTS_PER_SECOND, Proxies::default())),
            changes: Arc::default(),
            listed_posts: Arc::default(),
            listed_users: Arc::default(),
            reload_log_level: None,
            backups: Arc::default(),
            #[cfg(feature = "cluster")]
            cluster: None,
            #[cfg(feature = "otel")]
            spans: None,
        }
    }

    /// Replaces the limits on connections. Must be called before the first connection is accepted.
    #[must_use]
    pub fn with_connections(self, limits: ConnectionLimits) -> Self {
        let open_paths = Arc::new(OpenPaths::new(OPEN_REQUESTS_PER_SECOND, limits.proxies.clone()));
        Self { connections: Arc::new(Connections::new(limits)), open_paths, ..self }
    }

    /// Registers the parts on an `App`, each by its own type.
    pub(super) fn register(&self, app: &mut ServiceConfig) {
        let pipeline = self.pipeline();
        #[cfg(feature = "cluster")]
        if let Some(peers) = &pipeline.peers {
            app.app_data(Data::new(peers.clone()));
        }
        app.app_data(Data::new(self.engine_cell.clone()))
            .app_data(Data::from(Arc::clone(&self.access)))
            .app_data(Data::from(Arc::clone(&self.admission)))
            .app_data(Data::from(Arc::clone(&self.backups)))
            .app_data(Data::from(Arc::clone(&self.changes)))
            .app_data(Data::from(Arc::clone(&self.listed_posts)))
            .app_data(Data::from(Arc::clone(&self.listed_users)))
            .app_data(Data::from(Arc::clone(&self.connections)))
            .app_data(Data::from(Arc::clone(&self.history)))
            .app_data(Data::from(Arc::clone(&self.requests)))
            .app_data(Data::new(RequestNotes { threshold: self.slow, requests: Arc::clone(&self.noted_requests) }))
            .app_data(Data::new(pipeline));
    }

    pub(super) fn pipeline(&self) -> PipelineState {
        PipelineState {
            engine_cell: self.engine_cell.clone(),
            access: Arc::clone(&self.access),
            open_paths: Arc::clone(&self.open_paths),
            admission: Arc::clone(&self.admission),
            pace: self.pace,
            recovery_wait_max: self.recovery_wait_max,
            requests: Arc::clone(&self.requests),
            slow: self.slow,
            noted: Arc::clone(&self.noted_requests),
            compress_min_bytes: self.compress_min_bytes,
            #[cfg(feature = "cluster")]
            peers: self.cluster.clone().map(Peers::new),
            #[cfg(feature = "otel")]
            spans: self.spans.clone(),
        }
    }
}

impl From<EngineCell> for HttpState {
    /// Uses the default limits and no authentication.
    fn from(engine_cell: EngineCell) -> Self {
        Self::new(engine_cell, AdmissionLimits::default())
    }
}

impl From<Engine> for HttpState {
    fn from(engine: Engine) -> Self {
        EngineCell::from(engine).into()
    }
}
