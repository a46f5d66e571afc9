//! The scribe's side of publishing: which posts may be, under which id, and handing them on.

use std::sync::Arc;

use tracing::warn;

use crate::clock::UnixMicros;
use crate::error::Error;
use crate::feed::event::Event;
use crate::feed::position::Position;
use crate::feed::post::{Draft, Post};
use crate::feed::schedule::FanoutRoute;
use crate::feed::stream::Invalidation;
use crate::id::{PostId, SourceId, SourceSlot};
use crate::limits::{ARCHIVED_IDS_LISTED_MAX, PUBLISH_AHEAD_MAX};
use crate::runtime::background::archiver::archive_failed;
use crate::runtime::fanout::open_fanouts::Backlog;
use crate::runtime::message::{FanoutOrder, Published, Reply};
use crate::runtime::writer::follow::has_block;
use crate::runtime::writer::group::Added;
use crate::runtime::writer::{Scribe, Then, refuse};
use crate::state::posts::Stored;
use crate::storage::journal::Journal;

impl<J: Journal> Scribe<J> {
    pub(super) fn publish(&mut self, draft: Draft, wait: bool, reply: Reply<Published>) {
        match self.judge_publish(&draft) {
            Err(refused) => refuse(reply, refused),
            Ok(Some(post)) => self.published_before(&post, wait, reply),
            Ok(None) => match self.resolve(draft) {
                Err(refused) => refuse(reply, refused),
                Ok(draft) => self.publish_new(draft, wait, reply),
            },
        }
    }

    fn publish_new(&mut self, draft: Draft, wait: bool, reply: Reply<Published>) {
        let now = self.tick(1);
        let id = match draft.id.map_or_else(|| self.mint(now.instant), Ok) {
            Ok(id) => id,
            Err(refused) => return refuse(reply, refused),
        };
        let position = Position { published_at: draft.published_at.unwrap_or(now.shown()), id };
        self.count_accepted(&draft);
        self.accept(Event::Published { position, draft, accepted_at: now.instant }, Then::Publish { wait, reply });
    }

    /// The post, if the draft was published before; nothing, if it may be.
    fn judge_publish(&mut self, draft: &Draft) -> Result<Option<Arc<Post>>, Error> {
        if !draft.author.is_user() {
            return Err(Error::NotAUser { id: draft.author.clone(), action: "publish" });
        }
        draft.check().map_err(|what| Error::InvalidDraft { what })?;
        let world = self.writer.world();
        if let Some(id) = draft.id {
            match self.resolved.stored(world, id) {
                None => {}
                Some(Stored::Deleted) => return Err(Error::PostDeleted(id)),
                Some(Stored::Live(post)) => {
                    let same_time = draft.published_at.is_none_or(|at| at == post.position.published_at);
                    let same = same_time && draft.fingerprint() == post.fingerprint;
                    return if same { Ok(Some(post)) } else { Err(Error::PostIdTaken(id)) };
                }
            }
            if [draft.repost_of, draft.reply_to].contains(&Some(id)) {
                return Err(Error::InvalidDraft { what: "a post cannot repeat or answer itself".to_owned() });
            }
        }
        let now = self.monotonic_clock.now();
        if let Some(at) = draft.published_at
            && at > now.saturating_add(PUBLISH_AHEAD_MAX)
        {
            let ahead_seconds = (at.0.abs_diff(now.0)) / 1_000_000;
            return Err(Error::PublishedInFuture { ahead_seconds, limit_seconds: PUBLISH_AHEAD_MAX.as_secs() });
        }
        if !self.fanout.has_room_for(self.group.len() + 1) {
            return Err(self.fanout.overloaded());
        }
        let author = world.sources.get(&draft.author).map(|author| author.slot);
        let of_author = author.map(|author| self.group.fanouts_of(author)).unwrap_or_default();
        self.fanout.refusal_if_behind(author, [self.group.added().fanouts, of_author]).map_or(Ok(()), Err)?;
        let limit = self.config.store_bytes_max;
        if world.posts.bytes() + self.group.added().post_bytes >= limit {
            // With an archive there is room again as soon as it has taken what is too old.
            let full = Error::Full { what: "post (bytes)", limit };
            return Err(if self.archiver.is_some() { self.fanout.store_overloaded(limit) } else { full });
        }
        self.room_for_reposts(draft)?;
        self.room_for_sources(draft.sources())?;
        Ok(None)
    }

    /// Whether a post may repeat another: what is known of reposts stays in memory.
    fn room_for_reposts(&self, draft: &Draft) -> Result<(), Error> {
        let limit = self.config.reposts_max;
        let count = self.writer.world().reposts.len() + self.group.added().reposts + reposts(draft);
        let is_full = draft.repost_of.is_some() && count > limit;
        if is_full { Err(Error::Full { what: "repost", limit }) } else { Ok(()) }
    }

    /// Counts what a post adds to the state, and will have to be delivered, before it is handed on.
    fn count_accepted(&mut self, draft: &Draft) {
        let sources = &self.writer.world().sources;
        let pushed = draft.sources().filter_map(|id| sources.get(id)).filter(|source| !source.is_celebrity());
        let fanouts = Backlog { posts: 1, deliveries: self.fanout.deliveries(pushed.map(|source| source.slot)) };
        let post_bytes = size_of::<Post>() + draft.body.as_str().len();
        self.group.add(Added { fanouts, post_bytes, reposts: reposts(draft), ..Added::default() });
        if let Some(author) = sources.get(&draft.author) {
            self.group.add_fanout_of(author.slot, fanouts);
        }
    }

