//! An inbox: a bounded set of the newest posts pushed to one reader.
//!
//! An entry is only a position. The author of the post and the route by which it arrived are read from the post itself when a page is
//! built, because only the post has their current values.

use std::num::{NonZeroU32, NonZeroUsize};

use crate::clock::UnixMicros;
use crate::feed::position::{Direction, Position, PositionRange};
use crate::feed::runs::SortedRuns;

/// A bounded set of the newest posts pushed to one reader. It has every pushed position above [`Inbox::floor`].
#[derive(Clone, Debug)]
pub struct Inbox {
    posts: SortedRuns<Position>,
    floor: Position,
    synced: UnixMicros,
    posts_max: NonZeroU32,
    /// [`Inbox::last_late`] in whole seconds, rounded up. The field is small because there may be millions of inboxes, and a delivery
    /// accesses the whole struct.
    last_late_seconds: u32,
}

const MICROS_PER_SECOND: u64 = 1_000_000;

/// The result of pushing a post.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Push {
    /// It was added. If the inbox was full, the oldest position was removed.
    Added {
        /// The position that was removed, if any.
        evicted: Option<Position>,
    },
    /// It was already in the inbox.
    Duplicate,
    /// It is older than the range that the inbox covers. Reads find it by pull.
    BelowFloor,
}

impl Inbox {
    /// Creates an empty inbox that is complete: correct for a reader whose sources have not pushed anything.
    pub fn new(posts_max: NonZeroUsize) -> Self {
        let posts_max = posts_max.try_into().unwrap_or(NonZeroU32::MAX);
        let (posts, floor, synced) = (SortedRuns::default(), Position::MIN, UnixMicros(i64::MIN));
        Self { posts, floor, synced, posts_max, last_late_seconds: 0 }
    }

    /// Adds a post. It is idempotent: pushing a position again changes nothing.
    pub fn push(&mut self, position: Position) -> Push {
        if position <= self.floor {
            return Push::BelowFloor;
        }
        if !self.posts.insert(position) {
            return Push::Duplicate;
        }
        if self.posts.len() <= self.posts_max.get() as usize {
            return Push::Added { evicted: None };
        }
        let evicted = self.posts.pop_first();
        self.floor = evicted.unwrap_or(self.floor);
        Push::Added { evicted }
    }

    /// Adds the newest positions of one source, or of several merged sources, newest first.
    ///
    /// `left_out` is the newest position that the caller knew and omitted. The floor rises to it: otherwise the inbox would claim to be
    /// complete where it is not.
    pub fn absorb(&mut self, newest_first: &[Position], left_out: Option<Position>) {
        if let Some(left_out) = left_out {
            self.raise_floor(left_out);
        }
        for position in newest_first.iter().rev() {
            self.push(*position);
        }
    }

    /// Restores a stored inbox: complete above `floor`, with the posts of the sources of all edges created until `synced`.
    pub fn restored(
        posts_max: NonZeroUsize,
        floor: Position,
        synced: UnixMicros,
        posts: impl Iterator<Item = Position>,
    ) -> Self {
        let mut inbox = Self { floor, synced, ..Self::new(posts_max) };
        posts.for_each(|position| {
            inbox.push(position);
        });
        inbox
    }

    /// Returns a copy of the newest positions, at most `max`. The floor of the copy is the newest position that was left out. The copy
    /// reuses `positions`, which should have capacity for `max + 1`.
    pub fn copy_newest(&self, max: usize, mut positions: Vec<Position>) -> Self {
        self.posts.copy_largest(max + 1, &mut positions);
        let left_out = (positions.len() > max).then(|| positions.pop()).flatten();
        positions.reverse();
        let floor = left_out.map_or(self.floor, |left_out| self.floor.max(left_out));
        Self { posts: SortedRuns::unpacked(positions), floor, ..*self }
    }

    /// Returns the instant up to which the posts of all created edges are included.
    pub fn synced(&self) -> UnixMicros {
        self.synced
    }

    /// Sets the instant of the last edge whose posts are included.
    pub fn set_synced(&mut self, synced: UnixMicros) {
        self.synced = synced;
    }

    /// Records that a post far below others may have arrived at `at`.
    pub fn note_late(&mut self, at: UnixMicros) {
        let seconds = u32::try_from(at.0.max(0).cast_unsigned().div_ceil(MICROS_PER_SECOND)).unwrap_or(u32::MAX);
        self.last_late_seconds = self.last_late_seconds.max(seconds);
    }

    /// Returns an upper bound of the instant at which such a post last arrived.
    pub fn last_late(&self) -> UnixMicros {
        match self.last_late_seconds {
            0 => UnixMicros(i64::MIN),
            // The largest storable value represents all later instants.
            u32::MAX => UnixMicros(i64::MAX),
            seconds => UnixMicros((u64::from(seconds) * MICROS_PER_SECOND).cast_signed()),
        }
    }

    /// Removes every post at or below `floor`; the inbox is no longer complete there.
    pub fn raise_floor(&mut self, floor: Position) {
        if floor <= self.floor {
            return;
        }
        while self.posts.first().is_some_and(|first| first <= floor) {
            self.posts.pop_first();
        }
        self.floor = floor;
    }

