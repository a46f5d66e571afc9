//! An outbox: the posts of one source, newest first, as far as they are in memory, and where the archive goes on.
//!
//! Responsible for:
//! - remembering for each post whether it was pushed to the followers or is left for them to pull;
//! - answering runs of positions in either direction, and saying where they are not all in memory.
//!
//! Not responsible for:
//! - choosing between push and pull (`feed::policy`), the posts themselves (`state::posts`).

use crate::clock::UnixMicros;
use crate::feed::position::{Direction, Position, Span};
use crate::feed::resume::LatePosts;
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

/// What is asked of an outbox.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ask {
    /// Pushed posts, pulled ones, or all.
    pub part: Part,
    /// Between these positions.
    pub span: Span,
    /// Nearest first in this direction.
    pub direction: Direction,
    /// At most so many.
    pub max: usize,
}

/// Why what was appended is not all there is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Missing {
    /// The outbox could not be read in time. What was appended comes before all that is missing.
    Late,
    /// Some of the outbox could not be read at all. What was appended comes before all that is missing.
    Unreadable,
    /// Only what stands above this position is in memory. What was appended at or below it may have gaps.
    Archived(Position),
}

/// The posts of one source.
#[derive(Clone, Debug, Default)]
pub struct Outbox {
    pushed: SortedRuns<Position>,
    pulled: SortedRuns<Position>,
    /// What is in the archive, once anything is.
    shelf: Option<Box<Shelf>>,
    /// The last posts that came in late, once there were any.
    late: Option<Box<LatePosts>>,
}

/// The newest posts of one outbox that are left to be pulled, as they were at one moment: nearly all that readers ask of a source whose
/// posts they pull, and never changed, so that any number of them look at it together.
#[derive(PartialEq, Eq, Debug)]
pub struct Newest {
    /// Newest first.
    positions: Box<[Position]>,
    /// From here up they are all there are.
    floor: Position,
}

impl Newest {
    /// Appends to `into` what is asked for. Returns whether that is all of it; if not, nothing was appended.
    pub fn pull(&self, ask: Ask, into: &mut Vec<Position>) -> bool {
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

    /// Bytes it takes on the heap, without the allocator's own.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.positions)
    }
}

/// What is archived of one outbox.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Shelf {
    /// Of the posts that were pushed.
    pub pushed: Stock,
    /// Of the posts left to be pulled.
    pub pulled: Stock,
}

/// What is archived of the posts of one source that took one route.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stock {
    /// The newest ever placed: an upper bound, since it does not fall when that post is removed.
    pub newest: Option<Position>,
    /// How many are there now.
    pub posts: u64,
}

impl Stock {
    /// Counts a post in.
    pub fn add(&mut self, position: Position) {
        self.posts += 1;
        self.newest = self.newest.max(Some(position));
    }
}

impl Shelf {
    /// What is archived of the posts that took `route`.
    pub fn stock(&self, route: Route) -> &Stock {
        match route {
            Route::Push => &self.pushed,
            Route::Pull => &self.pulled,
        }
    }

    /// The same, to change it.
    pub fn stock_mut(&mut self, route: Route) -> &mut Stock {
        match route {
            Route::Push => &mut self.pushed,
            Route::Pull => &mut self.pulled,
        }
    }
}

impl Outbox {
    /// Adds a post; false if it was there, in memory. A post keeps the route it first had.
    pub fn insert(&mut self, position: Position, route: Route) -> bool {
        let (set, other) = match route {
            Route::Push => (&mut self.pushed, &self.pulled),
            Route::Pull => (&mut self.pulled, &self.pushed),
        };
        !other.contains(&position) && set.insert(position)
    }

    /// Takes out a post that was deleted.
    pub fn remove(&mut self, position: Position) -> bool {
        self.pushed.remove(&position) || self.pulled.remove(&position)
    }

    /// How many posts there are, archived ones too.
    pub fn len(&self) -> usize {
        let archived = self.shelf.as_ref().map_or(0, |shelf| shelf.pushed.posts + shelf.pulled.posts);
        self.in_memory() + archived as usize
    }

    /// How many posts are in memory.
    pub fn in_memory(&self) -> usize {
        self.pushed.len() + self.pulled.len()
    }

