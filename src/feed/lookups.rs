//! The pending archive look-ups of one live stream, and the detection of results that a newer invalidation has made obsolete.
//!
//! A look-up returns posts as they were when they were read. Before its result arrives, a post may be edited, its invalidation processed,
//! and the post moved to the archive again, so that memory does not correct the result. Invalidations are therefore numbered in the order
//! in which they are processed. A result is current if no invalidation of its post was processed after the look-up was requested.

use std::collections::VecDeque;

use crate::feed::stream::{Epoch, Invalidation};
use crate::id::PostId;

/// Maximum number of invalidations of posts that the actor of a watched reader records during a look-up in the archive. With more, the
/// look-up is repeated.
const LIVE_LOOKUP_NOTICES_MAX: usize = 64;

/// The pending look-ups of one stream.
#[derive(Debug)]
pub struct Lookups {
    /// The epoch of the stream: the reader's next stream may receive results that this one requested.
    epoch: Epoch,
    /// The number of the last invalidation.
    last: u64,
    /// The number of look-ups that wait for a result.
    open: usize,
    /// Look-ups that were requested before this invalidation are no longer counted in `open`: some of their results may be lost.
    counted_from: u64,
    /// The number of the last invalidation that may have concerned any post.
    last_of_all: u64,
    /// Later invalidations of single posts, oldest first; true for [`Invalidation::EntryChanged`]. Empty while no look-up is pending.
    noted: VecDeque<(u64, PostId, bool)>,
}

/// The time at which a look-up was requested, as the number of an invalidation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asked {
    epoch: Epoch,
    /// The number of the last invalidation at that time.
    after: u64,
}

/// The validity of a look-up's result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LookupValidity {
    /// No newer invalidation of its post is known.
    Good,
    /// The result is not needed. Either a later invalidation of the post, which is processed or being looked up, sends everything that this
    /// one would. Or another stream requested the result, and the current stream has read the feed since.
    Superseded,
    /// The post may have changed since: it has to be looked up again.
    Outdated,
}

impl Lookups {
    /// Creates the state of a new stream, without pending look-ups.
    pub fn new(epoch: Epoch) -> Self {
        Self { epoch, last: 0, open: 0, counted_from: 0, last_of_all: 0, noted: VecDeque::new() }
    }

    /// Records that an invalidation is being processed.
    pub fn note(&mut self, invalidation: Invalidation) {
        self.last += 1;
        match invalidation {
            Invalidation::Edited(post) => self.note_post(post, false),
            Invalidation::EntryChanged(post) => self.note_post(post, true),
            // It may stand for invalidations of any post.
            Invalidation::Everything => self.note_all(),
            Invalidation::Missed => {
                self.note_all();
                (self.open, self.counted_from) = (0, self.last);
            }
            // These do not change an existing post.
            Invalidation::Published(_) | Invalidation::Marked => {}
        }
    }

    /// Registers a look-up that is requested for the last invalidation.
    pub fn ask(&mut self) -> Asked {
        self.open += 1;
        Asked { epoch: self.epoch, after: self.last }
    }

    /// Returns the validity of a look-up's result for `post`.
    pub fn judge(&self, asked: Asked, post: PostId) -> LookupValidity {
        let newer = || self.noted.iter().filter(|(number, noted, _)| *number > asked.after && *noted == post);
        if asked.epoch != self.epoch || newer().any(|(_, _, is_turned)| *is_turned) {
            return LookupValidity::Superseded;
        }
        if asked.after < self.last_of_all || newer().next().is_some() {
            LookupValidity::Outdated
        } else {
            LookupValidity::Good
        }
    }

    /// Unregisters a look-up whose result has been processed.
    pub fn end(&mut self, asked: Asked) {
        if asked.epoch == self.epoch && asked.after >= self.counted_from {
            self.open = self.open.saturating_sub(1);
        }
        if self.open == 0 {
            self.noted = VecDeque::new();
        }
    }

