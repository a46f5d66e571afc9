//! Reads request bodies in the middleware, before the handler runs and before the request reserves a work permit.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Instant;

use actix_web::dev::Payload;
use actix_web::http::StatusCode;
use actix_web::http::header::{CONTENT_ENCODING, HeaderMap, HeaderValue};
use actix_web::rt::time::timeout;
use actix_web::web::{Bytes, BytesMut};
use futures_core::Stream as _;

use crate::http::middleware::pace::Pace;
use crate::http::problem::Problem;

/// Creates the problem for a body that is too large, with status 413.
pub(in crate::http) fn too_large(bytes_max: usize) -> Problem {
    let detail = format!("the request body is larger than {bytes_max} bytes");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", detail)
}

/// Refuses a compressed body, because a small one may expand to a large one.
pub(in crate::http) fn check_encoding(headers: &HeaderMap) -> Result<(), Problem> {
    let is_plain = |encoding: &HeaderValue| encoding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"identity");
    if headers.get_all(CONTENT_ENCODING).all(is_plain) {
        return Ok(());
    }
    let detail = "compressed bodies are not supported: send it without Content-Encoding";
    let problem = Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", detail);
    Err(problem.accept_encoding("identity"))
}

/// Reads a body of at most `bytes_max` bytes, and fails if it arrives slower than the pace requires.
pub(in crate::http) async fn read(payload: &mut Payload, bytes_max: usize, pace: &Pace) -> Result<Bytes, Problem> {
    let began = Instant::now();
    let (mut first, mut all) = (Bytes::new(), BytesMut::new());
    loop {
        let received = first.len().max(all.len());
        let left = pace.allows(received).saturating_sub(began.elapsed());
        let next = timeout(left, poll_fn(|task| Pin::new(&mut *payload).poll_next(task))).await;
        let piece = match next {
            Err(_) => return Err(too_slow(received, began)),
            Ok(None) => break,
            Ok(Some(Err(cause))) => {
                return Err(Problem::bad("invalid_body", format!("the request body ended early: {cause}")));
            }
            Ok(Some(Ok(piece))) => piece,
        };
        if received + piece.len() > bytes_max {
            return Err(too_large(bytes_max));
        }
        // Most bodies arrive in one piece, which needs no copy.
        match (first.is_empty(), all.is_empty()) {
            (true, true) => first = piece,
            (false, true) => {
                all.extend_from_slice(&first);
                all.extend_from_slice(&piece);
            }
            (_, false) => all.extend_from_slice(&piece),
        }
    }
    Ok(if all.is_empty() { first } else { all.freeze() })
}

fn too_slow(received: usize, began: Instant) -> Problem {
    let seconds = began.elapsed().as_secs_f64();
    let detail = format!("the request body arrived too slowly: {received} bytes of it in {seconds:.1} s");
    Problem::new(StatusCode::REQUEST_TIMEOUT, "body_timeout", detail).closing()
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_http::{BoxedPayloadStream, error::PayloadError};
    use actix_web::rt::System;
    use futures_util::stream::{self, StreamExt as _};
    use std::time::Duration;

    fn impatient() -> Pace {
        Pace { body_time: Duration::from_millis(20), body_bytes_per_second: usize::MAX, ..Pace::default() }
    }

    /// Reads a body that consists of these pieces. If `is_whole` is false, the body never ends.
    fn read_pieces(pieces: &[&'static str], is_whole: bool) -> Result<Bytes, Problem> {
        let pieces: Vec<_> =
            pieces.iter().map(|piece| Ok::<_, PayloadError>(Bytes::from_static(piece.as_bytes()))).collect();
        let sent = stream::iter(pieces);
        let payload: BoxedPayloadStream =
            if is_whole { Box::pin(sent) } else { Box::pin(sent.chain(stream::pending())) };
        System::new().block_on(read(&mut Payload::Stream { payload }, 10, &impatient()))
    }

    #[test]
    fn a_body_is_read_completely_up_to_its_limit() {
        for (pieces, expected) in
            [(&[][..], ""), (&["ab"], "ab"), (&["ab", "c", "", "de"], "abcde"), (&["", "0123456789"], "0123456789")]
        {
            assert_eq!(read_pieces(pieces, true).unwrap(), expected, "{pieces:?}");
        }
        for pieces in [&["01234567890"][..], &["0123456789", "0"]] {
            assert_eq!(read_pieces(pieces, true).unwrap_err().code(), "body_too_large", "{pieces:?}");
        }
    }

    #[test]
    fn a_body_that_does_not_end_in_time_is_abandoned() {
        for pieces in [&[][..], &["ab"], &["ab", "c"]] {
            assert_eq!(read_pieces(pieces, false).unwrap_err().code(), "body_timeout", "{pieces:?}");
        }
    }
}
