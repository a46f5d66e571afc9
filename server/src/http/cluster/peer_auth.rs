//! Authenticates requests from other nodes: their headers, and the check of the cluster's key.
//!
//! The node that receives a client's request authenticates the client and forwards the result. So one access file and one clock decide
//! about the permissions of a request, and its rate is counted once. The receiver trusts this result only together with the key.

use std::net::SocketAddr;

use actix_web::dev::ServiceRequest;
use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};

use crate::http::auth::Caller;
use crate::http::cluster::{Cluster, KEY_HEADER};
use crate::http::problem::Problem;
use tidewire::storage::sequence::Sequence;

/// The header with the role of the receiving node.
pub(super) const HOP: HeaderName = HeaderName::from_static("tidewire-hop");

/// The header with the key of the cluster.
pub(super) const KEY: HeaderName = HeaderName::from_static(KEY_HEADER);

/// The header with the caller, as JSON.
pub(super) const CALLER: HeaderName = HeaderName::from_static("tidewire-caller");

/// The header with the sequence that the answering node must have applied.
pub(super) const AFTER: HeaderName = HeaderName::from_static("tidewire-after");

/// The header of a refusal by a node that does not have the role for a request. The request has had no effect. The sender may not know
/// yet which node has the role now.
pub(super) const NOT_OWNER: HeaderName = HeaderName::from_static("tidewire-moved");

/// The role in which a node receives a request from another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::http) enum PeerRole {
    /// The node owns the user.
    Owner,
    /// The node judges commands.
    Sequencer,
    /// The request contains the name of this node.
    Named,
}

impl PeerRole {
    /// All roles, in the order of [`PeerRole::index`].
    pub(super) const ALL: [Self; 3] = [Self::Owner, Self::Sequencer, Self::Named];

    /// Returns the name in headers and metrics.
    pub(in crate::http) fn name(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::Sequencer => "sequencer",
            Self::Named => "named",
        }
    }

    /// Returns the index of the role in [`PeerRole::ALL`].
    pub(super) fn index(self) -> usize {
        match self {
            Self::Owner => 0,
            Self::Sequencer => 1,
            Self::Named => 2,
        }
    }

    /// Creates the problem for a request if no node has this role, or if that node cannot be reached.
    pub(in crate::http) fn unavailable(self) -> Problem {
        match self {
            Self::Owner => {
                let detail = "the owner of this user cannot be reached: another node takes over within seconds";
                Problem::unavailable("owner_unavailable", detail).retry_soon()
            }
            Self::Sequencer => {
                let detail = "the node that accepts writes cannot be reached: another node takes over within seconds";
                Problem::unavailable("sequencer_unavailable", detail).retry_soon()
            }
            Self::Named => {
                Problem::unavailable("node_unavailable", "the node of this name cannot be reached").retry_soon()
            }
        }
    }
}

/// The caller of a request, as nodes send it to each other.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Passed {
    pub(super) caller: Caller,
    /// The address of the client, for the limits on unauthenticated WebSockets.
    pub(super) peer: Option<SocketAddr>,
}

impl Passed {
    /// Returns the value of the header. It is ASCII, because user ids are.
    pub(super) fn header(&self) -> Option<HeaderValue> {
        HeaderValue::from_str(&serde_json::to_string(self).ok()?).ok()
    }
}

impl Cluster {
    /// Refuses a request that does not have the key of the cluster.
    pub(super) fn check_key(&self, headers: &HeaderMap, detail: &'static str) -> Result<(), Problem> {
        let has_key = headers.get(&KEY).is_some_and(|key| self.options.key.is(key.as_bytes()));
        if has_key { Ok(()) } else { Err(Problem::new(StatusCode::FORBIDDEN, "not_a_node", detail)) }
    }

    /// Returns the role and the caller of a request that another node sends, or `None` if a client sends it. Also replaces the address of
    /// the request by that of the other node's client.
    ///
    /// # Errors
    /// Fails if the request claims to come from a node but does not have the key.
    pub(in crate::http) fn enter(&self, request: &mut ServiceRequest) -> Result<Option<(PeerRole, Caller)>, Problem> {
        let headers = request.headers();
        let Some(role) = headers.get(&HOP) else { return Ok(None) };
        self.check_key(headers, "only nodes of the cluster may send the header Tidewire-Hop: remove it")?;
        let role = PeerRole::ALL.into_iter().find(|known| known.name().as_bytes() == role.as_bytes());
        let passed = headers.get(&CALLER).and_then(|passed| serde_json::from_slice(passed.as_bytes()).ok());
        let (Some(role), Some(Passed { caller, peer })) = (role, passed) else {
            let detail = "this node cannot read the request of another one: run the same version on all nodes";
            return Err(Problem::bad("invalid_hop", detail));
        };
        self.note_asked();
        request.head_mut().peer_addr = peer;
        Ok(Some((role, caller)))
    }
}

/// Returns the sequence that the answering node must have applied, if the request contains one.
pub(super) fn after(request: &ServiceRequest) -> Result<Option<Sequence>, Problem> {
    let mut given = request.headers().get_all(&AFTER);
    let Some(first) = given.next() else { return Ok(None) };
    let parsed = first.to_str().ok().and_then(|text| text.parse().ok()).map(Sequence);
    let refuse = || Problem::bad("invalid_header", "Tidewire-After: not one whole number").of_field("Tidewire-After");
    parsed.filter(|_| given.next().is_none()).map(Some).ok_or_else(refuse)
}
