//! Arrivals: up to when accepted posts have reached everybody who reads.
//!
//! Responsible for:
//! - the instant up to which every accepted post is applied and delivered, which resume tokens carry;
//! - when a post last came in late, so that pages look for late posts only if there are any.
//!
//! Not responsible for:
//! - which posts those are (`feed::resume`, with each source), handing out instants (`runtime::monotonic_clock`).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::clock::UnixMicros;
use crate::feed::position::Position;
use crate::feed::resume::{Resume, Settled, is_late};
use crate::id::PostId;
use crate::state::revealed::RevealedOrigins;

const NEVER: i64 = i64::MIN;
const NONE_OPEN: i64 = i64::MAX;
/// Fewer instants that have ended are not worth a pass over all.
const OPEN_INSTANTS_ENDED_MIN: usize = 1_024;

/// What is known of arrivals. Pages read it without a lock.
#[derive(Debug)]
pub struct Arrivals {
    /// Everything accepted up to here is applied.
    applied: AtomicI64,
    /// The instants of posts that are applied, and not delivered everywhere yet.
    open: Mutex<OpenInstants>,
    /// The first of them.
    oldest_open: AtomicI64,
    ahead_us: AtomicI64,
    /// The last post that was late came in then.
    last_late: AtomicI64,
    /// A post last came to be seen then that was delivered before: one that was hidden, or what a repost had named.
    last_revealed: AtomicI64,
    /// Posts that came to be seen and have too many reposts to note each.
    pub revealed: RevealedOrigins,
    /// A repost was last taken back then, or somebody unfollowed: entries may stand lower than before.
    last_taken_back: AtomicI64,
    /// How often that began or ended, so that it is odd meanwhile.
    takings_back: AtomicU64,
    /// Tokens from before this instant are not good any more.
    tokens_from: AtomicI64,
}

impl Default for Arrivals {
    fn default() -> Self {
        Self {
            applied: AtomicI64::new(NEVER),
            open: Mutex::default(),
            oldest_open: AtomicI64::new(NONE_OPEN),
            ahead_us: AtomicI64::new(0),
            last_late: AtomicI64::new(NEVER),
            last_revealed: AtomicI64::new(NEVER),
            revealed: RevealedOrigins::default(),
            last_taken_back: AtomicI64::new(NEVER),
            takings_back: AtomicU64::new(0),
            tokens_from: AtomicI64::new(NEVER),
        }
    }
}

impl Arrivals {
    /// Up to when posts have arrived. To be asked before an inbox or outbox is read.
    pub fn settled(&self) -> Settled {
        // In this order: a post is noted as open before it counts as applied.
        let applied = self.applied.load(Ordering::Acquire);
        let oldest_open = self.oldest_open.load(Ordering::Acquire);
        let ahead_us = self.ahead_us.load(Ordering::Acquire);
        Settled { through: UnixMicros(applied.min(oldest_open.saturating_sub(1))), ahead_us }
    }

    /// The same for a reader to whom nothing is pushed.
    pub fn applied(&self) -> Settled {
        let applied = self.applied.load(Ordering::Acquire);
        Settled { through: UnixMicros(applied), ahead_us: self.ahead_us.load(Ordering::Acquire) }
    }

    /// A post is on its way into inboxes. It counts as applied afterwards.
    pub fn begin(&self, accepted_at: UnixMicros) {
        let mut open = self.open.lock();
        open.begin(accepted_at.0);
        self.oldest_open.store(open.oldest(), Ordering::Release);
        drop(open);
        self.set_applied(accepted_at);
    }

    /// A post has been delivered everywhere.
    pub fn end(&self, accepted_at: UnixMicros) {
        let mut open = self.open.lock();
        open.end(accepted_at.0);
        self.oldest_open.store(open.oldest(), Ordering::Release);
    }

    /// Everything accepted up to `at` is applied.
    pub fn set_applied(&self, at: UnixMicros) {
        self.applied.fetch_max(at.0, Ordering::AcqRel);
    }

    /// A recovery has ended: up to `last` everything is applied, and what of it was late is not known here.
    pub fn recovered(&self, last: UnixMicros) {
        self.set_applied(last);
        self.note_late(last);
        self.note_revealed(last);
        self.last_taken_back.fetch_max(last.0, Ordering::AcqRel);
    }

