//! Forwards requests between the nodes of a cluster. Only with the feature `cluster`.
//!
//! Responsible for:
//! - forwarding a request to the node that has to handle it, and returning the response to the client, also for WebSockets and event
//!   streams ([`forward`], [`outgoing`], [`peers`], [`relay`], [`websocket`]);
//! - admitting requests of other nodes: only with the key of the cluster ([`key`]), and with separate permits, so that clients cannot use
//!   up those of nodes ([`peer_auth`]);
//! - the headers `Tidewire-Node`, `Tidewire-Sequence`, `Tidewire-Applied` and `Tidewire-After`;
//! - the feeds of readers that other nodes own, in a request for many feeds ([`feeds`]);
//! - waiting for deliveries on all nodes ([`delivery`]);
//! - handing over to other nodes before this one ends; the slot for sending a snapshot to a joining node.
//!
//! A request is forwarded at most twice: from the node that received it to the owner of its user and, if it is a write, from there to the
//! sequencer. Each forwarded request contains the role of its receiver in the header `Tidewire-Hop`. A receiver that does not have this
//! role any more refuses the request, so that no request loops.

mod decision;
mod delivery;
mod feeds;
mod forward;
mod key;
mod metrics;
mod outgoing;
mod peer_answers;
mod peer_auth;
mod peers;
mod relay;
mod websocket;

use std::future::pending;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use actix_web::HttpRequest;
use actix_web::http::header::HeaderValue;
use actix_web::rt::time::sleep;
use actix_web::{HttpResponse, ResponseError as _, web};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use rustls::{ClientConfig, RootCertStore};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout;
use tracing::warn;

use crate::http::admission::{Admission, AdmissionLimits};
use crate::http::cluster::delivery::Deliveries;
use crate::http::cluster::metrics::PassMetrics;
use crate::http::problem::Problem;
use crate::http::trust::{self, TrustError};
use tidewire::cluster::placement::Placement;
use tidewire::engine::Engine;
use tidewire::error::Error;
use tidewire::runtime::message::SnapshotTaken;
use tidewire::state::digest::Digest;
use tidewire::storage::sequence::Sequence;

pub(in crate::http) use crate::http::cluster::feeds::{Elsewhere, FeedsRequest};
pub use crate::http::cluster::key::{ClusterKey, KEY_HEADER, KeyError};
pub(in crate::http) use crate::http::cluster::outgoing::Admitted;
pub(in crate::http) use crate::http::cluster::peer_auth::PeerRole;
pub(in crate::http) use crate::http::cluster::peers::Peers;

/// Maximum time that a request waits until this node has applied a sequence.
const APPLIED_WAIT_MAX: Duration = Duration::from_secs(1);

/// Maximum time that a node waits for others to take over before it ends.
const HAND_OVER_MAX: Duration = Duration::from_secs(5);

/// Time after which a node that leaves writes its record again, because the log may have refused it.
const LEAVE_AGAIN: Duration = Duration::from_millis(100);

/// Time without requests of other nodes after which this node expects none.
const QUIET: Duration = Duration::from_millis(300);

/// Maximum time for which another node waits for a snapshot in one request.
const TAKING_WAIT: Duration = Duration::from_secs(2);

/// Number of applications of a worker: one for upgrade requests, and one for all others.
const APPLICATIONS_PER_WORKER: usize = 2;

/// Maximum number of times that a request is forwarded, each time with its own passes.
const STEPS: usize = 2;

/// The settings of a node.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// The key that all nodes of the cluster share.
    pub key: ClusterKey,
    /// The authorities of other nodes' certificates, as PEM. Needed for nodes whose address begins with `https`. Default none.
    pub authorities: Option<PathBuf>,
    /// Maximum time until another node begins its answer, and between two parts of it. Default 10 s: longer than a page or a write takes,
    /// and than a silent node remains a member.
    pub answer_timeout: Duration,
    /// The limits on concurrent work for other nodes. The defaults are those for clients.
    pub limits: AdmissionLimits,
    /// Maximum number of live connections that are forwarded at the same time. Each needs an open file in addition to the client's
    /// connection. Default 16,384.
    pub live_max: usize,
    /// Maximum number of idle connections to one node per application of a worker. Default 64.
    pub idle_max: usize,
}

impl ClusterOptions {
    /// Creates the default settings with this key.
    pub fn new(key: ClusterKey) -> Self {
        let (limits, answer_timeout) = (AdmissionLimits::default(), Duration::from_secs(10));
        Self { key, authorities: None, answer_timeout, limits, live_max: 16_384, idle_max: 64 }
    }

