//! The post part of the command processor: validating, editing and deleting posts, assigning ids, and queueing posts for fan-out.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use tracing::warn;

use crate::clock::UnixMicros;
use crate::error::Error;
use crate::feed::event::{ChangedPost, Event};
use crate::feed::outbox::Route;
use crate::feed::position::Position;
use crate::feed::post::{Body, Draft, EarlierRepost, Membership, Post};
use crate::feed::reposts::Repost;
use crate::feed::schedule::FanoutRoute;
use crate::feed::stream::Invalidation;
use crate::id::{PostId, SourceSlot};
use crate::limits::{ARCHIVED_IDS_LISTED_MAX, EARLIER_REPOSTS_MAX, FANOUT_QUEUE_MAX, PUBLISH_AHEAD_MAX};
use crate::runtime::background::archiver::archive_failed;
use crate::runtime::fanout::open_fanouts::Backlog;
use crate::runtime::fanout::records::SourceReach;
use crate::runtime::message::{Command, FanoutOrder, Published, Reply};
use crate::runtime::processor::group::Added;
use crate::runtime::processor::{CommandProcessor, Completion, refuse};
use crate::state::posts::Stored;
use crate::state::resolved::Needs;
use crate::storage::journal::Journal;

impl<J: Journal> CommandProcessor<J> {
    pub(super) fn publish(&mut self, draft: Draft, wait: bool, reply: Reply<Published>) {
        match self.validate_publish(&draft) {
            Err(refused) => {
                self.refused_for_now = Some(refused.clone()).filter(|cause| matches!(cause, Error::Overloaded { .. }));
                refuse(reply, refused);
            }
            Ok(Some(post)) => self.answer_duplicate(&post, wait, reply),
            Ok(None) => match self.resolve(draft) {
                Err(refused) => refuse(reply, refused),
                Ok(draft) => self.publish_new(draft, wait, reply),
            },
        }
    }

    fn publish_new(&mut self, mut draft: Draft, wait: bool, reply: Reply<Published>) {
        let now = self.tick(1);
        let id = match draft.id.map_or_else(|| self.mint(now.instant), Ok) {
            Ok(id) => id,
            Err(refused) => return refuse(reply, refused),
        };
        draft.earlier_reposts = self.earlier_reposts(id, &draft);
        let position = Position { published_at: draft.published_at.unwrap_or(now.shown()), id };
        self.count_accepted(&draft);
        let then = Completion::Publish { wait, reply };
        self.accept(Event::Published { position, draft, accepted_at: now.instant }, then);
    }

