//! Forwards a request to another node, and converts the answer of that node into the response.

use std::time::{Duration, Instant};

use actix_http::ws;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header::{HeaderName, HeaderValue};
use actix_web::{Error, HttpMessage as _, HttpResponse};
use hyper::body::Incoming;
use serde::Deserialize;
use tidewire::error::Error::NotSequencer;
use tidewire::id::SourceId;
use tidewire::limits::{LIVE_UNAUTHENTICATED_TIME, RESPONSE_PIECE_BYTES};
use tidewire::storage::sequence::Sequence;

use crate::http::admission::turn::{Pass, Turn};
use crate::http::auth::{Caller, UnauthenticatedSlot};
use crate::http::caching;
use crate::http::cluster::decision::{Next, next, next_named};
use crate::http::cluster::metrics::{LiveSlot, Outcome};
use crate::http::cluster::not_owner;
use crate::http::cluster::outgoing::Admitted;
use crate::http::cluster::peer_answers::{Looks, OUTCOME_UNKNOWN, PartsStale, STALE, has_moved, problem_of};
use crate::http::cluster::peer_auth::{self, PeerRole};
use crate::http::cluster::peers::{Failure, Peers};
use crate::http::cluster::relay;
use crate::http::cluster::websocket;
use crate::http::offered_upgrade::is_websocket;
use crate::http::operation::{HandledBy, Operation, WorkKind, user_in_path};
use crate::http::problem::Problem;
use crate::http::request::{RequestBody, decoded};
use crate::http::sockets::answering::Endless;

/// The header with the sequence up to which a write is applied.
const SEQUENCE: HeaderName = HeaderName::from_static("tidewire-sequence");

/// The header with the sequence that the owner has applied, if the owner is behind the write that it answers.
const APPLIED: HeaderName = HeaderName::from_static("tidewire-applied");

/// The time after which answers report a silent log, unless two heartbeat periods are longer. Shorter silence is normal in a healthy
/// cluster.
const STALE_MIN: Duration = Duration::from_secs(2);

/// Maximum records between the applied one and the one that a request waits for: more than a node applies in the second for which a
/// request waits.
const AFTER_AHEAD_MAX: u64 = 1_000_000;

/// Number of heartbeats that may be missing on a live connection.
const HEARTBEATS_MISSED_MAX: u32 = 3;

