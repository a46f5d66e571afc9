//! Posts that are answered before they are known: whether an answer shows may depend on who published what it answers.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::id::PostId;
use crate::limits::{AWAITED_ANSWERS_MAX, AWAITED_POSTS_MAX};

/// Answers by the post that they answer, which was unknown when they were published.
#[derive(Debug, Default)]
pub(super) struct Awaited {
    answers: FxHashMap<PostId, Vec<PostId>>,
    /// The posts in the order of their first answers.
    order: VecDeque<PostId>,
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
        let answers = self.answers.entry(post).or_insert_with(|| {
            self.order.push_back(post);
            Vec::new()
        });
        if answers.len() <= AWAITED_ANSWERS_MAX && !answers.contains(&answer) {
            answers.push(answer);
        }
        while self.answers.len() > AWAITED_POSTS_MAX {
            let Some(oldest) = self.order.pop_front() else { return };
            self.answers.remove(&oldest);
        }
    }

    /// The answers to a post that has become known.
    pub(super) fn take(&mut self, post: PostId) -> Option<Answers> {
        let answers = self.answers.remove(&post)?;
        self.order.retain(|other| *other != post);
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
        assert_eq!((awaited.take(PostId(0)), awaited.answers.len()), (None, AWAITED_POSTS_MAX));
        assert_eq!(awaited.take(PostId(9)), Some(Answers::All(vec![PostId(1)])));
    }
}
