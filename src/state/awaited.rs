//! Replies that are published before their parent post is known. The visibility of a reply may depend on the author of its parent.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::id::PostId;
use crate::limits::{AWAITED_ANSWERS_MAX, AWAITED_POSTS_MAX};
use crate::state::posts::Affected;

/// Maximum number of replies that are recorded for all such posts together, 70 to 160 bytes each.
const AWAITED_ANSWERS_IN_ALL_MAX: usize = 4 * AWAITED_POSTS_MAX;

/// Replies by their parent post, which was unknown when they were published.
#[derive(Debug, Default)]
pub(super) struct Awaited {
    waiting: FxHashMap<PostId, Waiting>,
    /// The posts in the order of their first replies, each with the number assigned to it then. Some of them may be known in the meantime.
    order: VecDeque<(u64, PostId)>,
    next_number: u64,
    /// The number of replies to all posts together.
    answers: usize,
}

#[derive(Debug)]
struct Waiting {
    number: u64,
    /// Finds the readers who may see each reply, because the reply itself may be in the archive by then.
    answers: Vec<Affected>,
}

/// The recorded replies to a post that has become known.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answers {
    /// All replies to the post.
    All(Vec<Affected>),
    /// There were too many replies to record all of them.
    TooMany,
}

impl Awaited {
    /// Records a reply to a post that is not known. If there are too many such posts or replies, drops the post that has waited longest.
    pub(super) fn note(&mut self, post: PostId, reply: Affected) {
        let number = self.next_number;
        let Waiting { answers, .. } = self.waiting.entry(post).or_insert_with(|| {
            self.order.push_back((number, post));
            self.next_number += 1;
            // Most posts have one reply.
            Waiting { number, answers: Vec::with_capacity(1) }
        });
        if answers.len() <= AWAITED_ANSWERS_MAX && answers.iter().all(|noted| noted.position.id != reply.position.id) {
            answers.push(reply);
            self.answers += 1;
        }
        while self.waiting.len() > AWAITED_POSTS_MAX || self.answers > AWAITED_ANSWERS_IN_ALL_MAX {
            let Some((number, oldest)) = self.order.pop_front() else { return };
            if self.is_waiting(number, oldest) {
                self.remove(oldest);
            }
        }
    }

    fn remove(&mut self, post: PostId) -> Option<Vec<Affected>> {
        let Waiting { answers, .. } = self.waiting.remove(&post)?;
        self.answers -= answers.len();
        Some(answers)
    }

    fn is_waiting(&self, number: u64, post: PostId) -> bool {
        self.waiting.get(&post).is_some_and(|waiting| waiting.number == number)
    }

    /// Drops the replies to posts that have become known.
    pub(super) fn forget_known(&mut self, is_known: impl Fn(PostId) -> bool) {
        self.waiting.retain(|post, _| !is_known(*post));
        self.answers = self.waiting.values().map(|waiting| waiting.answers.len()).sum();
        self.tidy();
    }

    /// Removes posts that no longer wait from the order, once they are the majority. Removing them one by one would need a full pass for
    /// each.
    fn tidy(&mut self) {
        if self.order.len() > 2 * self.waiting.len() + 16 {
            let mut order = std::mem::take(&mut self.order);
            order.retain(|(number, post)| self.is_waiting(*number, *post));
            self.order = order;
        }
    }

    /// Returns the replies to at most `max` posts from `number` on, in the order in which the posts began to wait. Also returns the number
    /// to continue from, unless these were the last posts.
    pub(super) fn from(&self, number: u64, max: usize) -> (Vec<(PostId, Vec<Affected>)>, Option<u64>) {
        let start = self.order.partition_point(|(earlier, _)| *earlier < number);
        let next = self.order.get(start + max).map(|(number, _)| *number);
        let waiting = self.order.range(start..).take(max).filter(|(number, post)| self.is_waiting(*number, *post));
        (waiting.map(|(_, post)| (*post, self.waiting[post].answers.clone())).collect(), next)
    }

    /// Removes and returns the recorded replies to a post that has become known.
    pub(super) fn take(&mut self, post: PostId) -> Option<Answers> {
        let answers = self.remove(post)?;
        self.tidy();
        Some(if answers.len() > AWAITED_ANSWERS_MAX { Answers::TooMany } else { Answers::All(answers) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::position::at;
    use crate::id::SourceSlot;

    fn reply(id: u64) -> Affected {
        Affected { position: at(1, id), repost_of: None, sources: Box::new([SourceSlot(7)]) }
    }

    fn all(ids: &[u64]) -> Option<Answers> {
        Some(Answers::All(ids.iter().map(|id| reply(*id)).collect()))
    }

    #[test]
    fn early_replies_are_remembered_until_their_parent_arrives_or_the_limit_is_reached() {
        let mut awaited = Awaited::default();
        for answer in [5, 6, 5] {
            awaited.note(PostId(1), reply(answer));
        }
        assert_eq!(awaited.take(PostId(1)), all(&[5, 6]));
        assert_eq!(awaited.take(PostId(1)), None);
        (0..=AWAITED_ANSWERS_MAX as u64).for_each(|answer| awaited.note(PostId(2), reply(answer)));
        assert_eq!(awaited.take(PostId(2)), Some(Answers::TooMany));
        (0..=AWAITED_POSTS_MAX as u64).for_each(|post| awaited.note(PostId(post), reply(1)));
        assert_eq!((awaited.take(PostId(0)), awaited.waiting.len()), (None, AWAITED_POSTS_MAX));
        assert_eq!(awaited.take(PostId(9)), all(&[1]));
    }

    #[test]
    fn replies_that_no_longer_wait_use_no_place() {
        let mut awaited = Awaited::default();
        for post in 0..1_000 {
            // The post becomes known and is awaited again: with its first number it would be dropped before others that wait longer.
            for _ in 0..2 {
                awaited.note(PostId(post), reply(1));
                assert!(awaited.take(PostId(post)).is_some());
            }
        }
        assert!(awaited.order.len() <= 18 && awaited.waiting.is_empty() && awaited.answers == 0);
        (0..100).for_each(|post| awaited.note(PostId(post), reply(1)));
        awaited.forget_known(|post| post != PostId(50));
        assert_eq!((awaited.order.len(), awaited.take(PostId(50))), (1, all(&[1])));
    }

    #[test]
    fn early_replies_to_many_posts_are_bounded_in_total() {
        let mut awaited = Awaited::default();
        let posts = (AWAITED_ANSWERS_IN_ALL_MAX / AWAITED_ANSWERS_MAX) as u64 + 1;
        for post in 0..posts {
            (0..AWAITED_ANSWERS_MAX as u64).for_each(|answer| awaited.note(PostId(post), reply(answer)));
        }
        assert_eq!((awaited.answers, awaited.take(PostId(0))), (AWAITED_ANSWERS_IN_ALL_MAX, None));
    }

    #[test]
    fn iterating_by_parts_finds_all_awaited_posts() {
        let mut awaited = Awaited::default();
        (0..50).for_each(|post| awaited.note(PostId(post), reply(post)));
        (0..50).filter(|post| post % 3 == 0).for_each(|post| drop(awaited.take(PostId(post))));
        let (mut found, mut from) = (Vec::new(), Some(0));
        while let Some(number) = from {
            let (part, next) = awaited.from(number, 7);
            found.extend(part);
            from = next;
        }
        let expected = (0..50).filter(|post| post % 3 != 0).map(|post| (PostId(post), vec![reply(post)]));
        assert_eq!(found, expected.collect::<Vec<_>>());
    }
}
