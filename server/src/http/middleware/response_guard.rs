//! Response guard: holds the byte reservation of a response until the client has received it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::web::Bytes;
use tokio::time::Instant;

use crate::http::admission::Reservation;
use crate::http::middleware::pace::Pace;
use tidewire::limits::RESPONSE_PIECE_BYTES;

/// A response body that releases its reservation when it is sent or dropped.
struct ResponseGuard {
    rest: Bytes,
    taken_bytes: usize,
    /// The time when the first piece was requested.
    began: Option<Instant>,
    pace: Pace,
    _reservation: Option<Reservation>,
}

/// Wraps a body so that the reservation is held until the body is sent.
pub(in crate::http) fn body(body: BoxBody, reservation: Option<Reservation>, pace: Pace) -> BoxBody {
    match body.try_into_bytes() {
        Ok(rest) => ResponseGuard { rest, taken_bytes: 0, began: None, pace, _reservation: reservation }.boxed(),
        // The source creates the body while the client receives it.
        Err(stream) => StreamGuard { stream, taken_bytes: 0, began: None, pace, _reservation: reservation }.boxed(),
    }
}

/// A body of known size that is not completely in memory. Its pace limits how long slow clients occupy its source.
struct StreamGuard {
    stream: BoxBody,
    taken_bytes: usize,
    /// The time when the first piece was requested.
    began: Option<Instant>,
    pace: Pace,
    _reservation: Option<Reservation>,
}

impl MessageBody for StreamGuard {
    type Error = Box<dyn std::error::Error>;

    fn size(&self) -> BodySize {
        self.stream.size()
    }

    fn poll_next(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        let took = self.began.get_or_insert_with(Instant::now).elapsed();
        if took > self.pace.allows_taking(self.taken_bytes) {
            return Poll::Ready(Some(Err(io::Error::from(io::ErrorKind::TimedOut).into())));
        }
        let next = Pin::new(&mut self.stream).poll_next(task);
        if let Poll::Ready(Some(Ok(piece))) = &next {
            self.taken_bytes += piece.len();
        }
        next
    }
}

impl MessageBody for ResponseGuard {
    type Error = io::Error;

    fn size(&self) -> BodySize {
        BodySize::Sized(self.rest.len() as u64)
    }

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if self.rest.is_empty() {
            return Poll::Ready(None);
        }
        let took = self.began.get_or_insert_with(Instant::now).elapsed();
        // The connection requests the next piece after the client has received most of the last one.
        if took > self.pace.allows_taking(self.taken_bytes) {
            return Poll::Ready(Some(Err(io::ErrorKind::TimedOut.into())));
        }
        let piece = self.rest.len().min(RESPONSE_PIECE_BYTES);
        self.taken_bytes += piece;
        Poll::Ready(Some(Ok(self.rest.split_to(piece))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::time::Duration;

    /// Returns the number of bytes that are passed to a client that takes `takes` to receive each of the four pieces of a response.
    fn handed(takes: Duration, pace: Pace) -> usize {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let mut guarded = body(BoxBody::new(vec![7; 4 * RESPONSE_PIECE_BYTES]), None, pace);
            let mut bytes = 0;
            while let Some(Ok(piece)) = poll_fn(|task| Pin::new(&mut guarded).poll_next(task)).await {
                bytes += piece.len();
                tokio::time::advance(takes).await;
            }
            bytes
        })
    }

    #[test]
    fn a_response_that_is_read_too_slowly_is_cut_off() {
        let millis = Duration::from_millis;
        // With the second pace, a piece must be received almost immediately.
        let pace =
            |stall_max, response_bytes_per_second| Pace { stall_max, response_bytes_per_second, ..Pace::default() };
        assert_eq!(handed(Duration::ZERO, pace(millis(600_000), 1 << 20)), 4 * RESPONSE_PIECE_BYTES);
        assert_eq!(handed(millis(20), pace(millis(1), usize::MAX)), RESPONSE_PIECE_BYTES);
    }
}