impl Peers {
    /// Answers a request: by `handle` if this node is responsible for it, and otherwise by another node.
    pub(in crate::http) async fn answer(
        &self,
        request: ServiceRequest,
        admitted: Admitted<'_>,
        handle: impl AsyncFn(ServiceRequest, Option<Caller>) -> Result<ServiceResponse, Error>,
    ) -> Result<ServiceResponse, Error> {
        let Admitted { operation, ref caller, role, turn, .. } = admitted;
        // The response to a refused caller is a close code, which needs no owner.
        let user = match caller {
            Some(Caller::Refused(_)) => return self.answer_here(request, &admitted, &handle).await,
            // Checks the handshake here, because the connection to the owner has a separate one.
            _ if is_websocket(request.headers()) && ws::handshake(request.head()).is_err() => {
                return self.answer_here(request, &admitted, &handle).await;
            }
            _ => user_of(operation, &request, caller.as_ref()),
        };
        let node = node_of(operation, &request);
        let (mut request, mut looks) = (request, Looks::default());
        let after = peer_auth::after(&request).ok().flatten().filter(|_| operation.handled_by == HandledBy::Owner);
        loop {
            let decide = || match &node {
                Some(name) => next_named(self.cluster.placement(), name, role),
                None => next(self.cluster.placement(), operation.handled_by, user.as_ref(), role),
            };
            // Waits before it decides: the record may change the owner of the user, and the client may know of it before this node does.
            if let Some(after) = after.filter(|_| decide().ok() == Some(Next::Here))
                && let Err(problem) = self.wait_for(after, turn).await
            {
                return Ok(request.error_response(problem));
            }
            let problem = match decide() {
                Ok(Next::Here) => {
                    // An earlier attempt at another node may have paused the turn.
                    if let Err(problem) = turn.resume() {
                        return Ok(request.error_response(problem));
                    }
                    let body = request.extensions().get::<RequestBody>().cloned();
                    let response = self.answer_here(request, &admitted, &handle).await?;
                    if !is_of_another_sequencer(&response) {
                        return Ok(response);
                    }
                    request = ServiceRequest::from_request(response.into_parts().0);
                    if role == Some(PeerRole::Sequencer) {
                        return Ok(request.into_response(not_owner(&PeerRole::Sequencer.unavailable())));
                    }
                    body.into_iter().for_each(|body| drop(request.extensions_mut().insert(body)));
                    PeerRole::Sequencer.unavailable()
                }
                Ok(Next::Forward(to, address)) => match self.pass(&mut request, &admitted, to, &address).await {
                    Ok(Passed::Answered(response)) => {
                        return Ok(ServiceResponse::new(request.request().clone(), response));
                    }
                    Ok(Passed::Moved) => {
                        if let Some(after) = after
                            && let Err(problem) = self.wait_for(after, turn).await
                        {
                            return Ok(request.error_response(problem));
                        }
                        to.unavailable()
                    }
                    // That node has ended, and another one has taken over its role.
                    Ok(Passed::NotSent(problem)) if decide().ok() != Some(Next::Forward(to, address)) => problem,
                    Ok(Passed::NotSent(problem)) | Err(problem) => return Ok(request.error_response(problem)),
                },
                Ok(Next::Wait(to)) => to.unavailable(),
                Err(problem) if role.is_some_and(|role| problem.code() == role.unavailable().code()) => {
                    return Ok(request.into_response(not_owner(&problem)));
                }
                Err(problem) => return Ok(request.error_response(problem)),
            };
            if !looks.again(turn).await {
                return Ok(request.error_response(problem));
            }
        }
    }

    async fn answer_here(
        &self,
        request: ServiceRequest,
        Admitted { operation, caller, turn, .. }: &Admitted<'_>,
        handle: &impl AsyncFn(ServiceRequest, Option<Caller>) -> Result<ServiceResponse, Error>,
    ) -> Result<ServiceResponse, Error> {
        let caller = caller.clone();
        if operation.handled_by == HandledBy::Sequencer {
            let mut response = handle(request, caller).await?;
            if response.status().is_success() {
                // The write may be in a partly applied batch, and then `applied` is still before it.
                let sequence = self.cluster.placement().last_event();
                response.headers_mut().insert(SEQUENCE, HeaderValue::from(sequence.0));
            }
            return Ok(response);
        }
        let applied = match peer_auth::after(&request) {
            Ok(Some(after)) => self.wait_for(after, turn).await,
            Ok(None) => Ok(()),
            Err(problem) => Err(problem),
        };
        if let Err(problem) = applied {
            return Ok(request.error_response(problem));
        }
        if matches!(operation.handled_by, HandledBy::AnyNode | HandledBy::NamedNode) {
            return handle(request, caller).await;
        }
        // Determined before the read, so that the data is not older than reported.
        let placement = self.cluster.placement();
        let stale_min = STALE_MIN.max(2 * placement.heartbeat_period());
        let stale = placement.heard_ago().filter(|ago| *ago >= stale_min);
        let mut response = handle(request, caller).await?;
        // The answer may contain feeds of other nodes, which may be older than those of this one.
        let of_others = response.request().extensions().get::<PartsStale>().and_then(|stale| stale.0);
        if let Some(seconds) = stale.map(|ago| ago.as_secs()).max(of_others) {
            response.headers_mut().insert(STALE, HeaderValue::from(seconds));
            caching::forbid(response.headers_mut());
        }
        Ok(response)
    }

    /// Waits until this node has applied a sequence. Does not wait for a sequence that is too far ahead to be applied in time.
    async fn wait_for(&self, after: Sequence, turn: &Turn) -> Result<(), Problem> {
        let applied = self.cluster.placement().applied();
        if applied >= after {
            return Ok(());
        }
        if after.0 - applied.0 <= AFTER_AHEAD_MAX && turn.wait(self.cluster.has_applied(after)).await? {
            return Ok(());
        }
        Err(self.not_applied_yet(after))
    }

