//! The pooled connections of one worker to other nodes.

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use actix_web::web::Bytes;
use http_body_util::Full;
use http1::header::HOST;
use http1::{HeaderMap, Method, Request, Response};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::timeout;
use tracing::warn;

use crate::http::admission::turn::{Pass, Turn};
use crate::http::cluster::Cluster;
use crate::http::problem::Problem;
use tidewire::error_text::error_text;
use tidewire::throttle::Throttle;

/// Maximum time to connect to another node.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Time after which an idle connection is closed: less than the keep-alive time of servers, so that few requests use a connection that is
/// about to close.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Time without an acknowledgement after which the system gives up a connection.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// A request to another node.
pub(super) struct Outgoing {
    pub(super) method: Method,
    pub(super) path_and_query: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// True if the request can be sent twice without an effect.
    pub(super) is_read: bool,
}

/// The reason why a request has no answer.
#[derive(Debug)]
pub(super) enum Failure {
    /// Too many requests are at other nodes.
    Refused(Problem),
    /// The other node has not received the request.
    NotSent(String),
    /// The other node may have received the request.
    Lost(String),
}

/// The connections of one worker to other nodes. Clones share them.
#[derive(Clone)]
pub(in crate::http) struct Peers {
    pub(super) cluster: Arc<Cluster>,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    failures_logged: Arc<Throttle>,
}

impl Peers {
    /// Creates the connections of a worker, which must run on the current thread.
    pub(in crate::http) fn new(cluster: Arc<Cluster>) -> Self {
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        http.set_connect_timeout(Some(CONNECT_TIMEOUT));
        http.set_keepalive(Some(SEND_TIMEOUT));
        #[cfg(any(target_os = "linux", target_os = "android"))]
        http.set_tcp_user_timeout(Some(SEND_TIMEOUT));
        let connector = HttpsConnectorBuilder::new().with_tls_config(cluster.tls.clone()).https_or_http();
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(cluster.options.idle_max)
            .build(connector.enable_http1().wrap_connector(http));
        Self { cluster, client, failures_logged: Arc::default() }
    }

    /// Returns this node.
    pub(in crate::http) fn cluster(&self) -> &Arc<Cluster> {
        &self.cluster
    }

    /// Sends a request to the node at `address`. The caller must hold the pass until it has read the body of the answer. Retries a read
    /// once if the connection breaks before the answer begins, because the other node may have been closing a pooled connection.
    pub(super) async fn send(
        &self,
        address: &str,
        outgoing: &Outgoing,
        turn: &Turn,
    ) -> Result<(Response<Incoming>, Pass), Failure> {
        let pass = turn.pass(address).map_err(Failure::Refused)?;
        Ok((self.send_without_pass(address, outgoing).await?, pass))
    }

    /// Does the same without a pass, for requests that have a limit of their own.
    pub(super) async fn send_without_pass(
        &self,
        address: &str,
        outgoing: &Outgoing,
    ) -> Result<Response<Incoming>, Failure> {
        let mut sent = self.send_once(address, outgoing).await;
        if outgoing.is_read && matches!(sent, Err((_, MayRetry::Yes))) {
            self.cluster.metrics.count_retry();
            sent = self.send_once(address, outgoing).await;
        }
        sent.map_err(|(failure, _)| {
            if let (Failure::NotSent(cause) | Failure::Lost(cause), Some(left_out)) =
                (&failure, self.failures_logged.due())
            {
                warn!(address, cause, more_since_last = left_out, "another node does not answer");
            }
            failure
        })
    }

    async fn send_once(&self, address: &str, outgoing: &Outgoing) -> Result<Response<Incoming>, (Failure, MayRetry)> {
        let uri = format!("{address}{}", outgoing.path_and_query);
        let request = Request::builder().method(outgoing.method.clone()).uri(uri);
        let request = request.body(Full::new(outgoing.body.clone()));
        let mut request = request.map_err(|cause| (Failure::NotSent(cause.to_string()), MayRetry::No))?;
        request.headers_mut().extend(outgoing.headers.clone());
        // The HTTP client sets it from the address.
        request.headers_mut().remove(HOST);
        match timeout(self.cluster.options.answer_timeout, self.client.request(request)).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(cause)) if was_sent(&cause) => Err((Failure::Lost(error_text(&cause)), MayRetry::Yes)),
            Ok(Err(cause)) => Err((Failure::NotSent(error_text(&cause)), MayRetry::No)),
            Err(_) => {
                let cause = format!("it has not answered within {:?}", self.cluster.options.answer_timeout);
                Err((Failure::Lost(cause), MayRetry::No))
            }
        }
    }
}

enum MayRetry {
    Yes,
    No,
}

/// Returns false if the request did not leave this process.
fn was_sent(cause: &Error) -> bool {
    let of_hyper = cause.source().and_then(|source| source.downcast_ref::<hyper::Error>());
    !cause.is_connect() && !of_hyper.is_some_and(hyper::Error::is_canceled)
}
