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
use std::vec;

use actix_web::body::{BodySize, MessageBody};
use actix_web::error::BlockingError;
use actix_web::rt::time::{self, Sleep, sleep};
use actix_web::web::{self, Bytes};
use parking_lot::Mutex;
use tracing::warn;

use crate::http::auth::SessionExpiry;
use crate::http::changes::NDJSON;
use crate::http::changes::streams::{Ended, Slot};
use crate::http::changes::text;
use crate::http::changes::types::{self, MISSED, Types};
use tidewire::engine::{Candidate, Changes, ChangesError, Engine, PublishedPost, StoredEvent};
use tidewire::feed::event::Event;
use tidewire::id::SourceId;
use tidewire::limits::RESPONSE_PIECE_BYTES;
use tidewire::storage::journal::Sequence;
use tidewire::storage::log::LogError;

/// Maximum time of one read: an engine that stops does not wake a reader that waits, so the stream looks in between.
const READ_MAX: Duration = Duration::from_millis(500);

/// Pause after a read that has caught up. Events that are accepted meanwhile are sent together, so that a stream does not wake its threads
/// for each group that the scribe commits.
const PAUSE: Duration = Duration::from_millis(10);

/// Pause after the log of a cluster did not answer.
const RETRY: Duration = Duration::from_millis(500);

/// Time without a record after which an answer that should end at a later one ends without its last line.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// The two forms of the stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Format {
    /// One JSON value per line, up to the end of the journal.
    Lines,
    /// Server-sent events, which go on with what is accepted later.
    EventStream,
}

impl Format {
    pub(super) fn media_type(self) -> &'static str {
        match self {
            Self::Lines => NDJSON,
            Self::EventStream => "text/event-stream",
        }
    }

    /// Appends a message of this type, whose JSON `write` appends.
    fn write(self, out: &mut String, name: &str, sequence: Sequence, write: impl FnOnce(&mut String)) {
        if self == Self::EventStream {
            for part in ["event: ", name, "\nid: ", &sequence.to_string(), "\ndata: "] {
                out.push_str(part);
            }
        }
        write(out);
        out.push_str(if self == Self::EventStream { "\n\n" } else { "\n" });
    }

    fn write_reached(self, out: &mut String, through: Sequence) {
        self.write(out, text::REACHED, through, |out| text::reached(through, out));
    }
}

/// Time for which a stream waits for an archive that cannot be read before it leaves a reader of a missed post out.
const UNKNOWN_MAX: Duration = Duration::from_secs(60);

/// A part of the stream.
struct Piece {
    text: String,
    events: u64,
    /// The sequence up to which everything was sent or left out.
    through: Sequence,
    /// Set if the stream ends after this part.
    end: Option<Ended>,
    /// The pause before the next read.
    pause: Option<Duration>,
}

/// Reads a stream and writes its text.
pub(super) struct Reading {
    changes: Changes,
    types: Types,
    format: Format,
    /// The number of events that may still be sent.
    left: Option<u64>,
    /// Events that were read and not written yet.
    rest: vec::IntoIter<(Sequence, StoredEvent)>,
    /// The sequence up to which everything was written or left out.
    through: Sequence,
    readers: Readers,
    /// The post whose readers are being written.
    missed: Option<MissedPost>,
    heard: Instant,
}

/// The readers whom this server knows to sleep.
pub(super) struct Readers {
    pub(super) engine: Engine,
    /// Returns true if this server serves the reader.
    pub(super) is_here: Box<dyn Fn(&SourceId) -> bool + Send>,
}

/// A published post, and the readers who may have missed it and are not written yet.
struct MissedPost {
    sequence: Sequence,
    event: Event,
    /// Not known before the post is applied here.
    left: Option<vec::IntoIter<Candidate>>,
    has_written: bool,
    /// Since when it is not known whether the next reader has missed it.
    unknown_since: Option<Instant>,
}

/// Returns the post that an event publishes.
fn published(event: &Event) -> Option<PublishedPost<'_>> {
    match event {
        Event::Published { position, draft, accepted_at } => {
            Some(PublishedPost { position: *position, draft, accepted_at: *accepted_at })
        }
        _ => None,
    }
}

impl Reading {
    pub(super) fn new(changes: Changes, types: Types, format: Format, limit: Option<u64>, readers: Readers) -> Self {
        let (rest, through, heard) = (Vec::new().into_iter(), changes.sequence(), Instant::now());
        Self { changes, types, format, left: limit, rest, through, readers, missed: None, heard }
    }

    /// Reads the next part, which may be empty. Blocks for a limited time.
    fn read(&mut self) -> Piece {
        let mut piece = Piece { text: String::new(), events: 0, through: self.through, end: None, pause: None };
        let began = Instant::now();
        while piece.end.is_none() && piece.text.len() < RESPONSE_PIECE_BYTES {
            if let Some(missed) = self.missed.take() {
                self.write_missed(&mut piece, missed);
            } else if let Some((sequence, event)) = self.rest.next() {
                self.take(&mut piece, sequence, event);
            } else {
                self.through = self.changes.sequence();
                if self.format == Format::Lines && self.through >= self.changes.end() {
                    piece.end = Some(Ended::Complete);
                } else if piece.text.is_empty() && piece.pause.is_none() && began.elapsed() < READ_MAX {
                    self.read_more(&mut piece);
                    continue;
                }
                break;
            }
            if began.elapsed() >= READ_MAX || piece.pause.is_some() {
                break;
            }
        }
        piece.through = self.through;
        if piece.end == Some(Ended::Complete) {
            self.format.write_reached(&mut piece.text, piece.through);
        }
        if self.format == Format::EventStream && self.rest.as_slice().is_empty() && self.missed.is_none() {
            piece.pause.get_or_insert(PAUSE);
        }
        piece
    }

