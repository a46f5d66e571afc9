//! Redirects reposts that were published before the repost that they name to its original.

use std::sync::Arc;

use crate::clock::UnixMicros;
use crate::feed::post::{EarlierRepost, Post};
use crate::feed::reposts::Repost;
use crate::id::{PostId, SourceSlot};
use crate::state::world::StateMachine;

impl StateMachine {
    /// Redirects the earlier reposts of a new repost to its original. Idempotent.
    pub(super) fn redirect(&self, new: &Post, earlier: &[EarlierRepost]) {
        if let Some(origin) = new.repost_of {
            earlier.iter().for_each(|repost| self.redirect_one(repost, new.id(), origin));
        }
    }

    fn redirect_one(&self, repost: &EarlierRepost, named: PostId, origin: PostId) {
        let (world, id) = (&self.world, repost.at.id);
        let sources: Vec<SourceSlot> = self.slots(repost);
        let Some(author) = sources.first().copied().filter(|_| !world.posts.is_deleted(id)) else { return };
        let post = world.posts.get(id);
        let hidden = post.as_ref().map_or(repost.hidden, |post| post.hidden);
        // Mark the post first: until the index has it, pages find the entry of the original at its former place.
        world.reposts.note_redirected(id, origin);
        if let Some(post) = post {
            world.posts.put(Arc::new(post.repeating(origin)));
        }
        if !world.posts.is_deleted(origin) {
            world.reposts.insert(origin, repost.at, author, sources.iter().copied(), hidden);
        }
        let each = sources.iter().map(|source| Repost { source: *source, at: repost.at, author });
        world.reposts.remove_each(named, each);
    }

    /// Notes the positions of redirected reposts, because the entry of the original may be at any of them now.
    pub(super) fn note_redirected(&self, earlier: &[EarlierRepost], at: UnixMicros) {
        for repost in earlier {
            self.slots(repost).into_iter().for_each(|source| self.note_late(source, at, repost.at));
        }
        if !earlier.is_empty() {
            self.world.delivery.note_revealed(at);
        }
    }

    /// Returns the sources of a repost that are known, or none if its author is not known.
    fn slots(&self, repost: &EarlierRepost) -> Vec<SourceSlot> {
        let known: Vec<_> = repost.sources.iter().map(|source| self.world.sources.known(source)).collect();
        if known.first().is_none_or(Option::is_none) {
            return Vec::new();
        }
        known.into_iter().flatten().map(|source| source.slot).collect()
    }
}
