//! The clock and the deadline of a read.

use crate::clock::{Clock, UnixMicros};

/// The clock and the deadline of a read.
#[derive(Clone, Copy)]
pub struct ReadClock<'a> {
    /// The source of the current time.
    pub clock: &'a dyn Clock,
    /// After this instant the page ends with the entries found so far.
    pub deadline: UnixMicros,
}

impl ReadClock<'_> {
    pub(super) fn is_late(self) -> bool {
        self.clock.now() > self.deadline
    }
}
