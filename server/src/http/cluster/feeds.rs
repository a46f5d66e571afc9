//! Reads the feeds of readers that other nodes own, for a request for many feeds.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use actix_web::http::header::HeaderValue;
use actix_web::web::Bytes;
use futures_util::future::join_all;
use http_body_util::{BodyExt as _, Limited};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::http::admission::Reservation;
use crate::http::admission::turn::Turn;
use crate::http::auth::Caller;
use crate::http::cluster::metrics::Outcome;
use crate::http::cluster::outgoing::name_of;
use crate::http::cluster::peer_answers::{Looks, PartsStale, STALE, has_moved, problem_of};
use crate::http::cluster::peer_auth::{AFTER, PeerRole};
use crate::http::cluster::peers::{Failure, Outgoing, Peers};
use crate::http::cluster::relay;
use crate::http::page_json;
use crate::http::post_json::Fields;
use crate::http::problem::Problem;
use tidewire::cluster::placement::Place;
use tidewire::id::SourceId;
use tidewire::limits::FEEDS_ANSWER_BYTES;

/// Maximum bytes of the feeds in the answer of one node, including the feed with which the node exceeds its own limit.
const PART_BYTES_MAX: usize = 4 * FEEDS_ANSWER_BYTES;

/// A request for the feeds of many readers.
pub(in crate::http) struct FeedsRequest<'a> {
    pub(in crate::http) caller: &'a Caller,
    pub(in crate::http) peer: Option<SocketAddr>,
    /// The role of this node if another node has sent the request, or `None` if a client has.
    pub(in crate::http) role: Option<PeerRole>,
    /// The other fields of the body, beside the readers.
    pub(in crate::http) limit: usize,
    pub(in crate::http) fields: Fields,
    pub(in crate::http) after: Option<&'a HeaderValue>,
    pub(in crate::http) turn: &'a Turn,
}

/// The results for the readers whom other nodes own.
#[derive(Default)]
pub(in crate::http) struct Elsewhere {
    /// Their entries as JSON, or the reason why an entry is missing.
    pub(in crate::http) entries: HashMap<SourceId, Result<String, Problem>>,
    /// Readers that have moved to this node since it admitted the request for them.
    pub(in crate::http) admitted: HashSet<SourceId>,
    pub(in crate::http) stale: PartsStale,
    /// The reservation of these entries, which stay in memory until all owners have answered.
    pub(in crate::http) reserved: Vec<Option<Reservation>>,
}

/// The answer of one owner.
#[derive(Default)]
struct Part {
    /// The entries of its readers as JSON, or the reasons why entries are missing.
    entries: Vec<(SourceId, Result<String, Problem>)>,
    stale_seconds: Option<u64>,
    /// The reservation for the bytes of the answer.
    reserved: Option<Reservation>,
}

impl Part {
    fn of(users: &[&SourceId], entries: impl IntoIterator<Item = Result<String, Problem>>) -> Self {
        let entries = users.iter().map(|user| (*user).clone()).zip(entries).collect();
        Self { entries, ..Self::default() }
    }
}

#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(borrow)]
    feeds: Vec<&'a RawValue>,
}

impl Peers {
    /// Requests the feeds of these readers from their owners, all at the same time. The result leaves out readers that this node owns.
    /// `admit` decides for each other reader if the caller may read the feed.
    pub(in crate::http) async fn feeds<'u>(
        &self,
        request: &FeedsRequest<'_>,
        users: impl Iterator<Item = (usize, &'u SourceId)>,
        mut admit: impl FnMut(usize, &SourceId) -> Result<(), Problem>,
    ) -> Elsewhere {
        let (mut elsewhere, mut pending) = (Elsewhere::default(), Vec::new());
        for (nth, user) in users {
            match self.cluster.placement().owner(user) {
                Place::Here => continue,
                Place::At { .. } if request.role.is_none() => match admit(nth, user) {
                    Ok(()) => pending.push(user),
                    Err(refusal) => drop(elsewhere.entries.insert(user.clone(), Err(refusal))),
                },
                Place::At { .. } | Place::Changing | Place::Nowhere => {
                    elsewhere.entries.insert(user.clone(), Err(PeerRole::Owner.unavailable()));
                }
            }
        }
        let mut looks = Looks::default();
        loop {
            let moved = self.ask_owners(request, pending, &mut elsewhere).await;
            if moved.is_empty() || !looks.again(request.turn).await {
                elsewhere
                    .entries
                    .extend(moved.into_iter().map(|user| (user.clone(), Err(PeerRole::Owner.unavailable()))));
                return elsewhere;
            }
            pending = moved;
        }
    }

