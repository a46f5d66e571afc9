//! The two wire formats of live messages: WebSocket frames and server-sent events.
//!
//! No other task waits for a client: the connection's own task encodes messages when the socket accepts data.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use actix_http::ws::{CloseCode, CloseReason, OpCode, Parser};
use actix_web::web::{BytesMut, Payload};
use futures_core::Stream;

use crate::http::live::frame_checks::{FrameChecks, Meter, Violation};
use crate::http::live::text;
use tidewire::feed::stream::StreamPosition;
use tidewire::limits::LIVE_FRAME_BYTES_MAX;
use tidewire::live::event::LiveEvent;
use tidewire::live::subscriber_queue::Closing;
use tidewire::storage::sequence::Sequence;

/// A wire format of a live connection.
pub(super) trait Wire: Unpin {
    /// Processes received data of the client, and appends the replies to `out`.
    fn receive(&mut self, task: &mut Context<'_>, out: &mut BytesMut) -> Received;

    /// Appends a message to `out`; `sequence` belongs to the first one.
    fn write(&mut self, event: &LiveEvent, sequence: Option<Sequence>, out: &mut BytesMut);

    /// Appends a message of this type to `out`. `text` is its JSON.
    fn write_text(&mut self, kind: &str, place: StreamPosition, text: &str, out: &mut BytesMut);

    /// Returns the bytes of messages that [`Wire::flush`] will append.
    fn waiting_bytes(&self) -> usize {
        0
    }

    /// Appends the messages of an unfinished batch.
    fn flush(&mut self, _out: &mut BytesMut) {}

    /// Appends a ping, if the format has pings. Returns false if the client has sent nothing since the previous ping.
    fn ping(&mut self, out: &mut BytesMut) -> bool;

    /// Appends the reason for closing the connection.
    fn close(&mut self, why: Close, out: &mut BytesMut);
}

/// The result of processing data of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Received {
    /// No action is necessary.
    Nothing,
    /// The client has closed the connection.
    Closed,
    /// The client violated the protocol.
    Invalid,
    /// The client sent text that is not valid UTF-8.
    NotText,
    /// The client exceeded its limit on bytes.
    TooMuch,
}

/// The reason a connection is closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Close {
    /// The engine closed the connection.
    Engine(Closing),
    /// The reader has too many connections.
    TooMany,
    /// The client closed the connection.
    Client,
    /// The client does not answer pings.
    Dead,
    /// The client violated the protocol.
    Protocol,
    /// The client sent text that is not valid UTF-8.
    NotText,
    /// The client exceeded its limit on bytes.
    TooMuch,
    /// The client is not authenticated, or its session has ended.
    Unauthenticated(&'static str),
    /// The server has no capacity for the connection now.
    Overloaded,
    /// An unexpected internal failure.
    Failed,
}

/// Maximum number of frames that are processed before messages are written. It bounds the replies to pings.
const FRAMES_PER_POLL: usize = 16;

/// Maximum bytes of a frame header: two bytes, a length of eight, a mask of four.
const FRAME_HEAD_BYTES_MAX: usize = 14;

/// The WebSocket wire format.
pub(super) struct WebSocket {
    payload: Payload,
    received: BytesMut,
    /// The fragments of a text message whose last fragment has not arrived yet.
    message: BytesMut,
    /// True if any data was received since the last ping.
    is_alive: bool,
    checks: FrameChecks,
    meter: Meter,
    scratch: String,
    /// True if a frame has an array of messages. `scratch` then has those that wait, without the end of the array.
    has_batches: bool,
}

impl WebSocket {
    /// Creates the format for a WebSocket whose client sends `payload`.
    pub(super) fn new(payload: Payload, has_batches: bool) -> Self {
        let (checks, meter) = (FrameChecks::default(), Meter::new(Instant::now()));
        let (received, message) = (BytesMut::new(), BytesMut::new());
        Self { payload, received, message, is_alive: true, checks, meter, scratch: String::new(), has_batches }
    }

    /// Begins an element of the batch.
    fn begin_element(&mut self) {
        self.scratch.push(if self.scratch.is_empty() { '[' } else { ',' });
    }

