//! The two wires that live messages go over.
//!
//! Nobody waits for a wire: it is written by the connection's own task, when the socket has room.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use actix_http::ws::{CloseCode, CloseReason, OpCode, Parser};
use actix_web::web::{BytesMut, Payload};
use futures_core::Stream;

use crate::http::live::rules::{Meter, Rules, Wrong};
use crate::http::live::text;
use tidewire::limits::LIVE_FRAME_BYTES_MAX;
use tidewire::live::event::Event;
use tidewire::live::subscriber_queue::Closing;

/// How a live connection speaks.
pub(super) trait Wire: Unpin {
    /// Takes in what the client says, and answers what is to be answered.
    fn listen(&mut self, task: &mut Context<'_>, out: &mut BytesMut) -> Heard;

    /// Writes a message.
    fn write(&mut self, event: &Event, out: &mut BytesMut);

    /// Asks whether the client is alive, if it can answer. False if it has not the last time.
    fn ping(&mut self, out: &mut BytesMut) -> bool;

    /// Writes why the connection ends.
    fn close(&mut self, why: Close, out: &mut BytesMut);
}

/// What a client said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Heard {
    /// Nothing that matters.
    Nothing,
    /// That it goes.
    Gone,
    /// What it must not say.
    Nonsense,
    /// Text that is none.
    NotText,
    /// More than it may say.
    TooMuch,
}

/// Why a connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Close {
    /// The engine ended it.
    Engine(Closing),
    /// Its reader has too many.
    TooMany,
    /// The client went by itself, in good order.
    Client,
    /// The client does not answer.
    Dead,
    /// The client does not keep to the protocol.
    Protocol,
    /// The client sends text that is no UTF-8.
    NotText,
    /// The client sends more than it may.
    TooMuch,
    /// It is not known, or not any more, who the client is.
    Unauthenticated(&'static str),
    /// There is no room for it now.
    Overloaded,
    /// Something failed that should not.
    Failed,
}

/// Frames looked at before messages get their turn: answers to pings must not grow without end.
const FRAMES_PER_TURN: usize = 16;

/// The longest head of a frame: two bytes, a length of eight, a mask of four.
const FRAME_HEAD_BYTES_MAX: usize = 14;

/// A WebSocket.
pub(super) struct WebSocket {
    payload: Payload,
    received: BytesMut,
    /// Anything was received since the last ping.
    is_alive: bool,
    rules: Rules,
    meter: Meter,
    scratch: String,
}

impl WebSocket {
    /// A WebSocket whose client sends `payload`.
    pub(super) fn new(payload: Payload) -> Self {
        let (rules, meter) = (Rules::default(), Meter::new(Instant::now()));
        Self { payload, received: BytesMut::new(), is_alive: true, rules, meter, scratch: String::new() }
    }

    /// The first message, once it is there. Control frames are answered meanwhile.
    pub(super) fn poll_text(&mut self, task: &mut Context<'_>, out: &mut BytesMut) -> Poll<Result<BytesMut, Heard>> {
        for _ in 0..FRAMES_PER_TURN {
            match ready!(self.poll_frame(task, out)) {
                Frame::Text(text) => return Poll::Ready(Ok(text)),
                Frame::Other(Heard::Nothing) => {}
                Frame::Other(heard) => return Poll::Ready(Err(heard)),
            }
        }
        task.waker().wake_by_ref();
        Poll::Pending
    }

    /// The next thing the client said.
    fn poll_frame(&mut self, task: &mut Context<'_>, out: &mut BytesMut) -> Poll<Frame> {
        loop {
            let before = self.received.len();
            if let Some(frame) = frame(&mut self.rules, &mut self.received, out) {
                if !self.meter.take(before - self.received.len(), Instant::now()) {
                    return Poll::Ready(Frame::Other(Heard::TooMuch));
                }
                self.is_alive |= matches!(frame, Frame::Text(_) | Frame::Other(Heard::Nothing));
                return Poll::Ready(frame);
            }
            match Pin::new(&mut self.payload).poll_next(task) {
                Poll::Ready(Some(Ok(bytes))) => self.received.extend_from_slice(&bytes),
                Poll::Ready(Some(Err(_)) | None) => return Poll::Ready(Frame::Other(Heard::Gone)),
                Poll::Pending => {
                    if self.received.is_empty() {
                        // Most clients say nothing but that they are alive: no memory is kept for that.
                        self.received = BytesMut::new();
                    }
                    return Poll::Pending;
                }
            }
        }
    }
}

