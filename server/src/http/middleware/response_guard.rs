//! Answers that are held until their client has taken them.
//!
//! Responsible for:
//! - handing an answer to its connection in pieces, so that not all of it is there twice, and giving its room back at the end;
//! - ending a connection whose client takes the pieces too slowly.
//!
//! Not responsible for:
//! - how much room there is (`http::middleware::admission`), clients that take nothing (`http::middleware::stalled_socket`).

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::web::Bytes;

use crate::http::middleware::admission::Room;
use crate::http::middleware::pace::Pace;
use tidewire::limits::RESPONSE_PIECE_BYTES;

/// A body that gives back its room when it is sent, or nobody wants it any more.
struct Held {
    rest: Bytes,
    taken_bytes: usize,
    /// When the first piece was asked for.
    began: Option<Instant>,
    pace: Pace,
    _room: Option<Room>,
}

/// Holds what room a body needs for as long as there is any of it.
pub(in crate::http) fn body(body: BoxBody, room: Option<Room>, pace: Pace) -> BoxBody {
    match body.try_into_bytes() {
        Ok(rest) => Held { rest, taken_bytes: 0, began: None, pace, _room: room }.boxed(),
        // What comes piece by piece is nowhere as a whole.
        Err(stream) => stream,
    }
}

impl MessageBody for Held {
    type Error = io::Error;

    fn size(&self) -> BodySize {
        BodySize::Sized(self.rest.len() as u64)
    }

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if self.rest.is_empty() {
            return Poll::Ready(None);
        }
        let took = self.began.get_or_insert_with(Instant::now).elapsed();
        // The next piece is asked for once the client has taken most of the last.
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

    /// How much of an answer of four pieces is handed over to a client that takes so long for each.
    fn handed(takes: Duration, pace: Pace) -> usize {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let mut held = body(BoxBody::new(vec![7; 4 * RESPONSE_PIECE_BYTES]), None, pace);
            let mut bytes = 0;
            while let Some(Ok(piece)) = poll_fn(|task| Pin::new(&mut held).poll_next(task)).await {
                bytes += piece.len();
                tokio::time::sleep(takes).await;
            }
            bytes
        })
    }

    #[test]
    fn who_drips_an_answer_does_not_get_all_of_it() {
        let millis = Duration::from_millis;
        // A piece may take as long as nothing, or next to nothing.
        let pace =
            |stall_max, response_bytes_per_second| Pace { stall_max, response_bytes_per_second, ..Pace::default() };
        assert_eq!(handed(Duration::ZERO, pace(millis(600_000), 1 << 20)), 4 * RESPONSE_PIECE_BYTES);
        assert_eq!(handed(millis(20), pace(millis(1), usize::MAX)), RESPONSE_PIECE_BYTES);
    }
}
