//! The newest posts of an outbox that readers pull without its lock.

use crate::feed::outbox::{OutboxQuery, Part};
use crate::feed::position::{Direction, Position};

/// The newest posts of one outbox that are left to be pulled, as of one moment. Most reads of a pulled source need nothing else. The value
/// is immutable, so that any number of readers share it.
#[derive(PartialEq, Eq, Debug)]
pub struct Newest {
    /// The positions, newest first.
    pub(super) positions: Box<[Position]>,
    /// From this position up, no post is missing.
    pub(super) floor: Position,
}

impl Newest {
    /// Appends the requested positions to `into`. Returns true if they are complete; otherwise nothing was appended.
    pub fn pull(&self, ask: OutboxQuery, into: &mut Vec<Position>) -> bool {
        if ask.part != Part::Pulled || ask.direction != Direction::Older {
            return false;
        }
        let start = into.len();
        let from = self.positions.partition_point(|position| *position >= ask.span.below);
        let inside = self.positions[from..].iter().take_while(|position| **position > ask.span.above);
        into.extend(inside.take(ask.max));
        let is_all = into.len() - start == ask.max || ask.span.above.next_up() >= self.floor;
        if !is_all {
            into.truncate(start);
        }
        is_all
    }

    /// Returns the bytes on the heap, without the overhead of the allocator.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.positions)
    }
}