    /// Returns the limits on the work for clients, with the limit on passes of requests from other nodes.
    pub fn limit_passes(&self, limits: AdmissionLimits) -> AdmissionLimits {
        AdmissionLimits { passes: self.limits.passes, ..limits }
    }

    /// Lowers the limits so that they fit into a process that may open this many files. Returns the number of files that are left for
    /// clients.
    pub fn fit_into(&mut self, open_files: u64, workers: usize) -> u64 {
        let files = usize::try_from(open_files).unwrap_or(usize::MAX);
        let applications = workers.max(1) * APPLICATIONS_PER_WORKER;
        self.live_max = self.live_max.min(files / 4);
        self.limits.passes = self.limits.passes.min(files / 4 / STEPS).max(1);
        self.idle_max = self.idle_max.min(self.limits.passes / applications).max(1);
        let taken = self.live_max + self.limits.passes * STEPS;
        open_files.saturating_sub(u64::try_from(taken).unwrap_or(u64::MAX))
    }
}

/// The reason a server cannot be a node.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The file of the authorities cannot be used.
    #[error(transparent)]
    Authorities(#[from] TrustError),
}

/// This node of a cluster. All workers share it.
pub struct Cluster {
    placement: Arc<dyn Placement>,
    options: ClusterOptions,
    /// The name of this node, as a header.
    name: HeaderValue,
    tls: ClientConfig,
    admission: Arc<Admission>,
    metrics: PassMetrics,
    started: Instant,
    /// Milliseconds from the start to the last request of another node.
    asked_ms: AtomicU64,
    /// The permit to compute a digest: one at a time.
    digests: Arc<Semaphore>,
    /// The delivery requests to other nodes.
    deliveries: Deliveries,
    /// True once live connections must end.
    stopping: watch::Sender<bool>,
    /// The slot for sending a snapshot to another node, one at a time.
    sending: Arc<Semaphore>,
    /// The snapshot that is being taken for another node, which repeats its request for it.
    taking: Mutex<Option<Taking>>,
}

/// A snapshot that is being taken.
type Taking = BoxFuture<'static, Result<SnapshotTaken, Error>>;

impl Cluster {
    /// Creates a node from its engine's knowledge of the cluster.
    ///
    /// # Errors
    /// Fails if the certificates of other nodes cannot be read.
    pub fn new(placement: Arc<dyn Placement>, options: ClusterOptions) -> Result<Self, ClusterError> {
        let name = HeaderValue::from_str(placement.me().as_str()).unwrap_or_else(|_| HeaderValue::from_static("-"));
        let (tls, admission) = (tls(&options)?, Admission::new(options.limits));
        let (metrics, stopping) = (PassMetrics::new(options.live_max), watch::Sender::new(false));
        let (started, asked_ms) = (Instant::now(), AtomicU64::new(0));
        let (digests, sending, taking) = (Arc::new(Semaphore::new(1)), Arc::new(Semaphore::new(1)), Mutex::new(None));
        Ok(Self {
            placement,
            options,
            name,
            tls,
            admission,
            metrics,
            started,
            asked_ms,
            digests,
            deliveries: Deliveries::default(),
            stopping,
            sending,
            taking,
        })
    }

    /// Ends the forwarded live connections.
    pub fn stop_live(&self) {
        self.stopping.send_replace(true);
    }

    /// Hands over the roles of this node to other nodes, for a limited time. The node continues to answer meanwhile, and refuses nothing
    /// for this reason.
    pub async fn hand_over(&self, engine: &Engine) {
        self.placement.end();
        let began = Instant::now();
        let has_time = || began.elapsed() < HAND_OVER_MAX;
        let mut changes = self.placement.role_changes();
        while !self.placement.has_handed_over() && has_time() {
            let leaving = engine.clone();
            // Once the log has accepted the record, this does nothing.
            let _ = actix_web::web::block(move || leaving.leave()).await;
            let handed_over = async {
                if changes.wait_for(|()| self.placement.has_handed_over()).await.is_err() {
                    pending::<()>().await;
                }
            };
            let _ = timeout(LEAVE_AGAIN, handed_over).await;
        }
        if !self.placement.has_handed_over() {
            warn!("no other node has taken over within {HAND_OVER_MAX:?}");
        }
        // Other nodes that are behind send requests here until they have read the new roles.
        while self.asked_ago(began) < QUIET && has_time() {
            sleep(QUIET.saturating_sub(self.asked_ago(began))).await;
        }
    }

    /// Records that another node has sent a request.
    pub(in crate::http) fn note_asked(&self) {
        let since = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.asked_ms.store(since, Ordering::Relaxed);
    }

    /// Returns the time since the last request of another node, at most since `from`.
    fn asked_ago(&self, from: Instant) -> Duration {
        let asked = self.started + Duration::from_millis(self.asked_ms.load(Ordering::Relaxed));
        asked.max(from).elapsed()
    }