    /// Sends requests to the owners of these readers, and returns the readers whose owners have just changed.
    async fn ask_owners<'u>(
        &self,
        request: &FeedsRequest<'_>,
        users: Vec<&'u SourceId>,
        elsewhere: &mut Elsewhere,
    ) -> Vec<&'u SourceId> {
        let (mut moved, mut by_owner) = (Vec::new(), BTreeMap::<Arc<str>, Vec<&SourceId>>::new());
        for user in users {
            match self.cluster.placement().owner(user) {
                Place::At { address, .. } => by_owner.entry(address).or_default().push(user),
                // This node has just taken over the reader.
                Place::Here => drop(elsewhere.admitted.insert(user.clone())),
                Place::Changing | Place::Nowhere => {
                    elsewhere.entries.insert(user.clone(), Err(PeerRole::Owner.unavailable()));
                }
            }
        }
        let parts = by_owner.iter().map(|(address, users)| self.part(request, address, users));
        for (users, part) in by_owner.values().zip(join_all(parts).await) {
            match part {
                Some(Part { entries, stale_seconds, reserved }) => {
                    elsewhere.entries.extend(entries);
                    elsewhere.stale.0 = elsewhere.stale.0.max(stale_seconds);
                    elsewhere.reserved.push(reserved);
                }
                None => moved.extend(users),
            }
        }
        moved
    }

    /// Requests the feeds of its readers from one owner. Also returns for how long the log was silent there. Returns `None` if the node
    /// does not own all of these readers.
    async fn part(&self, request: &FeedsRequest<'_>, address: &str, users: &[&SourceId]) -> Option<Part> {
        let began = Instant::now();
        let asked = self.ask(request, address, users).await;
        let outcome = match &asked {
            Ok(Some(_)) => Outcome::Answered,
            Ok(None) => Outcome::Moved,
            Err(_) => Outcome::Unavailable,
        };
        self.cluster.metrics().count(PeerRole::Owner, outcome, began.elapsed());
        let is_there = |user: &&SourceId| matches!(self.cluster.placement().owner(user), Place::At { address: at, .. } if *at == *address);
        if asked.is_err() && !users.iter().all(is_there) {
            return None;
        }
        asked.unwrap_or_else(|problem| Some(Part::of(users, users.iter().map(|_| Err(problem.clone())))))
    }

    async fn ask(
        &self,
        request: &FeedsRequest<'_>,
        address: &str,
        users: &[&SourceId],
    ) -> Result<Option<Part>, Problem> {
        let broken = |cause: String| problem_of(&Failure::Lost(cause), true, PeerRole::Owner);
        let outgoing = self.outgoing_part(request, users)?;
        let sent = self.send(address, &outgoing, request.turn).await;
        let (answer, _pass) = sent.map_err(|failure| problem_of(&failure, true, PeerRole::Owner))?;
        if has_moved(&answer) {
            return Ok(None);
        }
        let (head, body) = answer.into_parts();
        // Reserves before reading, because the answer stays in memory until the slowest owner has answered.
        let reserved = request.turn.answer(relay::bytes_of(&body))?;
        let read = timeout(self.cluster.options.answer_timeout, Limited::new(body, PART_BYTES_MAX).collect()).await;
        let read = read.map_err(|cause| broken(cause.to_string()))?;
        let bytes = read.map_err(|cause| broken(cause.to_string()))?.to_bytes();
        if head.status != http1::StatusCode::OK {
            return Ok(Some(Part::of(users, refused(&head, &bytes, users).into_iter().map(Ok))));
        }
        let Answer { feeds } = serde_json::from_slice(&bytes).map_err(|cause| broken(cause.to_string()))?;
        if feeds.len() != users.len() {
            return Err(broken(format!("{} of {} feeds arrived", feeds.len(), users.len())));
        }
        let stale_seconds = head.headers.get(STALE.as_str()).and_then(|seconds| seconds.to_str().ok()?.parse().ok());
        let part = Part::of(users, feeds.into_iter().map(|entry| Ok(entry.get().to_owned())));
        Ok(Some(Part { stale_seconds, reserved, ..part }))
    }

    fn outgoing_part(&self, request: &FeedsRequest<'_>, users: &[&SourceId]) -> Result<Outgoing, Problem> {
        let mut headers = self.inside_headers(request.caller.clone(), request.peer, PeerRole::Owner)?;
        headers.insert(http1::header::CONTENT_TYPE, http1::HeaderValue::from_static("application/json"));
        if let Some(after) = request.after.and_then(|after| http1::HeaderValue::from_bytes(after.as_bytes()).ok()) {
            headers.insert(name_of(&AFTER), after);
        }
        let users: Vec<&str> = users.iter().map(|user| user.as_str()).collect();
        let mut body = json!({"users": users, "limit": request.limit});
        if let Some(fields) = request.fields.name() {
            body["fields"] = json!(fields);
        }
        Ok(Outgoing {
            method: http1::Method::POST,
            path_and_query: "/v1/feeds".to_owned(),
            headers,
            body: Bytes::from(body.to_string()),
            is_read: true,
        })
    }
}

/// Returns an entry for each reader of a part if its owner refused the whole part.
fn refused(head: &http1::response::Parts, document: &[u8], users: &[&SourceId]) -> Vec<String> {
    let mut problem: Value = serde_json::from_slice(document).unwrap_or_else(|_| PeerRole::Owner.unavailable().entry());
    let retry_after = head.headers.get(http1::header::RETRY_AFTER);
    if let Some(seconds) = retry_after.and_then(|seconds| seconds.to_str().ok()?.parse::<u64>().ok()) {
        problem["retry_after"] = json!(seconds);
    }
    let entry = |user: &&SourceId| {
        let mut entry = String::new();
        page_json::problem_of(&mut entry, user, &problem);
        entry
    };
    users.iter().map(entry).collect()
}
