//! An outbox: the posts of one source that are in memory, newest first, and where the archived ones begin.
//!
//! Responsible for:
//! - recording the route of each post: pushed to the followers, or left for them to pull;
//! - returning ranges of positions in either direction, and reporting which of them are not in memory.

mod counts;
mod newest;

use counts::Counts;
pub use counts::{ArchivedCounts, RouteCount};
pub use newest::Newest;

use crate::clock::UnixMicros;
use crate::feed::position::{Direction, Position, PositionRange};
use crate::feed::resume::LatePosts;
use crate::feed::runs::SortedRuns;

/// The way by which a post reaches the followers of one of its sources.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Route {
    /// The post is written into their inboxes.
    Push,
    /// The post is merged from the outbox when they read.
    Pull,
}

impl Route {
    /// Both routes, in the order of pairs by route.
    pub const ALL: [Self; 2] = [Self::Push, Self::Pull];
}

/// The part of an outbox that a read requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// The posts that were written into the followers' inboxes.
    Pushed,
    /// The posts that were left to be pulled.
    Pulled,
    /// All posts of the outbox.
    Whole,
}

impl Part {
    /// Returns the routes of the posts in this part.
    pub fn routes(self) -> &'static [Route] {
        match self {
            Self::Pushed => &[Route::Push],
            Self::Pulled => &[Route::Pull],
            Self::Whole => &Route::ALL,
        }
    }
}

/// A read of an outbox.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutboxQuery {
    /// The requested part of the outbox.
    pub part: Part,
    /// The span of positions.
    pub span: PositionRange,
    /// The order: nearest first in this direction.
    pub direction: Direction,
    /// Maximum number of positions.
    pub max: usize,
}

/// The reason why a read returned fewer positions than there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadGap {
    /// The outbox could not be read in time. The appended positions are before all missing ones.
    Late,
    /// Some of the outbox could not be read at all. The appended positions are before all missing ones.
    Unreadable,
    /// Only positions above this one are in memory. There may be gaps between the appended positions at or below it.
    Archived(Position),
}

/// The posts of one source.
#[derive(Clone, Debug, Default)]
pub struct Outbox {
    pushed: SortedRuns<Position>,
    pulled: SortedRuns<Position>,
    /// Counters of the archived and of the hidden posts; none until there is one.
    counts: Option<Box<Counts>>,
    /// The last late posts; none until there is one.
    late: Option<Box<LatePosts>>,
}

impl Outbox {
    /// Adds a post. Returns false if it was in memory already. A post keeps its first route.
    pub fn insert(&mut self, position: Position, route: Route) -> bool {
        let (set, other) = match route {
            Route::Push => (&mut self.pushed, &self.pulled),
            Route::Pull => (&mut self.pulled, &self.pushed),
        };
        let is_new = !other.contains(&position) && set.insert(position);
        self.unlist(position);
        is_new
    }

    /// Removes a deleted post from memory. Returns false if it was not there.
    pub fn remove(&mut self, position: Position) -> bool {
        self.pushed.remove(&position) || self.pulled.remove(&position)
    }

    /// Returns the number of posts, archived ones included.
    pub fn len(&self) -> usize {
        self.in_memory() + self.counts.as_ref().map_or(0, |counts| counts.archived_posts())
    }

    /// Returns the number of posts in memory.
    pub fn in_memory(&self) -> usize {
        self.pushed.len() + self.pulled.len()
    }

    /// Returns true if the post is in memory.
    pub fn contains(&self, position: Position) -> bool {
        self.pushed.contains(&position) || self.pulled.contains(&position)
    }

    /// Returns the route of a post that is in memory.
    pub fn route(&self, position: Position) -> Option<Route> {
        let pushed = self.pushed.contains(&position).then_some(Route::Push);
        pushed.or_else(|| self.pulled.contains(&position).then_some(Route::Pull))
    }

