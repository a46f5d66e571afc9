//! A WebSocket without credentials, until it is authenticated by its first message.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use actix_web::body::{BodySize, MessageBody};
use actix_web::rt::time::{Sleep, sleep};
use actix_web::web::{Bytes, BytesMut};
use serde::Deserialize;

use crate::http::admission::{Admission, Permit};
use crate::http::auth::{Access, Denial, SessionExpiry, UnauthenticatedSlot};
use crate::http::live::connection::{Batches, Connection};
use crate::http::live::heartbeat;
use crate::http::live::shown_log::ShownLog;
use crate::http::live::unread::UnreadCount;
use crate::http::live::wire::{Close, Received, WebSocket};
use crate::http::operation::{Needs, Right, WorkKind};
use crate::http::problem::Problem;
use crate::http::request::Object;
use crate::http::sockets::connection_slots::connection_state::{ConnectionState, UnderWay};
use tidewire::engine::{Engine, Unauthenticated, Watcher};
use tidewire::error::Error;
use tidewire::feed::stream::StreamPosition;
use tidewire::id::SourceId;
use tidewire::limits::LIVE_UNAUTHENTICATED_TIME;
use tidewire::live::subscriber_queue::Closing;

/// The close reason for a connection whose first message is not an authentication message.
const NO_AUTH_MESSAGE: &str = "unauthenticated: the first message is not {\"type\":\"auth\",\"token\":…}";

/// The parameters of the live request.
pub(super) struct LiveRequest {
    pub(super) engine: Engine,
    pub(super) access: Arc<Access>,
    pub(super) admission: Arc<Admission>,
    pub(super) user: SourceId,
    pub(super) resume: Option<StreamPosition>,
    /// The reader whose unread entries the server counts for the client.
    pub(super) unread_of: Option<SourceId>,
    pub(super) has_batches: bool,
    pub(super) peer: Option<SocketAddr>,
    pub(super) connection: Option<Arc<ConnectionState>>,
    pub(super) log: ShownLog,
}

/// An unauthenticated connection, which becomes a live connection.
pub(super) struct Handshake {
    request: LiveRequest,
    state: State,
    /// Protects the connection from being closed as idle, once it is authenticated.
    under_way: Option<UnderWay>,
}

enum State {
    /// Waiting for the first message.
    Waiting(Box<Waiting>),
    /// Authenticated, and about to watch the feed.
    Joining(Box<Joining>),
    /// Watching the feed, or closing.
    Known(Box<Connection<WebSocket>>),
    /// Temporary value during a change of state.
    Moving,
}

struct Waiting {
    wire: WebSocket,
    unauthenticated: Unauthenticated,
    deadline: Pin<Box<Sleep>>,
    slot: UnauthenticatedSlot,
}

struct Joining {
    wire: WebSocket,
    session_expiry: Option<Box<SessionExpiry>>,
    watching: Pin<Box<dyn Future<Output = Result<Watcher, Error>>>>,
    _permit: Permit,
}

/// The authentication message, which must be the first message.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, tag = "type", rename_all = "lowercase")]
enum AuthMessage {
    Auth { token: String },
}

/// Returns the token of an authentication message, or `None` if the message is not one.
pub(super) fn token(text: &[u8]) -> Option<String> {
    let Object(AuthMessage::Auth { token }) = serde_json::from_slice(text).ok()?;
    Some(token)
}

impl Handshake {
    /// Creates an unauthenticated connection.
    pub(super) fn new(wire: WebSocket, request: LiveRequest, slot: UnauthenticatedSlot) -> Result<Self, Problem> {
        let (unauthenticated, deadline) =
            (request.engine.unauthenticated()?, Box::pin(sleep(LIVE_UNAUTHENTICATED_TIME)));
        let waiting = Waiting { wire, unauthenticated, deadline, slot };
        Ok(Self { request, state: State::Waiting(Box::new(waiting)), under_way: None })
    }
}

impl LiveRequest {
    /// Authenticates the first message and returns the next state.
    fn joining(&self, text: &[u8], Waiting { wire, .. }: Waiting) -> State {
        let refused = |wire, why| State::Known(Box::new(Connection::refused(wire, why)));
        let Some(token) = token(text) else {
            return refused(wire, Close::Unauthenticated(NO_AUTH_MESSAGE));
        };
        let needs = Needs::Own(Right::Read);
        let caller = match self.access.identify(&token, needs, self.user.as_str(), self.peer, &self.engine) {
            Ok(caller) => caller,
            Err(Denial::TooMany(_)) => return refused(wire, Close::Overloaded),
            Err(denial) => return refused(wire, Close::Unauthenticated(denial.code())),
        };
        // The permit of the pipeline was released with the response to the upgrade.
        let Ok(permit) = self.admission.enter(WorkKind::Live) else { return refused(wire, Close::Overloaded) };
        let (engine, user, resume) = (self.engine.clone(), self.user.clone(), self.resume);
        let watching = Box::pin(async move { engine.watch(&user, resume).await });
        let session_expiry = SessionExpiry::of(&self.access, &caller, &self.engine);
        State::Joining(Box::new(Joining { wire, session_expiry, watching, _permit: permit }))
    }

