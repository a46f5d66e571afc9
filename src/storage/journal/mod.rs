//! The journal: the order of accepted events, and the promise that they are kept.
//!
//! Responsible for:
//! - the seam between the scribe and whatever keeps events.
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

/// The number of an event in its journal: increasing without gaps, from 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Sequence(pub u64);

impl Sequence {
    /// The one after this.
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

/// Why events were not kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JournalError {
    /// No room. Nothing since the last commit was kept, and what comes may be kept once there is room.
    #[error("no space left to write {place}")]
    DiskFull {
        /// The file that could not grow.
        place: String,
    },
    /// The system could not open the next segment's file. Nothing since the last commit was kept, and what comes may be kept once
    /// other files are closed.
    #[error("cannot create {place} now: {cause}")]
    OutOfFiles {
        /// The file that could not be created.
        place: String,
        /// What the system answered.
        cause: String,
    },
    /// What is on disk is unknown, so nothing more may be appended.
    #[error("{0}")]
    Failed(String),
}

/// When an event counts as kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durability {
    /// When it is synced: power may go at any moment.
    #[default]
    Always,
    /// When it is written; synced once a second. The process may die at any moment, power takes about a second with it.
    EverySecond,
    /// When it is written; the system syncs when it likes.
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

/// Keeps events in order.
pub trait Journal: Send + 'static {
    /// Takes an event. It is kept once [`Journal::commit`] has returned.
    ///
    /// # Errors
    /// When it cannot be taken.
    fn append(&mut self, event: &Event) -> Result<Sequence, JournalError>;

    /// Bytes taken and not committed.
    fn pending_bytes(&self) -> usize;

    /// Keeps everything appended so far, as durably as the journal promises.
    ///
    /// # Errors
    /// When that cannot be known to have happened.
    fn commit(&mut self) -> Result<(), JournalError>;

    /// Makes everything committed so far survive power loss.
    ///
    /// # Errors
    /// When that cannot be known to have happened.
    fn sync(&mut self) -> Result<(), JournalError>;

    /// The last event that is kept.
    fn last(&self) -> Sequence;

    /// Whether [`Journal::mark_synced`] has something to do, or will have.
    fn wants_mark(&self) -> bool {
        false
    }

    /// Leaves word of what is synced. Called when nothing was written for a while: what is written next would say it otherwise. It
    /// cannot fail: without the word, all is kept as well.
    fn mark_synced(&mut self) {}

    /// Writes what comes into a file of its own, so that what was committed until now can go together.
    ///
    /// # Errors
    /// When that cannot be known to have happened.
    fn begin_segment(&mut self) -> Result<(), JournalError> {
        Ok(())
    }

    /// Ends in order, everything synced.
    ///
    /// # Errors
    /// When that cannot be known to have happened.
    fn close(&mut self) -> Result<(), JournalError>;
}

/// A journal that promises nothing beyond this process: it counts events and lets them go.
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
