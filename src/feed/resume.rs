//! Resume tokens: how much of a feed a polling client has received.
//!
//! The position of a post does not determine if a client has received it: a post that is delivered late, or backdated by its author, is
//! added below entries that were returned before. The time of acceptance does determine it. A token therefore contains an instant up to
//! which every accepted post had been delivered, and a client receives the posts that were accepted later, wherever their positions are.
//! Nearly all of them are above that instant minus `LATE_AFTER`, where a page finds them; the others are recorded with their sources.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::UnixMicros;
use crate::feed::position::Position;
use crate::id::PostId;
use crate::limits::LATE_POSTS_PER_SOURCE_MAX;

/// A post whose position is further than this below the time of its acceptance is recorded as late with its sources. A page that a client
/// resumes scans all entries of this last period again. Services backdate posts by milliseconds to seconds, for the time in their queues.
const LATE_AFTER: Duration = Duration::from_secs(5);

/// The instant up to which accepted posts have been applied and delivered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeliveryWatermark {
    /// Every post accepted up to this instant is in the outboxes and in the inboxes of active readers.
    pub through: UnixMicros,
    /// Microseconds by which instants of acceptance are ahead of the publish times that posts get. It is zero unless a clock was far ahead
    /// and was corrected.
    pub ahead_us: i64,
}

impl DeliveryWatermark {
    /// Returns a position that is below all posts accepted after this moment, except the late ones ([`is_late`]).
    fn floor(through: UnixMicros, ahead_us: i64) -> Position {
        let published_at = UnixMicros(through.0.saturating_sub(ahead_us)).saturating_sub(LATE_AFTER);
        Position { published_at, id: PostId(0) }
    }
}

/// Returns true if a post accepted at `accepted_at` must be recorded as late, because it may be below the range that pages scan for new
/// posts.
pub fn is_late(position: Position, accepted_at: UnixMicros, ahead_us: i64) -> bool {
    position <= DeliveryWatermark::floor(accepted_at, ahead_us)
}

/// The part of a feed that a client has received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resume {
    /// The newest received entry, at which the ranges of the two bounds below meet.
    pub position: Position,
    /// Above `position`, the posts accepted after this instant are new. Without it all of them are.
    pub above: Option<UnixMicros>,
    /// At or below `position`, the posts accepted after this instant are new. Without it none of them is.
    pub below: Option<UnixMicros>,
    /// The value of `DeliveryWatermark::ahead_us` when the token was made.
    pub ahead_us: i64,
    /// A fingerprint of the reader's rules, mutes and blocks. If it differs, the feed has changed as a whole.
    pub preferences: u32,
    /// True if the page lacked data that could not be read in time: the feed has to be read again.
    pub is_partial: bool,
    /// True if pages up to `position` skipped an entry because it is at a repost further up. If that repost is removed, the entry moves
    /// down to where the client does not look for it again.
    pub may_fall: bool,
}

impl From<Position> for Resume {
    fn from(position: Position) -> Self {
        Self::at(position)
    }
}

impl Resume {
    /// Returns the token of a client that has everything up to `position`, like a plain cursor, and nothing above it.
    pub fn at(position: Position) -> Self {
        Self { position, above: None, below: None, ahead_us: 0, preferences: 0, is_partial: false, may_fall: false }
    }

    /// Returns the token of a client that has received the newest page of a feed at this moment.
    pub fn whole(newest: Position, settled: DeliveryWatermark) -> Self {
        let through = Some(settled.through);
        Self { above: through, below: through, ahead_us: settled.ahead_us, ..Self::at(newest) }
    }

    /// Returns the token of the same client after it has received everything that was new up to `position`.
    #[must_use]
    pub fn given_up_to(self, position: Position, settled: DeliveryWatermark) -> Self {
        // The smaller bound is correct for both parts.
        let ahead_us = if self.above.is_some() { self.ahead_us.max(settled.ahead_us) } else { settled.ahead_us };
        Self { position, below: Some(settled.through), ahead_us, ..self }
    }

    /// Returns the earlier of the two instants; none for a plain cursor.
    pub fn since(self) -> Option<UnixMicros> {
        self.above.into_iter().chain(self.below).min()
    }

    /// Returns true if a post is new to the client.
    pub fn is_new(self, position: Position, accepted_at: UnixMicros) -> bool {
        match position > self.position {
            true => self.above.is_none_or(|above| accepted_at > above),
            false => self.below.is_some_and(|below| accepted_at > below),
        }
    }

    /// Returns a position below all new posts, except those recorded as late.
    pub fn floor(self) -> Position {
        let bound = |through| DeliveryWatermark::floor(through, self.ahead_us);
        let above = self.above.map_or(self.position, |through| bound(through).max(self.position));
        let below = self.below.map(bound).filter(|below| *below < self.position);
        below.map_or(above, |below| below.min(above))
    }
}

/// The last posts of one source that arrived far below the newest ones, with the instants of their arrival.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct LatePosts {
    /// The late posts, oldest instant first.
    posts: VecDeque<(UnixMicros, Position)>,
    /// Posts that arrived up to this instant may have been dropped.
    forgotten: Option<UnixMicros>,
}