    fn note_post(&mut self, post: PostId, is_turned: bool) {
        if self.open == 0 {
            return;
        }
        if self.noted.len() >= LIVE_LOOKUP_NOTICES_MAX {
            return self.note_all();
        }
        self.noted.push_back((self.last, post, is_turned));
    }

    fn note_all(&mut self) {
        self.last_of_all = self.last;
        self.noted.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: PostId = PostId(1);
    const OTHER: PostId = PostId(2);

    #[test]
    fn a_lookup_is_valid_until_a_newer_notice_about_its_post() {
        for (newer, expected) in [
            (vec![], LookupValidity::Good),
            (
                vec![Invalidation::EntryChanged(OTHER), Invalidation::Edited(OTHER), Invalidation::Marked],
                LookupValidity::Good,
            ),
            (vec![Invalidation::Edited(ONE)], LookupValidity::Outdated),
            (vec![Invalidation::EntryChanged(ONE)], LookupValidity::Superseded),
            (vec![Invalidation::EntryChanged(ONE), Invalidation::Edited(ONE)], LookupValidity::Superseded),
            (vec![Invalidation::Everything], LookupValidity::Outdated),
            (vec![Invalidation::Missed], LookupValidity::Outdated),
            (vec![Invalidation::EntryChanged(ONE), Invalidation::Everything], LookupValidity::Outdated),
        ] {
            let mut lookups = Lookups::new(Epoch(7));
            lookups.note(Invalidation::EntryChanged(ONE));
            let asked = lookups.ask();
            newer.iter().for_each(|invalidation| lookups.note(*invalidation));
            assert_eq!(lookups.judge(asked, ONE), expected, "after {newer:?}");
        }
    }

    #[test]
    fn notices_are_remembered_during_lookups_up_to_a_limit() {
        let mut lookups = Lookups::new(Epoch(7));
        lookups.note(Invalidation::EntryChanged(ONE));
        let (first, second) = (lookups.ask(), lookups.ask());
        (0..LIVE_LOOKUP_NOTICES_MAX).for_each(|_| lookups.note(Invalidation::Edited(OTHER)));
        assert_eq!((lookups.noted.len(), lookups.judge(first, ONE)), (LIVE_LOOKUP_NOTICES_MAX, LookupValidity::Good));
        lookups.note(Invalidation::Edited(OTHER));
        assert_eq!((lookups.noted.len(), lookups.judge(first, ONE)), (0, LookupValidity::Outdated));
        lookups.note(Invalidation::Edited(OTHER));
        lookups.end(first);
        assert_eq!(lookups.noted.len(), 1);
        lookups.end(second);
        lookups.note(Invalidation::Edited(OTHER));
        assert_eq!((lookups.noted.len(), lookups.open), (0, 0));
    }

    #[test]
    fn lookups_of_an_earlier_stream_are_ignored() {
        let (mut earlier, mut lookups) = (Lookups::new(Epoch(6)), Lookups::new(Epoch(7)));
        (0..9).for_each(|_| earlier.note(Invalidation::Marked));
        let (before, asked) = (earlier.ask(), lookups.ask());
        lookups.end(before);
        assert_eq!(
            (lookups.judge(before, ONE), lookups.judge(asked, ONE)),
            (LookupValidity::Superseded, LookupValidity::Good)
        );
        assert_eq!(lookups.open, 1);
    }

    #[test]
    fn a_late_result_of_a_lost_lookup_is_not_counted() {
        let mut lookups = Lookups::new(Epoch(7));
        let lost = lookups.ask();
        lookups.note(Invalidation::Missed);
        let asked = lookups.ask();
        // The result arrives nevertheless, and is not counted for the other look-up.
        lookups.end(lost);
        lookups.note(Invalidation::Edited(ONE));
        assert_eq!((lookups.judge(asked, ONE), lookups.open), (LookupValidity::Outdated, 1));
    }
}
