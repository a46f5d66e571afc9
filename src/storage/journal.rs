//! The journal: the order of accepted events, and the promise that they are kept.
//!
//! Responsible for:
//! - the seam between the scribe and whatever keeps events.
//!
//! Not responsible for:
//! - whether an event is allowed, applying it (`actor::scribe`, `state::world`).

use crate::feed::event::Event;

/// The number of an event in its journal: increasing without gaps, from 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Sequence(pub u64);

/// The journal could not be written. What is on disk is unknown, so nothing more may be appended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct JournalError(pub String);

/// Keeps events in order.
pub trait Journal: Send + 'static {
    /// Takes an event. It is kept once [`Journal::commit`] has returned.
    ///
    /// # Errors
    /// When it cannot be taken.
    fn append(&mut self, event: &Event) -> Result<Sequence, JournalError>;

    /// Keeps everything appended so far, as durably as the journal promises.
    ///
    /// # Errors
    /// When that cannot be known to have happened.
    fn commit(&mut self) -> Result<(), JournalError>;
}

/// A journal that promises nothing beyond this process: it counts events and lets them go.
#[derive(Debug, Default)]
pub struct MemoryJournal {
    last: Sequence,
}

impl Journal for MemoryJournal {
    fn append(&mut self, _event: &Event) -> Result<Sequence, JournalError> {
        self.last.0 += 1;
        Ok(self.last)
    }

    fn commit(&mut self) -> Result<(), JournalError> {
        Ok(())
    }
}