    /// Returns the post if the draft was published before, or None if it may be published.
    fn validate_publish(&mut self, draft: &Draft) -> Result<Option<Arc<Post>>, Error> {
        if !draft.author.is_user() {
            return Err(Error::NotAUser { id: draft.author.clone(), action: "publish" });
        }
        draft.check().map_err(|what| Error::InvalidDraft { what })?;
        let world = self.machine.world();
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
                return Err(Error::InvalidDraft { what: "a post cannot repost or answer itself".to_owned() });
            }
        }
        let now = self.logical_clock.now();
        if let Some(at) = draft.published_at
            && at > now.saturating_add(PUBLISH_AHEAD_MAX)
        {
            let ahead_seconds = (at.0.abs_diff(now.0)) / 1_000_000;
            return Err(Error::PublishedInFuture { ahead_seconds, limit_seconds: PUBLISH_AHEAD_MAX.as_secs() });
        }
        self.check_fanout(world.sources.get(&draft.author).map(|author| author.slot))?;
        self.check_store_bytes()?;
        self.check_reposts_limit(draft)?;
        self.check_sources_limit(draft.sources())?;
        Ok(None)
    }

    /// Checks that posts, and the tombstones of deleted posts, have not reached their limit of bytes.
    pub(super) fn check_store_bytes(&self) -> Result<(), Error> {
        let limit = self.shared.config.store_bytes_max;
        if self.machine.world().posts.bytes() + self.group.added().post_bytes < limit {
            return Ok(());
        }
        // With an archive there is space again as soon as old posts have been moved there.
        let full = Error::Full { what: "post (bytes)", limit };
        Err(if self.archiver.is_some() { self.shared.overloaded("post_bytes", limit) } else { full })
    }

    /// Checks that fan-out has capacity for one more post. The posts of the group count, since they are not queued yet.
    fn check_fanout(&self, author: Option<SourceSlot>) -> Result<(), Error> {
        if !self.fanout.has_capacity_for(self.group.len() + 1) {
            return Err(self.shared.overloaded("fanout", FANOUT_QUEUE_MAX));
        }
        let author = author.map(|author| (author, self.group.fanouts_of(author)));
        self.shared.check_fanout_backlog(self.group.added().fanouts, author)
    }

    /// Checks the limit of reposts: the data about reposts is always in memory.
    fn check_reposts_limit(&self, draft: &Draft) -> Result<(), Error> {
        let limit = self.shared.config.reposts_max;
        let count = self.machine.world().reposts.len() + self.group.added().reposts + reposts(draft);
        let is_full = draft.repost_of.is_some() && count > limit;
        if is_full { Err(Error::Full { what: "repost", limit }) } else { Ok(()) }
    }

    /// Counts the size of a post and its deliveries for the limits of the group. Earlier commands of the group may change
    /// the followers of the sources, so the deliveries are counted again when the post is queued.
    fn count_accepted(&mut self, draft: &Draft) {
        let sources = &self.machine.world().sources;
        let pushed = draft.sources().filter_map(|id| sources.get(&id)).filter(|source| !source.is_celebrity());
        let deliveries = self.shared.count_deliveries(pushed.map(|source| source.slot));
        let fanouts = Backlog { posts: 1, deliveries };
        let post_bytes = size_of::<Post>() + draft.body.as_str().len();
        self.group.add(Added { fanouts, post_bytes, reposts: reposts(draft), ..Added::default() });
        if let Some(author) = sources.get(&draft.author) {
            self.group.add_fanout_of(author.slot, fanouts);
        }
    }

    /// Finds the original post of a repost, and the author whom a reply answers.
    fn resolve(&self, mut draft: Draft) -> Result<Draft, Error> {
        if let Some(id) = draft.repost_of {
            // A post that the author may not see counts as nonexistent: otherwise the answer, and the feeds that show
            // the new post, would reveal the post that it repeats.
            draft.origin = self
                .find(id)
                .filter(|post| self.machine.world().is_shown_to(&draft.author, post))
                .and_then(|post| post.repost_of);
        }
        if draft.origin.is_some() && draft.origin == draft.id {
            return Err(Error::InvalidDraft { what: "a post cannot repost one of its own reposts".to_owned() });
        }
        if let Some(id) = draft.reply_to {
            draft.answered = self.find(id).map(|post| post.author().id.clone());
        }
        Ok(draft)
    }

    /// Returns the reposts of a new repost that were published before it, except those whose authors may not see it.
    fn earlier_reposts(&self, id: PostId, draft: &Draft) -> Vec<EarlierRepost> {
        let world = self.machine.world();
        let Some(reposts) = draft.repost_of.and_then(|_| world.reposts.of(id)) else { return Vec::new() };
        let reposts = reposts.read();
        let (author, origin) = (world.sources.get(&draft.author), draft.origin.or(draft.repost_of));
        let is_shown_to = |reposter: SourceSlot| {
            let is_blocked = || author.as_ref().is_some_and(|author| world.sources.at(reposter).has_block(author));
            !world.sources.is_erased(reposter) && !is_blocked()
        };
        // Each repost is once in the outbox of its author, and once in that of each tag and topic.
        let of_author = reposts.iter().filter(|repost| {
            repost.source == repost.author && Some(repost.at.id) != origin && is_shown_to(repost.author)
        });
        let name = |source: SourceSlot| world.sources.at(source).id.clone();
        let mut earlier: FxHashMap<Position, EarlierRepost> = of_author
            .take(EARLIER_REPOSTS_MAX)
            .map(|Repost { at, author, .. }| (at, vec![name(author)], reposts.is_hidden(at)))
            .map(|(at, sources, hidden)| (at, EarlierRepost { at, sources, hidden }))
            .collect();
        for repost in reposts.iter().filter(|repost| repost.source != repost.author) {
            if let Some(earlier) = earlier.get_mut(&repost.at) {
                earlier.sources.push(name(repost.source));
            }
        }
        let mut earlier: Vec<EarlierRepost> = earlier.into_values().collect();
        earlier.sort_unstable_by_key(|repost| repost.at);
        earlier
    }

    /// Answers a post that was published before. If the caller waits for delivery, the post is delivered again, which
    /// changes nothing in inboxes that already contain it.
    fn answer_duplicate(&self, post: &Arc<Post>, wait: bool, reply: Reply<Published>) {
        let published = Published { post: Arc::clone(post), created: false };
        let pushed = self.machine.world().pushed(post);
        if !wait || pushed.is_empty() {
            let _ = reply.send(Ok(published));
            return;
        }
        let author = post.author().slot;
        if let Err(refusal) = self.check_fanout(Some(author)) {
            return refuse(reply, refusal);
        }
        let (waiting, deliveries) = (Some((reply, published)), self.shared.count_deliveries(pushed.iter().copied()));
        let fanout_routes = pushed.iter().copied().map(FanoutRoute::Inboxes).collect();
        let (invalidation, accepted_at) = (Invalidation::Published(post.position), None);
        let record = None;
        self.fanout.push(FanoutOrder { invalidation, author, fanout_routes, deliveries, accepted_at, record, waiting });
    }

    /// Issues an id that no post in memory or in the archive has. If the free ids are unknown, it uses an id that was
    /// looked up.
    ///
    /// # Errors
    /// Fails if no id was looked up.
    fn mint(&mut self, at: UnixMicros) -> Result<PostId, Error> {
        loop {
            let id = self.logical_clock.mint(at);
            let world = self.machine.world();
            if self.group.changes_post(id) || world.posts.stored(id).is_some() {
                continue;
            }
            let Some(resolver) = self.resolver.as_ref().filter(|_| world.may_have_archived(id)) else { return Ok(id) };
            if self.machine.free_ids.pass(id) {
                self.machine.free_ids.ask(id);
                if !resolver.list_ids(id) {
                    self.machine.free_ids.answer(None);
                }
            }
            match self.machine.free_ids.is_free(id) {
                Some(true) => return Ok(id),
                Some(false) => {}
                None => {
                    let overloaded = resolver.overloaded();
                    return self.next_looked_up_id().ok_or(overloaded);
                }
            }
        }
    }

    fn next_looked_up_id(&mut self) -> Option<PostId> {
        while let Some(id) = self.resolved.next_free_id(self.machine.world()) {
            if !self.group.changes_post(id) {
                return Some(id);
            }
        }
        None
    }

    /// Returns true if a command publishes a post without an id while the free ids are unknown.
    fn needs_id(&self, command: &Command) -> bool {
        if !matches!(command, Command::Publish { draft, .. } if draft.id.is_none()) {
            return false;
        }
        let next = self.logical_clock.next_id();
        self.machine.world().may_have_archived(next) && self.machine.free_ids.is_free(next).is_none()
    }

    /// Returns true if a command needs an id and none was looked up.
    pub(super) fn lacks_id(&self, command: &Command) -> bool {
        self.needs_id(command) && self.resolved.free_ids(self.machine.world()) == 0
    }

    /// Adds the ids that a command, or each of many commands, still lacks to `needs`.
    pub(super) fn add_ids(&mut self, command: &Command, needs: &mut Needs) {
        let commands = if let Command::Many(commands) = command { commands } else { std::slice::from_ref(command) };
        let wanted = commands.iter().filter(|command| self.needs_id(command)).count();
        for _ in self.resolved.free_ids(self.machine.world())..wanted {
            needs.free_id(self.logical_clock.mint_now());
        }
    }

    pub(super) fn ids_listed(&mut self, listed: Result<Option<Vec<PostId>>, Error>) {
        match listed {
            Ok(None) => self.machine.free_ids.answer(None),
            Ok(Some(ids)) => self.machine.free_ids.answer(Some((&ids, ids.len() < ARCHIVED_IDS_LISTED_MAX))),
            Err(cause) => {
                warn!("could not list the ids in the archive: {cause}");
                self.machine.free_ids.answer(None);
            }
        }
    }

    /// Lists the archived ids in the range of the ids that are issued next. Waits for a disk if the archive may
    /// contain any.
    pub(super) fn list_first_ids(&mut self) {
        let (from, world) = (self.logical_clock.next_id(), self.machine.world());
        let archive = world.archive().filter(|_| world.may_have_archived(from));
        let listed = archive.map_or(Ok(Some(Vec::new())), |archive| archive.ids_from(from, ARCHIVED_IDS_LISTED_MAX));
        self.machine.free_ids.ask(from);
        self.ids_listed(listed.map_err(|cause| archive_failed(&cause)));
    }

    /// Returns how a post reaches the followers of each of its sources.
    fn reach(&self, post: &Post, push: &[SourceSlot]) -> Box<[SourceReach]> {
        let sources = &self.machine.world().sources;
        let of_source = |source: &Membership| SourceReach {
            source: source.slot,
            route: if push.contains(&source.slot) { Route::Push } else { Route::Pull },
            followers: u32::try_from(sources.at(source.slot).followers().len()).unwrap_or(u32::MAX),
        };
        post.sources().iter().map(of_source).collect()
    }

    /// Queues a post for fan-out. Answers the author, if there is one to answer: at once, or after delivery if the
    /// author waits for that.
    pub(super) fn queue_fanout(&self, post: Arc<Post>, push: &[SourceSlot], author: Option<(bool, Reply<Published>)>) {
        let (id, slot, accepted_at) = (post.id(), post.author().slot, post.accepted_at);
        let (invalidation, fanout_routes) = (Invalidation::Published(post.position), self.fanout_routes(&post, push));
        self.shared.counters.published.add(1);
        let record = self.shared.fanout_records.begin(id, self.reach(&post, push));
        let waits = author.as_ref().is_some_and(|(wait, _)| *wait) && !push.is_empty();
        let answer = author.map(|(_, reply)| (reply, Published { post, created: true }));
        let (now, later) = if waits { (None, answer) } else { (answer, None) };
        if push.is_empty() {
            self.machine.world().delivery.set_applied(accepted_at);
        }
        if !push.is_empty() {
            let (accepted_at, deliveries) = (Some(accepted_at), self.shared.count_deliveries(push.iter().copied()));
            self.fanout.push(FanoutOrder {
                invalidation,
                author: slot,
                fanout_routes,
                deliveries,
                accepted_at,
                record: Some(record),
                waiting: later,
            });
        } else if !fanout_routes.is_empty() {
            self.fanout.notify(invalidation, fanout_routes);
        }
        self.notify_of_reposted(id, Invalidation::EntryChanged);
        if let Some((reply, published)) = now {
            let _ = reply.send(Ok(published));
        }
    }

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

/// Returns the number of sources that a draft counts for in the limit of reposts: zero if it is not a repost.
fn reposts(draft: &Draft) -> usize {
    draft.repost_of.map_or(0, |_| draft.sources().count())
}