    /// How far instants of acceptance are ahead of publish times from `at` on, where that has changed; everything earlier is applied.
    /// Tokens from before are no longer good: they do not say where what comes from now on will stand.
    pub fn set_ahead(&self, ahead_us: i64, at: UnixMicros) {
        if self.ahead_us() == ahead_us {
            // Said again: whether the journal has it was not known, as with a full disk.
            return;
        }
        let before = UnixMicros(at.0.saturating_sub(1));
        self.forget_before(before);
        // Or there would be no good token until something is accepted.
        self.set_applied(before);
        self.ahead_us.store(ahead_us, Ordering::Release);
    }

    /// What a snapshot has: how far instants are ahead, since when tokens are good, if not all are, and the posts of
    /// [`Arrivals::revealed`].
    pub fn restore(&self, ahead_us: i64, tokens_from: Option<UnixMicros>, revealed: &[(UnixMicros, PostId)]) {
        self.ahead_us.store(ahead_us, Ordering::Release);
        revealed.iter().for_each(|(at, origin)| self.note_origin(*origin, *at));
        tokens_from.into_iter().for_each(|from| self.forget_before(from));
    }

    /// Tokens from before this instant are not good any more, if there is one.
    pub fn tokens_from(&self) -> Option<UnixMicros> {
        let from = self.tokens_from.load(Ordering::Acquire);
        (from != NEVER).then_some(UnixMicros(from))
    }

    /// As [`Settled::ahead_us`].
    pub fn ahead_us(&self) -> i64 {
        self.ahead_us.load(Ordering::Acquire)
    }

    /// Whether a post must be noted as late.
    pub fn is_late(&self, position: Position, accepted_at: UnixMicros) -> bool {
        is_late(position, accepted_at, self.ahead_us())
    }

    /// A post was noted as late.
    pub fn note_late(&self, at: UnixMicros) {
        self.last_late.fetch_max(at.0, Ordering::AcqRel);
    }

    /// A post that had been delivered was noted as late, since it shows only now.
    pub fn note_revealed(&self, at: UnixMicros) {
        self.note_late(at);
        self.last_revealed.fetch_max(at.0, Ordering::AcqRel);
    }

    /// A post came to be seen that has too many reposts to note each.
    pub fn note_origin(&self, origin: PostId, at: UnixMicros) {
        self.revealed.note(at, origin, |forgotten| self.forget_before(forgotten));
        self.note_late(at);
    }

    /// A repost is taken back, or a follow is, until what is returned goes. For the one writer.
    pub fn take_back(&self) -> TakingBack<'_> {
        // Such events take no instants.
        self.last_taken_back.fetch_max(self.applied.load(Ordering::Acquire), Ordering::AcqRel);
        self.takings_back.fetch_add(1, Ordering::AcqRel);
        TakingBack(&self.takings_back)
    }

    /// Whether nothing was being taken back while `work` was done, with what it returned.
    pub fn while_nothing_is_taken_back<T>(&self, work: impl FnOnce() -> T) -> (bool, T) {
        let before = self.takings_back.load(Ordering::Acquire);
        let done = work();
        let is_same = self.takings_back.load(Ordering::Acquire) == before;
        (is_same && before.is_multiple_of(2), done)
    }

    /// Whether anything may have been taken back after everything accepted up to `since` was given.
    pub fn any_taken_back(&self, since: Option<UnixMicros>) -> bool {
        since.is_some_and(|since| self.last_taken_back.load(Ordering::Acquire) >= since.0)
    }

    /// Too much came to be seen at `at` to be noted.
    pub fn forget_before(&self, at: UnixMicros) {
        self.tokens_from.fetch_max(at.0, Ordering::AcqRel);
    }

    /// Whether a token can be resumed from, as far as can be said without its reader.
    pub fn knows(&self, token: Resume) -> bool {
        let (from, applied) = (self.tokens_from.load(Ordering::Acquire), self.applied.load(Ordering::Acquire));
        // One from the future was made where more was known than was kept.
        let is_known = |since: UnixMicros| from <= since.0 && since.0 <= applied;
        let is_of_today = token.since().is_none() || token.ahead_us == self.ahead_us();
        !token.is_partial && is_of_today && token.above.into_iter().chain(token.below).all(is_known)
    }

    /// Whether any post came in late after `since`.
    pub fn any_late(&self, since: UnixMicros) -> bool {
        self.last_late.load(Ordering::Acquire) > since.0
    }

    /// Whether any post came to be seen after `since` that had been delivered before.
    pub fn any_revealed(&self, since: UnixMicros) -> bool {
        self.last_revealed.load(Ordering::Acquire) > since.0
    }
}