    /// Removes a post from memory after it was moved to the archive. Returns false if it was not in memory.
    pub fn move_to_archive(&mut self, position: Position) -> bool {
        let Some(route) = self.route(position) else { return false };
        self.remove(position);
        self.counts.get_or_insert_default().archived.of_route_mut(route).add(position);
        true
    }

    /// Subtracts a deleted post from the counters of the archive.
    pub fn forget_archived(&mut self, position: Position) {
        self.unlist(position);
        let Some(counts) = &mut self.counts else { return };
        let counts = [&mut counts.archived.pushed, &mut counts.archived.pulled].into_iter();
        let holds = |count: &&mut RouteCount| count.posts > 0 && count.newest >= Some(position);
        // The route of the post is not known here; only the sum of the two counters matters.
        if let Some(count) = counts.into_iter().find(holds) {
            count.posts -= 1;
        }
    }

    /// Records that a post arrived at `at`, although its position may be far below others.
    pub fn note_late(&mut self, at: UnixMicros, position: Position) {
        self.late.get_or_insert_default().note(at, position);
    }

    /// Returns the last late posts, if there were any.
    pub fn late(&self) -> Option<&LatePosts> {
        self.late.as_deref()
    }

    /// Sets the record of late posts.
    pub fn set_late(&mut self, late: LatePosts) {
        self.late = Some(Box::new(late));
    }

    /// Returns the counters of the archived posts.
    pub fn archived_counts(&self) -> ArchivedCounts {
        self.counts.as_ref().map(|counts| counts.archived).unwrap_or_default()
    }

    /// Sets the counters of the archived posts.
    pub fn set_archived_counts(&mut self, archived_counts: ArchivedCounts) {
        self.counts.get_or_insert_default().archived = archived_counts;
    }

    /// Appends the requested positions that are in memory to `into`.
    ///
    /// # Errors
    /// Returns an error if some of the requested positions may not be in memory.
    pub fn pull(&self, ask: OutboxQuery, into: &mut Vec<Position>) -> Result<(), ReadGap> {
        let start = into.len();
        self.copy(ask.part, ask.span, ask.direction, ask.max, into);
        let Some(archived) = self.archived(ask.part).filter(|archived| *archived > ask.span.above) else {
            return Ok(());
        };
        let is_reached = match ask.direction {
            Direction::Newer => true,
            Direction::Older => into.len() - start < ask.max || into.last().is_some_and(|last| *last <= archived),
        };
        if is_reached { Err(ReadGap::Archived(archived)) } else { Ok(()) }
    }

    /// Returns the position at and below which a part is not entirely in memory.
    pub fn archived(&self, part: Part) -> Option<Position> {
        let archived_counts = &self.counts.as_ref()?.archived;
        match part {
            Part::Pushed => archived_counts.pushed.newest,
            Part::Pulled => archived_counts.pulled.newest,
            Part::Whole => archived_counts.pushed.newest.max(archived_counts.pulled.newest),
        }
    }

    /// Returns true if the outbox has no posts, archived ones included.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns true if any post is left for the followers to pull.
    pub fn has_pulled(&self) -> bool {
        !self.pulled.is_empty() || self.counts.as_ref().is_some_and(|counts| counts.archived.pulled.posts > 0)
    }

    /// Returns a position above which no post is left for the followers to pull; none if no post is.
    pub fn newest_left_to_pull(&self) -> Option<Position> {
        self.pulled.last().max(self.archived(Part::Pulled)).filter(|_| self.has_pulled())
    }

    /// Returns at most `max` of the newest posts that are left for the followers to pull; none if there never was any.
    pub fn newest_pulled(&self, max: usize) -> Option<Newest> {
        let mut positions = Vec::with_capacity(max.min(self.pulled.len()));
        self.copy(Part::Pulled, PositionRange::ALL, Direction::Older, max, &mut positions);
        let archived = self.archived(Part::Pulled);
        if positions.is_empty() && archived.is_none() {
            return None;
        }
        let oldest = positions.last().filter(|_| positions.len() < self.pulled.len());
        let floor = oldest.copied().max(archived.map(Position::next_up)).unwrap_or(Position::MIN);
        positions.retain(|position| *position >= floor);
        Some(Newest { positions: positions.into(), floor })
    }