    /// Returns the next state after the attempt to watch the feed.
    fn joined(&self, Joining { wire, session_expiry, .. }: Joining, watching: Result<Watcher, Error>) -> State {
        State::Known(Box::new(match watching {
            Ok(watcher) => {
                let permits = self.admission.unread_counts();
                let unread = self.unread_of.clone();
                let unread = unread.map(|reader| UnreadCount::new(self.engine.clone(), reader, permits));
                let (watcher, batches) = ((watcher, self.log.sequence()), Batches::of(self.has_batches));
                Connection::new(wire, watcher, heartbeat(&self.engine), session_expiry, unread, batches)
            }
            Err(Error::TooMany { .. }) => Connection::refused(wire, Close::TooMany),
            Err(Error::ShuttingDown) => Connection::refused(wire, Close::Engine(Closing::Restart)),
            Err(cause) if cause.is_temporary() => Connection::refused(wire, Close::Overloaded),
            Err(_) => Connection::refused(wire, Close::Failed),
        }))
    }
}

impl Waiting {
    /// Waits for the first message. Fails with the reason if the connection must end.
    fn poll_message(&mut self, task: &mut Context<'_>, out: &mut BytesMut) -> Poll<Result<BytesMut, Close>> {
        if let Poll::Ready(closing) = self.unauthenticated.poll_closed(task) {
            return Poll::Ready(Err(Close::Engine(closing)));
        }
        if self.slot.poll_evicted(task).is_ready() {
            return Poll::Ready(Err(Close::Overloaded));
        }
        if self.deadline.as_mut().poll(task).is_ready() {
            return Poll::Ready(Err(Close::Unauthenticated("unauthenticated: no credentials arrived in time")));
        }
        self.wire.poll_text(task, out).map_err(|outcome| match outcome {
            Received::Invalid => Close::Protocol,
            Received::NotText => Close::NotText,
            Received::TooMuch => Close::TooMuch,
            Received::Closed | Received::Nothing => Close::Client,
        })
    }
}

impl MessageBody for Handshake {
    type Error = Infallible;

    fn size(&self) -> BodySize {
        BodySize::Stream
    }

    fn poll_next(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Result<Bytes, Infallible>>> {
        let Self { request, state, under_way } = self.get_mut();
        let mut out = BytesMut::new();
        loop {
            let next = match std::mem::replace(state, State::Moving) {
                State::Waiting(mut waiting) => match waiting.poll_message(task, &mut out) {
                    Poll::Ready(Ok(text)) => Ok(request.joining(&text, *waiting)),
                    Poll::Ready(Err(why)) => Ok(State::Known(Box::new(Connection::refused(waiting.wire, why)))),
                    Poll::Pending => Err(State::Waiting(waiting)),
                },
                State::Joining(mut joining) => match joining.watching.as_mut().poll(task) {
                    Poll::Ready(watching) => Ok(request.joined(*joining, watching)),
                    Poll::Pending => Err(State::Joining(joining)),
                },
                other => Err(other),
            };
            match next {
                Ok(next) => {
                    if let State::Joining(_) = next {
                        *under_way = request.connection.as_ref().and_then(ConnectionState::begin);
                    }
                    *state = next;
                }
                Err(as_before) => {
                    *state = as_before;
                    break;
                }
            }
        }
        // Replies to pings are sent first.
        if !out.is_empty() {
            task.waker().wake_by_ref();
            return Poll::Ready(Some(Ok(out.freeze())));
        }
        match state {
            State::Known(connection) => Pin::new(&mut **connection).poll_next(task),
            State::Waiting(_) | State::Joining(_) | State::Moving => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_json_object_authenticates_a_client() {
        for good in [r#"{"type":"auth","token":"a.b.c"}"#, r#" {"token":"a.b.c","type":"auth"} "#] {
            assert_eq!(token(good.as_bytes()).as_deref(), Some("a.b.c"), "{good}");
        }
        for bad in
            [r#"["auth","a.b.c"]"#, r#"{"type":"auth"}"#, r#"{"type":"auth","token":"a","x":1}"#, r#""auth""#, ""]
        {
            assert_eq!(token(bad.as_bytes()), None, "{bad}");
        }
    }
}
