//! The notification part of the command processor: finding the watched readers who may see the effect of an event.
//!
//! Superfluous recipients are harmless, but none may be missed: each recipient compares its feed and finds out if
//! anything changed.

use crate::feed::event::{Event, MuteOrBlock, NewEdge, OldEdge};
use crate::feed::post::Post;
use crate::feed::schedule::FanoutRoute;
use crate::feed::stream::Invalidation;
use crate::id::{PostId, SourceId, SourceSlot};
use crate::limits::LIVE_REPOSTERS_MAX;
use crate::runtime::processor::CommandProcessor;
use crate::state::posts::{Affected, Stored};
use crate::state::world::Applied;
use crate::storage::journal::Journal;

/// Maximum number of replies to a previously unknown post whose watched readers are notified one by one once the post is known. With more,
/// all watched readers read again.
const LIVE_ANSWERS_MAX: usize = 64;

impl<J: Journal> CommandProcessor<J> {
    /// Returns the routes of a new post: to inboxes, and to watched readers who see the post by another path.
    pub(super) fn fanout_routes(&self, post: &Post, push: &[SourceSlot]) -> Box<[FanoutRoute]> {
        let mut fanout_routes: Vec<FanoutRoute> = push.iter().copied().map(FanoutRoute::Inboxes).collect();
        if self.shared.watchers.any() {
            let slots = post.sources().iter().map(|source| source.slot);
            // Couriers notify the readers whose inboxes get the post.
            fanout_routes.extend(slots.map(|slot| {
                if push.contains(&slot) { FanoutRoute::Affected(slot) } else { FanoutRoute::Watched(slot) }
            }));
        }
        fanout_routes.into()
    }

    /// Notifies the watched readers whose feeds may contain reposts of a changed post.
    pub(super) fn notify_of_reposted(&self, post: PostId, invalidation: impl Fn(PostId) -> Invalidation) {
        if self.shared.watchers.any() {
            let fanout_routes = watched(self.reposters(post).as_deref());
            if !fanout_routes.is_empty() {
                self.fanout.notify(invalidation(post), fanout_routes.into());
            }
        }
    }

    /// Notifies the watched readers of replies to a post that was unknown until now, since a reply may be visible
    /// depending on the author whom it answers. The replies may be in the archive. None means that there are too many
    /// of them to list.
    pub(super) fn notify_of_replies(&self, answers: Option<&[Affected]>) {
        if answers.is_some_and(<[Affected]>::is_empty) || !self.shared.watchers.any() {
            return;
        }
        match answers.filter(|answers| answers.len() <= LIVE_ANSWERS_MAX) {
            Some(answers) => {
                let posts = &self.machine.world().posts;
                let is_deleted = |reply: &&Affected| matches!(posts.stored(reply.position.id), Some(Stored::Deleted));
                for Affected { position, repost_of, sources } in answers.iter().filter(|reply| !is_deleted(reply)) {
                    let (post, sources) = ((position.id, *repost_of), sources.iter().copied());
                    self.notify_of_post(
                        post,
                        sources,
                        self.reposters(position.id).as_deref(),
                        Invalidation::EntryChanged,
                    );
                }
            }
            None => self.fanout.notify_missed(),
        }
    }

