//! The feeds of readers that other nodes own, in a request for many feeds.

use std::collections::{BTreeMap, HashMap};
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

use crate::http::auth::Caller;
use crate::http::cluster::inside::{AFTER, Hop};
use crate::http::cluster::metrics::Outcome;
use crate::http::cluster::pass::{name_of, problem_of};
use crate::http::cluster::peers::{Failure, Outgoing, Peers};
use crate::http::page_json;
use crate::http::problem::Problem;
use tidewire::cluster::placement::Place;
use tidewire::id::SourceId;
use tidewire::limits::FEEDS_ANSWER_BYTES;

/// Maximum bytes of the feeds that one node answers: those that it answers at most, the one with which it passes its own limit included.
const PART_BYTES_MAX: usize = 4 * FEEDS_ANSWER_BYTES;

/// A request for the feeds of many readers.
pub(in crate::http) struct FeedsRequest<'a> {
    pub(in crate::http) caller: &'a Caller,
    pub(in crate::http) peer: Option<SocketAddr>,
    /// The role for which another node has sent the request, or `None` if a client has.
    pub(in crate::http) hop: Option<Hop>,
    /// The fields of the body beside the readers.
    pub(in crate::http) limit: usize,
    pub(in crate::http) only_ids: bool,
    pub(in crate::http) after: Option<&'a HeaderValue>,
}

/// The entries of readers whom other nodes own, as JSON, or the reason why there is none.
pub(in crate::http) type Elsewhere = HashMap<SourceId, Result<String, Problem>>;

#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(borrow)]
    feeds: Vec<&'a RawValue>,
}

impl Peers {
    /// Asks the owners of these readers for their feeds, all at the same time. Readers that this node owns are not in the result. `admit`
    /// decides for each other one if the caller may read it.
    pub(in crate::http) async fn feeds<'u>(
        &self,
        request: &FeedsRequest<'_>,
        users: impl Iterator<Item = (usize, &'u SourceId)>,
        mut admit: impl FnMut(usize, &SourceId) -> Result<(), Problem>,
    ) -> Elsewhere {
        let (mut elsewhere, mut by_owner) = (Elsewhere::new(), BTreeMap::<Arc<str>, Vec<&SourceId>>::new());
        for (nth, user) in users {
            let refusal = match self.cluster.placement().owner(user) {
                Place::Here => continue,
                Place::At { address, .. } if request.hop.is_none() => match admit(nth, user) {
                    Ok(()) => {
                        by_owner.entry(address).or_default().push(user);
                        continue;
                    }
                    Err(refusal) => refusal,
                },
                Place::At { .. } | Place::Nowhere => Hop::Owner.unavailable(),
            };
            elsewhere.insert(user.clone(), Err(refusal));
        }
        let parts = by_owner.iter().map(|(address, users)| self.part(request, address, users));
        elsewhere.extend(join_all(parts).await.into_iter().flatten());
        elsewhere
    }

    /// Asks one owner for the feeds of its readers.
    async fn part(
        &self,
        request: &FeedsRequest<'_>,
        address: &str,
        users: &[&SourceId],
    ) -> Vec<(SourceId, Result<String, Problem>)> {
        let began = Instant::now();
        let asked = self.ask(request, address, users).await;
        let outcome = if asked.is_ok() { Outcome::Answered } else { Outcome::Unavailable };
        self.cluster.metrics().count(Hop::Owner, outcome, began.elapsed());
        match asked {
            Ok(entries) => users.iter().map(|user| (*user).clone()).zip(entries.into_iter().map(Ok)).collect(),
            Err(problem) => users.iter().map(|user| ((*user).clone(), Err(problem.clone()))).collect(),
        }
    }

    async fn ask(
        &self,
        request: &FeedsRequest<'_>,
        address: &str,
        users: &[&SourceId],
    ) -> Result<Vec<String>, Problem> {
        let broken = |cause: String| problem_of(&Failure::Lost(cause), true, Hop::Owner);
        let outgoing = self.outgoing_part(request, users)?;
        let (answer, _permit) =
            self.send(address, &outgoing).await.map_err(|failure| problem_of(&failure, true, Hop::Owner))?;
        let (head, body) = answer.into_parts();
        let read = timeout(self.cluster.options.answer_timeout, Limited::new(body, PART_BYTES_MAX).collect()).await;
        let read = read.map_err(|cause| broken(cause.to_string()))?;
        let bytes = read.map_err(|cause| broken(cause.to_string()))?.to_bytes();
        if head.status != http1::StatusCode::OK {
            return Ok(refused(&head, &bytes, users));
        }
        let Answer { feeds } = serde_json::from_slice(&bytes).map_err(|cause| broken(cause.to_string()))?;
        if feeds.len() != users.len() {
            return Err(broken(format!("{} feeds of {} came", feeds.len(), users.len())));
        }
        Ok(feeds.into_iter().map(|entry| entry.get().to_owned()).collect())
    }

    fn outgoing_part(&self, request: &FeedsRequest<'_>, users: &[&SourceId]) -> Result<Outgoing, Problem> {
        let mut headers = self.inside_headers(request.caller.clone(), request.peer, Hop::Owner)?;
        headers.insert(http1::header::CONTENT_TYPE, http1::HeaderValue::from_static("application/json"));
        if let Some(after) = request.after.and_then(|after| http1::HeaderValue::from_bytes(after.as_bytes()).ok()) {
            headers.insert(name_of(&AFTER), after);
        }
        let users: Vec<&str> = users.iter().map(|user| user.as_str()).collect();
        let mut body = json!({"users": users, "limit": request.limit});
        if request.only_ids {
            body["fields"] = json!("ids");
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

/// Returns an entry for each reader of a part that its owner refused as a whole.
fn refused(head: &http1::response::Parts, document: &[u8], users: &[&SourceId]) -> Vec<String> {
    let mut problem: Value = serde_json::from_slice(document).unwrap_or_else(|_| Hop::Owner.unavailable().entry());
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
