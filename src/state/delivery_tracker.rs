//! The delivery tracker: the instant up to which all accepted posts have reached all readers.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::clock::UnixMicros;
use crate::feed::position::Position;
use crate::feed::resume::{DeliveryWatermark, Resume, is_late};
use crate::id::PostId;
use crate::state::revealed::RevealedOrigins;

const NEVER: i64 = i64::MIN;
const NONE_OPEN: i64 = i64::MAX;
/// With fewer ended instants than this, a pass over the whole queue is not worth its cost.
const OPEN_INSTANTS_ENDED_MIN: usize = 1_024;

/// The state of deliveries. Pages read it without a lock.
#[derive(Debug)]
pub struct DeliveryTracker {
    /// Every post accepted up to this instant is applied.
    applied: AtomicI64,
    /// The instants of posts that are applied but not yet delivered to every inbox.
    open: Mutex<OpenInstants>,
    /// The earliest instant in `open`.
    oldest_open: AtomicI64,
    ahead_us: AtomicI64,
    /// The instant at which the last late post arrived.
    last_late: AtomicI64,
    /// The instant at which a post that had been delivered before last became visible: it had been hidden, or it is the
    /// original of a repost that arrived first.
    last_revealed: AtomicI64,
    /// Posts that became visible and have too many reposts to record each repost.
    pub revealed: RevealedOrigins,
    /// The instant at which a repost or a follow was last removed. Entries may have moved to lower positions since.
    last_removed: AtomicI64,
    /// The number of starts and ends of such removals. Odd while one is in progress.
    removals: AtomicU64,
    /// Tokens older than this instant are rejected.
    tokens_from: AtomicI64,
}

impl Default for DeliveryTracker {
    fn default() -> Self {
        Self {
            applied: AtomicI64::new(NEVER),
            open: Mutex::default(),
            oldest_open: AtomicI64::new(NONE_OPEN),
            ahead_us: AtomicI64::new(0),
            last_late: AtomicI64::new(NEVER),
            last_revealed: AtomicI64::new(NEVER),
            revealed: RevealedOrigins::default(),
            last_removed: AtomicI64::new(NEVER),
            removals: AtomicU64::new(0),
            tokens_from: AtomicI64::new(NEVER),
        }
    }
}

impl DeliveryTracker {
    /// Returns the delivery watermark. It must be read before an inbox or outbox.
    pub fn settled(&self) -> DeliveryWatermark {
        // Read in this order, because a post is noted as open before it counts as applied.
        let applied = self.applied.load(Ordering::Acquire);
        let oldest_open = self.oldest_open.load(Ordering::Acquire);
        let ahead_us = self.ahead_us.load(Ordering::Acquire);
        DeliveryWatermark { through: UnixMicros(applied.min(oldest_open.saturating_sub(1))), ahead_us }
    }

    /// Returns the watermark for a reader that receives no pushed posts.
    pub fn applied(&self) -> DeliveryWatermark {
        let applied = self.applied.load(Ordering::Acquire);
        DeliveryWatermark { through: UnixMicros(applied), ahead_us: self.ahead_us.load(Ordering::Acquire) }
    }

    /// Notes that the fan-out of a post begins. The post counts as applied afterwards.
    pub fn begin(&self, accepted_at: UnixMicros) {
        let mut open = self.open.lock();
        open.begin(accepted_at.0);
        self.oldest_open.store(open.oldest(), Ordering::Release);
        drop(open);
        self.set_applied(accepted_at);
    }

    /// Notes that a post is delivered to every inbox.
    pub fn end(&self, accepted_at: UnixMicros) {
        let mut open = self.open.lock();
        open.end(accepted_at.0);
        self.oldest_open.store(open.oldest(), Ordering::Release);
    }

    /// Notes that every post accepted up to `at` is applied.
    pub fn set_applied(&self, at: UnixMicros) {
        self.applied.fetch_max(at.0, Ordering::AcqRel);
    }

