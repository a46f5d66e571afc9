//! Relays the answer of another node as a response: as a whole, or piece by piece for an event stream.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue};
use actix_web::rt::time::{Instant, Sleep, sleep};
use actix_web::web::Bytes;
use http_body_util::{BodyExt as _, Limited};
use http1::Response;
use hyper::body::{Body as _, Incoming};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::http::auth::UnauthenticatedSlot;
use crate::http::cluster::metrics::LiveSlot;
use tidewire::limits::BULK_REQUEST_BYTES_MAX;

/// Maximum bytes of an answer that does not declare its length. Answers of other nodes declare it.
const ANSWER_BYTES_MAX: usize = 2 * BULK_REQUEST_BYTES_MAX;

/// Creates the response of a live connection from the answer of another node: an event stream, or a refusal.
pub(super) fn live_response(answer: Response<Incoming>, life: Life) -> HttpResponse {
    let (head, body) = answer.into_parts();
    let (size, silence) = (size_of(&head), Silence::new(life.silence_max));
    with_head(&head, BoxBody::new(Relayed { body, size, silence, life }))
}

/// Creates the response to `HEAD` from the answer of another node: without a body, but with the declared size.
pub(super) fn response_to_head(answer: Response<Incoming>) -> HttpResponse {
    let (head, _) = answer.into_parts();
    let size = match size_of(&head) {
        BodySize::Stream => BodySize::None,
        size => size,
    };
    with_head(&head, BoxBody::new(NotSent(size)))
}

/// Returns the size of an answer in bytes, or its maximum if the size is not declared.
pub(super) fn bytes_of(body: &Incoming) -> usize {
    let exact = body.size_hint().exact();
    exact.map_or(ANSWER_BYTES_MAX, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX))
}

/// Reads a whole answer of the declared size. Fails with the reason if a part of it is missing.
pub(super) async fn whole(answer: Response<Incoming>, at_most: Duration) -> Result<HttpResponse, String> {
    let (head, body) = answer.into_parts();
    let bytes_max = bytes_of(&body);
    let read = timeout(at_most, Limited::new(body, bytes_max).collect()).await;
    let read = read.map_err(|_| format!("the rest of the answer did not come within {at_most:?}"))?;
    let bytes = read.map_err(|cause| cause.to_string())?.to_bytes();
    Ok(with_head(&head, BoxBody::new(bytes)))
}

fn with_head(head: &http1::response::Parts, body: BoxBody) -> HttpResponse {
    let status = status_of(head);
    // These responses have no body, not an empty one.
    let has_none = [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED].contains(&status);
    let body = if has_none { BoxBody::new(()) } else { body };
    let mut response = HttpResponse::with_body(status, body);
    copy_head(head, response.headers_mut());
    response
}

/// Returns the size that the head of an answer declares. For `HEAD`, it is not the size of its body.
fn size_of(head: &http1::response::Parts) -> BodySize {
    let length = head.headers.get(http1::header::CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
    length.map_or(BodySize::Stream, BodySize::Sized)
}

/// The conditions under which a live connection ends before the other node ends it.
pub(super) struct Life {
    stopping: Pin<Box<dyn Future<Output = ()>>>,
    pub(super) silence_max: Duration,
    _slot: LiveSlot,
    unauthenticated: Option<UnauthenticatedSlot>,
}

impl Life {
    pub(super) fn new(
        (slot, unauthenticated): (LiveSlot, Option<UnauthenticatedSlot>),
        mut stopping: watch::Receiver<bool>,
        silence_max: Duration,
    ) -> Self {
        let stopping = Box::pin(async move {
            if stopping.wait_for(|is_stopping| *is_stopping).await.is_err() {
                std::future::pending::<()>().await;
            }
        });
        Self { stopping, silence_max, _slot: slot, unauthenticated }
    }

    /// Returns true if this server stops.
    pub(super) fn poll_stopping(&mut self, task: &mut Context<'_>) -> bool {
        self.stopping.as_mut().poll(task).is_ready()
    }

    /// Returns true if the client has not authenticated and was evicted for another one.
    pub(super) fn poll_evicted(&self, task: &mut Context<'_>) -> bool {
        self.unauthenticated.as_ref().is_some_and(|slot| slot.poll_evicted(task).is_ready())
    }

    /// Notes that the client has authenticated.
    pub(super) fn note_authenticated(&mut self) {
        self.unauthenticated = None;
    }
}

/// A limit on the time for which another node sends no data.
pub(super) struct Silence {
    at_most: Duration,
    ends: Pin<Box<Sleep>>,
}

impl Silence {
    pub(super) fn new(at_most: Duration) -> Self {
        Self { at_most, ends: Box::pin(sleep(at_most)) }
    }

    /// Restarts the timeout.
    pub(super) fn interrupt(&mut self) {
        self.ends.as_mut().reset(Instant::now() + self.at_most);
    }

    /// Returns true if the timeout has passed.
    pub(super) fn poll_over(&mut self, task: &mut Context<'_>) -> bool {
        self.ends.as_mut().poll(task).is_ready()
    }
}

/// The body of a response to `HEAD`: only its size is sent.
struct NotSent(BodySize);

impl MessageBody for NotSent {
    type Error = io::Error;

    fn size(&self) -> BodySize {
        self.0
    }

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        Poll::Ready(None)
    }
}

/// The body of an event stream on its way to the client. It is read at the pace of the client.
struct Relayed {
    body: Incoming,
    size: BodySize,
    silence: Silence,
    life: Life,
}

impl MessageBody for Relayed {
    type Error = io::Error;

    fn size(&self) -> BodySize {
        self.size
    }

    fn poll_next(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        let this = self.get_mut();
        if this.life.poll_stopping(task) {
            return Poll::Ready(None);
        }
        loop {
            let broken = match Pin::new(&mut this.body).poll_frame(task) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => {
                        this.silence.interrupt();
                        return Poll::Ready(Some(Ok(data)));
                    }
                    // Trailers are not forwarded.
                    Err(_) => continue,
                },
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Ready(Some(Err(cause))) => io::Error::other(cause),
                Poll::Pending if this.silence.poll_over(task) => io::ErrorKind::TimedOut.into(),
                Poll::Pending => return Poll::Pending,
            };
            // An event stream ends normally, and its client reconnects. A refusal must end with an error, because it would look complete.
            return Poll::Ready(if this.size == BodySize::Stream { None } else { Some(Err(broken)) });
        }
    }
}

/// The headers of a response that belong to one connection, or that this server sets itself.
const OWN_RESPONSE_HEADERS: [&str; 6] =
    ["connection", "content-length", "date", "keep-alive", "transfer-encoding", "x-content-type-options"];

/// Copies the head of a response.
pub(super) fn copy_head(from: &http1::response::Parts, headers: &mut HeaderMap) {
    for (name, value) in from.headers.iter().filter(|(name, _)| !OWN_RESPONSE_HEADERS.contains(&name.as_str())) {
        let name = HeaderName::from_bytes(name.as_str().as_bytes());
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(value.as_bytes())) {
            headers.append(name, value);
        }
    }
}

/// Returns the status of a response.
pub(super) fn status_of(from: &http1::response::Parts) -> StatusCode {
    StatusCode::from_u16(from.status.as_u16()).unwrap_or(StatusCode::BAD_GATEWAY)
}