    /// Whether a post is here, in memory.
    pub fn contains(&self, position: Position) -> bool {
        self.pushed.contains(&position) || self.pulled.contains(&position)
    }

    /// The route of a post that is here, in memory.
    pub fn route(&self, position: Position) -> Option<Route> {
        let pushed = self.pushed.contains(&position).then_some(Route::Push);
        pushed.or_else(|| self.pulled.contains(&position).then_some(Route::Pull))
    }

    /// Takes a post out of memory that is in the archive now.
    pub fn shelve(&mut self, position: Position) -> bool {
        let Some(route) = self.route(position) else { return false };
        self.remove(position);
        self.shelf.get_or_insert_default().stock_mut(route).add(position);
        true
    }

    /// Takes note that an archived post is gone.
    pub fn unshelve(&mut self, position: Position) {
        let Some(shelf) = &mut self.shelf else { return };
        let stocks = [&mut shelf.pushed, &mut shelf.pulled].into_iter();
        let holds = |stock: &&mut Stock| stock.posts > 0 && stock.newest >= Some(position);
        // Which of both had it is not known here; their sum is what counts.
        if let Some(stock) = stocks.into_iter().find(holds) {
            stock.posts -= 1;
        }
    }

    /// Notes that a post came in at `at`, though it may stand far below others.
    pub fn note_late(&mut self, at: UnixMicros, position: Position) {
        self.late.get_or_insert_default().note(at, position);
    }

    /// The last posts that came in late, if there were any.
    pub fn late(&self) -> Option<&LatePosts> {
        self.late.as_deref()
    }

    /// Sets which posts came in late.
    pub fn set_late(&mut self, late: LatePosts) {
        self.late = Some(Box::new(late));
    }

    /// What is in the archive.
    pub fn shelf(&self) -> Shelf {
        self.shelf.as_deref().copied().unwrap_or_default()
    }

    /// Sets what is in the archive.
    pub fn set_shelf(&mut self, shelf: Shelf) {
        self.shelf = Some(Box::new(shelf));
    }

    /// Appends to `into` what is asked for, as far as it is in memory.
    ///
    /// # Errors
    /// When some of it may not be.
    pub fn pull(&self, ask: Ask, into: &mut Vec<Position>) -> Result<(), Missing> {
        let start = into.len();
        self.copy(ask.part, ask.span, ask.direction, ask.max, into);
        let Some(archived) = self.archived(ask.part).filter(|archived| *archived > ask.span.above) else {
            return Ok(());
        };
        let is_reached = match ask.direction {
            Direction::Newer => true,
            Direction::Older => into.len() - start < ask.max || into.last().is_some_and(|last| *last <= archived),
        };
        if is_reached { Err(Missing::Archived(archived)) } else { Ok(()) }
    }

