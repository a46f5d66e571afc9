//! Handling that is common to all responses of the application.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use actix_http::error::PayloadError;
use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::dev::{Payload, Service, ServiceRequest, ServiceResponse};
use actix_web::http::header::{CONNECTION, HeaderName, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use actix_web::http::{ConnectionType, StatusCode, Version};
use actix_web::web::Bytes;
use actix_web::{Error, HttpMessage as _};
use futures_core::Stream;

use crate::http::caching;
use crate::http::offered_upgrade::is_websocket;
use crate::http::problem::Problem;
use crate::http::sockets::connection_slots::connection_state::{ConnectionState, UnderWay};
use crate::http::sockets::framing::HIDDEN_UPGRADE;
use tidewire::limits::RESPONSE_PIECE_BYTES;

/// The header with the name of the node that has answered.
const NODE: HeaderName = HeaderName::from_static("tidewire-node");

/// Answers a request with `app`. `node` is the name of this node, if it is part of a cluster.
pub(in crate::http) fn answer<S>(
    mut request: ServiceRequest,
    app: &S,
    node: Option<HeaderValue>,
) -> impl Future<Output = Result<ServiceResponse, Error>> + use<S>
where
    S: Service<ServiceRequest, Response = ServiceResponse, Error = Error>,
{
    restore_upgrade(&mut request);
    let begun = request.conn_data::<Arc<ConnectionState>>().map(ConnectionState::begin);
    // The connection was evicted, so the client may not receive a response. It sends the request again.
    let is_over = matches!(begun, Some(None));
    let mut under_way = begun.flatten();
    let unread = Unread::of(&mut request);
    let has_chunks = request.version() >= Version::HTTP_11;
    let answered = (!is_over).then(|| app.call(request));
    async move {
        let Some(answered) = answered else {
            let detail = "the server closed this connection to accept another one: send the request again";
            let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded", detail);
            return Err(problem.retry_soon().closing().into());
        };
        let mut response = answered.await?;
        response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        caching::forbid_by_default(response.headers_mut());
        if let Some(node) = node
            && !response.headers().contains_key(NODE)
        {
            response.headers_mut().insert(NODE, node);
        }
        let is_stream = response.response().body().size() == BodySize::Stream;
        if !has_chunks && is_stream {
            // The end of the connection marks the end of the body.
            let head = response.response_mut().head_mut();
            head.no_chunking(true);
            head.set_connection_type(ConnectionType::Close);
        }
        if response.request().extensions().contains::<Open>() {
            // A response that needs no credentials does not protect the connection of a slow client from being closed.
            under_way.iter_mut().for_each(UnderWay::give_way);
        }
        let is_endless = is_stream && response.request().extensions().contains::<Endless>();
        let unread = unread.filter(|unread| !unread.0.borrow().is_read);
        // A small response is passed to the connection at once, so it needs no tracking.
        let is_whole = match response.response().body().size() {
            BodySize::None => true,
            BodySize::Sized(bytes) => bytes <= RESPONSE_PIECE_BYTES as u64,
            BodySize::Stream => false,
        };
        if is_whole && unread.is_none() {
            return Ok(response);
        }
        Ok(response.map_body(|_, body| BoxBody::new(TrackedBody { body, is_endless, under_way, _unread: unread })))
    }
}

/// Restores the header `Connection` of a WebSocket: the upgrade offer was hidden from the parser.
fn restore_upgrade(request: &mut ServiceRequest) {
    if !is_websocket(request.headers()) {
        return;
    }
    let is_hidden = |option: &&str| option.trim().eq_ignore_ascii_case(HIDDEN_UPGRADE);
    let values = request.headers().get_all(CONNECTION).filter_map(|value| value.to_str().ok());
    let mut options: Vec<&str> = values.flat_map(|value| value.split(',')).collect();
    options.iter_mut().filter(|option| is_hidden(option)).for_each(|option| *option = "upgrade");
    if let Ok(restored) = HeaderValue::from_str(&options.join(",")) {
        request.headers_mut().insert(CONNECTION, restored);
    }
}

/// Marks a request that needs no credentials.
pub(in crate::http) struct Open;

/// Marks a request whose response waits for events, until the client or the server ends it.
pub(in crate::http) struct Endless;

/// A response body with the values to drop when it is sent.
struct TrackedBody {
    body: BoxBody,
    is_endless: bool,
    under_way: Option<UnderWay>,
    _unread: Option<Unread>,
}

impl TrackedBody {
    /// Returns true if the response must end because its client has closed its sending side. That event wakes the connection's task,
    /// which reads before it polls the body.
    fn is_abandoned(&self) -> bool {
        self.is_endless && self.under_way.as_ref().is_some_and(UnderWay::is_half_closed)
    }
}

impl MessageBody for TrackedBody {
    type Error = Box<dyn std::error::Error>;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        match Pin::new(&mut self.body).poll_next(task) {
            Poll::Pending if self.is_abandoned() => Poll::Ready(None),
            next => next,
        }
    }
}

/// A chunked request body, which may remain unread.
#[derive(Clone)]
struct Unread(Rc<RefCell<Rest>>);

struct Rest {
    payload: Payload,
    is_read: bool,
}

impl Unread {
    /// Replaces the body of a request by a tracked one if it is chunked.
    fn of(request: &mut ServiceRequest) -> Option<Self> {
        if !request.chunked().unwrap_or(false) {
            return None;
        }
        let rest = Self(Rc::new(RefCell::new(Rest { payload: request.take_payload(), is_read: false })));
        request.set_payload(Payload::Stream { payload: Box::pin(rest.clone()) });
        Some(rest)
    }
}

impl Stream for Unread {
    type Item = Result<Bytes, PayloadError>;

    fn poll_next(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let rest = &mut *self.0.borrow_mut();
        let next = Pin::new(&mut rest.payload).poll_next(task);
        rest.is_read |= matches!(next, Poll::Ready(None));
        next
    }
}
