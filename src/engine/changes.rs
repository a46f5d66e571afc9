//! The engine's interface for the change stream.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Deserialize;

use crate::clock::UnixMicros;
use crate::cluster::log_checkpoint::LogCheckpoint;
use crate::cluster::membership::RecordOutcome;
use crate::cluster::start_points::StartPoints;
use crate::engine::Engine;
use crate::feed::event::Event;
use crate::feed::position::Position;
use crate::feed::post::Post;
use crate::id::PostId;
use crate::recovery::event;
use crate::runtime::change_readers::{ChangeReaders, OpenReader};
use crate::state::posts::Stored;
use crate::storage::frame::unpack;
use crate::storage::log::{LogError, LogRange, LogReader, LogRecord, ReadLog};
use crate::storage::sequence::Sequence;

/// The log that an engine's changes are read from.
pub(super) enum ChangeLog {
    /// The journal of one machine. All its records are events.
    Own(Box<dyn ReadLog>),
    /// The log of a cluster, and the states from which a reader can determine the records that take effect.
    Shared(Arc<dyn ReadLog>, Arc<StartPoints>),
}

impl ChangeLog {
    pub(super) fn range(&self) -> Result<LogRange, LogError> {
        match self {
            Self::Own(log) => log.range(),
            Self::Shared(log, _) => log.range(),
        }
    }
}

/// The reason why changes could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChangesError {
    /// The engine stores its state in memory only.
    #[error("this engine has no journal, so it has no changes to read")]
    NoJournal,
    /// The log cannot be read, or no longer has the records.
    #[error(transparent)]
    Log(#[from] LogError),
    /// This program cannot read a record that takes effect.
    #[error("record {sequence} cannot be read: {cause}")]
    Record {
        /// The sequence of the record.
        sequence: Sequence,
        /// Description of the error.
        cause: String,
    },
}

/// Reads accepted events in their order. Its methods block the calling thread.
pub struct Changes {
    reader: Box<dyn LogReader>,
    /// On a node: the state of the cluster after the last record that was read.
    followed: Option<LogCheckpoint>,
    /// On a node: the state before the last batch of records, some of which the caller may not have used.
    before: Option<LogCheckpoint>,
    /// On a node: the store of these states for the next reader.
    points: Option<Arc<StartPoints>>,
    /// Events up to this one are not delivered.
    after: Sequence,
    /// The last record that was read.
    read: Sequence,
    /// The last event of the log when reading began.
    end: Sequence,
    /// The error at which reading ended. The events before it were delivered.
    failed: Option<ChangesError>,
    /// Counts as an open reader, for erasures.
    _open: OpenReader,
}

impl Engine {
    /// Returns the sequence of the last event that [`Engine::changes`] can deliver now. A reader after this event gets
    /// the events that are accepted from now on. Blocks for a moment.
    ///
    /// # Errors
    /// Fails if the engine has no journal, or the log does not answer.
    pub fn last_change(&self) -> Result<Sequence, ChangesError> {
        Ok(self.inner.changes.as_ref().ok_or(ChangesError::NoJournal)?.range()?.last)
    }

    /// Returns the post that was accepted at this instant, if it is in memory and has not changed since it was
    /// published.
    pub fn unchanged_post(&self, id: PostId, accepted_at: UnixMicros) -> Option<Arc<Post>> {
        let post = self.inner.shared.world.posts.stored(id).and_then(Stored::live)?;
        // The repost, or one that names it, may be redirected. Then it lacks the text, or its event contains more.
        let is_redirected = post.repost_of.is_some() && self.inner.shared.world.reposts.has_redirected();
        let is_unchanged =
            post.accepted_at == accepted_at && post.edited_at.is_none() && !post.hidden && !is_redirected;
        is_unchanged.then_some(post)
    }

