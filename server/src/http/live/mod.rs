//! Live connections: WebSockets and server-sent events for the engine's watchers.
//!
//! Responsible for:
//! - opening them, at the position from which a client resumes ([`websocket`], [`events`]);
//! - authenticating WebSockets without credentials ([`handshake`]);
//! - sending messages ([`connection`]), their wire formats ([`wire`]) and their text ([`text`]);
//! - the number of unread entries, for clients that request it ([`unread`]).

mod connection;
mod frame_checks;
#[cfg(any(test, feature = "fuzzing"))]
pub(in crate::http) mod fuzzing;
mod handshake;
mod shown_log;
mod text;
mod unread;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use actix_http::ws::{self, HandshakeError};
use actix_web::body::{MessageBody as _, None as NoBody};
use actix_web::http::header::{CACHE_CONTROL, HeaderName, SEC_WEBSOCKET_PROTOCOL};
use actix_web::http::{Method, StatusCode};
use actix_web::web::{Data, Payload};
use actix_web::{HttpMessage as _, HttpRequest, HttpResponse, HttpResponseBuilder};

use crate::http::admission::Admission;
use crate::http::auth::{Access, Caller, PROTOCOL, SessionExpiry, offers_protocol};
use crate::http::engine_cell::ReadyEngine;
use crate::http::live::connection::{Batches, Connection};
use crate::http::live::handshake::{Handshake, LiveRequest};
use crate::http::live::shown_log::ShownLog;
use crate::http::live::unread::UnreadCount;
use crate::http::live::wire::{Close, EventStream, WebSocket};
use crate::http::offered_upgrade::is_websocket;
use crate::http::problem::Problem;
use crate::http::request::{LAST_EVENT_ID, Parameters, last_event_id, user};
use crate::http::sockets::answering::{Endless, Open};
use crate::http::sockets::connection_slots::connection_state::ConnectionState;
use tidewire::engine::Engine;
use tidewire::error::Error;
use tidewire::feed::stream::{Epoch, StreamPosition};
use tidewire::id::SourceId;

/// Handles `GET /v1/users/{user}/live`.
pub(super) async fn websocket(
    request: HttpRequest,
    payload: Payload,
    engine: ReadyEngine,
    access: Data<Access>,
) -> Result<HttpResponse, Problem> {
    let user = user(&request)?;
    let Wanted { resume, unread_of, has_batches } = wanted(&request, &user, false)?;
    // An `Upgrade` header with several protocols does not upgrade the connection.
    let is_offered = if is_websocket(request.headers()) { Ok(()) } else { Err(HandshakeError::NoWebsocketUpgrade) };
    let mut response = is_offered.and_then(|()| ws::handshake(request.head())).map_err(|cause| {
        let detail = format!("this is a WebSocket endpoint: {cause}; over plain HTTP, use /v1/users/{user}/events");
        Problem::new(StatusCode::UPGRADE_REQUIRED, "upgrade_required", detail).upgrade("websocket")
    })?;
    if offers_protocol(request.headers()) {
        response.insert_header((SEC_WEBSOCKET_PROTOCOL, PROTOCOL));
    }
    let wire = WebSocket::new(payload, has_batches);
    let caller = Caller::or_unauthenticated(&request)?;
    let body = match caller {
        Caller::Unauthenticated => {
            // Until the connection is authenticated, the server may close it as idle in favor of another one.
            request.extensions_mut().insert(Open);
            let (peer, connection) = (request.peer_addr(), request.conn_data::<Arc<ConnectionState>>().cloned());
            let (access, admission) = (access.into_inner(), Admission::of(&request)?);
            // Not a step of the pipeline, because it may evict another connection. Only a valid request may do that.
            let slot = access.admit_unauthenticated(peer, &admission)?;
            let (engine, log) = ((*engine).clone(), ShownLog::of(&request));
            let live =
                LiveRequest { engine, access, admission, user, resume, unread_of, has_batches, peer, connection, log };
            Handshake::new(wire, live, slot)?.boxed()
        }
        // In a browser, only the close code distinguishes this refusal from other failures.
        Caller::Refused(denial) => Connection::refused(wire, Close::Unauthenticated(denial.code())).boxed(),
        _ => match engine.watch(&user, resume).await {
            Ok(watcher) => {
                let permits = Admission::of(&request)?.unread_counts();
                let unread = unread_of.map(|reader| UnreadCount::new((*engine).clone(), reader, permits));
                let session_expiry = SessionExpiry::of(&access, &caller, &engine);
                let sequence = ShownLog::of(&request).sequence();
                let batches = Batches::of(has_batches);
                Connection::new(wire, (watcher, sequence), heartbeat(&engine), session_expiry, unread, batches).boxed()
            }
            Err(Error::TooMany { .. }) => Connection::refused(wire, Close::TooMany).boxed(),
            Err(cause) => return Err(cause.into()),
        },
    };
    Ok(HttpResponse::from(response.message_body(body).map_err(|cause| Problem::internal(&cause))?))
}

