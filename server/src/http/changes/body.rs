//! A stream of changes as a response body: the connection's task polls it whenever the socket accepts more data.
//!
//! A thread for blocking work reads the journal piece by piece. It reads the next piece after the client has received the last one. So a
//! slow client occupies one piece and the events of one read, however many events are accepted meanwhile. The journal is the buffer.

use std::convert::Infallible;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use actix_web::body::{BodySize, MessageBody};
use actix_web::error::BlockingError;
use actix_web::rt::time::{self, Sleep, sleep};
use actix_web::web::{self, Bytes};
use tracing::warn;

use crate::http::auth::SessionExpiry;
use crate::http::changes::place::Place;
use crate::http::changes::reading::{Format, Piece, Reading};
use crate::http::changes::streams::{Ended, Slot};
use crate::http::sockets::connection_slots::connection_state::ConnectionState;
use tidewire::engine::Engine;

/// A read on a thread for blocking work.
type Read = Pin<Box<dyn Future<Output = Result<(Box<Reading>, Piece), BlockingError>>>>;

enum State {
    Reading(Read),
    Pausing(Box<Reading>, Pin<Box<Sleep>>),
    Over,
}

/// The response body.
pub(super) struct Body {
    state: State,
    format: Format,
    slot: Slot,
    engine: Engine,
    session_expiry: Option<Box<SessionExpiry>>,
    /// The place up to which all messages were passed to the connection.
    place: Place,
    heartbeat: Duration,
    next_beat: Pin<Box<Sleep>>,
    /// The connection, which detects a client that reads too slowly.
    connection: Option<Arc<ConnectionState>>,
}

impl Body {
    /// Creates the body of a stream that is sent on this connection.
    pub(super) fn new(
        reading: Reading,
        slot: Slot,
        engine: Engine,
        session_expiry: Option<Box<SessionExpiry>>,
        connection: Option<Arc<ConnectionState>>,
    ) -> Self {
        let heartbeat = engine.shared().config.live_heartbeat;
        let (format, place) = (reading.format(), reading.begins_after().clone());
        // The first server-sent event is sent at once. It shows that the stream is open, and its first place. Lines have a last message
        // instead.
        let first = if format == Format::EventStream { Duration::ZERO } else { heartbeat };
        let next_beat = Box::pin(sleep(first));
        let state = State::Over;
        let mut body = Self { state, format, slot, engine, session_expiry, place, heartbeat, next_beat, connection };
        body.read(Box::new(reading));
        body
    }

    /// Begins to read the next part.
    fn read(&mut self, mut reading: Box<Reading>) {
        self.state = State::Reading(Box::pin(web::block(move || {
            let piece = reading.read();
            (reading, piece)
        })));
    }

    fn end(&mut self, why: Ended) {
        self.slot.end(why);
        self.state = State::Over;
    }

    /// Appends the text of a piece that was read, and begins the next read or pause.
    fn take(&mut self, reading: Box<Reading>, piece: &Piece, out: &mut String) {
        self.place.clone_from(&piece.place);
        self.slot.note_sent(piece.place.after, piece.events, piece.text.len());
        out.push_str(&piece.text);
        if let Some(why) = piece.end {
            return self.end(why);
        }
        if self.engine.is_live_stopped() {
            return self.end(Ended::Stopping);
        }
        match piece.pause {
            Some(pause) => self.state = State::Pausing(reading, Box::pin(sleep(pause))),
            None => self.read(reading),
        }
    }

    /// Writes the current place, so that a client with rare types neither gives up nor resumes far behind.
    fn beat(&mut self, out: &mut String) {
        if self.session_expiry.as_ref().is_some_and(|session_expiry| !session_expiry.is_key_valid()) {
            self.end(Ended::Key);
        } else if !matches!(self.state, State::Over) {
            self.format.write_reached(out, &self.place, false);
        }
    }
}

impl MessageBody for Body {
    type Error = Infallible;

    fn size(&self) -> BodySize {
        BodySize::Stream
    }

    fn poll_next(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Result<Bytes, Infallible>>> {
        let body = self.get_mut();
        let mut out = String::new();
        while body.next_beat.as_mut().poll(task).is_ready() {
            body.next_beat.as_mut().reset(time::Instant::now() + body.heartbeat);
            body.beat(&mut out);
        }
        while out.is_empty() {
            match mem::replace(&mut body.state, State::Over) {
                State::Over => return Poll::Ready(None),
                State::Reading(mut read) => match read.as_mut().poll(task) {
                    Poll::Ready(Ok((reading, piece))) => body.take(reading, &piece, &mut out),
                    Poll::Ready(Err(_)) => body.end(Ended::Failed),
                    Poll::Pending => {
                        body.state = State::Reading(read);
                        return Poll::Pending;
                    }
                },
                State::Pausing(reading, mut pause) => match pause.as_mut().poll(task) {
                    Poll::Ready(()) => body.read(reading),
                    Poll::Pending => {
                        body.state = State::Pausing(reading, pause);
                        return Poll::Pending;
                    }
                },
            }
        }
        Poll::Ready(Some(Ok(Bytes::from(out))))
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        let is_stalled = self.connection.as_ref().is_some_and(|connection| connection.is_stalled());
        if is_stalled && !matches!(self.state, State::Over) {
            warn!(after = self.place.after.0, "disconnected a stream of changes: its client reads too slowly");
            self.slot.end(Ended::Slow);
        }
    }
}
