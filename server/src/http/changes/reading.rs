//! Reads the journal for a stream of changes, piece by piece, and writes the text of each piece.
//!
//! Responsible for:
//! - which events are written, in which form, up to which place;
//! - waiting for a limited time for what is not there yet: the next event, a post that is not applied, an archive that does not answer.

use std::time::Duration;
use std::vec;

use tracing::warn;

use crate::http::changes::NDJSON;
use crate::http::changes::missed::{ArchiveWaits, MissedPost, Next, Readers, published};
use crate::http::changes::place::Place;
use crate::http::changes::streams::Ended;
use crate::http::changes::text;
use crate::http::changes::types::{self, MISSED, Types};
use tidewire::engine::{Changes, ChangesError, StoredEvent};
use tidewire::feed::event::Event;
use tidewire::id::SourceId;
use tidewire::limits::RESPONSE_PIECE_BYTES;
use tidewire::storage::log::LogError;
use tidewire::storage::sequence::Sequence;

/// Maximum time of one read: an engine that stops does not wake a reader that waits, so the stream looks in between.
const READ_MAX: Duration = Duration::from_millis(500);

/// Pause after a read that has caught up. Events that are accepted meanwhile are sent together, so that a stream does not wake its threads
/// for each group that the command processor commits.
const PAUSE: Duration = Duration::from_millis(10);

/// Pause after the log of a cluster did not answer.
const RETRY: Duration = Duration::from_millis(500);

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

    /// Appends a message of this type, whose JSON `write` appends. `id` is the place after it.
    fn write(self, out: &mut String, name: &str, id: &impl ToString, write: impl FnOnce(&mut String)) {
        if self == Self::EventStream {
            for part in ["event: ", name, "\nid: ", &id.to_string(), "\ndata: "] {
                out.push_str(part);
            }
        }
        write(out);
        out.push_str(if self == Self::EventStream { "\n\n" } else { "\n" });
    }

    /// Appends the message that says how far the stream is. Only lines have a last one, which `is_last` is true of.
    pub(super) fn write_reached(self, out: &mut String, place: &Place, is_last: bool) {
        let goes_on = self == Self::Lines && !is_last;
        self.write(out, text::REACHED, place, |out| text::reached(place, goes_on, out));
    }
}

const PATIENCE: Patience = Patience { archive_max: Duration::from_secs(60), silence_max: Duration::from_secs(10) };

/// A part of the stream.
pub(super) struct Piece {
    pub(super) text: String,
    pub(super) events: u64,
    /// The place up to which everything was sent or left out.
    pub(super) place: Place,
    /// Set if the stream ends after this part.
    pub(super) end: Option<Ended>,
    /// The pause before the next read.
    pub(super) pause: Option<Duration>,
}

/// The log that a stream reads: the engine's, or in tests a slow one.
pub(super) trait Log: Send {
    /// Returns the next events, or none if there is none in time.
    fn next(&mut self) -> Result<Vec<(Sequence, StoredEvent)>, ChangesError>;
    /// Returns the sequence up to which everything was returned.
    fn sequence(&self) -> Sequence;
    /// Returns the last record that was read, which may be before the first that is returned.
    fn read_through(&self) -> Sequence;
    /// Returns the last record of the log when reading began.
    fn end(&self) -> Sequence;
}

impl Log for Changes {
    fn next(&mut self) -> Result<Vec<(Sequence, StoredEvent)>, ChangesError> {
        self.next_stored(READ_MAX)
    }

    fn sequence(&self) -> Sequence {
        Self::sequence(self)
    }

    fn read_through(&self) -> Sequence {
        Self::read_through(self)
    }

    fn end(&self) -> Sequence {
        Self::end(self)
    }
}

/// How long a stream waits.
#[derive(Clone, Copy)]
struct Patience {
    /// For an archive that does not answer, before it leaves out readers of missed posts.
    archive_max: Duration,
    /// For the next record, before an answer that should end at a later one ends without its last line.
    silence_max: Duration,
}

/// Reads a stream and writes its text.
pub(super) struct Reading {
    changes: Box<dyn Log>,
    patience: Patience,
    types: Types,
    format: Format,
    /// The number of events that may still be sent.
    left: Option<u64>,
    /// Events that were read and not written yet.
    rest: vec::IntoIter<(Sequence, StoredEvent)>,
    /// The place up to which everything was written or left out. At first it may name a reader of the next post.
    place: Place,
    readers: Readers,
    /// The post whose readers are being written.
    missed: Option<MissedPost>,
    archive_waits: ArchiveWaits,
    /// When a record was last read, on the monotonic clock.
    heard: Duration,
}

impl Reading {
    /// Creates what reads a stream. `after_reader` is the reader after whom it begins, of the post that follows.
    pub(super) fn new(
        changes: impl Log + 'static,
        types: Types,
        format: Format,
        limit: Option<u64>,
        after_reader: Option<SourceId>,
        readers: Readers,
    ) -> Self {
        let place = Place { after: changes.sequence(), reader: after_reader };
        let (rest, heard, patience) = (Vec::new().into_iter(), readers.now(), PATIENCE);
        let (changes, archive_waits) = (Box::new(changes), ArchiveWaits::new(patience.archive_max));
        let (left, missed) = (limit, None);
        Self { changes, patience, types, format, left, rest, place, readers, missed, archive_waits, heard }
    }