/// Instants in ascending order, each until it ends. A queue and not a set, since the writer begins them in order and most end in
/// nearly that order: this is once per post, on the writer's thread and on the supervisor's.
#[derive(Debug, Default)]
struct OpenInstants {
    /// Each with whether it has ended. The first has not.
    instants: VecDeque<(i64, bool)>,
    /// How many have ended and wait behind one that has not.
    ended: usize,
}

impl OpenInstants {
    /// The first that has not ended, or [`NONE_OPEN`].
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
        // Behind a fan-out that takes long there would be ever more of them.
        if self.ended > OPEN_INSTANTS_ENDED_MIN.max(self.instants.len() / 2) {
            self.instants.retain(|(_, has_ended)| !has_ended);
            self.ended = 0;
        }
    }
}

/// While there is one, something is being taken back.
#[derive(Debug)]
pub struct TakingBack<'a>(&'a AtomicU64);

impl Drop for TakingBack<'_> {
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
    fn what_is_on_its_way_is_not_settled_nor_what_came_after_it() {
        let arrivals = Arrivals::default();
        let through = || arrivals.settled().through.0;
        for accepted_at in [10, 11, 12] {
            arrivals.begin(UnixMicros(accepted_at));
        }
        assert_eq!((through(), arrivals.applied().through.0), (9, 12));
        arrivals.end(UnixMicros(11));
        assert_eq!(through(), 9);
        arrivals.end(UnixMicros(10));
        assert_eq!(through(), 11);
        arrivals.end(UnixMicros(12));
        assert_eq!(through(), 12);
    }

    proptest! {
        #[test]
        fn the_oldest_open_instant_is_that_of_a_set(steps in vec((0_i64..40, any::<bool>()), 0..200)) {
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
    fn what_ends_behind_a_fan_out_that_takes_long_is_not_kept() {
        let mut open = OpenInstants::default();
        (0..100_000).for_each(|at| open.begin(at));
        (1..100_000).for_each(|at| open.end(at));
        assert_eq!(open.oldest(), 0);
        assert!(open.instants.len() <= 2 * OPEN_INSTANTS_ENDED_MIN, "{}", open.instants.len());
        open.end(0);
        assert_eq!((open.oldest(), open.instants.len(), open.ended), (NONE_OPEN, 0, 0));
    }

    #[test]
    fn of_too_many_posts_that_come_to_be_seen_the_first_are_forgotten_with_the_tokens_from_before() {
        let arrivals = Arrivals::default();
        let max = REVEALED_ORIGINS_MAX as i64;
        arrivals.set_applied(UnixMicros(max));
        let knows =
            |since| arrivals.knows(Resume::whole(at(5, 0), Settled { through: UnixMicros(since), ahead_us: 0 }));
        (1..=max).for_each(|nth| arrivals.note_origin(PostId(nth as u64), UnixMicros(nth)));
        assert!(knows(0));
        arrivals.note_origin(PostId(max as u64 + 1), UnixMicros(max + 1));
        assert!(!knows(0) && knows(1));
    }

    #[test]
    fn tokens_from_before_a_change_from_the_future_and_of_partial_pages_are_not_known() {
        let arrivals = Arrivals::default();
        arrivals.set_applied(UnixMicros(100));
        let token = |through| Resume::whole(at(5, 0), Settled { through: UnixMicros(through), ahead_us: 0 });
        assert!(arrivals.knows(token(100)) && arrivals.knows(Resume::at(at(500, 0))));
        assert!(!arrivals.knows(token(101)) && !arrivals.knows(Resume { is_partial: true, ..token(100) }));
        arrivals.set_ahead(7, UnixMicros(191));
        let token = |through| Resume { ahead_us: 7, ..token(through) };
        assert!(arrivals.knows(token(190)) && !arrivals.knows(token(189)));
        assert!(arrivals.knows(Resume::whole(at(5, 0), arrivals.settled())), "one that is made now is good");
        arrivals.set_ahead(7, UnixMicros(300));
        assert!(arrivals.knows(token(190)), "nothing has changed");
    }
}
