//! A forwarded WebSocket: the bytes of both sides pass through unchanged.
//!
//! This module only follows the frame boundaries in the owner's data. So the client gets a valid close frame, not one in the middle of a
//! torn frame, if the owner breaks the connection.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use actix_http::ws::{CloseCode, CloseReason, OpCode, Parser};
use actix_web::HttpResponse;
use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::dev::Payload;
use actix_web::http::StatusCode;
use actix_web::http::header::UPGRADE;
use actix_web::web::{Buf as _, Bytes, BytesMut};
use futures_core::Stream;
use http1::Response;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::http::cluster::relay::{Life, Silence, copy_head};

/// The close reason for a client that is evicted in favor of another unauthenticated one.
const NO_ROOM: &str = "no capacity: reconnect";

/// Bytes per read from the owner.
const READ_BYTES: usize = 16 * 1024;

/// Maximum pieces that are sent to the owner before its messages are read.
const PIECES_PER_POLL: usize = 16;

/// Creates the response to a handshake from the owner's, and connects both sides.
pub(super) async fn response(answer: Response<Incoming>, client: Payload, life: Life) -> Result<HttpResponse, String> {
    let (head, body) = answer.into_parts();
    let mut response = HttpResponse::build(StatusCode::SWITCHING_PROTOCOLS);
    response.upgrade("websocket");
    let owner = hyper::upgrade::on(Response::from_parts(head.clone(), body)).await;
    let owner = TokioIo::new(owner.map_err(|cause| cause.to_string())?);
    let silence = Silence::new(life.silence_max);
    let (frames, to_owner, state) = (Frames::default(), Bytes::new(), ClientState::Sends);
    let relayed = Relayed { client, owner, to_owner, state, frames, silence, life, is_over: false };
    let mut response = response.message_body(BoxBody::new(relayed)).map_err(|cause| cause.to_string())?;
    // The owner's head contains it too.
    response.headers_mut().remove(UPGRADE);
    copy_head(&head, response.headers_mut());
    Ok(response)
}

/// A WebSocket as a response body: polled whenever the socket of the client accepts data.
struct Relayed<T> {
    client: Payload,
    owner: T,
    /// The rest of a piece of the client's data.
    to_owner: Bytes,
    state: ClientState,
    frames: Frames,
    silence: Silence,
    life: Life,
    is_over: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ClientState {
    Sends,
    /// The client has closed its side, and the owner does not know it yet.
    Closed,
    /// The client has closed its side, and the owner knows it.
    Over,
}

impl<T: AsyncRead + AsyncWrite + Unpin> Relayed<T> {
    /// Sends the client's data to the owner. Returns false if the owner accepts no more data.
    fn send(&mut self, task: &mut Context<'_>) -> bool {
        for _ in 0..PIECES_PER_POLL {
            if !self.to_owner.is_empty() {
                match Pin::new(&mut self.owner).poll_write(task, &self.to_owner) {
                    Poll::Ready(Ok(written)) if written > 0 => self.to_owner.advance(written),
                    Poll::Ready(_) => return false,
                    Poll::Pending => return true,
                }
                continue;
            }
            match self.state {
                ClientState::Sends => match Pin::new(&mut self.client).poll_next(task) {
                    Poll::Ready(Some(Ok(piece))) => self.to_owner = piece,
                    Poll::Ready(Some(Err(_)) | None) => self.state = ClientState::Closed,
                    // A TLS stream buffers data until it is flushed.
                    Poll::Pending => return !matches!(Pin::new(&mut self.owner).poll_flush(task), Poll::Ready(Err(_))),
                },
                ClientState::Closed => match Pin::new(&mut self.owner).poll_shutdown(task) {
                    Poll::Ready(Ok(())) => self.state = ClientState::Over,
                    Poll::Ready(Err(_)) => return false,
                    Poll::Pending => return true,
                },
                ClientState::Over => return true,
            }
        }
        task.waker().wake_by_ref();
        true
    }