    /// Returns a value that changes whenever the posts left to be pulled change, or move between memory and the
    /// archive.
    pub fn pulled_count(&self) -> (usize, RouteCount) {
        (self.pulled.len(), self.archived_counts().pulled)
    }

    /// Returns true if a post is in memory and was pushed.
    pub fn was_pushed(&self, position: Position) -> bool {
        self.pushed.contains(&position)
    }

    /// Appends to `into` at most `max` positions of `part` inside `span`, nearest first in `direction`.
    pub fn copy(&self, part: Part, span: PositionRange, direction: Direction, max: usize, into: &mut Vec<Position>) {
        let start = into.len();
        let PositionRange { above, below } = span;
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

    /// Returns the bytes on the heap, without the overhead of the allocator.
    pub fn heap_bytes(&self) -> usize {
        let counts = self.counts.as_ref().map_or(0, |counts| counts.bytes());
        let late = self.late.as_ref().map_or(0, |late| size_of::<LatePosts>() + late.heap_bytes());
        self.pushed.heap_bytes() + self.pulled.heap_bytes() + counts + late
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::position::at;
    use crate::id::PostId;
    use proptest::prelude::*;

    fn copied(outbox: &Outbox, part: Part, span: PositionRange, direction: Direction, max: usize) -> Vec<i64> {
        let mut into = vec![at(999, 9)];
        outbox.copy(part, span, direction, max, &mut into);
        into[1..].iter().map(|position| position.published_at.0).collect()
    }

    #[test]
    fn reads_of_a_part_are_ordered_within_their_range() {
        let mut outbox = Outbox::default();
        for time in [1, 3, 5, 7] {
            assert!(outbox.insert(at(time, 0), Route::Push));
        }
        for time in [2, 4, 6] {
            assert!(outbox.insert(at(time, 0), Route::Pull));
        }
        let middle = PositionRange { above: at(1, 0), below: at(7, 0) };
        use Direction::{Newer, Older};
        assert_eq!(copied(&outbox, Part::Pushed, PositionRange::ALL, Older, 3), [7, 5, 3]);
        assert_eq!(copied(&outbox, Part::Pulled, PositionRange::ALL, Older, 9), [6, 4, 2]);
        assert_eq!(copied(&outbox, Part::Whole, middle, Older, 4), [6, 5, 4, 3]);
        assert_eq!(copied(&outbox, Part::Whole, middle, Newer, 4), [2, 3, 4, 5]);
    }

    #[test]
    fn archived_posts_are_still_counted_and_reported_to_reads_that_reach_them() {
        let mut outbox = Outbox::default();
        for time in 1..=9 {
            outbox.insert(at(time, 0), if time % 2 == 0 { Route::Pull } else { Route::Push });
        }
        (1..=4).for_each(|time| assert!(outbox.move_to_archive(at(time, 0))));
        assert!(!outbox.move_to_archive(at(4, 0)));
        assert_eq!((outbox.len(), outbox.in_memory(), outbox.archived_counts().pulled.posts), (9, 5, 2));
        let pull = |part, above: i64, direction, max| {
            let mut into = Vec::new();
            let span = PositionRange { above: at(above, 0), ..PositionRange::ALL };
            outbox.pull(OutboxQuery { part, span, direction, max }, &mut into).map(|()| into.len())
        };
        assert_eq!(pull(Part::Whole, 0, Direction::Older, 5), Ok(5));
        assert_eq!(pull(Part::Whole, 0, Direction::Older, 6), Err(ReadGap::Archived(at(4, 0))));
        assert_eq!(pull(Part::Pushed, 0, Direction::Older, 6), Err(ReadGap::Archived(at(3, 0))));
        assert_eq!(pull(Part::Pushed, 3, Direction::Older, 6), Ok(3));
        assert_eq!(pull(Part::Whole, 3, Direction::Newer, 1), Err(ReadGap::Archived(at(4, 0))));
        assert_eq!(pull(Part::Whole, 4, Direction::Newer, 9), Ok(5));
        // A late post below the archived ones, in memory for now: there may be other posts between the two.
        outbox.insert(at(0, 7), Route::Push);
        assert_eq!(
            outbox.pull(
                OutboxQuery {
                    part: Part::Pushed,
                    span: PositionRange { below: at(5, 0), ..PositionRange::ALL },
                    direction: Direction::Older,
                    max: 1
                },
                &mut Vec::new()
            ),
            Err(ReadGap::Archived(at(3, 0)))
        );
        outbox.forget_archived(at(2, 0));
        assert_eq!(outbox.len(), 9);
    }

    proptest! {
        #[test]
        fn the_copy_of_the_newest_posts_answers_as_the_outbox_or_not_at_all(
            placed in prop::collection::vec((0..60i64, any::<bool>()), 0..60),
            archived in 0..40i64,
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
            for time in 0..archived {
                outbox.move_to_archive(at(time, 0));
            }
            // These may be below the archived posts.
            for time in late {
                outbox.insert(at(time, 1), Route::Pull);
            }
            for time in gone {
                outbox.remove(at(time, 0));
            }
            let Some(newest) = outbox.newest_pulled(kept) else {
                prop_assert_eq!(outbox.pulled_count().0, 0);
                return Ok(());
            };
            let span = PositionRange { above: at(above, 0), below: at(below, 0) };
            for part in [Part::Pulled, Part::Pushed, Part::Whole] {
                for direction in [Direction::Older, Direction::Newer] {
                    let ask = OutboxQuery { part, span, direction, max };
                    let (mut by_all, mut by_newest) = (vec![at(99, 0)], vec![at(99, 0)]);
                    let complete = outbox.pull(ask, &mut by_all).is_ok();
                    if newest.pull(ask, &mut by_newest) {
                        prop_assert!(complete);
                        prop_assert_eq!(by_newest, by_all);
                    } else {
                        prop_assert_eq!(by_newest.len(), 1);
                        let is_easy = (part, direction) == (Part::Pulled, Direction::Older) && complete;
                        prop_assert!(!is_easy || outbox.pulled_count().0 > kept, "it has all there are");
                    }
                }
            }
        }
    }

    #[test]
    fn no_pulled_post_is_above_the_newest_that_is_left_to_pull() {
        let mut outbox = Outbox::default();
        outbox.insert(at(1, 0), Route::Pull);
        outbox.insert(at(2, 0), Route::Push);
        assert_eq!(outbox.newest_left_to_pull(), Some(at(1, 0)));
        outbox.move_to_archive(at(1, 0));
        assert_eq!(outbox.newest_left_to_pull(), Some(at(1, 0)), "it is in the archive");
        outbox.forget_archived(at(1, 0));
        assert_eq!(outbox.newest_left_to_pull(), None);
    }

    #[test]
    fn a_hidden_post_in_memory_or_archive_does_not_count_as_shown() {
        let mut outbox = Outbox::default();
        (1..=4).for_each(|time| assert!(outbox.insert(at(time, time as u64), Route::Push)));
        [1, 2, 1].into_iter().for_each(|id| outbox.hide(PostId(id), true));
        assert_eq!((outbox.len(), outbox.shown(), outbox.hidden()), (4, 2, &[PostId(1), PostId(2)][..]));
        assert_eq!(outbox.archived(Part::Whole), None, "none is archived yet");
        (1..=3).for_each(|time| assert!(outbox.move_to_archive(at(time, time as u64))));
        assert_eq!((outbox.len(), outbox.shown()), (4, 2));
        outbox.forget_archived(at(1, 1));
        [1, 2, 3, 2].into_iter().for_each(|id| outbox.hide(PostId(id), false));
        assert_eq!((outbox.len(), outbox.shown(), outbox.hidden().len()), (3, 3, 0));
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