    /// Reserves the slot for sending a snapshot to another node.
    ///
    /// # Errors
    /// Fails if the request does not have the key of the cluster, or if another node uses the slot.
    pub(in crate::http) fn begin_sending(&self, request: &HttpRequest) -> Result<OwnedSemaphorePermit, Problem> {
        self.check_key(request.headers(), "only nodes of the cluster may read their snapshots")?;
        let refused = || Problem::unavailable("overloaded", "this node is already sending a snapshot").retry_soon();
        Arc::clone(&self.sending).try_acquire_owned().map_err(|_| refused())
    }

    /// Takes a snapshot for another node. Only the holder of the slot may call it.
    ///
    /// # Errors
    /// Fails if no snapshot can be taken, or if this takes longer than one request may wait. The other node must then repeat its request.
    pub(in crate::http) async fn take_snapshot(&self, engine: &Engine) -> Result<SnapshotTaken, Problem> {
        let begun = self.taking.lock().take();
        let engine = engine.clone();
        let mut taking = begun.unwrap_or_else(|| Box::pin(async move { engine.snapshot().await }));
        match timeout(TAKING_WAIT, &mut taking).await {
            Ok(taken) => Ok(taken?),
            Err(_) => {
                *self.taking.lock() = Some(taking);
                Err(Problem::unavailable("overloaded", "this node is still taking a snapshot").retry_soon())
            }
        }
    }

    /// Returns the value of `Tidewire-Node`.
    pub(in crate::http) fn name(&self) -> &HeaderValue {
        &self.name
    }

    /// Returns the placement of readers and of the sequencer.
    pub(in crate::http) fn placement(&self) -> &dyn Placement {
        &*self.placement
    }

    /// Returns the limits on work for other nodes.
    pub(in crate::http) fn admission(&self) -> &Arc<Admission> {
        &self.admission
    }

    /// Returns the metrics of forwarded requests.
    pub(in crate::http) fn metrics(&self) -> &PassMetrics {
        &self.metrics
    }

    /// Computes the digest of an engine's state on a thread of its own. Returns `None` if another digest is being computed, or if events
    /// were applied during every attempt.
    pub(in crate::http) async fn digest(&self, engine: &Engine) -> Option<(Sequence, Digest)> {
        // The permit moves to the work, because the work continues when the client disconnects.
        let permit = Arc::clone(&self.digests).try_acquire_owned().ok()?;
        let (engine, placement) = (engine.clone(), Arc::clone(&self.placement));
        let computed = web::block(move || {
            let _permit = permit;
            engine.digest(&*placement)
        });
        computed.await.ok().flatten()
    }

    /// Waits until this node has applied a sequence. Returns false if it has not within a second.
    async fn has_applied(&self, sequence: Sequence) -> bool {
        timeout(APPLIED_WAIT_MAX, self.wait_applied(sequence)).await.is_ok()
    }

    /// Waits until this node has applied a sequence, however long this takes.
    async fn wait_applied(&self, sequence: Sequence) {
        if self.placement.applied() >= sequence {
            return;
        }
        let mut changes = self.placement.applied_changes();
        if changes.wait_for(|()| self.placement.applied() >= sequence).await.is_err() {
            // Nothing will be applied any more.
            pending::<()>().await;
        }
    }
}

/// Creates the refusal of a request that another node has sent for a role that this node does not have. The other node may then send it
/// to the right one.
pub(in crate::http) fn not_owner(problem: &Problem) -> HttpResponse {
    let mut response = problem.error_response();
    response.headers_mut().insert(peer_auth::NOT_OWNER, HeaderValue::from_static("true"));
    response
}

/// Creates the TLS settings for connections to other nodes.
fn tls(options: &ClusterOptions) -> Result<ClientConfig, ClusterError> {
    if let Some(file) = &options.authorities {
        return Ok(Arc::unwrap_or_clone(trust::trusted(file)?));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.expect("ring has ciphers for TLS 1.2 and 1.3");
    Ok(config.with_root_certificates(RootCertStore::empty()).with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_to_other_nodes_leave_file_descriptors_for_clients() {
        for (files, workers, expected) in [
            (1_024, 2, (256, 128, 512)),
            (1 << 20, 64, (16_384, 4_096, 1_024_000)),
            (8, 4, (2, 1, 4)),
            (0, 1, (0, 1, 0)),
        ] {
            let mut options = ClusterOptions::new(ClusterKey::new(&"k".repeat(40)).unwrap());
            let left = options.fit_into(files, workers);
            assert_eq!((options.live_max, options.limits.passes, left), expected, "{files} files, {workers} workers");
        }
    }
}
