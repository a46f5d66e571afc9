//! The scribe's side of time: instants for events, and what the journal knows of their lead over the clock.

use crate::clock::Taken;
use crate::feed::event::Event;
use crate::runtime::writer::Scribe;
use crate::storage::journal::Journal;

impl<J: Journal> Scribe<J> {
    /// Takes `count` instants in a row for an event, which is accepted next, and returns the first.
    pub(super) fn tick(&mut self, count: usize) -> Taken {
        let taken = self.monotonic_clock.take(count);
        if self.kept_lead_us != Some(taken.lead_us) && self.failed.is_none() {
            // What the group has was accepted with the earlier lead, and is applied with it: an edit says when it was as people count.
            self.commit();
            let jumped = Event::ClockJumped { at: taken.instant, lead_us: taken.lead_us };
            // If it is not taken, neither is the event that follows.
            self.kept_lead_us = self.journal.append(&jumped).is_ok().then_some(taken.lead_us);
            self.writer.world().arrivals.set_ahead(taken.lead_us, taken.instant);
        }
        taken
    }
}
