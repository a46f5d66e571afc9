//! The tail of accepted events: this part of the engine's interface.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::cluster::followed::Followed;
use crate::cluster::membership::Counted;
use crate::cluster::start_points::StartPoints;
use crate::engine::Engine;
use crate::feed::event::Event;
use crate::recovery::event;
use crate::storage::journal::Sequence;
use crate::storage::log::{LogError, LogRange, LogReader, LogRecord, ReadLog};

/// The log that an engine's changes are read from.
pub(super) enum ChangeLog {
    /// The journal of one machine. All its records are events.
    Own(Box<dyn ReadLog>),
    /// The log of a cluster, and the states from which a reader can decide which records count.
    Shared(Arc<dyn ReadLog>, Arc<StartPoints>),
}

impl ChangeLog {
    fn range(&self) -> Result<LogRange, LogError> {
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
    /// The log cannot be read, or does not have the records any more.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A record counts, and this program cannot read it.
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
    /// The state of the cluster at the last record that was read, on a node.
    followed: Option<Followed>,
    /// Events up to this one are not delivered.
    after: Sequence,
    /// The last record that was read.
    read: Sequence,
    /// The last event of the log when reading began.
    end: Sequence,
    /// The error at which reading ended. The events before it were delivered.
    failed: Option<ChangesError>,
}

impl Engine {
    /// Returns the sequence of the last event that [`Engine::changes`] can deliver now: `changes` with it delivers what is accepted from now
    /// on. Blocks for a moment, as that does.
    ///
    /// # Errors
    /// Fails if the engine has no journal, or the log does not answer.
    pub fn last_change(&self) -> Result<Sequence, ChangesError> {
        Ok(self.inner.changes.as_ref().ok_or(ChangesError::NoJournal)?.range()?.last)
    }

    /// Returns a reader of all accepted events after the sequence `after`, 0 for all. An event is delivered once it is committed, which may be
    /// just before reads show it; with [`Durability::EverySecond`](crate::storage::journal::Durability) once it is synced. With
    /// [`Durability::Never`](crate::storage::journal::Durability) a power loss may destroy events that were delivered. Blocks for a moment: the
    /// start of the segment is searched, or in a cluster the log is asked.
    ///
    /// A node of a cluster delivers only what counts. To know that, it reads from a snapshot of its own before `after`, or from the first record
    /// of the log. It refuses what is older than these, even if the log still has it.
    ///
    /// # Errors
    /// Fails if the engine has no journal, the log does not have the event after `after` any more, or it ends before `after`.
    pub fn changes(&self, after: Sequence) -> Result<Changes, ChangesError> {
        let changes = self.inner.changes.as_ref().ok_or(ChangesError::NoJournal)?;
        let LogRange { first, last } = changes.range()?;
        let (reader, followed) = match changes {
            ChangeLog::Own(log) => (log.reader(after)?, None),
            ChangeLog::Shared(log, points) => {
                if after > last {
                    return Err(LogError::Shorter { wanted: after, last }.into());
                }
                let state = points.before(after, first).map_err(|first| {
                    let first = first.unwrap_or(last.next());
                    LogError::Deleted { wanted: after.next(), first }
                })?;
                (log.reader(state.sequence)?, Some(state))
            }
        };
        let read = followed.as_ref().map_or(after, |state| state.sequence);
        Ok(Changes { reader, followed, after, read, end: last, failed: None })
    }
}

impl Changes {
    /// Returns the sequence up to which everything was delivered: [`Engine::changes`] with it continues there. It also counts records that
    /// are no events, so it may be after the last delivered event.
    pub fn sequence(&self) -> Sequence {
        self.read.max(self.after)
    }

    /// Returns the last record of the log when this reader was created.
    pub fn end(&self) -> Sequence {
        self.end
    }

    /// Returns the next events with their sequences, at most some thousand. Waits for the first of them up to `wait`; returns an empty list if there is none
    /// by then.
    ///
    /// # Errors
    /// Fails if the log cannot be read, or no longer has the next record. After [`LogError::Unavailable`] the next call continues at the same
    /// record. After any other error the reader is of no more use.
    pub fn next(&mut self, wait: Duration) -> Result<Vec<(Sequence, Event)>, ChangesError> {
        let until = Instant::now() + wait;
        loop {
            if let Some(cause) = &self.failed {
                return Err(cause.clone());
            }
            let mut events = Vec::new();
            let records = self.reader.read(until.saturating_duration_since(Instant::now()))?;
            for record in &records {
                match self.decode(record) {
                    Ok(Some(event)) if record.sequence > self.after => events.push((record.sequence, event)),
                    Ok(_) => {}
                    Err(cause) => {
                        self.failed = Some(ChangesError::Record { sequence: record.sequence, cause });
                        break;
                    }
                }
                self.read = record.sequence;
            }
            let is_over = self.failed.is_none() && Instant::now() >= until;
            if !events.is_empty() || is_over {
                return Ok(events);
            }
        }
    }

    fn decode(&mut self, record: &LogRecord) -> Result<Option<Event>, String> {
        let Some(followed) = &mut self.followed else { return event(&record.bytes).map(Some) };
        match followed.read(record) {
            Ok((_, Counted::Event(event))) => Ok(Some(event)),
            Ok(_) => Ok(None),
            Err(cause) => Err(cause.to_string()),
        }
    }
}