    /// Removes a post that is deleted for good. Returns false if it was not there.
    pub fn remove(&mut self, position: Position) -> bool {
        self.posts.remove(&position)
    }

    /// Returns the position above which the inbox has every pushed post, and at or below which it has none.
    pub fn floor(&self) -> Position {
        self.floor
    }

    /// Returns the newest post. Reading it prefetches the memory to which the next [`Inbox::push`] writes.
    pub fn newest(&self) -> Option<Position> {
        self.posts.last()
    }

    /// Returns true if the inbox has this post.
    pub fn contains(&self, position: Position) -> bool {
        self.posts.contains(&position)
    }

    /// Returns the number of posts.
    pub fn len(&self) -> usize {
        self.posts.len()
    }

    /// Returns true if the inbox has no posts.
    pub fn is_empty(&self) -> bool {
        self.posts.is_empty()
    }

    /// Returns the maximum number of posts.
    pub fn posts_max(&self) -> NonZeroUsize {
        self.posts_max.try_into().unwrap_or(NonZeroUsize::MAX)
    }

    /// Appends to `into` at most `max` positions inside `span`, nearest first in `direction`.
    pub fn copy(&self, span: PositionRange, direction: Direction, max: usize, into: &mut Vec<Position>) {
        self.posts.copy_between(span.above, span.below, direction, max, into);
    }

    /// Returns all positions, newest first.
    pub fn iter(&self) -> impl Iterator<Item = Position> {
        self.posts.below(Position::MAX)
    }

    /// Returns all positions, oldest first.
    pub fn oldest_first(&self) -> impl Iterator<Item = Position> {
        self.posts.above(Position::MIN)
    }

    /// Returns the bytes on the heap, without the overhead of the allocator.
    pub fn heap_bytes(&self) -> usize {
        self.posts.heap_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::position::at;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn inbox(posts_max: usize) -> Inbox {
        Inbox::new(NonZeroUsize::new(posts_max).unwrap())
    }

    #[test]
    fn the_time_of_the_last_late_post_is_rounded_up() {
        let mut inbox = inbox(1);
        assert_eq!(inbox.last_late(), UnixMicros(i64::MIN));
        for (at, last_late) in [(1, 1_000_000), (999, 1_000_000), (1_000_001, 2_000_000), (i64::MAX, i64::MAX)] {
            inbox.note_late(UnixMicros(at));
            assert_eq!(inbox.last_late(), UnixMicros(last_late));
        }
    }

    #[test]
    fn an_inbox_uses_a_cache_line_and_a_half() {
        assert_eq!(size_of::<Inbox>(), 96);
    }

    #[test]
    fn a_full_inbox_evicts_the_oldest_post_and_raises_the_floor() {
        let mut inbox = inbox(2);
        assert_eq!(inbox.push(at(10, 1)), Push::Added { evicted: None });
        assert_eq!(inbox.push(at(30, 3)), Push::Added { evicted: None });
        assert_eq!(inbox.push(at(20, 2)), Push::Added { evicted: Some(at(10, 1)) });
        assert_eq!(inbox.floor(), at(10, 1));
        assert_eq!(inbox.push(at(10, 1)), Push::BelowFloor);
        assert_eq!(inbox.push(at(5, 9)), Push::BelowFloor);
        assert!(inbox.iter().eq([at(30, 3), at(20, 2)]));
    }

    #[test]
    fn a_post_pushed_twice_appears_once() {
        let mut inbox = inbox(3);
        inbox.push(at(1, 1));
        assert_eq!(inbox.push(at(1, 1)), Push::Duplicate);
        assert_eq!(inbox.len(), 1);
    }

    #[test]
    fn a_full_inbox_evicts_a_new_post_that_is_the_oldest() {
        let mut inbox = inbox(1);
        inbox.push(at(9, 9));
        assert_eq!(inbox.push(at(3, 3)), Push::Added { evicted: Some(at(3, 3)) });
        assert_eq!((inbox.floor(), inbox.newest()), (at(3, 3), Some(at(9, 9))));
    }

    #[test]
    fn absorbing_a_truncated_source_raises_the_floor() {
        let mut inbox = inbox(3);
        inbox.push(at(1, 1));
        inbox.absorb(&[at(90, 1), at(80, 1)], Some(at(70, 1)));
        assert_eq!(inbox.floor(), at(70, 1));
        assert!(inbox.iter().eq([at(90, 1), at(80, 1)]));
    }

    proptest! {
        #[test]
        fn above_its_floor_an_inbox_has_all_pushed_posts(
            posts_max in 1..40usize,
            pushed in prop::collection::vec((0..60i64, 0..4u64), 0..300),
        ) {
            let mut inbox = inbox(posts_max);
            let mut all = BTreeSet::new();
            for (time, id) in pushed {
                inbox.push(at(time, id));
                all.insert(at(time, id));
                let complete: Vec<_> = all.iter().rev().copied().filter(|p| *p > inbox.floor()).collect();
                prop_assert!(inbox.iter().eq(complete));
                prop_assert_eq!(inbox.len(), all.len().min(posts_max));
            }
        }
    }
}