    /// Finds out what a draft repeats in the end, and whom it answers.
    fn resolve(&self, mut draft: Draft) -> Result<Draft, Error> {
        if let Some(id) = draft.repost_of {
            // One that the author is not to see counts as one that never was: the answer, and where the new post shows, would say what that
            // repeats.
            draft.origin =
                self.find(id).filter(|post| self.is_shown_to(&draft.author, post)).and_then(|post| post.repost_of);
        }
        if draft.origin.is_some() && draft.origin == draft.id {
            return Err(Error::InvalidDraft { what: "a post cannot repeat what repeats it".to_owned() });
        }
        if let Some(id) = draft.reply_to {
            draft.answered = self.find(id).map(|post| post.author().id.clone());
        }
        Ok(draft)
    }

    /// Whether a user may see another's post: it is not hidden, and neither of them blocks the other. Authors may see all of theirs.
    fn is_shown_to(&self, user: &SourceId, post: &Post) -> bool {
        let (sources, author) = (&self.writer.world().sources, &post.author().id);
        let is_blocked = || has_block(sources.get(user).as_deref(), sources.get(author).as_deref());
        user == author || !(post.hidden || is_blocked())
    }

    /// Answers a post that was published before. Whoever waits for its delivery gets it delivered again: that changes
    /// nothing where it already is.
    fn published_before(&self, post: &Arc<Post>, wait: bool, reply: Reply<Published>) {
        let published = Published { post: Arc::clone(post), created: false };
        let pushed = self.writer.world().pushed(post);
        if !wait || pushed.is_empty() {
            let _ = reply.send(Ok(published));
            return;
        }
        let author = post.author().slot;
        if !self.fanout.has_room_for(self.group.len() + 1) {
            return refuse(reply, self.fanout.overloaded());
        }
        if let Some(refusal) =
            self.fanout.refusal_if_behind(Some(author), [self.group.added().fanouts, self.group.fanouts_of(author)])
        {
            return refuse(reply, refusal);
        }
        let waiting = Some((reply, published));
        let fanout_routes = pushed.iter().copied().map(FanoutRoute::Inboxes).collect();
        let (mail, accepted_at) = (Invalidation::Published(post.position), None);
        self.fanout.push(FanoutOrder { mail, author, fanout_routes, accepted_at, waiting });
    }

    /// Mints an id that no post has, in memory or in the archive.
    ///
    /// # Errors
    /// While it is not known which ids are free.
    fn mint(&mut self, at: UnixMicros) -> Result<PostId, Error> {
        loop {
            let id = self.monotonic_clock.mint(at);
            let world = self.writer.world();
            if self.group.changes_post(id) || world.posts.stored(id).is_some() {
                continue;
            }
            let Some(resolver) = self.resolver.as_ref().filter(|_| world.may_have_archived(id)) else { return Ok(id) };
            if self.writer.free_ids.pass(id) {
                self.writer.free_ids.ask(id);
                if !resolver.list_ids(id) {
                    self.writer.free_ids.answer(None);
                }
            }
            match self.writer.free_ids.is_free(id) {
                Some(true) => return Ok(id),
                Some(false) => {}
                None => return Err(resolver.overloaded()),
            }
        }
    }

    pub(super) fn ids_listed(&mut self, listed: Result<Vec<PostId>, Error>) {
        match listed {
            Ok(ids) => self.writer.free_ids.answer(Some((&ids, ids.len() < ARCHIVED_IDS_LISTED_MAX))),
            Err(cause) => {
                warn!("the archive could not list its ids: {cause}");
                self.writer.free_ids.answer(None);
            }
        }
    }

    /// Lists the ids that the archive has of those that are minted next. Waits for a disk if there may be any.
    pub(super) fn list_first_ids(&mut self) {
        let (from, world) = (self.monotonic_clock.next_id(), self.writer.world());
        let archive = world.archive().filter(|_| world.may_have_archived(from));
        let listed = archive.map_or(Ok(Vec::new()), |archive| archive.ids_from(from, ARCHIVED_IDS_LISTED_MAX));
        self.writer.free_ids.ask(from);
        self.ids_listed(listed.map_err(|cause| archive_failed(&cause)));
    }

    /// Answers the author, now or once the post is delivered, and gives the post to the fan-out.
    pub(super) fn hand_on(&self, post: Arc<Post>, push: &[SourceSlot], wait: bool, reply: Reply<Published>) {
        let (id, author, accepted_at) = (post.id(), post.author().slot, post.accepted_at);
        let (mail, fanout_routes) = (Invalidation::Published(post.position), self.fanout_routes(&post, push));
        let published = Published { post, created: true };
        self.fanout.count_published();
        let (now, later) =
            if wait && !push.is_empty() { (None, Some((reply, published))) } else { (Some((reply, published)), None) };
        if push.is_empty() {
            self.writer.world().arrivals.set_applied(accepted_at);
        }
        if !push.is_empty() {
            let accepted_at = Some(accepted_at);
            self.fanout.push(FanoutOrder { mail, author, fanout_routes, accepted_at, waiting: later });
        } else if !fanout_routes.is_empty() {
            self.fanout.notify(mail, fanout_routes);
        }
        self.tell_of_repeated(id, Invalidation::Turned);
        if let Some((reply, published)) = now {
            let _ = reply.send(Ok(published));
        }
    }
}

/// Of how many sources a draft is a repost.
fn reposts(draft: &Draft) -> usize {
    draft.repost_of.map_or(0, |_| draft.sources().count())
}