    fn not_applied_yet(&self, after: Sequence) -> Problem {
        let applied = self.cluster.placement().applied().0;
        let detail = format!("this node has applied {applied} and not {} yet", after.0);
        Problem::unavailable("not_applied_yet", detail).retry_soon()
    }

    /// Sends a request to the node at `address`, and returns its response.
    async fn pass(
        &self,
        request: &mut ServiceRequest,
        admitted: &Admitted<'_>,
        to: PeerRole,
        address: &str,
    ) -> Result<Passed, Problem> {
        let began = Instant::now();
        let passed = self.sent(request, admitted, to, address).await;
        let outcome = match &passed {
            Ok(Passed::Answered(_)) => Outcome::Answered,
            Ok(Passed::Moved) => Outcome::Moved,
            Ok(Passed::NotSent(_)) => Outcome::Unavailable,
            Err(problem) if problem.code() == OUTCOME_UNKNOWN => Outcome::Unknown,
            Err(_) => Outcome::Unavailable,
        };
        self.cluster.metrics.count(to, outcome, began.elapsed());
        passed
    }

    async fn sent(
        &self,
        request: &mut ServiceRequest,
        admitted: &Admitted<'_>,
        to: PeerRole,
        address: &str,
    ) -> Result<Passed, Problem> {
        let outgoing = self.outgoing(request, admitted, to)?;
        let is_live = admitted.operation.work == WorkKind::Live;
        let slots = if is_live { Some(self.live_slots(request, admitted)?) } else { None };
        let (response, pass) = match self.send(address, &outgoing, admitted.turn).await {
            Ok(sent) => sent,
            Err(failure @ Failure::NotSent(_)) => {
                return Ok(Passed::NotSent(problem_of(&failure, outgoing.is_read, to)));
            }
            Err(failure) => return Err(problem_of(&failure, outgoing.is_read, to)),
        };
        if has_moved(&response) {
            return Ok(Passed::Moved);
        }
        let response = match slots {
            _ if outgoing.method == http1::Method::HEAD => relay::response_to_head(response),
            Some(slots) => self.live_response(request, response, slots, silence_max(admitted)).await?,
            None if outgoing.is_read => self.read_response(response, admitted.turn, to).await?,
            None => self.write_response(response, pass, to).await?,
        };
        Ok(Passed::Answered(response))
    }

    /// Reads the whole answer to a read, after reserving its bytes. So a slow client occupies nothing at the other node.
    async fn read_response(
        &self,
        response: http1::Response<Incoming>,
        turn: &Turn,
        to: PeerRole,
    ) -> Result<HttpResponse, Problem> {
        let bytes = relay::bytes_of(response.body());
        // Held until the pipeline reserves these bytes for the response.
        let _reserved = if bytes > RESPONSE_PIECE_BYTES { turn.answer(bytes)? } else { None };
        let read = relay::whole(response, self.cluster.options.answer_timeout).await;
        read.map_err(|cause| problem_of(&Failure::Lost(cause), true, to))
    }

    /// Reads the whole answer to a write first, so that the client never gets a part of it.
    async fn write_response(
        &self,
        response: http1::Response<Incoming>,
        pass: Pass,
        to: PeerRole,
    ) -> Result<HttpResponse, Problem> {
        let read = relay::whole(response, self.cluster.options.answer_timeout).await;
        drop(pass);
        let mut response = read.map_err(|cause| problem_of(&Failure::Lost(cause), false, to))?;
        let sequence = response.headers().get(SEQUENCE).and_then(|sequence| sequence.to_str().ok()?.parse().ok());
        if to == PeerRole::Sequencer
            && let Some(sequence) = sequence.map(Sequence)
            && !self.cluster.has_applied(sequence).await
        {
            // The write is done, so its client must not repeat it. The header shows that reads here are behind, and the client can
            // request the sequence.
            let applied = HeaderValue::from(self.cluster.placement().applied().0);
            response.headers_mut().insert(APPLIED, applied);
        }
        Ok(response)
    }