    /// Returns a reader of all accepted events after the sequence `after`, 0 for all. An event is delivered once it is
    /// committed, possibly just before reads show it; with
    /// [`Durability::EverySecond`](crate::storage::journal::Durability) once it is synced. With
    /// [`Durability::Never`](crate::storage::journal::Durability) a power loss may destroy events that were delivered.
    /// Blocks for a moment: it searches the start of the segment, or queries the log of a cluster.
    ///
    /// A node of a cluster delivers only events that take effect. To determine these, it reads the log from the place
    /// of an earlier reader or of a snapshot of its own before `after`, or from the first record. It refuses older
    /// positions, even if the log still has them.
    ///
    /// # Errors
    /// Fails if the engine has no journal, if the log no longer has the event after `after`, or if it ends before
    /// `after`.
    pub fn changes(&self, after: Sequence) -> Result<Changes, ChangesError> {
        let changes = self.inner.changes.as_ref().ok_or(ChangesError::NoJournal)?;
        let LogRange { first, last } = changes.range()?;
        let (reader, followed, points) = match changes {
            ChangeLog::Own(log) => (log.reader(after)?, None, None),
            ChangeLog::Shared(log, points) => {
                if after > last {
                    return Err(LogError::Shorter { wanted: after, last }.into());
                }
                let state = points.before(after, first).map_err(|first| {
                    let first = first.unwrap_or(last.next());
                    LogError::Deleted { wanted: after.next(), first }
                })?;
                (log.reader(state.sequence)?, Some(state), Some(Arc::clone(points)))
            }
        };
        let read = followed.as_ref().map_or(after, |state| state.sequence);
        let open = ChangeReaders::begin(&self.inner.shared.change_readers);
        Ok(Changes { reader, followed, before: None, points, after, read, end: last, failed: None, _open: open })
    }
}

impl Changes {
    /// Returns the sequence up to which everything was delivered: [`Engine::changes`] with it continues there. It
    /// includes records that are not events, so it may be after the last delivered event.
    pub fn sequence(&self) -> Sequence {
        self.read.max(self.after)
    }

    /// Returns the last record that was read, which may be before the first delivered event.
    pub fn read_through(&self) -> Sequence {
        self.read
    }

    /// Returns the last record of the log when this reader was created.
    pub fn end(&self) -> Sequence {
        self.end
    }

    /// Returns the next events with their sequences, at most some thousand. Waits up to `wait` for the first of them;
    /// returns an empty list if none arrives.
    ///
    /// # Errors
    /// Fails if the log cannot be read, or no longer has the next record. After [`LogError::Unavailable`] the next call
    /// continues at the same record. After any other error the reader cannot be used any more.
    pub fn next(&mut self, wait: Duration) -> Result<Vec<(Sequence, Event)>, ChangesError> {
        let stored = self.next_stored(wait)?;
        let mut events = Vec::with_capacity(stored.len());
        for (sequence, stored) in stored {
            match stored.decode() {
                Ok(event) => events.push((sequence, event)),
                Err(cause) => {
                    let failed = ChangesError::Record { sequence, cause };
                    self.read = Sequence(sequence.0.saturating_sub(1));
                    self.failed = Some(failed.clone());
                    // The events before the error come first.
                    return if events.is_empty() { Err(failed) } else { Ok(events) };
                }
            }
        }
        Ok(events)
    }

    /// Returns the same events as they are stored, for callers that do not need all of them.
    ///
    /// # Errors
    /// Fails for the same reasons as [`Changes::next`]. An event of one machine is checked only when it is decoded.
    pub fn next_stored(&mut self, wait: Duration) -> Result<Vec<(Sequence, StoredEvent)>, ChangesError> {
        let until = Instant::now() + wait;
        loop {
            if let Some(cause) = &self.failed {
                return Err(cause.clone());
            }
            let mut events = Vec::new();
            self.before.clone_from(&self.followed);
            for record in self.reader.read(until.saturating_duration_since(Instant::now()))? {
                let sequence = record.sequence;
                match self.stored(record) {
                    Ok(Some(event)) if sequence > self.after => events.push((sequence, event)),
                    Ok(_) => {}
                    Err(cause) => {
                        self.failed = Some(ChangesError::Record { sequence, cause });
                        break;
                    }
                }
                self.read = sequence;
            }
            let is_over = self.failed.is_none() && Instant::now() >= until;
            if !events.is_empty() || is_over {
                return Ok(events);
            }
        }
    }

    fn stored(&mut self, record: LogRecord) -> Result<Option<StoredEvent>, String> {
        let Some(followed) = &mut self.followed else { return Ok(Some(StoredEvent(Form::Bytes(record.bytes)))) };
        match followed.read(&record) {
            Ok((_, RecordOutcome::Event(event))) => Ok(Some(StoredEvent(Form::Decoded(event)))),
            Ok(_) => Ok(None),
            Err(cause) => Err(cause.to_string()),
        }
    }
}

