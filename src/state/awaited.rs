//! Posts that are answered before they are known: whether an answer shows may depend on who published what it answers.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::id::PostId;
use crate::limits::{AWAITED_ANSWERS_IN_ALL_MAX, AWAITED_ANSWERS_MAX, AWAITED_POSTS_MAX};

/// Answers by the post that they answer, which was unknown when they were published.
#[derive(Debug, Default)]
pub(super) struct Awaited {
    waiting: FxHashMap<PostId, Waiting>,
    /// The posts in the order of their first answers, by the number that each then got. Some have become known since.
    order: VecDeque<(u64, PostId)>,
    next_number: u64,
    /// Answers in all.
    answers: usize,
}

#[derive(Debug)]
struct Waiting {
    number: u64,
    answers: Vec<PostId>,
}

/// The answers to a post that is known now.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answers {
    /// All of them.
    All(Vec<PostId>),
    /// There were more than are remembered.
    TooMany,
}

impl Awaited {
    /// Remembers an answer to a post that is not known. Of too many such posts the one that waits longest is forgotten.
    pub(super) fn note(&mut self, post: PostId, answer: PostId) {
        let number = self.next_number;
        let Waiting { answers, .. } = self.waiting.entry(post).or_insert_with(|| {
            self.order.push_back((number, post));
            self.next_number += 1;
            Waiting { number, answers: Vec::new() }
        });
        if answers.len() <= AWAITED_ANSWERS_MAX && !answers.contains(&answer) {
            answers.push(answer);
            self.answers += 1;
        }
        while self.waiting.len() > AWAITED_POSTS_MAX || self.answers > AWAITED_ANSWERS_IN_ALL_MAX {
            let Some((number, oldest)) = self.order.pop_front() else { return };
            if self.is_waiting(number, oldest) {
                self.remove(oldest);
            }
        }
    }

    fn remove(&mut self, post: PostId) -> Option<Vec<PostId>> {
        let Waiting { answers, .. } = self.waiting.remove(&post)?;
        self.answers -= answers.len();
        Some(answers)
    }

    fn is_waiting(&self, number: u64, post: PostId) -> bool {
        self.waiting.get(&post).is_some_and(|waiting| waiting.number == number)
    }

    /// Forgets posts that are known already.
    pub(super) fn forget_known(&mut self, is_known: impl Fn(PostId) -> bool) {
        self.waiting.retain(|post, _| !is_known(*post));
        self.answers = self.waiting.values().map(|waiting| waiting.answers.len()).sum();
        self.tidy();
    }

    /// Drops places of posts that do not wait any more, once they are most: one at a time each would cost a walk over all.
    fn tidy(&mut self) {
        if self.order.len() > 2 * self.waiting.len() + 16 {
            let mut order = std::mem::take(&mut self.order);
            order.retain(|(number, post)| self.is_waiting(*number, *post));
            self.order = order;
        }
    }

    /// The answers to a post that has become known.
    pub(super) fn take(&mut self, post: PostId) -> Option<Answers> {
        let answers = self.remove(post)?;
        self.tidy();
        Some(if answers.len() > AWAITED_ANSWERS_MAX { Answers::TooMany } else { Answers::All(answers) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_remembered_until_what_they_answer_is_known_or_too_many_wait() {
        let mut awaited = Awaited::default();
        for answer in [5, 6, 5] {
            awaited.note(PostId(1), PostId(answer));
        }
        assert_eq!(awaited.take(PostId(1)), Some(Answers::All(vec![PostId(5), PostId(6)])));
        assert_eq!(awaited.take(PostId(1)), None);
        (0..=AWAITED_ANSWERS_MAX as u64).for_each(|answer| awaited.note(PostId(2), PostId(answer)));
        assert_eq!(awaited.take(PostId(2)), Some(Answers::TooMany));
        (0..=AWAITED_POSTS_MAX as u64).for_each(|post| awaited.note(PostId(post), PostId(1)));
        assert_eq!((awaited.take(PostId(0)), awaited.waiting.len()), (None, AWAITED_POSTS_MAX));
        assert_eq!(awaited.take(PostId(9)), Some(Answers::All(vec![PostId(1)])));
    }

    #[test]
    fn what_does_not_wait_any_more_keeps_no_place_and_takes_none_from_others() {
        let mut awaited = Awaited::default();
        for post in 0..1_000 {
            // Known and awaited anew: by its first place it would go before others that wait longer.
            for _ in 0..2 {
                awaited.note(PostId(post), PostId(1));
                assert!(awaited.take(PostId(post)).is_some());
            }
        }
        assert!(awaited.order.len() <= 18 && awaited.waiting.is_empty() && awaited.answers == 0);
        (0..100).for_each(|post| awaited.note(PostId(post), PostId(1)));
        awaited.forget_known(|post| post != PostId(50));
        assert_eq!((awaited.order.len(), awaited.take(PostId(50))), (1, Some(Answers::All(vec![PostId(1)]))));
    }

    #[test]
    fn answers_to_many_posts_are_bounded_in_all() {
        let mut awaited = Awaited::default();
        let posts = (AWAITED_ANSWERS_IN_ALL_MAX / AWAITED_ANSWERS_MAX) as u64 + 1;
        for post in 0..posts {
            (0..AWAITED_ANSWERS_MAX as u64).for_each(|answer| awaited.note(PostId(post), PostId(answer)));
        }
        assert_eq!((awaited.answers, awaited.take(PostId(0))), (AWAITED_ANSWERS_IN_ALL_MAX, None));
    }
}
