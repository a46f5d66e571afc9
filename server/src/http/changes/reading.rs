//! Reads the journal for a stream of changes, piece by piece, and writes the text of each piece.
//!
//! Responsible for:
//! - selecting the events and their form, up to the place where the stream ends;
//! - waiting for a limited time for the next event, for a post that is not applied yet, or for an archive that does not answer.

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

/// Maximum time of one read. A stopping engine does not wake a waiting reader, so the stream checks between reads.
const READ_MAX: Duration = Duration::from_millis(500);

/// Pause after a read that has caught up. The next read then sends all events that were accepted meanwhile, so that a stream does not
/// wake its threads for each group commit.
const PAUSE: Duration = Duration::from_millis(10);

/// Pause after the log of a cluster did not answer.
const RETRY: Duration = Duration::from_millis(500);

/// The two forms of the stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Format {
    /// One JSON value per line, up to the end of the journal.
    Lines,
    /// Server-sent events, which continue with events that are accepted later.
    EventStream,
}

impl Format {
    pub(super) fn media_type(self) -> &'static str {
        match self {
            Self::Lines => NDJSON,
            Self::EventStream => "text/event-stream",
        }
    }

    /// Appends a message of this type; `write` appends its JSON. `id` is the place after it.
    fn write(self, out: &mut String, name: &str, id: &impl ToString, write: impl FnOnce(&mut String)) {
        if self == Self::EventStream {
            for part in ["event: ", name, "\nid: ", &id.to_string(), "\ndata: "] {
                out.push_str(part);
            }
        }
        write(out);
        out.push_str(if self == Self::EventStream { "\n\n" } else { "\n" });
    }

    /// Appends the message with the current place of the stream. `is_last` is true for the last message, which only lines have.
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
    /// The place up to which all events were sent or left out.
    pub(super) place: Place,
    /// Set if the stream ends after this part.
    pub(super) end: Option<Ended>,
    /// The pause before the next read.
    pub(super) pause: Option<Duration>,
}

/// The log that a stream reads: the engine's, or in tests a slow one.
pub(super) trait Log: Send {
    /// Returns the next events, or an empty list if none arrive in time.
    fn next(&mut self) -> Result<Vec<(Sequence, StoredEvent)>, ChangesError>;
    /// Returns the sequence up to which all events were returned.
    fn sequence(&self) -> Sequence;
    /// Returns the last record that was read, which may precede the first event to return.
    fn read_through(&self) -> Sequence;
    /// Returns the last record of the log at the time when reading began.
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

/// The maximum times for which a stream waits.
#[derive(Clone, Copy)]
struct Patience {
    /// The wait for an archive that does not answer. After it, the stream leaves out readers who may have missed posts.
    archive_max: Duration,
    /// The wait for the next record. After it, a response in lines ends early, without its last line.
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
    /// Events that were read but not written yet.
    rest: vec::IntoIter<(Sequence, StoredEvent)>,
    /// The place up to which all events were written or left out. Initially, it may contain a reader of the next post.
    place: Place,
    readers: Readers,
    /// The post whose missed readers are being written.
    missed: Option<MissedPost>,
    archive_waits: ArchiveWaits,
    /// The time of the last read record, on the monotonic clock.
    heard: Duration,
}

impl Reading {
    /// Creates a stream that reads `changes`. It begins after the reader `after_reader` of the next post.
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
                // The log may have had records that are not events, so a reader of the next post remains in the place.
                self.place.after = self.changes.sequence();
                if self.format == Format::Lines && self.place.after >= self.changes.end() {
                    piece.end = Some(Ended::Complete);
                } else if piece.text.is_empty() && piece.pause.is_none() {
                    self.read_more(&mut piece);
                    if !self.rest.as_slice().is_empty() {
                        continue;
                    }
                    // The read has waited long enough, and may have skipped records that are not events.
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
            // Uses the JSON that was encoded when the post was published.
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
                warn!(sequence = sequence.0, "ended a stream of changes: cannot read the event: {cause}");
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

    /// Writes an event if it is wanted. `wanted` has its type and the function that appends its JSON.
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

    /// Counts a message, and ends the stream at the requested limit.
    fn count(&mut self, piece: &mut Piece) {
        piece.events += 1;
        self.left = self.left.map(|left| left.saturating_sub(1));
        if self.left == Some(0) {
            piece.end = Some(Ended::Complete);
        }
    }

    /// Writes the next reader who has missed a post or, after the last reader, the post itself.
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
                // Notifies a client with a place within the post that the post is complete.
                if missed.is_entered && !is_shown && piece.end.is_none() {
                    self.format.write_reached(&mut piece.text, &self.place, false);
                }
            }
        }
    }

    fn is_silent(&self) -> bool {
        self.readers.now().saturating_sub(self.heard) >= self.patience.silence_max
    }

    /// Retries later, so that a delay never leaves out a reader.
    fn wait_for(&mut self, piece: &mut Piece, missed: MissedPost) {
        self.missed = Some(missed);
        piece.pause = Some(RETRY);
    }

    fn read_more(&mut self, piece: &mut Piece) {
        let read_before = self.changes.read_through();
        match self.changes.next() {
            Ok(events) if events.is_empty() => {
                // A node may read many records before the first requested one.
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
                // The client reconnects, and gets the reason as a refusal.
                warn!(after = self.place.after.0, "ended a stream of changes: {cause}");
                piece.end = Some(Ended::Failed);
            }
        }
    }
}

#[cfg(test)]
mod tests;
