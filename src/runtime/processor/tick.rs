//! The clock part of the command processor: instants for events, and journaling changes of the drift.

use crate::clock::Timestamp;
use crate::feed::event::Event;
use crate::runtime::processor::{CommandProcessor, Completion};
use crate::storage::journal::Journal;

impl<J: Journal> CommandProcessor<J> {
    /// Issues `count` consecutive instants for the event that is accepted next, and returns the first.
    pub(super) fn tick(&mut self, count: usize) -> Timestamp {
        let taken = self.logical_clock.take(count);
        if self.kept_drift_us != Some(taken.drift_us) && self.failed.is_none() {
            // Events before this one are applied before it, so with the earlier drift: an edit contains the time to
            // show to people.
            let jumped = Event::ClockJumped { at: taken.instant, drift_us: taken.drift_us };
            // If the journal refuses this event, it also refuses the one that follows.
            self.kept_drift_us = self.accept(jumped, Completion::Nothing).then_some(taken.drift_us);
        }
        taken
    }
}