impl LatePosts {
    /// Records a post that arrived at `at`. Of several instants of one post only the last is stored: a post that is new by an earlier
    /// instant is also new by the later one.
    pub fn note(&mut self, at: UnixMicros, position: Position) {
        if self.forgotten.is_some_and(|forgotten| at <= forgotten) {
            return;
        }
        match self.posts.iter().position(|(_, noted)| *noted == position) {
            Some(nth) if self.posts[nth].0 >= at => return,
            Some(nth) => drop(self.posts.remove(nth)),
            None => {}
        }
        let place = self.posts.partition_point(|noted| *noted < (at, position));
        self.posts.insert(place, (at, position));
        if self.posts.len() > LATE_POSTS_PER_SOURCE_MAX {
            self.forgotten = self.posts.pop_front().map(|(at, _)| at).max(self.forgotten);
            let forgotten = self.forgotten;
            self.posts.retain(|(at, _)| Some(*at) > forgotten);
        }
    }

    /// Appends the posts that are new to a client with `token` to `into`. Returns false if some of them may have been dropped.
    pub fn new_to(&self, token: Resume, into: &mut Vec<Position>) -> bool {
        let Some(since) = token.since() else { return true };
        let start = self.posts.partition_point(|(at, _)| *at <= since);
        let new = self.posts.range(start..).filter(|(at, position)| token.is_new(*position, *at));
        into.extend(new.map(|(_, position)| *position));
        self.forgotten.is_none_or(|forgotten| forgotten <= since)
    }

    /// Returns the state to be stored: the posts, oldest instant first, and the instant up to which they may have been dropped.
    pub fn parts(&self) -> (impl Iterator<Item = (UnixMicros, Position)> + '_, Option<UnixMicros>) {
        (self.posts.iter().copied(), self.forgotten)
    }

    /// Restores the stored state.
    pub fn restored(posts: impl IntoIterator<Item = (UnixMicros, Position)>, forgotten: Option<UnixMicros>) -> Self {
        let mut restored = Self { posts: VecDeque::new(), forgotten };
        posts.into_iter().for_each(|(at, position)| restored.note(at, position));
        restored
    }

    /// Returns the bytes on the heap, without the overhead of the allocator.
    pub fn heap_bytes(&self) -> usize {
        self.posts.capacity() * size_of::<(UnixMicros, Position)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::position::at;
    use proptest::prelude::*;

    const MARGIN: i64 = LATE_AFTER.as_micros() as i64;

    fn settled(through: i64, ahead_us: i64) -> DeliveryWatermark {
        DeliveryWatermark { through: UnixMicros(through), ahead_us }
    }

    #[test]
    fn new_posts_are_identified_by_position_and_acceptance_time() {
        let whole = Resume::whole(at(50, 0), settled(100, 0));
        let partly = Resume::whole(at(50, 0), settled(100, 0)).given_up_to(at(70, 0), settled(200, 0));
        let plain = Resume::at(at(50, 0));
        for (resume, position, accepted_at, is_new) in [
            (whole, 40, 100, false),
            (whole, 40, 101, true),
            (whole, 60, 100, false),
            (whole, 60, 101, true),
            (partly, 60, 150, false),
            (partly, 60, 201, true),
            (partly, 80, 101, true),
            (partly, 80, 100, false),
            (plain, 50, 999, false),
            (plain, 51, 0, true),
        ] {
            assert_eq!(resume.is_new(at(position, 0), UnixMicros(accepted_at)), is_new, "{resume:?} at {position}");
        }
    }

    #[test]
    fn the_first_of_too_many_late_posts_are_forgotten_and_reported_as_a_gap() {
        let mut late = LatePosts::default();
        let max = LATE_POSTS_PER_SOURCE_MAX as i64;
        (0..=max).for_each(|nth| late.note(UnixMicros(nth), at(-nth, 0)));
        let since = |since: i64| {
            let mut found = Vec::new();
            let token = Resume::whole(at(0, 0), settled(since, 0));
            late.new_to(token, &mut found).then_some(found.len())
        };
        assert_eq!((since(max), since(max - 1), since(0), since(-1)), (Some(0), Some(1), Some(max as usize), None));
        let (posts, forgotten) = late.parts();
        assert_eq!(LatePosts::restored(posts.collect::<Vec<_>>(), forgotten), late);
    }

    proptest! {
        /// A post that is accepted after a token was made is above its floor, or late.
        #[test]
        fn a_new_post_is_above_the_floor_of_a_token_or_late(
            newest in -2 * MARGIN..2 * MARGIN,
            through in -2 * MARGIN..2 * MARGIN,
            further in 0..MARGIN,
            ahead_us in prop_oneof![Just(0), Just(3 * MARGIN)],
            accepted_after in 1..MARGIN,
            published_at in -9 * MARGIN..9 * MARGIN,
        ) {
            let whole = Resume::whole(at(newest, 0), settled(through, ahead_us));
            let partly = whole.given_up_to(at(newest / 2, 0), settled(through + further, ahead_us));
            for resume in [whole, partly] {
                let (position, accepted_at) = (at(published_at, 7), UnixMicros(through + accepted_after));
                if resume.is_new(position, accepted_at) && !is_late(position, accepted_at, ahead_us) {
                    prop_assert!(position > resume.floor(), "{resume:?}");
                }
            }
        }
    }
}
