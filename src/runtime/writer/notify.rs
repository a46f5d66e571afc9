//! The scribe's side of live streams: who may see what an event changed.
//!
//! Too many may be told, but nobody may be left out: whoever is told looks, and finds out whether anything changed.

use std::sync::Arc;

use crate::error::Error;
use crate::feed::event::{Event, MuteOrBlock};
use crate::feed::post::Post;
use crate::feed::schedule::FanoutRoute;
use crate::feed::stream::Invalidation;
use crate::id::{PostId, SourceId, SourceSlot};
use crate::limits::{LIVE_ANSWERS_MAX, LIVE_REPOSTERS_MAX};
use crate::runtime::message::Reply;
use crate::runtime::writer::{Scribe, refuse};
use crate::state::posts::Stored;
use crate::state::sources::Source;
use crate::state::world::Applied;
use crate::storage::journal::Journal;

impl<J: Journal> Scribe<J> {
    /// To whom a new post goes: into inboxes, and to those who are watched and have it from elsewhere.
    pub(super) fn fanout_routes(&self, post: &Post, push: &[SourceSlot]) -> Box<[FanoutRoute]> {
        let mut fanout_routes: Vec<FanoutRoute> = push.iter().copied().map(FanoutRoute::Inboxes).collect();
        if self.fanout.watchers().any() {
            let slots = post.sources().iter().map(|source| source.slot);
            // Couriers tell those whose inbox it comes into.
            fanout_routes.extend(slots.map(|slot| {
                if push.contains(&slot) { FanoutRoute::Concerned(slot) } else { FanoutRoute::Watched(slot) }
            }));
        }
        fanout_routes.into()
    }

    /// Tells those who are watched and whose feeds have reposts of a post of what became of it.
    pub(super) fn tell_of_repeated(&self, post: PostId, invalidation: impl Fn(PostId) -> Invalidation) {
        if self.fanout.watchers().any() {
            let fanout_routes = watched(self.reposters(post).as_deref());
            if !fanout_routes.is_empty() {
                self.fanout.notify(invalidation(post), fanout_routes.into());
            }
        }
    }

    /// Tells those who are watched of answers to a post that was unknown until now, since whether an answer shows may depend on whom it
    /// answers. None: there are too many to say which.
    pub(super) fn tell_of_answers(&self, answers: Option<&[PostId]>) {
        if answers.is_some_and(<[PostId]>::is_empty) || !self.fanout.watchers().any() {
            return;
        }
        let posts = &self.writer.world().posts;
        let in_memory = |answers: &[PostId]| answers.iter().map(|answer| posts.stored(*answer)).collect();
        let stored: Option<Vec<Stored>> =
            answers.filter(|answers| answers.len() <= LIVE_ANSWERS_MAX).and_then(in_memory);
        match stored {
            Some(answers) => {
                for answer in answers.into_iter().filter_map(Stored::live) {
                    self.tell_of(&answer, self.reposters(answer.id()).as_deref(), Invalidation::Turned);
                }
            }
            // To whom those in the archive go is not known here. Who polls has to read again then, too.
            None => self.fanout.notify(Invalidation::Missed, [FanoutRoute::AllWatched].into()),
        }
    }