/// Handles `GET /v1/users/{user}/events`.
pub(super) async fn events(
    request: HttpRequest,
    caller: Caller,
    engine: ReadyEngine,
    access: Data<Access>,
) -> Result<HttpResponse, Problem> {
    let user = user(&request)?;
    let Wanted { resume, unread_of, has_batches } = wanted(&request, &user, true)?;
    if request.method() == Method::HEAD {
        return Ok(events_head().body(NoBody::new()));
    }
    let watcher = engine.watch(&user, resume).await.map_err(|cause| match cause {
        Error::TooMany { .. } => {
            Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many_connections", cause.to_string()).retry_soon()
        }
        other => other.into(),
    })?;
    request.extensions_mut().insert(Endless);
    let session_expiry = SessionExpiry::of(&access, &caller, &engine);
    let permits = Admission::of(&request)?.unread_counts();
    let unread = unread_of.map(|reader| UnreadCount::new((*engine).clone(), reader, permits));
    let watcher = (watcher, ShownLog::of(&request).sequence());
    let (wire, batches) = (EventStream::default(), Batches::of(has_batches));
    let connection = Connection::new(wire, watcher, heartbeat(&engine), session_expiry, unread, batches);
    Ok(events_head().body(connection))
}

fn heartbeat(engine: &Engine) -> Duration {
    engine.shared().config.live_heartbeat
}

fn events_head() -> HttpResponseBuilder {
    let mut response = HttpResponse::Ok();
    response
        .content_type("text/event-stream")
        .insert_header((CACHE_CONTROL, "no-store"))
        // Disables response buffering in proxies, which would delay events.
        .insert_header((HeaderName::from_static("x-accel-buffering"), "no"));
    response
}

/// The parameters of a live request.
struct Wanted {
    resume: Option<StreamPosition>,
    /// The reader whose unread entries the server counts for the client.
    unread_of: Option<SourceId>,
    /// True if the client wants messages that arrive within a short time together.
    has_batches: bool,
}

fn wanted(request: &HttpRequest, user: &SourceId, has_event_ids: bool) -> Result<Wanted, Problem> {
    let known = ["epoch", "seq", "unread", "batch", LAST_EVENT_ID];
    let parameters = Parameters::read(request, if has_event_ids { &known } else { &known[..4] })?;
    let unread_of = parameters.truth("unread")?.then(|| user.clone());
    Ok(Wanted { resume: resume(request, &parameters)?, unread_of, has_batches: parameters.truth("batch")? })
}

/// Parses the position at which the client resumes: `?epoch=…&seq=N`, or the `id` of its last server-sent event.
fn resume(request: &HttpRequest, parameters: &Parameters<'_>) -> Result<Option<StreamPosition>, Problem> {
    let named = match (parameters.text("epoch"), parameters.number("seq")?) {
        (Some(epoch), Some(last)) => Some((epoch, last)),
        (None, None) => None,
        (Some(_), None) => return Err(incomplete("seq", "epoch")),
        (None, Some(_)) => return Err(incomplete("epoch", "seq")),
    };
    let last_event = || {
        let (_, id) = last_event_id(request, parameters)?;
        let (epoch, last) = str::from_utf8(id).ok()?.split_once(':')?;
        Some((epoch, last.parse().ok()?))
    };
    let place = |(epoch, last): (&str, u64)| Some(StreamPosition { epoch: text::read_epoch(epoch)?, last });
    // A position with an unknown epoch cannot be resumed; the first message reports that.
    let unknown = StreamPosition { epoch: Epoch(0), last: u64::MAX };
    // A client that reconnects repeats the original URL and adds the id of the last event, so this takes precedence.
    Ok(last_event().or(named).map(|named| place(named).unwrap_or(unknown)))
}

fn incomplete(missing: &str, given: &str) -> Problem {
    Problem::bad("missing_parameter", format!("{missing}: required with {given:?}")).of_field(missing)
}
