//! Records posts that enter feeds at positions where pages do not search for new posts.

use std::sync::Arc;

use crate::clock::UnixMicros;
use crate::feed::position::Position;
use crate::feed::post::Post;
use crate::feed::reposts::Repost;
use crate::id::{PostId, SourceSlot};
use crate::limits::LATE_REPOSTS_MAX;
use crate::state::awaited::Answers;
use crate::state::posts::{Affected, Stored};
use crate::state::world::{Applied, StateMachine};

impl Applied {
    pub(super) fn published(post: Arc<Post>, push: Box<[SourceSlot]>) -> Self {
        Self::Published { post, push, answers: Some(Vec::new()) }
    }
}

impl StateMachine {
    /// Records a newly published post as late if its position is far below the newest ones, together with the positions of reposts and
    /// replies that arrived before it. Returns these replies, or `None` if there are too many. `was_answered` is true if the author whom it
    /// answers was known when it was published.
    pub(super) fn note_arrival(&mut self, post: &Post, was_answered: bool) -> Option<Vec<Affected>> {
        if !was_answered {
            self.note_answer(post);
        }
        let delivery = &self.world.delivery;
        if delivery.is_late(post.position, post.accepted_at) {
            post.sources().iter().for_each(|source| self.note_late(source.slot, post.accepted_at, post.position));
            delivery.note_late(post.accepted_at);
        }
        self.note_reposts(post.id(), post.accepted_at);
        let answers = self.world.awaited.lock().take(post.id());
        match answers {
            None => Some(Vec::new()),
            Some(Answers::All(answers)) => {
                answers.iter().for_each(|answer| self.note_answered(answer, post));
                Some(answers)
            }
            Some(Answers::TooMany) => {
                self.world.delivery.forget_before(post.accepted_at);
                None
            }
        }
    }

    /// Records a reply whose parent post is not known yet: it may become visible when the parent is published.
    fn note_answer(&mut self, post: &Post) {
        let is_known = |parent| matches!(self.world.posts.stored(parent), Some(Stored::Live(_)));
        if let Some(parent) = post.reply_to.filter(|parent| !is_known(*parent)) {
            self.world.awaited.lock().note(parent, Affected::of(post));
        }
    }

    /// Records a restored reply, even if its parent has become known: the event that published the parent may still be replayed.
    pub(super) fn restore_answer(&mut self, post: &Post) {
        if let (Some(answered), None) = (post.reply_to, &post.answered) {
            self.world.awaited.lock().note(answered, Affected::of(post));
        }
    }

    /// Drops the recorded replies whose parent posts have become known. Needed because records are not restored in order.
    pub fn forget_known_answers(&mut self) {
        let posts = &self.world.posts;
        self.world.awaited.lock().forget_known(|post| matches!(posts.stored(post), Some(Stored::Live(_))));
    }

    /// Completes a reply whose parent has become known, since the parent may be in the archive later, or deleted. A reply that is in the
    /// archive itself is only noted.
    fn note_answered(&self, answer: &Affected, parent: &Post) {
        match self.world.posts.stored(answer.position.id) {
            Some(Stored::Deleted) => return,
            Some(Stored::Live(answer)) if answer.answered.is_none() => {
                self.world.posts.put(Arc::new(answer.answering(parent.author().clone())));
            }
            Some(Stored::Live(_)) | None => {}
        }
        self.note_revealed(answer, parent.accepted_at);
    }

    /// Notes a post that was hidden from feeds and is now visible.
    pub(super) fn note_revealed(&self, post: &Affected, at: UnixMicros) {
        post.sources.iter().for_each(|source| self.note_late(*source, at, post.position));
        self.world.delivery.note_revealed(at);
        self.note_reposts(post.position.id, at);
    }

    /// Notes the positions of the reposts of a post that becomes visible, because its entry may be at any of them. If
    /// there are too many reposts, notes the original post instead.
    fn note_reposts(&self, post: PostId, at: UnixMicros) {
        let delivery = &self.world.delivery;
        let Some(reposts) = self.world.reposts.of(post) else { return };
        let reposts: Vec<Repost> = reposts.read().iter().take(LATE_REPOSTS_MAX + 1).collect();
        if reposts.len() > LATE_REPOSTS_MAX {
            return delivery.note_origin(post, at);
        }
        reposts.iter().for_each(|repost| self.note_late(repost.source, at, repost.at));
        delivery.note_revealed(at);
    }

    pub(super) fn note_late(&self, source: SourceSlot, at: UnixMicros, position: Position) {
        self.world.sources.at(source).change_outbox(|outbox| outbox.note_late(at, position));
    }
}