    /// Tells those who are watched what an event may have changed for them. New posts are told of as they are handed on.
    pub(super) fn tell(&self, event: &Event, applied: &Applied) {
        if let Event::Revoked { user, .. } = event {
            self.fanout.watchers().sessions.call(user);
        }
        if !self.fanout.watchers().any() {
            return;
        }
        match (event, applied) {
            // Of a repost nothing shows but who it is by, unless another repost named it before it was known to be one.
            (Event::Edited { hidden: None, .. }, Applied::Edited(post)) if post.repost_of.is_some() => {
                self.tell_of_repeated(post.id(), Invalidation::Edited);
            }
            (Event::Edited { hidden: None, .. }, Applied::Edited(post)) => {
                self.tell_of(post, self.reposters(post.id()).as_deref(), Invalidation::Edited);
            }
            (Event::Edited { .. }, Applied::Edited(post)) => {
                self.tell_of(post, self.reposters(post.id()).as_deref(), Invalidation::Turned);
            }
            (_, Applied::Deleted { post, reposters }) => self.tell_of(post, reposters.as_deref(), Invalidation::Turned),
            (Event::Followed { edges, .. }, _) => {
                let mut followers: Vec<&SourceId> = edges.iter().map(|edge| &edge.follower).collect();
                followers.dedup();
                self.tell_readers(followers, Invalidation::Everything);
            }
            // What comes by tags, topics and reposts is told of as it is deleted.
            (Event::Erased { at, .. }, _) => {
                let erasure = self.writer.world().sources.erasures().at(*at);
                let fanout_routes = erasure.map(|erasure| FanoutRoute::Watched(erasure.source.slot));
                self.fanout.notify(Invalidation::Everything, fanout_routes.into_iter().collect());
            }
            (Event::Silenced { reader, source, how: MuteOrBlock::Block, .. }, _) => {
                self.tell_readers(vec![reader, source], Invalidation::Everything);
            }
            (
                Event::Unfollowed { follower: reader, .. }
                | Event::Silenced { reader, .. }
                | Event::Ruled { reader, .. },
                _,
            ) => {
                self.tell_readers(vec![reader], Invalidation::Everything);
            }
            (Event::Marked { reader, .. }, _) => self.tell_readers(vec![reader], Invalidation::Marked),
            _ => {}
        }
    }

    /// Tells those who may see a post, or what it repeats.
    fn tell_of(&self, post: &Post, reposters: Option<&[SourceSlot]>, invalidation: impl Fn(PostId) -> Invalidation) {
        // The author first, who waits for it with the next posts.
        let mut fanout_routes: Vec<FanoutRoute> =
            post.sources().iter().map(|source| FanoutRoute::Watched(source.slot)).collect();
        if let Some(origin) = post.repost_of {
            self.fanout.notify(invalidation(origin), std::mem::take(&mut fanout_routes).into());
        }
        fanout_routes.extend(watched(reposters));
        if !fanout_routes.is_empty() {
            self.fanout.notify(invalidation(post.id()), fanout_routes.into());
        }
    }

    fn tell_readers(&self, readers: Vec<&SourceId>, invalidation: Invalidation) {
        let (watchers, sources) = (self.fanout.watchers(), &self.writer.world().sources);
        let known = readers.into_iter().filter_map(|reader| sources.get(reader));
        let fanout_routes: Box<[FanoutRoute]> = known
            .map(|reader| reader.slot)
            .filter(|reader| watchers.is_watched(*reader))
            .map(FanoutRoute::Reader)
            .collect();
        if !fanout_routes.is_empty() {
            self.fanout.notify(invalidation, fanout_routes);
        }
    }

    /// The sources by which a post is repeated, unless there are too many.
    fn reposters(&self, post: PostId) -> Option<Vec<SourceSlot>> {
        self.writer.world().reposts.sources_of(post, LIVE_REPOSTERS_MAX)
    }

    /// Makes a user known, so that there is something to watch. That is no event: whatever comes to be known of the user is.
    pub(super) fn meet(&mut self, user: SourceId, reply: Reply<Arc<Source>>) {
        if !user.is_user() {
            return refuse(reply, Error::NotAUser { id: user, action: "be watched" });
        }
        match self.room_for_sources([&user].into_iter()) {
            // Whoever asked may have gone.
            Ok(()) => {
                self.group.met(&user);
                drop(reply.send(Ok(self.writer.meet(&user))));
            }
            Err(full) => refuse(reply, full),
        }
    }
}

/// The routes to the watched followers of those who repeat a post; to all who are watched, if they are too many.
fn watched(reposters: Option<&[SourceSlot]>) -> Vec<FanoutRoute> {
    reposters
        .map_or(vec![FanoutRoute::AllWatched], |sources| sources.iter().copied().map(FanoutRoute::Watched).collect())
}