    /// Notes the end of a recovery. Every post accepted up to `last` is applied; it is not known here which of these arrived late.
    pub fn recovered(&self, last: UnixMicros) {
        self.set_applied(last);
        self.note_late(last);
        self.note_revealed(last);
        self.last_removed.fetch_max(last.0, Ordering::AcqRel);
    }

    /// Sets the time by which acceptance instants are ahead of publish times from `at` on, if it has changed. Everything accepted earlier
    /// is applied. Older tokens are rejected, because they do not determine the positions of later posts.
    pub fn set_ahead(&self, ahead_us: i64, at: UnixMicros) {
        if self.ahead_us() == ahead_us {
            // The event is a repetition: it was not known if the journal had stored the first one, for example because the disk was full.
            return;
        }
        let before = UnixMicros(at.0.saturating_sub(1));
        self.forget_before(before);
        // Without this, no valid token could be made until the next post is accepted.
        self.set_applied(before);
        self.ahead_us.store(ahead_us, Ordering::Release);
    }

    /// Restores the values of a snapshot: the drift of instants, the instant before which tokens are rejected, if there is one, and the
    /// posts of [`DeliveryTracker::revealed`].
    pub fn restore(&self, ahead_us: i64, tokens_from: Option<UnixMicros>, revealed: &[(UnixMicros, PostId)]) {
        self.ahead_us.store(ahead_us, Ordering::Release);
        revealed.iter().for_each(|(at, origin)| self.note_origin(*origin, *at));
        tokens_from.into_iter().for_each(|from| self.forget_before(from));
    }

    /// Returns the instant before which tokens are rejected, if there is one.
    pub fn tokens_from(&self) -> Option<UnixMicros> {
        let from = self.tokens_from.load(Ordering::Acquire);
        (from != NEVER).then_some(UnixMicros(from))
    }

    /// The current value of [`DeliveryWatermark::ahead_us`], in microseconds.
    pub fn ahead_us(&self) -> i64 {
        self.ahead_us.load(Ordering::Acquire)
    }

    /// Returns true if a post must be noted as late.
    pub fn is_late(&self, position: Position, accepted_at: UnixMicros) -> bool {
        is_late(position, accepted_at, self.ahead_us())
    }

    /// Records the instant at which a post was noted as late.
    pub fn note_late(&self, at: UnixMicros) {
        self.last_late.fetch_max(at.0, Ordering::AcqRel);
    }

    /// Records the instant at which a post that had been delivered before became visible, and was therefore noted as
    /// late.
    pub fn note_revealed(&self, at: UnixMicros) {
        self.note_late(at);
        self.last_revealed.fetch_max(at.0, Ordering::AcqRel);
    }

    /// Notes a post that became visible and has too many reposts to note each repost.
    pub fn note_origin(&self, origin: PostId, at: UnixMicros) {
        self.revealed.note(at, origin, |forgotten| self.forget_before(forgotten));
        self.note_late(at);
    }