    /// At and below this position a part is not all in memory.
    pub fn archived(&self, part: Part) -> Option<Position> {
        let shelf = self.shelf.as_ref()?;
        match part {
            Part::Pushed => shelf.pushed.newest,
            Part::Pulled => shelf.pulled.newest,
            Part::Whole => shelf.pushed.newest.max(shelf.pulled.newest),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether any post is left for the followers to pull.
    pub fn has_pulled(&self) -> bool {
        !self.pulled.is_empty() || self.shelf.as_ref().is_some_and(|shelf| shelf.pulled.posts > 0)
    }

    /// At most `max` of the newest posts that are left for the followers to pull; nothing if there never was any.
    pub fn newest_pulled(&self, max: usize) -> Option<Newest> {
        let mut positions = Vec::with_capacity(max.min(self.pulled.len()));
        self.copy(Part::Pulled, Span::ALL, Direction::Older, max, &mut positions);
        let archived = self.archived(Part::Pulled);
        if positions.is_empty() && archived.is_none() {
            return None;
        }
        let oldest = positions.last().filter(|_| positions.len() < self.pulled.len());
        let floor = oldest.copied().max(archived.map(Position::next_up)).unwrap_or(Position::MIN);
        positions.retain(|position| *position >= floor);
        Some(Newest { positions: positions.into(), floor })
    }

    /// Changes whenever those that are left to be pulled do, or what of them is in memory.
    pub fn pulled_stock(&self) -> (usize, Stock) {
        (self.pulled.len(), self.shelf().pulled)
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
        let shelf = self.shelf.as_ref().map_or(0, |_| size_of::<Shelf>());
        let late = self.late.as_ref().map_or(0, |late| size_of::<LatePosts>() + late.heap_bytes());
        self.pushed.heap_bytes() + self.pulled.heap_bytes() + shelf + late
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::position::at;
    use proptest::prelude::*;

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
    fn what_is_archived_still_counts_and_is_told_to_who_comes_near_it() {
        let mut outbox = Outbox::default();
        for time in 1..=9 {
            outbox.insert(at(time, 0), if time % 2 == 0 { Route::Pull } else { Route::Push });
        }
        (1..=4).for_each(|time| assert!(outbox.shelve(at(time, 0))));
        assert!(!outbox.shelve(at(4, 0)));
        assert_eq!((outbox.len(), outbox.in_memory(), outbox.shelf().pulled.posts), (9, 5, 2));
        let pull = |part, above: i64, direction, max| {
            let mut into = Vec::new();
            let span = Span { above: at(above, 0), ..Span::ALL };
            outbox.pull(Ask { part, span, direction, max }, &mut into).map(|()| into.len())
        };
        assert_eq!(pull(Part::Whole, 0, Direction::Older, 5), Ok(5));
        assert_eq!(pull(Part::Whole, 0, Direction::Older, 6), Err(Missing::Archived(at(4, 0))));
        assert_eq!(pull(Part::Pushed, 0, Direction::Older, 6), Err(Missing::Archived(at(3, 0))));
        assert_eq!(pull(Part::Pushed, 3, Direction::Older, 6), Ok(3));
        assert_eq!(pull(Part::Whole, 3, Direction::Newer, 1), Err(Missing::Archived(at(4, 0))));
        assert_eq!(pull(Part::Whole, 4, Direction::Newer, 9), Ok(5));
        // A late post below what is archived, in memory for now: between the two there may be others.
        outbox.insert(at(0, 7), Route::Push);
        assert_eq!(
            outbox.pull(
                Ask {
                    part: Part::Pushed,
                    span: Span { below: at(5, 0), ..Span::ALL },
                    direction: Direction::Older,
                    max: 1
                },
                &mut Vec::new()
            ),
            Err(Missing::Archived(at(3, 0)))
        );
        outbox.unshelve(at(2, 0));
        assert_eq!(outbox.len(), 9);
    }

    proptest! {
        #[test]
        fn the_newest_answer_as_the_outbox_does_or_not_at_all(
            placed in prop::collection::vec((0..60i64, any::<bool>()), 0..60),
            shelved in 0..40i64,
            late in prop::collection::vec(0..60i64, 0..8),
            gone in prop::collection::vec(0..60i64, 0..8),
            kept in 1..20usize,
            (above, below) in (-1..61i64, 0..62i64),
            max in 1..25usize,
        ) {
            let mut outbox = Outbox::default();
            for (time, pulled) in placed {
                outbox.insert(at(time, 0), if pulled { Route::Pull } else { Route::Push });
            }
            for time in 0..shelved {
                outbox.shelve(at(time, 0));
            }
            // These may stand below what is archived.
            for time in late {
                outbox.insert(at(time, 1), Route::Pull);
            }
            for time in gone {
                outbox.remove(at(time, 0));
            }
            let Some(newest) = outbox.newest_pulled(kept) else {
                prop_assert_eq!(outbox.pulled_stock().0, 0);
                return Ok(());
            };
            let span = Span { above: at(above, 0), below: at(below, 0) };
            for part in [Part::Pulled, Part::Pushed, Part::Whole] {
                for direction in [Direction::Older, Direction::Newer] {
                    let ask = Ask { part, span, direction, max };
                    let (mut by_all, mut by_newest) = (vec![at(99, 0)], vec![at(99, 0)]);
                    let complete = outbox.pull(ask, &mut by_all).is_ok();
                    if newest.pull(ask, &mut by_newest) {
                        prop_assert!(complete);
                        prop_assert_eq!(by_newest, by_all);
                    } else {
                        prop_assert_eq!(by_newest.len(), 1);
                        let is_easy = (part, direction) == (Part::Pulled, Direction::Older) && complete;
                        prop_assert!(!is_easy || outbox.pulled_stock().0 > kept, "it has all there are");
                    }
                }
            }
        }
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
