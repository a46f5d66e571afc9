//! Applies events that edit and delete posts, and redirects reposts that were published before the repost that they name to its original.

use std::sync::Arc;

use crate::clock::UnixMicros;
use crate::feed::event::ChangedPost;
use crate::feed::post::{Body, EarlierRepost, Post};
use crate::feed::reposts::Repost;
use crate::id::{PostId, SourceSlot};
use crate::limits::LIVE_REPOSTERS_MAX;
use crate::state::posts::{Affected, Stored};
use crate::state::world::{Applied, StateMachine};

/// The changes that an edit makes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edit<'a> {
    pub(super) body: Option<&'a Body>,
    pub(super) hidden: Option<bool>,
    pub(super) at: UnixMicros,
}

impl StateMachine {
    pub(super) fn edit(
        &mut self,
        id: PostId,
        found: Option<&Arc<Post>>,
        changed: Option<&ChangedPost>,
        edit: Edit<'_>,
    ) -> Applied {
        let in_memory = self.world.posts.stored(id);
        let is_archived = in_memory.is_none();
        // A tombstone in memory takes precedence over a post that the archive still has.
        let mut post = match in_memory.or_else(|| self.found(id, found)) {
            Some(Stored::Live(post)) => post,
            Some(Stored::Deleted) => return Applied::Done,
            None => return self.edit_in_archive(id, changed, edit),
        };
        if is_archived && let Some(kept) = self.world.replicated_archive().and_then(|archive| archive.edit(id)) {
            // It may have been looked up before this node applied its last edits.
            post = Arc::new(kept.applied_to(&post));
        }
        if let Some(archive) = self.world.replicated_archive() {
            archive.count_edit(id, edit.body);
        }
        let edited = Arc::new(post.edited(edit.body, edit.hidden, edit.at));
        self.change(&Affected::of(&edited), edited.hidden, edit, |machine| {
            machine.world.posts.put(Arc::clone(&edited));
        });
        if is_archived || self.backlog.is_in_flight(id) {
            self.backlog.rewrite(id);
        }
        Applied::Edited(edited)
    }

    /// Edits a post that may be only in the archive. The node stores the edit until the archive copier has written it there.
    fn edit_in_archive(&mut self, id: PostId, changed: Option<&ChangedPost>, edit: Edit<'_>) -> Applied {
        let keep = |machine: &Self| {
            if let Some(archive) = machine.world.replicated_archive() {
                archive.keep_edit(id, edit.body, edit.hidden, edit.at);
            }
        };
        let Some(changed) = changed else {
            keep(self);
            return Applied::Done;
        };
        let post = self.affected(changed);
        self.change(&post, edit.hidden.unwrap_or(changed.hidden), edit, keep);
        Applied::EditedInArchive(post)
    }

    /// Makes an edit visible by `put`, with its effects on the entries of other posts.
    fn change(&self, post: &Affected, is_hidden: bool, edit: Edit<'_>, put: impl FnOnce(&Self)) {
        // The index is updated on both sides of the store. When a repost is hidden, the entry of the original must move away before
        // that. When it is shown again, the entry must not move here before the repost is visible.
        let world = &self.world;
        let _removal = post.repost_of.filter(|_| is_hidden).map(|_| world.delivery.begin_removal());
        if is_hidden {
            world.reposts.hide(post.repost_of, post.position, is_hidden);
        }
        put(self);
        world.reposts.hide(post.repost_of, post.position, is_hidden);
        self.hide_reply(post, is_hidden);
        if edit.hidden == Some(false) {
            self.note_revealed(post, UnixMicros(edit.at.0.saturating_add(world.delivery.ahead_us())));
        }
    }

    /// Counts a reply as hidden, or no longer, among the replies to its parent post. Does nothing for other posts.
    pub(super) fn hide_reply(&self, post: &Affected, is_hidden: bool) {
        for slot in &post.sources {
            let source = self.world.sources.at(*slot);
            if source.id.replied_post().is_some() && (is_hidden || !source.outbox().hidden().is_empty()) {
                source.change_outbox(|outbox| outbox.hide(post.position.id, is_hidden));
            }
        }
    }

    pub(super) fn delete(
        &mut self,
        id: PostId,
        found: Option<&Arc<Post>>,
        changed: Option<&ChangedPost>,
        repost_of: Option<PostId>,
    ) -> Applied {
        let in_memory = self.world.posts.get(id);
        let known = in_memory.map(Stored::Live).or_else(|| self.found(id, found));
        let world = Arc::clone(&self.world);
        let _removal = repost_of.map(|_| world.delivery.begin_removal());
        let Some(Stored::Live(post)) = known else {
            return self.delete_in_archive(id, changed, repost_of, known.is_some());
        };
        let reposters = world.reposts.sources_of(id, LIVE_REPOSTERS_MAX);
        // From now on the entry of the original post must be at another position.
        world.reposts.forget(&post);
        // Write the tombstone first: from then on no page shows the post, even if its position is still stored somewhere.
        world.posts.write_tombstone(id);
        for source in post.sources() {
            world.sources.at(source.slot).change_outbox(|outbox| {
                if !outbox.remove(post.position) {
                    outbox.forget_archived(post.position);
                }
                outbox.hide(id, false);
            });
        }
        self.backlog.note_deleted(&post);
        Applied::Deleted { post: Affected::of(&post), reposters }
    }

    /// Deletes a post that memory does not have.
    fn delete_in_archive(
        &mut self,
        id: PostId,
        changed: Option<&ChangedPost>,
        repost_of: Option<PostId>,
        is_deleted_there: bool,
    ) -> Applied {
        let world = Arc::clone(&self.world);
        // A repeated deletion changes nothing.
        let is_new = !is_deleted_there && !world.posts.is_deleted(id);
        let post = changed.map(|changed| self.affected(changed));
        let reposters = world.reposts.sources_of(id, LIVE_REPOSTERS_MAX);
        world.reposts.forget_id(id, repost_of);
        world.posts.write_tombstone(id);
        // A node of a cluster that has not judged the deletion has not looked up the post.
        if is_deleted_there || world.replicated_archive().is_some() {
            self.backlog.note_tombstone(id);
        } else if is_new {
            self.backlog.note_deleted_id(id);
        }
        // Also for a repeated deletion: a snapshot may have the reply as hidden or listed although the archive had it as deleted.
        if let Some(post) = &post {
            self.hide_reply(post, false);
            post.sources
                .iter()
                .for_each(|slot| world.sources.at(*slot).change_outbox(|outbox| outbox.unlist(post.position)));
        }
        let Some(post) = post.filter(|_| is_new) else { return Applied::Done };
        for slot in &post.sources {
            world.sources.at(*slot).change_outbox(|outbox| outbox.forget_archived(post.position));
        }
        Applied::Deleted { post, reposters }
    }

    /// Returns the readers that a change of a post outside memory concerns. Users whose erasure has ended are left out.
    fn affected(&self, changed: &ChangedPost) -> Affected {
        let slots = changed.sources.iter().filter_map(|source| Some(self.world.sources.known(source)?.slot));
        Affected { position: changed.at, repost_of: changed.repost_of, sources: slots.collect() }
    }

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
