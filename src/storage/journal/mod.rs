//! The journal: the order of accepted events, and the durability guarantee for them.
//!
//! Responsible for:
//! - the interface between the scribe and the storage of events.
//!
//! Not responsible for:
//! - whether an event is allowed, applying it (`runtime::writer`, `state::world`).

pub mod reader;
pub mod sync;
pub mod writer;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::feed::event::Event;

/// The number of an event in its journal. Sequences start at 1 and increase without gaps.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Sequence(pub u64);

impl Sequence {
    /// The sequence after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The reason why events were not written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JournalError {
    /// The disk is full. None of the events since the last commit was written. Later events can be written once there is space.
    #[error("no space left to write {place}")]
    DiskFull {
        /// Path of the file that could not grow.
        place: String,
    },
    /// The system could not open the file of the next segment. None of the events since the last commit was written. Later events can be
    /// written once other files are closed.
    #[error("cannot create {place} now: {cause}")]
    OutOfFiles {
        /// Path of the file that could not be created.
        place: String,
        /// The error of the operating system.
        cause: String,
    },
    /// The content on disk is unknown, so no more events can be appended. The text is the cause.
    #[error("{0}")]
    Failed(String),
}

/// The durability policy: when an event counts as committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durability {
    /// An event is committed when it is synced. It survives a power loss at any moment.
    #[default]
    Always,
    /// An event is committed when it is written; a thread syncs once a second. It survives the end of the process. A power loss destroys
    /// about one second of events.
    EverySecond,
    /// An event is committed when it is written; the operating system decides when to sync.
    Never,
}

impl FromStr for Durability {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "always" => Ok(Self::Always),
            "everysec" => Ok(Self::EverySecond),
            "no" => Ok(Self::Never),
            _ => Err(format!("{text:?} is neither always, everysec nor no")),
        }
    }
}

/// Stores events in order.
pub trait Journal: Send + 'static {
    /// Appends an event. It is stored once [`Journal::commit`] has returned.
    ///
    /// # Errors
    /// Fails if the event cannot be appended.
    fn append(&mut self, event: &Event) -> Result<Sequence, JournalError>;

    /// Bytes that are appended and not yet committed.
    fn pending_bytes(&self) -> usize;

    /// Stores all events appended so far, with the durability of the policy.
    ///
    /// # Errors
    /// Fails if it is not certain that the events are stored.
    fn commit(&mut self) -> Result<(), JournalError>;

    /// Makes all committed events survive a power loss.
    ///
    /// # Errors
    /// Fails if it is not certain that the events are synced.
    fn sync(&mut self) -> Result<(), JournalError>;

    /// The last committed event.
    fn last(&self) -> Sequence;

    /// Returns true if [`Journal::mark_synced`] has something to write now or later.
    fn wants_mark(&self) -> bool {
        false
    }

    /// Writes a frame that records which events are synced. It is called when the journal is idle: otherwise the next event records it. The
    /// method cannot fail, since all events are stored without this frame, too.
    fn mark_synced(&mut self) {}

    /// Starts a new segment, so that all segments with events committed until now can be deleted together.
    ///
    /// # Errors
    /// Fails if it is not certain that the segment was started.
    fn begin_segment(&mut self) -> Result<(), JournalError> {
        Ok(())
    }

    /// Closes the journal in order, with everything synced.
    ///
    /// # Errors
    /// Fails if it is not certain that the journal was closed.
    fn close(&mut self) -> Result<(), JournalError>;
}

/// A journal that stores nothing: it only counts events. For engines without durability.
#[derive(Debug, Default)]
pub struct MemoryJournal {
    last: Sequence,
}

impl Journal for MemoryJournal {
    fn append(&mut self, _event: &Event) -> Result<Sequence, JournalError> {
        self.last = self.last.next();
        Ok(self.last)
    }

    fn pending_bytes(&self) -> usize {
        0
    }

    fn commit(&mut self) -> Result<(), JournalError> {
        Ok(())
    }

    fn sync(&mut self) -> Result<(), JournalError> {
        Ok(())
    }

    fn last(&self) -> Sequence {
        self.last
    }

    fn close(&mut self) -> Result<(), JournalError> {
        Ok(())
    }
}