    /// Returns the place after which the stream begins or continues.
    pub(super) fn begins_after(&self) -> &Place {
        &self.place
    }

    pub(super) fn format(&self) -> Format {
        self.format
    }

    /// Reads the next part, which may be empty. Blocks for a limited time.
    pub(super) fn read(&mut self) -> Piece {
        let mut piece = Piece { text: String::new(), events: 0, place: self.place.clone(), end: None, pause: None };
        let until = self.readers.now() + READ_MAX;
        while piece.end.is_none() && piece.text.len() < RESPONSE_PIECE_BYTES {
            if let Some(missed) = self.missed.take() {
                self.write_missed(&mut piece, missed);
            } else if let Some((sequence, event)) = self.rest.next() {
                self.take(&mut piece, sequence, event);
            } else {
                // The log may have had records that are no events, so that a reader of the next post stays named.
                self.place.after = self.changes.sequence();
                if self.format == Format::Lines && self.place.after >= self.changes.end() {
                    piece.end = Some(Ended::Complete);
                } else if piece.text.is_empty() && piece.pause.is_none() {
                    self.read_more(&mut piece);
                    if !self.rest.as_slice().is_empty() {
                        continue;
                    }
                    // It has waited long enough, and may have read records that are no events.
                    self.place.after = self.changes.sequence();
                }
                break;
            }
            if self.readers.now() >= until || piece.pause.is_some() {
                break;
            }
        }
        piece.place = self.place.clone();
        if piece.end == Some(Ended::Complete) {
            self.format.write_reached(&mut piece.text, &piece.place, true);
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
            self.place = Place::after(sequence);
            return;
        }
        if is_post
            && !names_readers
            && let Some((position, accepted_at)) = stored.published()
            && let Some(post) = self.readers.engine.unchanged_post(position.id, accepted_at)
        {
            // It was encoded when it was published.
            let write = |out: &mut String| text::published(sequence, post.json(), &[], out);
            return self.write_event(piece, sequence, Some(("published", write)));
        }
        match stored.decode() {
            Ok(event) => {
                if names_readers && published(&event).is_some() {
                    self.missed = Some(MissedPost::new(sequence, event, self.place.reader.clone()));
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
        self.place = Place::after(sequence);
        if let Some((name, write)) = wanted {
            self.format.write(&mut piece.text, name, &sequence, write);
            self.count(piece);
        }
    }

    /// Counts a message. The last one that is wanted ends the stream.
    fn count(&mut self, piece: &mut Piece) {
        piece.events += 1;
        self.left = self.left.map(|left| left.saturating_sub(1));
        if self.left == Some(0) {
            piece.end = Some(Ended::Complete);
        }
    }

    /// Writes the next reader who has missed a post, or the post itself after the last one.
    fn write_missed(&mut self, piece: &mut Piece, mut missed: MissedPost) {
        match missed.next(&self.readers, &mut self.archive_waits) {
            Next::NotApplied => {
                let is_silent = self.is_silent();
                piece.end = (is_silent && self.format == Format::Lines).then_some(Ended::Failed);
                self.wait_for(piece, missed);
            }
            Next::ArchiveLate => self.wait_for(piece, missed),
            Next::Reader(id, found) => {
                self.heard = self.readers.now();
                self.place.reader = Some(id);
                missed.is_entered |= found.is_some();
                if let (Some(found), Some(post)) = (found, missed.post()) {
                    let sequence = self.place.after;
                    let write = |out: &mut String| text::missed(sequence, &found, post, out);
                    self.format.write(&mut piece.text, MISSED, &self.place, write);
                    self.count(piece);
                }
                self.missed = Some(missed);
            }
            Next::Over => {
                let is_shown = self.types.has("published");
                self.write(piece, missed.sequence, &missed.event);
                // A client that knows a place within the post learns that it is over.
                if missed.is_entered && !is_shown && piece.end.is_none() {
                    self.format.write_reached(&mut piece.text, &self.place, false);
                }
            }
        }
    }

    fn is_silent(&self) -> bool {
        self.readers.now().saturating_sub(self.heard) >= self.patience.silence_max
    }

    /// Tries again later. Nobody may be left out because something is not there yet.
    fn wait_for(&mut self, piece: &mut Piece, missed: MissedPost) {
        self.missed = Some(missed);
        piece.pause = Some(RETRY);
    }

    fn read_more(&mut self, piece: &mut Piece) {
        let read_before = self.changes.read_through();
        match self.changes.next() {
            Ok(events) if events.is_empty() => {
                // A node may read many records before the first that is wanted.
                if self.changes.read_through() > read_before {
                    self.heard = self.readers.now();
                }
                let is_silent = self.is_silent();
                piece.end = (is_silent && self.format == Format::Lines).then_some(Ended::Failed);
            }
            Ok(events) => {
                self.heard = self.readers.now();
                self.rest = events.into_iter();
            }
            Err(ChangesError::Log(LogError::Unavailable(_))) if self.format == Format::EventStream => {
                piece.pause = Some(RETRY);
            }
            Err(cause) => {
                // The client comes back, and is refused with the reason.
                warn!(after = self.place.after.0, "a stream of changes has ended: {cause}");
                piece.end = Some(Ended::Failed);
            }
        }
    }
}

#[cfg(test)]
mod tests;
