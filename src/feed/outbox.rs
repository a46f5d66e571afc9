//! An outbox: the posts of one source, newest first.
//!
//! Responsible for:
//! - remembering for each post whether it was pushed to the followers or is left for them to pull;
//! - answering runs of positions in either direction.
//!
//! Not responsible for:
//! - choosing between push and pull (`feed::policy`), the posts themselves (`state::posts`).

use crate::feed::position::{Direction, Position, Span};
use crate::feed::runs::SortedRuns;

/// How a post reaches the followers of one of its sources.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Route {
    /// Written into their inboxes.
    Push,
    /// Merged from the outbox when they read.
    Pull,
}

/// Which posts of an outbox are asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// Those that went into the followers' inboxes.
    Pushed,
    /// Those that did not.
    Pulled,
    /// All.
    Whole,
}

/// The posts of one source.
#[derive(Clone, Debug, Default)]
pub struct Outbox {
    pushed: SortedRuns<Position>,
    pulled: SortedRuns<Position>,
}

impl Outbox {
    /// Adds a post; false if it was there. A post keeps the route it first had.
    pub fn insert(&mut self, position: Position, route: Route) -> bool {
        if self.pushed.contains(&position) || self.pulled.contains(&position) {
            return false;
        }
        match route {
            Route::Push => self.pushed.insert(position),
            Route::Pull => self.pulled.insert(position),
        }
    }

    /// Takes out a post that was deleted.
    pub fn remove(&mut self, position: Position) -> bool {
        self.pushed.remove(&position) || self.pulled.remove(&position)
    }

    /// How many posts there are.
    pub fn len(&self) -> usize {
        self.pushed.len() + self.pulled.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether any post is left for the followers to pull.
    pub fn has_pulled(&self) -> bool {
        !self.pulled.is_empty()
    }

    /// Whether a post is here and was pushed.
    pub fn was_pushed(&self, position: Position) -> bool {
        self.pushed.contains(&position)
    }

    /// Appends to `into` at most `max` positions of `part` inside `span`, nearest first in `direction`.
    pub fn copy(&self, part: Part, span: Span, direction: Direction, max: usize, into: &mut Vec<Position>) {
        let start = into.len();
        let Span { above, below } = span;
        if part != Part::Pulled {
            self.pushed.copy_between(above, below, direction, max, into);
        }
        if part != Part::Pushed {
            self.pulled.copy_between(above, below, direction, max, into);
        }
        if part == Part::Whole {
            let both = &mut into[start..];
            match direction {
                Direction::Older => both.sort_unstable_by(|a, b| b.cmp(a)),
                Direction::Newer => both.sort_unstable(),
            }
            into.truncate(start + max);
        }
    }

    /// Bytes on the heap, without the allocator's own.
    pub fn heap_bytes(&self) -> usize {
        self.pushed.heap_bytes() + self.pulled.heap_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::position::at;

    fn copied(outbox: &Outbox, part: Part, span: Span, direction: Direction, max: usize) -> Vec<i64> {
        let mut into = vec![at(999, 9)];
        outbox.copy(part, span, direction, max, &mut into);
        into[1..].iter().map(|position| position.published_at.0).collect()
    }

    #[test]
    fn parts_answer_in_order_within_their_span() {
        let mut outbox = Outbox::default();
        for time in [1, 3, 5, 7] {
            assert!(outbox.insert(at(time, 0), Route::Push));
        }
        for time in [2, 4, 6] {
            assert!(outbox.insert(at(time, 0), Route::Pull));
        }
        let middle = Span { above: at(1, 0), below: at(7, 0) };
        use Direction::{Newer, Older};
        assert_eq!(copied(&outbox, Part::Pushed, Span::ALL, Older, 3), [7, 5, 3]);
        assert_eq!(copied(&outbox, Part::Pulled, Span::ALL, Older, 9), [6, 4, 2]);
        assert_eq!(copied(&outbox, Part::Whole, middle, Older, 4), [6, 5, 4, 3]);
        assert_eq!(copied(&outbox, Part::Whole, middle, Newer, 4), [2, 3, 4, 5]);
    }

    #[test]
    fn a_post_keeps_its_first_route() {
        let mut outbox = Outbox::default();
        assert!(outbox.insert(at(1, 1), Route::Push));
        assert!(!outbox.insert(at(1, 1), Route::Pull));
        assert!(!outbox.has_pulled());
        assert!(outbox.remove(at(1, 1)));
        assert!(outbox.is_empty());
    }
}