impl Drop for Changes {
    /// Stores the places that this reader reached, so that the next reader need not start from a snapshot.
    fn drop(&mut self) {
        let Some(points) = &self.points else { return };
        [self.before.take(), self.followed.take()].into_iter().flatten().for_each(|state| points.add(state));
    }
}

/// An accepted event, which is decoded when it is needed.
pub struct StoredEvent(Form);

#[expect(clippy::large_enum_variant, reason = "nearly all are events, and each is moved a few times only")]
enum Form {
    Bytes(Vec<u8>),
    Decoded(Event),
}

/// The part of a published post that identifies it.
#[derive(Deserialize)]
struct PublishedHead {
    position: Position,
    accepted_at: UnixMicros,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Head {
    Published(PublishedHead),
}

impl StoredEvent {
    /// Returns the name of the kind of event, as it is stored (`docs/storage.md`), or an empty text if the event cannot be read.
    pub fn kind(&self) -> &str {
        match &self.0 {
            Form::Bytes(bytes) => stored_kind(bytes).unwrap_or_default(),
            Form::Decoded(event) => event.stored_name(),
        }
    }

    /// Returns the position of a published post, and the instant at which it was accepted. Returns None for other
    /// events.
    pub fn published(&self) -> Option<(Position, UnixMicros)> {
        match &self.0 {
            Form::Bytes(bytes) => {
                let Head::Published(PublishedHead { position, accepted_at }) = unpack(bytes).ok()?;
                Some((position, accepted_at))
            }
            Form::Decoded(Event::Published { position, accepted_at, .. }) => Some((*position, *accepted_at)),
            Form::Decoded(_) => None,
        }
    }

    /// Decodes the event.
    ///
    /// # Errors
    /// Returns the reason why the stored event cannot be decoded.
    pub fn decode(self) -> Result<Event, String> {
        match self.0 {
            Form::Bytes(bytes) => event(&bytes),
            Form::Decoded(event) => Ok(event),
        }
    }
}

/// Returns the name of the only entry of a MessagePack map, which is at most 31 bytes long.
fn stored_kind(bytes: &[u8]) -> Option<&str> {
    const MAP_OF_ONE: u8 = 0x81;
    const TEXT: u8 = 0xa0;
    let (MAP_OF_ONE, rest) = (*bytes.first()?, bytes.get(1..)?) else { return None };
    let length = usize::from(rest.first()?.checked_sub(TEXT)?);
    str::from_utf8(rest.get(1..=length)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::post::{Body, Draft};
    use crate::id::SourceId;
    use crate::storage::frame::pack;

    fn stored(event: &Event) -> StoredEvent {
        let mut bytes = Vec::new();
        pack(event, &mut bytes);
        StoredEvent(Form::Bytes(bytes))
    }

    #[test]
    fn the_kind_and_position_of_a_stored_event_equal_those_of_the_decoded_event() {
        let (at, user) = (UnixMicros(7), SourceId::new("ann").unwrap());
        let position = Position { published_at: at, id: PostId(u64::MAX) };
        let draft = Draft::new(user.clone(), Body::new("{\"a\":[1]}").unwrap());
        for event in [
            Event::Published { position, draft, accepted_at: UnixMicros(9) },
            Event::Deleted { id: PostId(1), repost_of: None, post: None },
            Event::Followed { edges: Vec::new(), since: at },
            Event::FollowsChanged { follows: Vec::new(), since: at, unfollows: Vec::new() },
            Event::Erased { user, at },
            Event::ErasureScrubbed { at },
            Event::ClockJumped { at, drift_us: -1 },
        ] {
            let is_published = matches!(event, Event::Published { .. });
            let forms = [stored(&event), StoredEvent(Form::Decoded(event.clone()))];
            for form in forms {
                assert_eq!(form.kind(), event.stored_name());
                assert_eq!(form.published(), is_published.then_some((position, UnixMicros(9))));
                assert_eq!(form.decode(), Ok(event.clone()));
            }
        }
    }

    #[test]
    fn invalid_event_bytes_have_no_kind() {
        for bytes in [&b""[..], b"\x81", b"\x81\xa9pub", b"\x80\xa1a", b"\x81\x01\x02", b"\x81\xa1\xff"] {
            let stored = StoredEvent(Form::Bytes(bytes.to_vec()));
            assert_eq!((stored.kind(), stored.published()), ("", None), "{bytes:?}");
            assert!(stored.decode().is_err(), "{bytes:?}");
        }
    }
}