/// What a client sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Frame {
    /// A whole message, of text.
    Text(BytesMut),
    /// Anything else.
    Other(Heard),
}

/// The next thing of what was received, which it is taken from. What it asks to be answered is answered.
pub(super) fn frame(rules: &mut Rules, received: &mut BytesMut, out: &mut BytesMut) -> Option<Frame> {
    let heard = match Parser::parse(received, true, LIVE_FRAME_BYTES_MAX) {
        Err(_) => Heard::Nonsense,
        // The parser looks at the size of a frame once it is whole.
        Ok(None) if received.len() > LIVE_FRAME_BYTES_MAX + FRAME_HEAD_BYTES_MAX => Heard::Nonsense,
        Ok(None) => return None,
        Ok(Some((is_last, op, payload))) => {
            let payload = payload.unwrap_or_default();
            match (rules.check(is_last, op, &payload), op) {
                (Err(Wrong::Protocol), _) => Heard::Nonsense,
                (Err(Wrong::Text), _) => Heard::NotText,
                (Ok(()), OpCode::Close) => Heard::Gone,
                (Ok(()), OpCode::Text) if is_last => return Some(Frame::Text(payload)),
                (Ok(()), OpCode::Ping) => {
                    Parser::write_message(out, payload, OpCode::Pong, true, false);
                    Heard::Nothing
                }
                (Ok(()), _) => Heard::Nothing,
            }
        }
    };
    Some(Frame::Other(heard))
}

impl Wire for WebSocket {
    fn listen(&mut self, task: &mut Context<'_>, out: &mut BytesMut) -> Heard {
        for _ in 0..FRAMES_PER_TURN {
            match self.poll_frame(task, out) {
                Poll::Ready(Frame::Text(_) | Frame::Other(Heard::Nothing)) => {}
                Poll::Ready(Frame::Other(heard)) => return heard,
                Poll::Pending => return Heard::Nothing,
            }
        }
        // There may be more, but first those have their turn who wait for this connection.
        task.waker().wake_by_ref();
        Heard::Nothing
    }

    fn write(&mut self, event: &Event, out: &mut BytesMut) {
        self.scratch.clear();
        text::message(event, &mut self.scratch);
        Parser::write_message(out, &self.scratch, OpCode::Text, true, false);
    }

    fn ping(&mut self, out: &mut BytesMut) -> bool {
        self.scratch = String::new();
        Parser::write_message(out, "", OpCode::Ping, true, false);
        std::mem::replace(&mut self.is_alive, false)
    }

    fn close(&mut self, why: Close, out: &mut BytesMut) {
        let (code, words) = match why {
            Close::Engine(Closing::TooSlow) => (CloseCode::Other(4008), "too slow: come back and resume"),
            Close::Engine(Closing::Restart) => (CloseCode::Restart, "come back"),
            Close::TooMany => (CloseCode::Other(4029), "too many connections of this reader"),
            Close::Engine(Closing::Gone) | Close::Client => (CloseCode::Normal, ""),
            Close::Dead => (CloseCode::Away, "no answer: come back"),
            Close::Unauthenticated(words) => (CloseCode::Other(4001), words),
            Close::Overloaded => (CloseCode::Again, "no room: come back"),
            Close::Failed => (CloseCode::Error, "this failed"),
            Close::Protocol => (CloseCode::Protocol, "not a frame that is understood here"),
            Close::NotText => (CloseCode::Invalid, "text that is no UTF-8"),
            Close::TooMuch => (CloseCode::Policy, "more than one client may send"),
        };
        Parser::write_close(out, Some(CloseReason { code, description: Some(words.to_owned()) }), false);
    }
}

/// Server-sent events.
#[derive(Default)]
pub(super) struct EventStream {
    scratch: String,
}

impl Wire for EventStream {
    fn listen(&mut self, _: &mut Context<'_>, _: &mut BytesMut) -> Heard {
        Heard::Nothing
    }

    fn write(&mut self, event: &Event, out: &mut BytesMut) {
        self.scratch.clear();
        text::message(event, &mut self.scratch);
        out.extend_from_slice(b"event: ");
        out.extend_from_slice(text::kind(event).as_bytes());
        out.extend_from_slice(b"\nid: ");
        let id = format!("{}:{}", text::epoch(event.place.epoch), event.place.last);
        out.extend_from_slice(id.as_bytes());
        // A body may have line breaks between its tokens, and there alone: within strings JSON escapes them.
        for line in self.scratch.split(['\n', '\r']) {
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
