//! A position: the place of a post in every feed.

use serde::{Deserialize, Serialize};

use crate::clock::UnixMicros;
use crate::feed::runs::packed::{Key, unzigzag, zigzag};
use crate::id::PostId;

/// The place of a post in the order of a feed: by publish time, and by id if the times are equal. Feeds show the largest position first.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Position {
    /// The publish time of the post.
    pub published_at: UnixMicros,
    /// The id of the post.
    pub id: PostId,
}

impl Position {
    /// The lowest position, below every post.
    pub const MIN: Self = Self { published_at: UnixMicros(i64::MIN), id: PostId(0) };
    /// The highest position, above every post.
    pub const MAX: Self = Self { published_at: UnixMicros(i64::MAX), id: PostId(u64::MAX) };

    /// Returns the position directly above this one, or [`Position::MAX`] itself.
    #[must_use]
    pub fn next_up(self) -> Self {
        let Self { published_at, id } = self;
        match (id.0.checked_add(1), published_at.0.checked_add(1)) {
            (Some(id), _) => Self { published_at, id: PostId(id) },
            (None, Some(later)) => Self { published_at: UnixMicros(later), id: PostId(0) },
            (None, None) => self,
        }
    }

    /// Returns a number with the same order, so that a heap can reverse the order by complementing it.
    pub fn rank(self) -> u128 {
        let time = self.published_at.0.cast_unsigned() ^ (1 << 63);
        (u128::from(time) << 64) | u128::from(self.id.0)
    }

    /// Returns the position with this [`Position::rank`].
    pub fn of_rank(rank: u128) -> Self {
        let time = ((rank >> 64) as u64 ^ (1 << 63)).cast_signed();
        Self { published_at: UnixMicros(time), id: PostId(rank as u64) }
    }
}

/// Packs the time and the difference between the id and the id that is predicted from the time. Ids may follow from the time as
/// `runtime::hybrid_logical_clock` mints them (12 bits per microsecond), as "snowflake" ids do from milliseconds, or not at all: each of these
/// is one way of prediction.
impl Key for Position {
    type Numbers = [u64; 2];

    const WAYS: u8 = 3;

    fn count_from(self, base: Self, way: u8) -> [u64; 2] {
        let time = self.published_at.0.wrapping_sub(base.published_at.0).cast_unsigned();
        [time, zigzag(self.id.0.wrapping_sub(base.expected_id(self.published_at, way)))]
    }

    fn count_to(base: Self, [time, unexpected]: [u64; 2], way: u8) -> Self {
        let published_at = UnixMicros(base.published_at.0.wrapping_add(time.cast_signed()));
        let id = base.expected_id(published_at, way).wrapping_add(unzigzag(unexpected));
        Self { published_at, id: PostId(id) }
    }
}

impl Position {
    /// Predicts the id of a post at another time from this position's id, under one way of prediction.
    fn expected_id(self, at: UnixMicros, way: u8) -> u64 {
        let (from, to) = (self.published_at.0, at.0);
        let further = match way {
            0 => to.wrapping_sub(from) << 12,
            1 => to.div_euclid(1_000).wrapping_sub(from.div_euclid(1_000)) << 22,
            _ => 0,
        };
        self.id.0.wrapping_add(further.cast_unsigned())
    }
}

/// The direction in which a page is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// From new to old.
    Older,
    /// From old to new.
    Newer,
}

/// The positions strictly between two bounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PositionRange {
    /// Exclusive lower bound.
    pub above: Position,
    /// Exclusive upper bound.
    pub below: Position,
}

impl PositionRange {
    /// A span that contains every post.
    pub const ALL: Self = Self { above: Position::MIN, below: Position::MAX };

    /// Returns true if no position can be inside the span.
    pub fn is_empty(self) -> bool {
        self.above.next_up() >= self.below
    }

    /// Returns the rest of the span after everything up to and including `at` was read in `direction`.
    #[must_use]
    pub fn beyond(self, at: Position, direction: Direction) -> Self {
        match direction {
            Direction::Older => Self { below: at.min(self.below), ..self },
            Direction::Newer => Self { above: at.max(self.above), ..self },
        }
    }
}

/// Returns the position of a post, for tests.
#[cfg(any(test, feature = "testing"))]
pub fn at(published_at: i64, id: u64) -> Position {
    Position { published_at: UnixMicros(published_at), id: PostId(id) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_order_by_time_then_id_and_ranks_agree() {
        let ascending = [Position::MIN, at(-5, 9), at(0, 0), at(0, 1), at(3, 0), Position::MAX];
        for pair in ascending.windows(2) {
            assert!(pair[0] < pair[1]);
            assert!(pair[0].rank() < pair[1].rank());
            assert_eq!(Position::of_rank(pair[0].rank()), pair[0]);
        }
    }

    #[test]
    fn next_up_is_the_adjacent_position() {
        assert_eq!(at(1, 1).next_up(), at(1, 2));
        assert_eq!(at(1, u64::MAX).next_up(), at(2, 0));
        assert_eq!(Position::MAX.next_up(), Position::MAX);
        assert!(PositionRange { above: at(1, 1), below: at(1, 2) }.is_empty());
        assert!(!PositionRange { above: at(1, 1), below: at(1, 3) }.is_empty());
    }
}
