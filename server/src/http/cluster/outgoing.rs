//! Builds the request to another node from the client's request.

use std::net::SocketAddr;
use std::time::Duration;

use actix_web::HttpMessage as _;
use actix_web::dev::ServiceRequest;
use actix_web::http::header::{
    ACCEPT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue, IF_NONE_MATCH, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};

use crate::http::admission::turn::Turn;
use crate::http::auth::{Access, Caller, PROTOCOL, offers_protocol};
use crate::http::cluster::peer_auth::{self, PeerRole};
use crate::http::cluster::peers::{Outgoing, Peers};
use crate::http::offered_upgrade::is_websocket;
use crate::http::operation::{HandledBy, Operation, WorkKind};
use crate::http::problem::Problem;
use crate::http::request::RequestBody;

/// The headers of a request that handlers read.
const REQUEST_HEADERS: [HeaderName; 9] = [
    ACCEPT_ENCODING,
    CONTENT_TYPE,
    IF_NONE_MATCH,
    peer_auth::AFTER,
    HeaderName::from_static("accept"),
    HeaderName::from_static("last-event-id"),
    HeaderName::from_static("traceparent"),
    HeaderName::from_static("tracestate"),
    HeaderName::from_static("x-request-id"),
];

/// The headers of a WebSocket handshake, apart from the protocols.
const WEBSOCKET_HEADERS: [HeaderName; 3] = [SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE];

/// A request that the pipeline has admitted.
pub(in crate::http) struct Admitted<'a> {
    pub(in crate::http) operation: &'static Operation,
    pub(in crate::http) caller: Option<Caller>,
    /// The role of this node if another node has sent the request, or `None` if a client has.
    pub(in crate::http) role: Option<PeerRole>,
    /// The interval of heartbeats on live connections.
    pub(in crate::http) heartbeat: Duration,
    pub(in crate::http) turn: &'a Turn,
    pub(in crate::http) access: &'a Access,
}

impl Peers {
    /// Creates the request to the other node.
    pub(super) fn outgoing(
        &self,
        request: &ServiceRequest,
        admitted: &Admitted<'_>,
        to: PeerRole,
    ) -> Result<Outgoing, Problem> {
        let caller = admitted.caller.clone().ok_or_else(|| Problem::internal(&"a request without a caller"))?;
        let mut headers = self.inside_headers(caller, request.peer_addr(), to)?;
        let given = request.headers();
        let is_upgrade = admitted.operation.work == WorkKind::Live && is_websocket(given);
        let of_upgrade = WEBSOCKET_HEADERS.iter().filter(|_| is_upgrade);
        for name in REQUEST_HEADERS.iter().chain(of_upgrade) {
            for value in given.get_all(name) {
                headers.append(name_of(name), value_of(value));
            }
        }
        if is_upgrade {
            headers.insert(http1::header::CONNECTION, http1::HeaderValue::from_static("Upgrade"));
            if offers_protocol(given) {
                // Another protocol in the client's list may contain its token.
                let protocol = http1::HeaderValue::from_static(PROTOCOL);
                headers.insert(name_of(&SEC_WEBSOCKET_PROTOCOL), protocol);
            }
        }
        let path_and_query = request.uri().path_and_query().map_or("/", |path| path.as_str()).to_owned();
        let method = http1::Method::from_bytes(request.method().as_str().as_bytes());
        Ok(Outgoing {
            method: method.map_err(|cause| Problem::internal(&cause))?,
            path_and_query,
            headers,
            body: request.extensions().get::<RequestBody>().map(|body| body.0.clone()).unwrap_or_default(),
            is_read: admitted.operation.handled_by != HandledBy::Sequencer,
        })
    }

    /// Returns the headers that identify this node and the caller to another node.
    pub(super) fn inside_headers(
        &self,
        caller: Caller,
        peer: Option<SocketAddr>,
        to: PeerRole,
    ) -> Result<http1::HeaderMap, Problem> {
        let passed = peer_auth::Passed { caller, peer }
            .header()
            .ok_or_else(|| Problem::internal(&"the caller is not a valid header"))?;
        let mut headers = http1::HeaderMap::new();
        headers.insert(name_of(&peer_auth::HOP), http1::HeaderValue::from_static(to.name()));
        headers.insert(name_of(&peer_auth::KEY), value_of(self.cluster.options.key.header()));
        headers.insert(name_of(&peer_auth::CALLER), value_of(&passed));
        Ok(headers)
    }
}

pub(super) fn name_of(name: &HeaderName) -> http1::HeaderName {
    http1::HeaderName::from_bytes(name.as_str().as_bytes()).expect("a valid name is valid in both versions")
}

fn value_of(value: &HeaderValue) -> http1::HeaderValue {
    let mut copy = http1::HeaderValue::from_bytes(value.as_bytes()).expect("a valid value is valid in both versions");
    copy.set_sensitive(value.is_sensitive());
    copy
}