    /// Reads data of the owner. Returns `None` if the owner sends no more.
    fn read(&mut self, task: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let mut buffer = [0; READ_BYTES];
        let mut read = ReadBuf::new(&mut buffer);
        match Pin::new(&mut self.owner).poll_read(task, &mut read) {
            Poll::Ready(Ok(())) if !read.filled().is_empty() => {
                self.silence.interrupt();
                self.frames.follow(read.filled());
                if self.frames.has_text {
                    self.life.note_authenticated();
                }
                Poll::Ready(Some(Bytes::copy_from_slice(read.filled())))
            }
            Poll::Ready(_) => Poll::Ready(None),
            Poll::Pending if self.silence.poll_over(task) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Ends the connection. Returns a close frame if the client has not received one and expects a frame now.
    fn end(&mut self, (code, words): (CloseCode, &str)) -> Option<Bytes> {
        self.is_over = true;
        if !self.frames.is_between() || self.frames.is_closed {
            return None;
        }
        let mut close = BytesMut::new();
        let reason = CloseReason { code, description: Some(words.to_owned()) };
        Parser::write_close(&mut close, Some(reason), false);
        Some(close.freeze())
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> MessageBody for Relayed<T> {
    type Error = Infallible;

    fn size(&self) -> BodySize {
        BodySize::Stream
    }

    fn poll_next(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Result<Bytes, Infallible>>> {
        let this = self.get_mut();
        if this.is_over {
            return Poll::Ready(None);
        }
        let takes = this.send(task);
        match this.read(task) {
            Poll::Ready(Some(bytes)) => Poll::Ready(Some(Ok(bytes))),
            Poll::Pending if this.life.poll_evicted(task) => Poll::Ready(this.end((CloseCode::Again, NO_ROOM)).map(Ok)),
            Poll::Pending if takes && !this.life.poll_stopping(task) => Poll::Pending,
            Poll::Ready(None) | Poll::Pending => Poll::Ready(this.end((CloseCode::Restart, "reconnect")).map(Ok)),
        }
    }
}

/// The boundaries of frames in a server's data.
#[derive(Default)]
struct Frames {
    /// The bytes of an incomplete header.
    header: Vec<u8>,
    /// The number of remaining bytes of the frame.
    left: u64,
    /// True once a close frame has begun.
    is_closed: bool,
    /// True once a message has begun. An owner sends no message before the client has authenticated.
    has_text: bool,
}

impl Frames {
    /// Returns true if the next byte begins a frame.
    fn is_between(&self) -> bool {
        self.left == 0 && self.header.is_empty()
    }

    /// Processes the next bytes of frames.
    fn follow(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.left > 0 {
                let part = bytes.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
                self.left -= part as u64;
                bytes = &bytes[part..];
                continue;
            }
            self.header.push(bytes[0]);
            bytes = &bytes[1..];
            if let Some(length) = payload_length(&self.header) {
                let code = self.header[0] & 0x0f;
                self.is_closed |= code == u8::from(OpCode::Close);
                self.has_text |= code == u8::from(OpCode::Text);
                self.left = length;
                self.header.clear();
            }
        }
    }
}

/// Returns the number of bytes after a header, or `None` if the header is not complete. Servers do not mask frames; a mask would be the
/// first four of these bytes.
fn payload_length(header: &[u8]) -> Option<u64> {
    let second = *header.get(1)?;
    let mask = if second & 0x80 == 0 { 0 } else { 4 };
    let extended = match second & 0x7f {
        126 => header.get(2..4)?,
        127 => header.get(2..10)?,
        length => return Some(u64::from(length) + mask),
    };
    Some(extended.iter().fold(0, |length, byte| length << 8 | u64::from(*byte)).saturating_add(mask))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames() -> Vec<u8> {
        let mut bytes = BytesMut::new();
        for length in [0, 1, 125, 126, 65_535, 65_536] {
            Parser::write_message(&mut bytes, "x".repeat(length), OpCode::Text, true, false);
        }
        Parser::write_message(&mut bytes, "masked", OpCode::Ping, true, true);
        bytes.to_vec()
    }

    #[test]
    fn frame_boundaries_are_found_in_pieces_of_any_length() {
        let all = frames();
        for piece in [1, 2, 3, 7, 4_096, all.len()] {
            let mut frames = Frames::default();
            all.chunks(piece).for_each(|piece| frames.follow(piece));
            assert!(frames.is_between() && !frames.is_closed && frames.has_text, "{piece}");
        }
        let mut frames = Frames::default();
        frames.follow(&all[..all.len() - 1]);
        assert!(!frames.is_between());
        frames.follow(&all[all.len() - 1..]);
        frames.follow(&[0x81]);
        assert!(!frames.is_between(), "in a header");
    }

    #[test]
    fn a_close_frame_is_detected() {
        let mut bytes = BytesMut::new();
        Parser::write_close(&mut bytes, None, false);
        let mut frames = Frames::default();
        frames.follow(&bytes);
        assert!(frames.is_closed && frames.is_between() && !frames.has_text);
    }
}