    /// Waits for the next message, and replies to control frames. Returns an empty text for a binary message, whose content is not used.
    pub(super) fn poll_text(&mut self, task: &mut Context<'_>, out: &mut BytesMut) -> Poll<Result<BytesMut, Received>> {
        for _ in 0..FRAMES_PER_POLL {
            match ready!(self.poll_frame(task, out)) {
                Frame::Data { op: OpCode::Binary, .. } => return Poll::Ready(Ok(BytesMut::new())),
                Frame::Data { payload, is_last: true, .. } if self.message.is_empty() => {
                    return Poll::Ready(Ok(payload));
                }
                Frame::Data { payload, .. } if self.message.len() + payload.len() > LIVE_FRAME_BYTES_MAX => {
                    return Poll::Ready(Err(Received::Invalid));
                }
                Frame::Data { payload, is_last, .. } => {
                    self.message.extend_from_slice(&payload);
                    if is_last {
                        return Poll::Ready(Ok(std::mem::take(&mut self.message)));
                    }
                }
                Frame::Other(Received::Nothing) => {}
                Frame::Other(outcome) => return Poll::Ready(Err(outcome)),
            }
        }
        task.waker().wake_by_ref();
        Poll::Pending
    }

    /// Waits for the next frame.
    fn poll_frame(&mut self, task: &mut Context<'_>, out: &mut BytesMut) -> Poll<Frame> {
        loop {
            let before = self.received.len();
            if let Some(frame) = frame(&mut self.checks, &mut self.received, out) {
                if !self.meter.take(before - self.received.len(), Instant::now()) {
                    return Poll::Ready(Frame::Other(Received::TooMuch));
                }
                self.is_alive |= matches!(frame, Frame::Data { .. } | Frame::Other(Received::Nothing));
                return Poll::Ready(frame);
            }
            match Pin::new(&mut self.payload).poll_next(task) {
                Poll::Ready(Some(Ok(bytes))) => self.received.extend_from_slice(&bytes),
                Poll::Ready(Some(Err(_)) | None) => return Poll::Ready(Frame::Other(Received::Closed)),
                Poll::Pending => {
                    if self.received.is_empty() {
                        // Most clients send only pongs, so this releases the buffer's memory.
                        self.received = BytesMut::new();
                    }
                    return Poll::Pending;
                }
            }
        }
    }
}

/// A frame that a client sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Frame {
    /// A message, or a fragment of one. `op` is the opcode of the frame: all fragments but the first have [`OpCode::Continue`].
    Data { op: OpCode, payload: BytesMut, is_last: bool },
    /// Any other frame, or an error.
    Other(Received),
}

/// Removes the next frame from `received`, and appends the reply to a ping to `out`. Returns `None` if the frame is incomplete.
pub(super) fn frame(checks: &mut FrameChecks, received: &mut BytesMut, out: &mut BytesMut) -> Option<Frame> {
    let outcome = match Parser::parse(received, true, LIVE_FRAME_BYTES_MAX) {
        Err(_) => Received::Invalid,
        // The parser checks the size of a frame only after the frame is complete.
        Ok(None) if received.len() > LIVE_FRAME_BYTES_MAX + FRAME_HEAD_BYTES_MAX => Received::Invalid,
        Ok(None) => return None,
        Ok(Some((is_last, op, payload))) => {
            let payload = payload.unwrap_or_default();
            match (checks.check(is_last, op, &payload), op) {
                (Err(Violation::Protocol), _) => Received::Invalid,
                (Err(Violation::Text), _) => Received::NotText,
                (Ok(()), OpCode::Close) => Received::Closed,
                (Ok(()), OpCode::Text | OpCode::Binary | OpCode::Continue) => {
                    return Some(Frame::Data { op, payload, is_last });
                }
                (Ok(()), OpCode::Ping) => {
                    Parser::write_message(out, payload, OpCode::Pong, true, false);
                    Received::Nothing
                }
                (Ok(()), _) => Received::Nothing,
            }
        }
    };
    Some(Frame::Other(outcome))
}

impl Wire for WebSocket {
    fn receive(&mut self, task: &mut Context<'_>, out: &mut BytesMut) -> Received {
        for _ in 0..FRAMES_PER_POLL {
            match self.poll_frame(task, out) {
                Poll::Ready(Frame::Data { .. } | Frame::Other(Received::Nothing)) => {}
                Poll::Ready(Frame::Other(outcome)) => return outcome,
                Poll::Pending => return Received::Nothing,
            }
        }
        // There may be more frames, but messages and other tasks run first.
        task.waker().wake_by_ref();
        Received::Nothing
    }

