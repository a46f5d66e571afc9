//! The post part of the command processor: editing and deleting posts.

use std::sync::Arc;

use crate::error::Error;
use crate::feed::event::{ChangedPost, Event};
use crate::feed::post::{Body, Membership, Post};
use crate::id::PostId;
use crate::runtime::background::archiver::archive_failed;
use crate::runtime::message::Reply;
use crate::runtime::processor::group::Added;
use crate::runtime::processor::{CommandProcessor, Completion, refuse};
use crate::state::posts::Stored;
use crate::storage::journal::Journal;

impl<J: Journal> CommandProcessor<J> {
    pub(super) fn edit(&mut self, id: PostId, body: Option<Body>, hidden: Option<bool>, reply: Reply<Arc<Post>>) {
        let Some(post) = self.find(id) else { return refuse(reply, Error::UnknownPost(id)) };
        let body = body.filter(|body| body.as_str() != post.body());
        let hidden = hidden.filter(|hidden| *hidden != post.hidden);
        if body.is_none() && hidden.is_none() {
            let _ = reply.send(Ok(post));
            return;
        }
        if let Some(archive) = self.machine.world().replicated_archive()
            && let Err(cause) = archive.check_edit(id, body.as_ref())
        {
            return refuse(reply, archive_failed(&cause));
        }
        // A post can be hidden even if the memory is full.
        let only_hides = body.is_none() && hidden == Some(true);
        let growth = if only_hides { 0 } else { self.growth(&post, body.as_ref()) };
        if growth > 0
            && let Err(full) = self.check_store_bytes()
        {
            return refuse(reply, full);
        }
        let at = self.tick(1).shown();
        let edited = Event::Edited { id, body, hidden, at, post: self.known_of(&post) };
        if self.accept_change(edited, Some(post), Completion::Edit(reply)) {
            self.group.add(Added { post_bytes: growth, ..Added::default() });
        }
    }

    /// Returns the bytes that an edit adds to memory.
    fn growth(&self, post: &Post, body: Option<&Body>) -> usize {
        let world = self.machine.world();
        let body_bytes = body.map_or(post.body().len(), |body| body.as_str().len());
        if world.posts.get(post.id()).is_some() {
            body_bytes.saturating_sub(post.body().len())
        } else if world.replicated_archive().is_some() {
            // The archive has a limit of its own for edits that it has not written yet.
            0
        } else {
            // A post from the archive is in memory until it is archived again.
            size_of::<Post>() + body_bytes
        }
    }

    pub(super) fn delete(&mut self, id: PostId, reply: Reply<()>) {
        let (deleted, post) = match self.resolved.stored(self.machine.world(), id) {
            Some(Stored::Deleted) => return drop(reply.send(Ok(()))),
            Some(Stored::Live(post)) => {
                (Event::Deleted { id, repost_of: post.repost_of, post: self.known_of_deleted(&post) }, Some(post))
            }
            // The delete overtook the publish, which must not bring the post back.
            None => match self.check_store_bytes() {
                Ok(()) => (Event::Deleted { id, repost_of: None, post: None }, None),
                Err(full) => return refuse(reply, full),
            },
        };
        self.accept_change(deleted, post, Completion::Answer(reply));
    }

    /// Returns the data of a changed post that other nodes need if they have the post only in the archive.
    fn known_of(&self, post: &Post) -> Option<Box<ChangedPost>> {
        self.machine.world().replicated_archive().map(|_| self.changed(post))
    }

    /// Returns the data of a deleted post that other nodes need. A replay also needs it after a snapshot that lists a
    /// reply as hidden but does not contain it, because the reply was deleted while the snapshot was taken.
    fn known_of_deleted(&self, post: &Post) -> Option<Box<ChangedPost>> {
        let is_needed = self.machine.world().replicated_archive().is_some() || post.replies().is_some();
        is_needed.then(|| self.changed(post))
    }

    fn changed(&self, post: &Post) -> Box<ChangedPost> {
        let world = self.machine.world();
        // The log must not name an erased user again.
        let is_named = |source: &&Membership| !world.sources.at(source.slot).is_erased();
        let sources = post.sources().iter().filter(is_named).map(|source| source.id.clone()).collect();
        let Post { position: at, repost_of, hidden, .. } = *post;
        Box::new(ChangedPost { at, sources, repost_of, hidden })
    }

    /// Returns the post with this id. A post whose author is being erased counts as deleted.
    pub(super) fn find(&self, id: PostId) -> Option<Arc<Post>> {
        let sources = &self.machine.world().sources;
        self.found(id).filter(|post| !sources.is_erased(post.author().slot))
    }

    /// Returns the post with this id, from memory or from the records that were looked up for the current command.
    fn found(&self, id: PostId) -> Option<Arc<Post>> {
        self.resolved.stored(self.machine.world(), id).and_then(Stored::live)
    }
}