    /// Marks that a repost or a follow is being removed, until the returned guard is dropped. Only the state machine calls it.
    pub fn begin_removal(&self) -> RemovalGuard<'_> {
        // Such events have no acceptance instant of their own.
        self.last_removed.fetch_max(self.applied.load(Ordering::Acquire), Ordering::AcqRel);
        self.removals.fetch_add(1, Ordering::AcqRel);
        RemovalGuard(&self.removals)
    }

    /// Runs `work` and returns its result, with true if no repost or follow was being removed meanwhile.
    pub fn watch_for_removals<T>(&self, work: impl FnOnce() -> T) -> (bool, T) {
        let before = self.removals.load(Ordering::Acquire);
        let done = work();
        let is_same = self.removals.load(Ordering::Acquire) == before;
        (is_same && before.is_multiple_of(2), done)
    }

    /// Returns true if a repost or a follow may have been removed after the client received everything accepted up to
    /// `since`.
    pub fn any_removed(&self, since: Option<UnixMicros>) -> bool {
        since.is_some_and(|since| self.last_removed.load(Ordering::Acquire) >= since.0)
    }

    /// Rejects tokens older than `at`, because more became visible at that instant than can be noted.
    pub fn forget_before(&self, at: UnixMicros) {
        self.tokens_from.fetch_max(at.0, Ordering::AcqRel);
    }

    /// Returns true if a client can resume from a token, as far as this can be decided without its reader.
    pub fn knows(&self, token: Resume) -> bool {
        let (from, applied) = (self.tokens_from.load(Ordering::Acquire), self.applied.load(Ordering::Acquire));
        // An instant later than `applied` is from a process that had applied more than was stored durably.
        let is_known = |since: UnixMicros| from <= since.0 && since.0 <= applied;
        let is_of_today = token.since().is_none() || token.ahead_us == self.ahead_us();
        !token.is_partial && is_of_today && token.above.into_iter().chain(token.below).all(is_known)
    }

    /// Returns true if any post arrived late after `since`.
    pub fn any_late(&self, since: UnixMicros) -> bool {
        self.last_late.load(Ordering::Acquire) > since.0
    }

    /// Returns the instant from which on tokens are accepted. If entries may fall, it is also later than the last removal of a repost or a
    /// follow.
    pub fn rejects_before(&self, may_fall: bool) -> UnixMicros {
        let removed = if may_fall { self.last_removed.load(Ordering::Acquire).saturating_add(1) } else { NEVER };
        UnixMicros(self.tokens_from.load(Ordering::Acquire).max(removed))
    }

    /// Returns the instant at which the last post arrived late. For a reader whose inbox has all posts, `of_inbox` is the inbox's own
    /// instant.
    pub fn last_late(&self, of_inbox: Option<UnixMicros>) -> UnixMicros {
        match of_inbox {
            Some(late) => late.max(UnixMicros(self.last_revealed.load(Ordering::Acquire))),
            None => UnixMicros(self.last_late.load(Ordering::Acquire)),
        }
    }

    /// Returns true if any post that had been delivered before became visible after `since`.
    pub fn any_revealed(&self, since: UnixMicros) -> bool {
        self.last_revealed.load(Ordering::Acquire) > since.0
    }
}

/// Instants in ascending order, each until it ends. It is a queue and not a set, because the state machine begins instants in order and
/// most end in nearly that order. This code runs once per post, on the threads of the command processor and of the fan-out supervisor.
#[derive(Debug, Default)]
struct OpenInstants {
    /// Each instant with true if it has ended. The first one has not.
    instants: VecDeque<(i64, bool)>,
    /// The number of ended instants behind one that has not ended.
    ended: usize,
}

impl OpenInstants {
    /// Returns the first instant that has not ended, or [`NONE_OPEN`].
    fn oldest(&self) -> i64 {
        self.instants.front().map_or(NONE_OPEN, |(first, _)| *first)
    }

    fn begin(&mut self, at: i64) {
        let behind = self.instants.partition_point(|(other, _)| *other <= at);
        self.instants.insert(behind, (at, false));
    }

    fn end(&mut self, at: i64) {
        let first = self.instants.partition_point(|(other, _)| *other < at);
        let same = self.instants.range_mut(first..).take_while(|(other, _)| *other == at);
        let Some((_, has_ended)) = same.into_iter().find(|(_, has_ended)| !has_ended) else { return };
        *has_ended = true;
        self.ended += 1;
        while let Some((_, true)) = self.instants.front() {
            self.instants.pop_front();
            self.ended -= 1;
        }
        // Otherwise ended instants would accumulate behind a long fan-out.
        if self.ended > OPEN_INSTANTS_ENDED_MIN.max(self.instants.len() / 2) {
            self.instants.retain(|(_, has_ended)| !has_ended);
            self.ended = 0;
        }
    }
}

