//! An inbox: the newest posts pushed to one reader, capped.
//!
//! Responsible for:
//! - keeping at most `posts_max` positions, each once, and knowing the floor above which it is complete;
//! - answering runs of positions in either direction.
//!
//! Not responsible for:
//! - who receives a post (`feed::policy`), merging pulled sources (`feed::merge`), what may be shown (`feed::page`);
//! - durability: an inbox is derived state and can be rebuilt from outboxes and the follow graph;
//! - time: positions carry it, no clock is read here.
//!
//! An entry is the bare position: who wrote the post and by which route it came is read from the post itself when a page
//! is built, since only that answer is current.

use std::num::{NonZeroU32, NonZeroUsize};

use crate::clock::UnixMicros;
use crate::feed::position::{Direction, Position, Span};
use crate::feed::runs::SortedRuns;

/// The newest posts pushed to one reader, capped. Complete for every position above [`Inbox::floor`].
#[derive(Clone, Debug)]
pub struct Inbox {
    posts: SortedRuns<Position>,
    floor: Position,
    synced: UnixMicros,
    posts_max: NonZeroU32,
    /// [`Inbox::last_late`] in whole seconds, rounded up: each byte here counts a million times, and a delivery touches all of them.
    last_late_seconds: u32,
}

const MICROS_PER_SECOND: u64 = 1_000_000;

/// What became of a pushed post.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Push {
    /// It is in the inbox now; the oldest made room if one had to.
    Added {
        /// The position that made room.
        evicted: Option<Position>,
    },
    /// It was there already.
    Duplicate,
    /// It is older than what the inbox covers. Reads find it by pull.
    BelowFloor,
}

impl Inbox {
    /// An empty inbox that is complete: right for a reader none of whose sources has pushed anything.
    pub fn new(posts_max: NonZeroUsize) -> Self {
        let posts_max = posts_max.try_into().unwrap_or(NonZeroU32::MAX);
        let (posts, floor, synced) = (SortedRuns::default(), Position::MIN, UnixMicros(i64::MIN));
        Self { posts, floor, synced, posts_max, last_late_seconds: 0 }
    }

    /// Adds a post. Idempotent: the same position twice changes nothing.
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

    /// Adds the newest positions of one source, or of several merged, given newest first.
    ///
    /// `left_out` is the newest position that the caller knew of and did not give. The floor rises to it: without that
    /// the inbox would claim to be complete where it is not.
    pub fn absorb(&mut self, newest_first: &[Position], left_out: Option<Position>) {
        if let Some(left_out) = left_out {
            self.raise_floor(left_out);
        }
        for position in newest_first.iter().rev() {
            self.push(*position);
        }
    }

    /// An inbox that was kept somewhere: complete above `floor`, with what the sources of edges made until `synced` had
    /// published.
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

    /// It has what the sources of all edges made until then had published.
    pub fn synced(&self) -> UnixMicros {
        self.synced
    }

    /// Notes up to which edges it was brought in step.
    pub fn set_synced(&mut self, synced: UnixMicros) {
        self.synced = synced;
    }

    /// Notes that a post may have come in at `at` that stands far below others.
    pub fn note_late(&mut self, at: UnixMicros) {
        let seconds = u32::try_from(at.0.max(0).cast_unsigned().div_ceil(MICROS_PER_SECOND)).unwrap_or(u32::MAX);
        self.last_late_seconds = self.last_late_seconds.max(seconds);
    }

    /// When such a post last came in, or later: after it none did.
    pub fn last_late(&self) -> UnixMicros {
        match self.last_late_seconds {
            0 => UnixMicros(i64::MIN),
            // The last that can be counted stands for all later ones.
            u32::MAX => UnixMicros(i64::MAX),
            seconds => UnixMicros((u64::from(seconds) * MICROS_PER_SECOND).cast_signed()),
        }
    }

    /// Drops every post at or below `floor`, and says no more to know about them.
    pub fn raise_floor(&mut self, floor: Position) {
        if floor <= self.floor {
            return;
        }
        while self.posts.first().is_some_and(|first| first <= floor) {
            self.posts.pop_first();
        }
        self.floor = floor;
    }

    /// Takes out a post that is gone for good.
    pub fn remove(&mut self, position: Position) -> bool {
        self.posts.remove(&position)
    }

    /// The inbox has every pushed post above this position, and none at or below it.
    pub fn floor(&self) -> Position {
        self.floor
    }

    /// The newest post. Reading it touches the memory that the next [`Inbox::push`] writes to.
    pub fn newest(&self) -> Option<Position> {
        self.posts.last()
    }

    /// Whether it holds a post.
    pub fn contains(&self, position: Position) -> bool {
        self.posts.contains(&position)
    }

    /// How many posts it holds.
    pub fn len(&self) -> usize {
        self.posts.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.posts.is_empty()
    }

    /// How many posts it may hold.
    pub fn posts_max(&self) -> NonZeroUsize {
        self.posts_max.try_into().unwrap_or(NonZeroUsize::MAX)
    }

    /// Appends to `into` at most `max` positions inside `span`, nearest first in `direction`.
    pub fn copy(&self, span: Span, direction: Direction, max: usize, into: &mut Vec<Position>) {
        self.posts.copy_between(span.above, span.below, direction, max, into);
    }

    /// All positions, newest first.
    pub fn iter(&self) -> impl Iterator<Item = Position> {
        self.posts.below(Position::MAX)
    }

    /// All positions, oldest first.
    pub fn oldest_first(&self) -> impl Iterator<Item = Position> {
        self.posts.above(Position::MIN)
    }

    /// Bytes on the heap, without the allocator's own.
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
    fn a_late_post_is_never_said_to_have_come_earlier_than_it_did() {
        let mut inbox = inbox(1);
        assert_eq!(inbox.last_late(), UnixMicros(i64::MIN));
        for (at, last_late) in [(1, 1_000_000), (999, 1_000_000), (1_000_001, 2_000_000), (i64::MAX, i64::MAX)] {
            inbox.note_late(UnixMicros(at));
            assert_eq!(inbox.last_late(), UnixMicros(last_late));
        }
    }

    #[test]
    fn an_inbox_takes_no_more_than_a_cache_line_and_a_half() {
        assert_eq!(size_of::<Inbox>(), 96);
    }

    #[test]
    fn the_oldest_goes_first_and_raises_the_floor() {
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
    fn the_same_post_twice_appears_once() {
        let mut inbox = inbox(3);
        inbox.push(at(1, 1));
        assert_eq!(inbox.push(at(1, 1)), Push::Duplicate);
        assert_eq!(inbox.len(), 1);
    }

    #[test]
    fn a_full_inbox_takes_a_newcomer_that_is_oldest_only_to_the_floor() {
        let mut inbox = inbox(1);
        inbox.push(at(9, 9));
        assert_eq!(inbox.push(at(3, 3)), Push::Added { evicted: Some(at(3, 3)) });
        assert_eq!((inbox.floor(), inbox.newest()), (at(3, 3), Some(at(9, 9))));
    }

    #[test]
    fn absorbing_a_cut_source_admits_the_gap() {
        let mut inbox = inbox(3);
        inbox.push(at(1, 1));
        inbox.absorb(&[at(90, 1), at(80, 1)], Some(at(70, 1)));
        assert_eq!(inbox.floor(), at(70, 1));
        assert!(inbox.iter().eq([at(90, 1), at(80, 1)]));
    }

    proptest! {
        #[test]
        fn above_its_floor_it_is_the_set_of_all_pushed(
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