    /// Notifies the watched readers for whom an event may have changed something. New posts are handled when they are
    /// queued for fan-out.
    pub(super) fn notify_watched(&self, event: &Event, applied: &Applied) {
        if let Event::Revoked { user, .. } = event {
            self.shared.watchers.sessions.signal(user);
        }
        if !self.shared.watchers.any() {
            return;
        }
        match (event, applied) {
            // Followers of the earlier reposts' sources may now see the original.
            (Event::Published { draft, .. }, Applied::Published { post, .. }) if !draft.earlier_reposts.is_empty() => {
                if let Some(origin) = post.repost_of {
                    self.notify_of_reposted(origin, Invalidation::EntryChanged);
                }
            }
            // A repost shows only its author. An edit of its own text matters only if another repost referred to it
            // before it was known to be a repost.
            (Event::Edited { hidden, .. }, Applied::Edited(post)) => {
                self.notify_of_edited(&Affected::of(post), *hidden);
            }
            (Event::Edited { hidden, .. }, Applied::EditedInArchive(post)) => self.notify_of_edited(post, *hidden),
            (_, Applied::Deleted { post, reposters }) => {
                self.notify_of_changed(post, reposters.as_deref(), Invalidation::EntryChanged);
            }
            (Event::Followed { edges, .. }, _) => self.notify_followers(edges, &[]),
            (Event::FollowsChanged { follows, unfollows, .. }, _) => self.notify_followers(follows, unfollows),
            // Posts by tags, topics and reposts are handled when they are deleted.
            (Event::Erased { at, .. }, _) => {
                let erasure = self.machine.world().sources.erasures().at(*at);
                let fanout_routes = erasure.map(|erasure| FanoutRoute::Watched(erasure.source.slot));
                self.fanout.notify(Invalidation::Everything, fanout_routes.into_iter().collect());
            }
            (Event::MuteChanged { reader, source, how: MuteOrBlock::Block, .. }, _) => {
                self.notify_readers(vec![reader, source], Invalidation::Everything);
            }
            (
                Event::Unfollowed { follower: reader, .. }
                | Event::MuteChanged { reader, .. }
                | Event::RulesChanged { reader, .. },
                _,
            ) => {
                self.notify_readers(vec![reader], Invalidation::Everything);
            }
            (Event::MarkerMoved { reader, .. }, _) => self.notify_readers(vec![reader], Invalidation::Marked),
            _ => {}
        }
    }

    fn notify_of_edited(&self, post: &Affected, hidden: Option<bool>) {
        let id = post.position.id;
        match hidden {
            Some(_) => self.notify_of_changed(post, self.reposters(id).as_deref(), Invalidation::EntryChanged),
            // A repost shows only its author. An edit of its own text matters only if another repost referred to it
            // before it was known to be a repost.
            None if post.repost_of.is_some() => self.notify_of_reposted(id, Invalidation::Edited),
            None => self.notify_of_changed(post, self.reposters(id).as_deref(), Invalidation::Edited),
        }
    }

    /// Notifies the readers who may see a changed post, or the post that it repeats.
    fn notify_of_changed(
        &self,
        post: &Affected,
        reposters: Option<&[SourceSlot]>,
        invalidation: impl Fn(PostId) -> Invalidation,
    ) {
        let sources = post.sources.iter().copied();
        self.notify_of_post((post.position.id, post.repost_of), sources, reposters, invalidation);
    }

    /// The same for a post that may not be in memory.
    fn notify_of_post(
        &self,
        (id, repost_of): (PostId, Option<PostId>),
        sources: impl Iterator<Item = SourceSlot>,
        reposters: Option<&[SourceSlot]>,
        invalidation: impl Fn(PostId) -> Invalidation,
    ) {
        // The author comes first, since the author's client waits for this change together with the next posts.
        let mut fanout_routes: Vec<FanoutRoute> = sources.map(FanoutRoute::Watched).collect();
        if let Some(origin) = repost_of {
            self.fanout.notify(invalidation(origin), std::mem::take(&mut fanout_routes).into());
        }
        fanout_routes.extend(watched(reposters));
        if !fanout_routes.is_empty() {
            self.fanout.notify(invalidation(id), fanout_routes.into());
        }
    }

    /// Notifies the watched followers of new and of removed edges, some perhaps twice.
    fn notify_followers(&self, new: &[NewEdge], removed: &[OldEdge]) {
        let removed = removed.iter().map(|edge| &edge.follower);
        let mut followers: Vec<&SourceId> = new.iter().map(|edge| &edge.follower).chain(removed).collect();
        followers.dedup();
        self.notify_readers(followers, Invalidation::Everything);
    }

    fn notify_readers(&self, readers: Vec<&SourceId>, invalidation: Invalidation) {
        let (watchers, sources) = (&self.shared.watchers, &self.machine.world().sources);
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

    /// Returns the sources that repeat a post, unless there are too many.
    fn reposters(&self, post: PostId) -> Option<Vec<SourceSlot>> {
        self.machine.world().reposts.sources_of(post, LIVE_REPOSTERS_MAX)
    }
}

/// Returns the routes to the watched followers of the sources that repeat a post, or to all watched readers if there
/// are too many such sources.
fn watched(reposters: Option<&[SourceSlot]>) -> Vec<FanoutRoute> {
    reposters
        .map_or(vec![FanoutRoute::AllWatched], |sources| sources.iter().copied().map(FanoutRoute::Watched).collect())
}
