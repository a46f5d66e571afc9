//! What is common to all answers of the application, whatever was asked for.
//!
//! Responsible for:
//! - marking a request as under way until its answer is handed over, which is what keeps its connection;
//! - keeping the rest of a body in parts that nobody read until the answer is sent: the dispatcher then ends the connection, and would
//!   otherwise read on for as long as the client sends;
//! - `X-Content-Type-Options`.
//!
//! Not responsible for:
//! - answers of the dispatcher itself to what is no request: they have no content.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use actix_http::error::PayloadError;
use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::dev::{Payload, Service, ServiceRequest, ServiceResponse};
use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderValue, X_CONTENT_TYPE_OPTIONS};
use actix_web::web::Bytes;
use actix_web::{Error, HttpMessage as _};
use futures_core::Stream;

use crate::http::problem::Problem;
use crate::http::sockets::line::{Line, UnderWay};
use tidewire::limits::RESPONSE_PIECE_BYTES;

/// Answers a request by `app`.
pub(in crate::http) fn answer<S>(
    mut request: ServiceRequest,
    app: &S,
) -> impl Future<Output = Result<ServiceResponse, Error>> + use<S>
where
    S: Service<ServiceRequest, Response = ServiceResponse, Error = Error>,
{
    let begun = request.conn_data::<Arc<Line>>().map(Line::begin);
    // Nothing is done for a client that may not get the answer: it sends the request again.
    let is_over = matches!(begun, Some(None));
    let mut under_way = begun.flatten();
    let unread = Unread::of(&mut request);
    let answered = (!is_over).then(|| app.call(request));
    async move {
        let Some(answered) = answered else {
            let detail = "this connection ends for another one: send the request again";
            let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded", detail);
            return Err(problem.retry_soon().closing().into());
        };
        let mut response = answered.await?;
        response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        if response.request().extensions().contains::<Open>() {
            // Who takes slowly what anybody may have keeps no place by it.
            under_way.iter_mut().for_each(UnderWay::give_way);
        }
        let unread = unread.filter(|unread| !unread.0.borrow().is_read);
        // What goes to the connection as a whole is with it right away.
        let is_whole = match response.response().body().size() {
            BodySize::None => true,
            BodySize::Sized(bytes) => bytes <= RESPONSE_PIECE_BYTES as u64,
            BodySize::Stream => false,
        };
        if is_whole && unread.is_none() {
            return Ok(response);
        }
        Ok(response.map_body(|_, body| BoxBody::new(Answer { body, _under_way: under_way, _unread: unread })))
    }
}

/// Marks a request for what anybody may have.
pub(in crate::http) struct Open;

/// The body of an answer, with what goes when it is sent.
struct Answer {
    body: BoxBody,
    _under_way: Option<UnderWay>,
    _unread: Option<Unread>,
}

impl MessageBody for Answer {
    type Error = Box<dyn std::error::Error>;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        Pin::new(&mut self.body).poll_next(task)
    }
}

/// A body in parts, which may be left unread.
#[derive(Clone)]
struct Unread(Rc<RefCell<Rest>>);

struct Rest {
    payload: Payload,
    is_read: bool,
}

impl Unread {
    /// The body of a request, if it comes in parts.
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