    fn write(&mut self, event: &LiveEvent, sequence: Option<Sequence>, out: &mut BytesMut) {
        if self.has_batches {
            self.begin_element();
            return text::message(event, sequence, &mut self.scratch);
        }
        self.scratch.clear();
        text::message(event, sequence, &mut self.scratch);
        Parser::write_message(out, &self.scratch, OpCode::Text, true, false);
    }

    fn write_text(&mut self, _: &str, _: StreamPosition, text: &str, out: &mut BytesMut) {
        if self.has_batches {
            self.begin_element();
            return self.scratch.push_str(text);
        }
        Parser::write_message(out, text, OpCode::Text, true, false);
    }

    fn waiting_bytes(&self) -> usize {
        if self.has_batches { self.scratch.len() } else { 0 }
    }

    fn flush(&mut self, out: &mut BytesMut) {
        if self.has_batches && !self.scratch.is_empty() {
            self.scratch.push(']');
            Parser::write_message(out, &self.scratch, OpCode::Text, true, false);
            self.scratch.clear();
        }
    }

    fn ping(&mut self, out: &mut BytesMut) -> bool {
        self.flush(out);
        self.scratch = String::new();
        Parser::write_message(out, "", OpCode::Ping, true, false);
        std::mem::replace(&mut self.is_alive, false)
    }

    fn close(&mut self, why: Close, out: &mut BytesMut) {
        self.flush(out);
        let (code, words) = match why {
            Close::Engine(Closing::TooSlow) => (CloseCode::Other(4008), "too slow: reconnect and resume"),
            Close::Engine(Closing::Restart) => (CloseCode::Restart, "reconnect"),
            Close::TooMany => (CloseCode::Other(4029), "too many connections of this reader"),
            Close::Engine(Closing::Gone) | Close::Client => (CloseCode::Normal, ""),
            Close::Dead => (CloseCode::Away, "no answer: reconnect"),
            Close::Unauthenticated(words) => (CloseCode::Other(4001), words),
            Close::Overloaded => (CloseCode::Again, "no capacity: reconnect"),
            Close::Failed => (CloseCode::Error, "internal error"),
            Close::Protocol => (CloseCode::Protocol, "not a supported frame"),
            Close::NotText => (CloseCode::Invalid, "text that is not UTF-8"),
            Close::TooMuch => (CloseCode::Policy, "more messages than one client may send"),
        };
        Parser::write_close(out, Some(CloseReason { code, description: Some(words.to_owned()) }), false);
    }
}

/// The wire format of server-sent events.
#[derive(Default)]
pub(super) struct EventStream {
    scratch: String,
}

impl Wire for EventStream {
    fn receive(&mut self, _: &mut Context<'_>, _: &mut BytesMut) -> Received {
        Received::Nothing
    }

    fn write(&mut self, event: &LiveEvent, sequence: Option<Sequence>, out: &mut BytesMut) {
        let mut message = std::mem::take(&mut self.scratch);
        message.clear();
        text::message(event, sequence, &mut message);
        self.write_text(text::kind(event), event.place, &message, out);
        self.scratch = message;
    }

    fn write_text(&mut self, kind: &str, place: StreamPosition, text: &str, out: &mut BytesMut) {
        out.extend_from_slice(b"event: ");
        out.extend_from_slice(kind.as_bytes());
        out.extend_from_slice(b"\nid: ");
        let id = format!("{}:{}", text::epoch(place.epoch), place.last);
        out.extend_from_slice(id.as_bytes());
        // The JSON of a post body may contain line breaks only between tokens, because JSON escapes them within strings.
        for line in text.split(['\n', '\r']) {
            out.extend_from_slice(b"\ndata: ");
            out.extend_from_slice(line.as_bytes());
        }
        out.extend_from_slice(b"\n\n");
    }

    fn ping(&mut self, _: &mut BytesMut) -> bool {
        self.scratch = String::new();
        true
    }

    fn close(&mut self, _: Close, _: &mut BytesMut) {}
}
