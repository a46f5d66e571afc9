//! Look-ups for one live stream: which of them a newer notice has overtaken.
//!
//! Responsible for:
//! - remembering, while anything is looked up in the archive, which posts there were notices of meanwhile;
//! - saying whether what was found may be older than what clients were told since.
//!
//! Not responsible for:
//! - looking anything up (`runtime::reader::user`), what is told (`feed::stream`).
//!
//! A look-up finds posts as they were when they were read. When its answer comes, a post may have been edited, looked at by the
//! notice of that, and be in the archive again, so that memory does not correct what was found. Invalidations are numbered in the order
//! in which they are looked at: an answer is good if there was none of its post since it was asked for.

use std::collections::VecDeque;

use crate::feed::stream::{Epoch, Invalidation};
use crate::id::PostId;
use crate::limits::LIVE_LOOKUP_NOTICES_MAX;

/// The look-ups of one stream.
#[derive(Debug)]
pub struct Lookups {
    /// Of the stream: the reader's next one may get answers that were asked for by this one.
    epoch: Epoch,
    /// The number of the last notice.
    last: u64,
    /// Look-ups that wait for an answer.
    open: usize,
    /// Those asked for before this notice are not counted in `open` any more: some may have got lost.
    counted_from: u64,
    /// This notice may have been of any post.
    last_of_all: u64,
    /// Later notices of single posts, oldest first, each with whether it was one of [`Invalidation::Turned`]. Empty while nothing is looked up.
    noted: VecDeque<(u64, PostId, bool)>,
}

/// When a look-up was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asked {
    epoch: Epoch,
    /// The number of the last notice by then.
    after: u64,
}

/// What an answer is worth.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Nothing newer is known of its post.
    Good,
    /// The post was looked at since, or is looked up by now, for a notice after which everything is told that this one would tell: or
    /// another stream asked, and this one looked at the feed since.
    Superseded,
    /// The post may have been looked at since: it has to be looked at again.
    Outdated,
}

impl Lookups {
    /// None, for a stream.
    pub fn new(epoch: Epoch) -> Self {
        Self { epoch, last: 0, open: 0, counted_from: 0, last_of_all: 0, noted: VecDeque::new() }
    }

    /// A notice is looked at.
    pub fn note(&mut self, invalidation: Invalidation) {
        self.last += 1;
        match invalidation {
            Invalidation::Edited(post) => self.note_post(post, false),
            Invalidation::Turned(post) => self.note_post(post, true),
            // It stands for notices of any post.
            Invalidation::Everything => self.note_all(),
            Invalidation::Missed => {
                self.note_all();
                (self.open, self.counted_from) = (0, self.last);
            }
            // No post is another by that.
            Invalidation::Published(_) | Invalidation::Marked => {}
        }
    }

    /// Something is to be looked up for the last notice.
    pub fn ask(&mut self) -> Asked {
        self.open += 1;
        Asked { epoch: self.epoch, after: self.last }
    }

    /// What the answer to a look-up is worth that is about `post`.
    pub fn judge(&self, asked: Asked, post: PostId) -> Answer {
        let newer = || self.noted.iter().filter(|(number, noted, _)| *number > asked.after && *noted == post);
        if asked.epoch != self.epoch || newer().any(|(_, _, is_turned)| *is_turned) {
            return Answer::Superseded;
        }
        if asked.after < self.last_of_all || newer().next().is_some() { Answer::Outdated } else { Answer::Good }
    }

    /// A look-up has its answer, and that was dealt with.
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
    fn an_answer_is_good_until_there_is_a_newer_notice_of_its_post() {
        for (newer, expected) in [
            (vec![], Answer::Good),
            (vec![Invalidation::Turned(OTHER), Invalidation::Edited(OTHER), Invalidation::Marked], Answer::Good),
            (vec![Invalidation::Edited(ONE)], Answer::Outdated),
            (vec![Invalidation::Turned(ONE)], Answer::Superseded),
            (vec![Invalidation::Turned(ONE), Invalidation::Edited(ONE)], Answer::Superseded),
            (vec![Invalidation::Everything], Answer::Outdated),
            (vec![Invalidation::Missed], Answer::Outdated),
            (vec![Invalidation::Turned(ONE), Invalidation::Everything], Answer::Outdated),
        ] {
            let mut lookups = Lookups::new(Epoch(7));
            lookups.note(Invalidation::Turned(ONE));
            let asked = lookups.ask();
            newer.iter().for_each(|invalidation| lookups.note(*invalidation));
            assert_eq!(lookups.judge(asked, ONE), expected, "after {newer:?}");
        }
    }

    #[test]
    fn notices_are_remembered_while_anything_is_looked_up_and_not_without_bound() {
        let mut lookups = Lookups::new(Epoch(7));
        lookups.note(Invalidation::Turned(ONE));
        let (first, second) = (lookups.ask(), lookups.ask());
        (0..LIVE_LOOKUP_NOTICES_MAX).for_each(|_| lookups.note(Invalidation::Edited(OTHER)));
        assert_eq!((lookups.noted.len(), lookups.judge(first, ONE)), (LIVE_LOOKUP_NOTICES_MAX, Answer::Good));
        lookups.note(Invalidation::Edited(OTHER));
        assert_eq!((lookups.noted.len(), lookups.judge(first, ONE)), (0, Answer::Outdated));
        lookups.note(Invalidation::Edited(OTHER));
        lookups.end(first);
        assert_eq!(lookups.noted.len(), 1);
        lookups.end(second);
        lookups.note(Invalidation::Edited(OTHER));
        assert_eq!((lookups.noted.len(), lookups.open), (0, 0));
    }

    #[test]
    fn what_an_earlier_stream_asked_for_is_neither_told_nor_counted() {
        let (mut earlier, mut lookups) = (Lookups::new(Epoch(6)), Lookups::new(Epoch(7)));
        (0..9).for_each(|_| earlier.note(Invalidation::Marked));
        let (before, asked) = (earlier.ask(), lookups.ask());
        lookups.end(before);
        assert_eq!((lookups.judge(before, ONE), lookups.judge(asked, ONE)), (Answer::Superseded, Answer::Good));
        assert_eq!(lookups.open, 1);
    }

    #[test]
    fn an_answer_that_got_lost_is_waited_for_until_the_notice_of_that() {
        let mut lookups = Lookups::new(Epoch(7));
        let lost = lookups.ask();
        lookups.note(Invalidation::Missed);
        let asked = lookups.ask();
        // It comes nevertheless, and does not count for the other.
        lookups.end(lost);
        lookups.note(Invalidation::Edited(ONE));
        assert_eq!((lookups.judge(asked, ONE), lookups.open), (Answer::Outdated, 1));
    }
}
