//! Answers that are held until their client has taken them.
//!
//! Responsible for:
//! - handing an answer to its connection in pieces, so that not all of it is there twice, and giving its room back at the end.
//!
//! Not responsible for:
//! - how much room there is (`api::admission`), clients that take nothing (`api::stall`).

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::web::Bytes;

use crate::api::admission::Room;
use crate::limits::RESPONSE_PIECE_BYTES;

/// A body that gives back its room when it is sent, or nobody wants it any more.
struct Held {
    rest: Bytes,
    _room: Option<Room>,
}

/// Holds what room a body needs for as long as there is any of it.
pub(super) fn body(body: BoxBody, room: Option<Room>) -> BoxBody {
    match body.try_into_bytes() {
        Ok(rest) => Held { rest, _room: room }.boxed(),
        // What comes piece by piece is nowhere as a whole.
        Err(stream) => stream,
    }
}

impl MessageBody for Held {
    type Error = Infallible;

    fn size(&self) -> BodySize {
        BodySize::Sized(self.rest.len() as u64)
    }

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, Infallible>>> {
        if self.rest.is_empty() {
            return Poll::Ready(None);
        }
        let piece = self.rest.len().min(RESPONSE_PIECE_BYTES);
        Poll::Ready(Some(Ok(self.rest.split_to(piece))))
    }
}
