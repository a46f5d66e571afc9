//! A stream of changes as a response body: the connection's task polls it whenever the socket accepts more data.
//!
//! The journal is read piece by piece, on a thread that may block. The next piece is read after the client has taken the last one, so a slow
//! client holds one piece and the events of one read, whatever is accepted meanwhile. The journal is its buffer.

use std::convert::Infallible;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use actix_web::body::{BodySize, MessageBody};
use actix_web::error::BlockingError;
use actix_web::rt::time::{self, Sleep, sleep};
use actix_web::web::{self, Bytes};
use parking_lot::Mutex;
use tracing::warn;

use crate::http::auth::SessionExpiry;
use crate::http::changes::reading::{Format, Piece, Reading};
use crate::http::changes::streams::{Ended, Slot};
use tidewire::engine::Engine;
use tidewire::storage::journal::Sequence;

/// A read on a thread that may block.
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
    through: Sequence,
    heartbeat: Duration,
    next_beat: Pin<Box<Sleep>>,
    /// Since when there is a part, or could be one, that the connection has not asked for. It asks when the client has taken most of the last.
    untaken_since: Arc<Mutex<Option<Instant>>>,
    stall_max: Duration,
}

impl Body {
    /// Creates the body of a stream, for a client that may take nothing for `stall_max`.
    pub(super) fn new(
        reading: Reading,
        slot: Slot,
        engine: Engine,
        session_expiry: Option<Box<SessionExpiry>>,
        stall_max: Duration,
    ) -> Self {
        let heartbeat = engine.shared().config.live_heartbeat;
        let (format, through) = (reading.format(), reading.begins_after());
        // The first message comes at once: it shows that the stream is open, and where it begins.
        let next_beat = Box::pin(sleep(Duration::ZERO));
        let (state, untaken_since) = (State::Over, Arc::default());
        let mut body = Self {
            state,
            format,
            slot,
            engine,
            session_expiry,
            through,
            heartbeat,
            next_beat,
            untaken_since,
            stall_max,
        };
        body.read(Box::new(reading));
        body
    }

    /// Begins to read the next part.
    fn read(&mut self, mut reading: Box<Reading>) {
        *self.untaken_since.lock() = None;
        let untaken_since = Arc::clone(&self.untaken_since);
        self.state = State::Reading(Box::pin(web::block(move || {
            let piece = reading.read();
            *untaken_since.lock() = Some(Instant::now());
            (reading, piece)
        })));
    }

    fn end(&mut self, why: Ended) {
        self.slot.end(why);
        self.state = State::Over;
    }

    /// Takes a part that was read, and appends its text.
    fn take(&mut self, reading: Box<Reading>, piece: &Piece, out: &mut String) {
        self.through = piece.through;
        self.slot.note_sent(piece.through, piece.events, piece.text.len());
        out.push_str(&piece.text);
        // A pause is over soon, unless the connection does not ask.
        *self.untaken_since.lock() = piece.pause.is_some().then(Instant::now);
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

    fn beat(&mut self, out: &mut String) {
        if self.session_expiry.as_ref().is_some_and(|session_expiry| !session_expiry.is_key_valid()) {
            self.end(Ended::Key);
        } else if self.format == Format::EventStream {
            self.format.write_reached(out, self.through);
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
        let untaken = self.untaken_since.lock().map(|since| since.elapsed()).unwrap_or_default();
        // The socket begins to count when it is full, which may be before the next part is ready.
        if untaken >= self.stall_max / 2 && !matches!(self.state, State::Over) {
            warn!(
                after = self.through.0,
                "a stream of changes was disconnected: its client took nothing for {untaken:.1?}"
            );
            self.slot.end(Ended::Slow);
        }
    }
}