    fn take(&mut self, piece: &mut Piece, sequence: Sequence, stored: StoredEvent) {
        let (kind, names_readers) = (stored.kind(), self.types.has(MISSED));
        let is_post = kind == "published";
        let is_wanted = self.types.may_have(kind) || (is_post && names_readers);
        if !is_wanted {
            self.through = sequence;
            return;
        }
        if is_post
            && !names_readers
            && let Some((position, accepted_at)) = stored.published()
            && let Some(post) = self.readers.engine.unchanged_post(position.id, accepted_at)
        {
            // It was encoded when it was published.
            let write = |out: &mut String| text::published(sequence, post.json(), out);
            return self.write_event(piece, sequence, Some(("published", write)));
        }
        match stored.decode() {
            Ok(event) => {
                if names_readers && published(&event).is_some() {
                    self.missed =
                        Some(MissedPost { sequence, event, left: None, has_written: false, unknown_since: None });
                } else {
                    self.write(piece, sequence, &event);
                }
            }
            Err(cause) => {
                warn!(sequence = sequence.0, "a stream of changes has ended: the event cannot be read: {cause}");
                piece.end = Some(Ended::Failed);
            }
        }
    }

    /// Writes an event, after which the stream can be resumed.
    fn write(&mut self, piece: &mut Piece, sequence: Sequence, event: &Event) {
        let name = types::name(event).filter(|name| self.types.has(name));
        self.write_event(
            piece,
            sequence,
            name.map(|name| (name, move |out: &mut String| text::event(sequence, name, event, out))),
        );
    }

    /// Writes what is to be written of an event: its type, and what appends its JSON.
    fn write_event(
        &mut self,
        piece: &mut Piece,
        sequence: Sequence,
        wanted: Option<(&'static str, impl FnOnce(&mut String))>,
    ) {
        self.through = sequence;
        if let Some((name, write)) = wanted {
            self.format.write(&mut piece.text, name, sequence, write);
            self.count(piece);
        }
        piece.end = self.left.filter(|left| *left == 0).map(|_| Ended::Complete);
    }

    fn count(&mut self, piece: &mut Piece) {
        piece.events += 1;
        self.left = self.left.map(|left| left.saturating_sub(1));
    }

    /// Writes the next reader who has missed a post, or the post itself after the last one. Until then the messages have the sequence before
    /// it: a client that comes back with that gets all of them again.
    fn write_missed(&mut self, piece: &mut Piece, mut missed: MissedPost) {
        let Readers { engine, is_here } = &self.readers;
        let MissedPost { sequence, event, left, has_written, unknown_since } = &mut missed;
        let post = published(event);
        if left.is_none() {
            *left = post.and_then(|post| engine.may_have_missed(post)).map(Vec::into_iter);
        }
        let Some(left) = left else { return self.wait_for(piece, missed) };
        let (Some(candidate), Some(post)) = (left.as_slice().first().copied(), post) else {
            let is_shown = self.types.has("published");
            self.write(piece, *sequence, event);
            if *has_written && !is_shown && piece.end.is_none() {
                self.format.write_reached(&mut piece.text, *sequence);
            }
            return;
        };
        let found = engine.missed(candidate, post);
        if found.is_err() && unknown_since.get_or_insert_with(Instant::now).elapsed() < UNKNOWN_MAX {
            return self.wait_for(piece, missed);
        }
        let found = found.unwrap_or_else(|_| {
            warn!(
                sequence = sequence.0,
                "a stream of changes leaves out who has missed a post: the archive cannot be read"
            );
            None
        });
        (_, *unknown_since) = (left.next(), None);
        self.heard = Instant::now();
        if let Some(found) = found.filter(|found| is_here(&found.reader)) {
            let through = self.through;
            self.format.write(&mut piece.text, MISSED, through, |out| text::missed(through, &found, post, out));
            *has_written = true;
            self.count(piece);
        }
        self.missed = Some(missed);
    }

    /// Tries again later who has missed a post: it is not applied here yet, or the archive does not answer. Nobody may be left out for that.
    fn wait_for(&mut self, piece: &mut Piece, missed: MissedPost) {
        self.missed = Some(missed);
        piece.pause = Some(RETRY);
        if self.format == Format::Lines && self.heard.elapsed() >= SILENCE_MAX {
            piece.end = Some(Ended::Failed);
        }
    }

    fn read_more(&mut self, piece: &mut Piece) {
        let read_before = self.changes.read_through();
        match self.changes.next_stored(READ_MAX) {
            Ok(events) if events.is_empty() => {
                // A node may read many records before the first that is wanted.
                if self.changes.read_through() > read_before {
                    self.heard = Instant::now();
                }
                let is_silent = self.heard.elapsed() >= SILENCE_MAX;
                piece.end = (is_silent && self.format == Format::Lines).then_some(Ended::Failed);
            }
            Ok(events) => {
                self.heard = Instant::now();
                self.rest = events.into_iter();
            }
            Err(ChangesError::Log(LogError::Unavailable(_))) if self.format == Format::EventStream => {
                piece.pause = Some(RETRY);
            }
            Err(cause) => {
                // The client comes back, and is refused with the reason.
                warn!(after = self.through.0, "a stream of changes has ended: {cause}");
                piece.end = Some(Ended::Failed);
            }
        }
    }
}

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
        let (format, through) = (reading.format, reading.changes.sequence());
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