    fn live_slots(&self, request: &ServiceRequest, admitted: &Admitted<'_>) -> Result<LiveSlots, Problem> {
        let is_unauthenticated = matches!(admitted.caller, Some(Caller::Unauthenticated));
        // Admitted first, because this may evict another connection at the limit of the address.
        let admit = || admitted.access.admit_unauthenticated(request.peer_addr(), admitted.turn.admission());
        let unauthenticated = is_unauthenticated.then(admit).transpose()?;
        let slot = self.cluster.metrics.enter_live().ok_or_else(|| {
            let detail = format!("{} live connections are already forwarded", self.cluster.options.live_max);
            Problem::unavailable("overloaded", detail).retry_soon()
        })?;
        Ok((slot, unauthenticated))
    }

    async fn live_response(
        &self,
        request: &mut ServiceRequest,
        response: http1::Response<Incoming>,
        slots: LiveSlots,
        silence_max: Duration,
    ) -> Result<HttpResponse, Problem> {
        let life = relay::Life::new(slots, self.cluster.stopping.subscribe(), silence_max);
        if response.status() == http1::StatusCode::SWITCHING_PROTOCOLS {
            return websocket::response(response, request.take_payload(), life).await.map_err(|cause| {
                let detail = format!("the owner of this user gave up the connection: {cause}");
                Problem::unavailable("owner_unavailable", detail).retry_soon()
            });
        }
        request.extensions_mut().insert(Endless);
        Ok(relay::live_response(response, life))
    }
}

/// The slot of a forwarded live connection, and its second slot until the client has authenticated.
type LiveSlots = (LiveSlot, Option<UnauthenticatedSlot>);

/// The result of a request that was sent to another node.
enum Passed {
    Answered(HttpResponse),
    /// That node has not handled the request, because it has lost the role or does not have it yet.
    Moved,
    /// That node has not received the request.
    NotSent(Problem),
}

/// Returns true if the engine has refused a write because this node is not the sequencer any more. The write has no effect.
fn is_of_another_sequencer(response: &ServiceResponse) -> bool {
    let problem = response.response().error().and_then(|error| error.as_error::<Problem>());
    problem.is_some_and(|problem| problem.code() == NotSequencer.code())
}

/// Returns the time for which the owner may send no data on a live connection.
fn silence_max(admitted: &Admitted<'_>) -> Duration {
    // There are no heartbeats before the client has authenticated.
    let until_known = match admitted.caller {
        Some(Caller::Unauthenticated) => LIVE_UNAUTHENTICATED_TIME,
        _ => Duration::ZERO,
    };
    until_known + admitted.heartbeat * HEARTBEATS_MISSED_MAX
}

/// Returns the name of the node that a request is for, if it contains one.
fn node_of(operation: &Operation, request: &ServiceRequest) -> Option<String> {
    let named = || form_urlencoded::parse(request.query_string().as_bytes()).find(|(name, _)| name == "node");
    (operation.handled_by == HandledBy::NamedNode).then(named)?.map(|(_, name)| name.into_owned())
}

/// Returns the single user whose data a request reads or writes, if there is one.
fn user_of(operation: &Operation, request: &ServiceRequest, caller: Option<&Caller>) -> Option<SourceId> {
    #[derive(Deserialize)]
    struct Authored<'a> {
        #[serde(borrow)]
        author: std::borrow::Cow<'a, str>,
    }

    if matches!(operation.handled_by, HandledBy::AnyNode | HandledBy::NamedNode) {
        return None;
    }
    if let Some((user, _)) = user_in_path(request.match_info().as_str()) {
        return decoded(user).parse().ok();
    }
    match caller {
        Some(Caller::User(user)) => Some(user.id.clone()),
        // A server key publishes for an author. The author of any other post is unknown here, and the sequencer does not need it.
        _ if operation.work == WorkKind::Write => {
            let extensions = request.extensions();
            let Authored { author } = serde_json::from_slice(&extensions.get::<RequestBody>()?.0).ok()?;
            author.parse().ok()
        }
        _ => None,
    }
}