/// A guard: while it exists, a repost or a follow is being removed.
#[derive(Debug)]
pub struct RemovalGuard<'a>(&'a AtomicU64);

impl Drop for RemovalGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::feed::position::at;
    use crate::limits::REVEALED_ORIGINS_MAX;

    #[test]
    fn posts_in_flight_and_later_ones_are_not_settled() {
        let delivery = DeliveryTracker::default();
        let through = || delivery.settled().through.0;
        for accepted_at in [10, 11, 12] {
            delivery.begin(UnixMicros(accepted_at));
        }
        assert_eq!((through(), delivery.applied().through.0), (9, 12));
        delivery.end(UnixMicros(11));
        assert_eq!(through(), 9);
        delivery.end(UnixMicros(10));
        assert_eq!(through(), 11);
        delivery.end(UnixMicros(12));
        assert_eq!(through(), 12);
    }

    proptest! {
        #[test]
        fn the_oldest_open_instant_agrees_with_a_set(steps in vec((0_i64..40, any::<bool>()), 0..200)) {
            let (mut open, mut set, mut last) = (OpenInstants::default(), BTreeSet::new(), 0);
            for (number, begins) in steps {
                if begins {
                    last += 1 + number / 30;
                    open.begin(last);
                    set.insert(last);
                } else {
                    open.end(number);
                    set.remove(&number);
                }
                prop_assert_eq!(open.oldest(), set.first().copied().unwrap_or(NONE_OPEN));
            }
        }
    }

    #[test]
    fn instants_that_end_behind_a_long_fan_out_use_no_memory() {
        let mut open = OpenInstants::default();
        (0..100_000).for_each(|at| open.begin(at));
        (1..100_000).for_each(|at| open.end(at));
        assert_eq!(open.oldest(), 0);
        assert!(open.instants.len() <= 2 * OPEN_INSTANTS_ENDED_MIN, "{}", open.instants.len());
        open.end(0);
        assert_eq!((open.oldest(), open.instants.len(), open.ended), (NONE_OPEN, 0, 0));
    }

    #[test]
    fn the_first_of_too_many_revealed_posts_are_forgotten_and_older_tokens_rejected() {
        let delivery = DeliveryTracker::default();
        let max = REVEALED_ORIGINS_MAX as i64;
        delivery.set_applied(UnixMicros(max));
        let knows = |since| {
            delivery.knows(Resume::whole(at(5, 0), DeliveryWatermark { through: UnixMicros(since), ahead_us: 0 }))
        };
        (1..=max).for_each(|nth| delivery.note_origin(PostId(nth as u64), UnixMicros(nth)));
        assert!(knows(0));
        delivery.note_origin(PostId(max as u64 + 1), UnixMicros(max + 1));
        assert!(!knows(0) && knows(1));
    }

    #[test]
    fn tokens_of_partial_pages_from_the_future_or_before_a_drift_change_are_rejected() {
        let delivery = DeliveryTracker::default();
        delivery.set_applied(UnixMicros(100));
        let token = |through| Resume::whole(at(5, 0), DeliveryWatermark { through: UnixMicros(through), ahead_us: 0 });
        assert!(delivery.knows(token(100)) && delivery.knows(Resume::at(at(500, 0))));
        assert!(!delivery.knows(token(101)) && !delivery.knows(Resume { is_partial: true, ..token(100) }));
        delivery.set_ahead(7, UnixMicros(191));
        let token = |through| Resume { ahead_us: 7, ..token(through) };
        assert!(delivery.knows(token(190)) && !delivery.knows(token(189)));
        assert!(delivery.knows(Resume::whole(at(5, 0), delivery.settled())), "one that is made now is good");
        delivery.set_ahead(7, UnixMicros(300));
        assert!(delivery.knows(token(190)), "nothing has changed");
    }
}
