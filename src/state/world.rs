//! The world: posts, outboxes and the follow graph, and how events change them.
//!
//! Responsible for:
//! - applying events, each idempotently, and keeping both sides of an edge and a post's outboxes in step;
//! - which sources are celebrities.
//!
//! Not responsible for:
//! - whether an event is allowed, its order and durability (`runtime::writer`).
//!
//! [`World`] is what everybody reads. Only [`Writer`] changes it, and there is one: the type has no copy.

mod arrivals;
mod erased;
mod follows;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::clock::UnixMicros;
use crate::feed::event::Event;
use crate::feed::following::{Edge, Following};
use crate::feed::graph::Sharding;
use crate::feed::outbox::{Part, Route};
use crate::feed::policy::Policy;
use crate::feed::position::Position;
use crate::feed::post::{Body, Post};
use crate::feed::preferences::Marker;
use crate::id::{PostId, SourceId, SourceSlot};
use crate::limits::LIVE_REPOSTERS_MAX;
use crate::state::arrivals::Arrivals;
use crate::state::awaited::Awaited;
use crate::state::failures::ReadFailures;
use crate::state::free_ids::FreeIds;
use crate::state::held::Held;
use crate::state::posts::{Posts, Stored};
use crate::state::reposts::RepostIndex;
use crate::state::revocations::Revocations;
use crate::state::slow::SlowSources;
use crate::state::sources::{Source, Sources};
use crate::state::tiering::{Backlog, TieringLimits};
use crate::storage::archive::{Archive, ArchiveError};

/// The shared state.
pub struct World {
    /// All sources.
    pub sources: Sources,
    /// All posts.
    pub posts: Posts,
    /// Which posts repeat which.
    pub reposts: RepostIndex,
    /// Whose tokens are refused.
    pub revocations: Revocations,
    /// How sources are dealt out to shards.
    pub sharding: Sharding,
    policy: Policy,
    archive: Option<Arc<dyn Archive>>,
    /// Up to when posts have arrived.
    pub arrivals: Arrivals,
    /// What could not be read from it.
    pub read_failures: ReadFailures,
    /// What cannot be written to it.
    pub held_back: super::held_back::HeldBack,
    /// What takes long to be read from it.
    pub slow_sources: SlowSources,
    /// What stays in memory because a command was looked up for it.
    pub(super) held: Arc<Held>,
    edges: AtomicUsize,
    pulled_epoch: AtomicU64,
}

/// The one hand that changes a [`World`].
pub struct Writer {
    world: Arc<World>,
    /// What the archive is to be told.
    pub(super) backlog: Backlog,
    /// Which of the ids that are minted next the archive has.
    pub free_ids: FreeIds,
    /// Events may be older than what the archive holds: they were judged in an earlier life.
    is_replaying: bool,
    /// Answers to posts that are not known.
    awaited: Awaited,
    /// Why a replay must not go on.
    replay_failure: Option<ArchiveError>,
}

/// What applying an event did.
#[derive(Clone, Debug)]
pub enum Applied {
    /// A post is in its outboxes.
    Published {
        /// The post.
        post: Arc<Post>,
        /// The sources to whose followers it must be pushed.
        push: Box<[SourceSlot]>,
        /// Posts that answered it before it was known; nothing if they are too many.
        answers: Option<Vec<PostId>>,
    },
    /// A post was changed.
    Edited(Arc<Post>),
    /// A post was deleted.
    Deleted {
        /// The post.
        post: Arc<Post>,
        /// The sources by which it was repeated, unless they are too many.
        reposters: Option<Vec<SourceSlot>>,
    },
    /// The state was changed, or already was as the event says.
    Done,
}

impl World {
    /// An empty world, and the hand that changes it.
    pub fn create(policy: Policy, sharding: Sharding) -> (Arc<Self>, Writer) {
        Self::create_with(policy, sharding, None)
    }

    /// An empty world in front of an archive, and the hand that changes it.
    pub fn create_with(
        policy: Policy,
        sharding: Sharding,
        archive: Option<(Arc<dyn Archive>, TieringLimits)>,
    ) -> (Arc<Self>, Writer) {
        let backlog = Backlog::new(archive.as_ref().map(|(_, limits)| *limits));
        let world = Arc::new(Self {
            sources: Sources::default(),
            posts: Posts::default(),
            reposts: RepostIndex::default(),
            revocations: Revocations::default(),
            sharding,
            policy,
            archive: archive.map(|(archive, _)| archive),
            arrivals: Arrivals::default(),
            read_failures: ReadFailures::default(),
            held_back: Default::default(),
            slow_sources: SlowSources::default(),
            held: Arc::default(),
            edges: AtomicUsize::new(0),
            pulled_epoch: AtomicU64::new(0),
        });
        let writer = Writer {
            world: Arc::clone(&world),
            backlog,
            free_ids: FreeIds::default(),
            awaited: Awaited::default(),
            is_replaying: false,
            replay_failure: None,
        };
        (world, writer)
    }

    /// The second level, if there is one.
    pub fn archive(&self) -> Option<&Arc<dyn Archive>> {
        self.archive.as_ref()
    }

    /// Lets every reader look anew at which sources have posts to pull.
    pub(super) fn renew_pulled_epoch(&self) {
        self.pulled_epoch.fetch_add(1, Ordering::Release);
    }

    /// Bytes that sources take with who follows whom, by a sample.
    pub fn sources_bytes(&self) -> usize {
        self.sources.bytes(self.edges())
    }

    /// How many follow edges there are, hidden ones too.
    pub fn edges(&self) -> usize {
        self.edges.load(Ordering::Relaxed)
    }

    /// Changes whenever a source comes to have posts that must be pulled: until then a reader's list of such sources
    /// stays right.
    pub fn pulled_epoch(&self) -> u64 {
        self.pulled_epoch.load(Ordering::Acquire)
    }

    /// The sources to whose followers a known post was pushed.
    pub fn pushed(&self, post: &Post) -> Box<[SourceSlot]> {
        let by_push = |slot: &SourceSlot| self.sources.at(*slot).outbox().was_pushed(post.position);
        post.sources().iter().map(|source| source.slot).filter(by_push).collect()
    }

    /// How a post is routed to the followers of one of its sources at this moment.
    pub fn route(&self, source: &Source) -> Route {
        // In the pure modes the flag is not consulted, since a source without an edge never had it set.
        match self.policy {
            Policy::PullAll => Route::Pull,
            Policy::PushAll => Route::Push,
            Policy::Above(_) => Policy::route(source.is_celebrity()),
        }
    }
}

impl Writer {
    /// The world it writes.
    pub fn world(&self) -> &Arc<World> {
        &self.world
    }

    /// Says whether the events that come were judged in an earlier life, and not against the state as it is.
    pub fn set_replaying(&mut self, is_replaying: bool) {
        self.is_replaying = is_replaying;
    }

    /// Whether it was said to be so.
    pub(super) fn is_replaying(&self) -> bool {
        self.is_replaying
    }

    /// Checks that the events replayed so far could be compared with what is archived.
    ///
    /// # Errors
    /// When the archive could not be read.
    pub fn check_replay(&mut self) -> Result<(), ArchiveError> {
        self.replay_failure.take().map_or(Ok(()), Err)
    }

    /// Makes a source known.
    pub fn meet(&self, id: &SourceId) -> Arc<Source> {
        self.world.sources.intern(id)
    }

    /// Applies an event. Twice is the same as once.
    pub fn apply(&mut self, event: &Event) -> Applied {
        self.apply_judged(event, None)
    }

    /// The same, for an event that changes a post which was found when it was judged, maybe in the archive. Reads no archive
    /// but in a replay.
    pub fn apply_judged(&mut self, event: &Event, found: Option<&Arc<Post>>) -> Applied {
        match event {
            Event::Published { position, draft, accepted_at } => {
                self.publish(Post::new(*position, draft, *accepted_at))
            }
            Event::Edited { id, body, hidden, at } => self.edit(*id, found, body.as_ref(), *hidden, *at),
            Event::Deleted { id, repost_of } => self.delete(*id, found, *repost_of),
            Event::Followed { edges, since } => self.follow(edges, *since),
            Event::Unfollowed { follower, source, keep_until } => self.unfollow(follower, source, *keep_until),
            Event::Silenced { reader, source, how, since } => self.silence(reader, source, *how, *since),
            Event::Ruled { reader, rules } => self.choose(reader, |preferences| preferences.rules = *rules),
            Event::Marked { reader, at, seen } => {
                self.choose(reader, |preferences| preferences.marker = Some(Marker { at: *at, seen: *seen }))
            }
            Event::Listed { reader, list, source, since } => self.list(reader, list, source, *since),
            Event::Unlisted { reader, list } => self.choose(reader, |preferences| drop(preferences.lists.remove(list))),
            Event::Revoked { user, not_before, forget_before } => self.revoke(user, *not_before, *forget_before),
            Event::Erased { user, at } => self.erase(user, *at),
            Event::ErasureScrubbed { at } => self.note_scrubbed(*at),
            Event::ErasureEnded { at } => self.end_erasure(*at),
            Event::ClockJumped { at, lead_us } => {
                self.world.arrivals.set_ahead(*lead_us, *at);
                Applied::Done
            }
        }
    }

    /// Applies the publishing of a post. Twice is the same as once.
    pub fn publish(&mut self, post: Post) -> Applied {
        let mut applied = self.put_in_outboxes(post);
        if let Applied::Published { post, answers, .. } = &mut applied {
            // After it is in its outboxes: whoever finds it noted finds it there.
            *answers = self.note_arrival(post);
        }
        applied
    }

    fn put_in_outboxes(&mut self, mut post: Post) -> Applied {
        let position = post.position;
        let known = self.world.posts.stored(position.id);
        let known = if known.is_none() && self.may_be_archived(&post) { self.archived(position.id) } else { known };
        match known {
            Some(Stored::Live(post)) if self.is_replaying => return self.complete(post),
            Some(Stored::Live(post)) => return Applied::published(Arc::clone(&post), self.world.pushed(&post)),
            Some(Stored::Deleted) => return Applied::Done,
            None => {}
        }
        post.join(|id| self.world.sources.intern(id).slot);
        let post = Arc::new(post);
        let sources: Vec<Arc<Source>> =
            post.sources().iter().map(|source| Arc::clone(self.world.sources.at(source.slot))).collect();
        // The post first: whoever meets its position in an outbox must find it.
        self.world.posts.put(Arc::clone(&post));
        let push = sources.iter().filter(|source| self.place(source, position) == Route::Push);
        let push = push.map(|source| source.slot).collect();
        // After it is in its outboxes: what it repeats stays where it is for as long as it cannot be met here.
        self.note_repost(&post);
        Applied::published(post, push)
    }

    /// Takes note of a post that repeats another, unless that is gone for good.
    fn note_repost(&self, post: &Post) {
        if !post.repost_of.is_some_and(|origin| self.world.posts.is_deleted(origin)) {
            self.world.reposts.note(post);
        }
    }

    /// Whether a post that is replayed may have been shelved by an outbox. A deleted one's deletion is replayed after it.
    fn may_be_archived(&self, post: &Post) -> bool {
        let has_shelved = |source: Arc<Source>| source.outbox().archived(Part::Whole) >= Some(post.position);
        let mut sources = post.sources().iter();
        self.is_replaying && sources.any(|source| self.world.sources.get(&source.id).is_some_and(has_shelved))
    }

    /// Publishes, in a replay, a post that is there already: as a snapshot or the archive had it. A snapshot that was taken
    /// while it was applied may have it in some of its outboxes only. What was shelved stays so.
    fn complete(&mut self, post: Arc<Post>) -> Applied {
        self.note_repost(&post);
        let mut push = Vec::new();
        for member in post.sources() {
            let source = Arc::clone(self.world.sources.at(member.slot));
            let in_memory = source.outbox().route(post.position);
            let kept = in_memory.or_else(|| self.archived_route(&source, post.position));
            let route = kept.unwrap_or_else(|| {
                self.world.posts.put(Arc::clone(&post));
                self.place(&source, post.position)
            });
            if route == Route::Push {
                push.push(member.slot);
            }
        }
        Applied::published(post, push.into())
    }

    /// The sources to whose followers a post was pushed, wherever it is kept, if it still is. Only in a replay.
    pub fn pushed_again(&mut self, position: Position) -> Option<Box<[SourceSlot]>> {
        let known = self.world.posts.stored(position.id).or_else(|| self.archived(position.id));
        match self.complete(known?.live()?) {
            Applied::Published { push, .. } => Some(push),
            Applied::Edited(_) | Applied::Deleted { .. } | Applied::Done => None,
        }
    }

    /// Puts a post into an outbox, by the route its followers get it.
    fn place(&mut self, source: &Source, position: Position) -> Route {
        let route = self.world.route(source);
        self.place_by(route, source, position);
        route
    }

    fn place_by(&mut self, route: Route, source: &Source, position: Position) {
        match route {
            Route::Push => {
                source.change_outbox(|outbox| outbox.insert(position, Route::Push));
            }
            Route::Pull => self.leave_for_pull(source, position),
        }
        self.backlog.note_size(source);
    }

    /// Places a post that was kept somewhere, by the route it then had to each of its sources.
    pub(super) fn restore_placed(&mut self, post: &Arc<Post>, route: impl Fn(usize) -> Option<Route>) {
        let position = post.position;
        self.world.posts.put(Arc::clone(post));
        self.world.reposts.note(post);
        self.restore_answer(post);
        for (nth, source) in post.sources().iter().enumerate() {
            let source = Arc::clone(self.world.sources.at(source.slot));
            if let Some(route) = route(nth) {
                self.place_by(route, &source, position);
            }
        }
    }

    /// Remembers that an id was deleted: the archive was told before the snapshot was done.
    pub(super) fn restore_tombstone(&mut self, id: PostId) {
        if self.world.posts.get(id).is_some() {
            self.delete(id, None, None);
        } else {
            self.world.posts.bury_as_tombstone(id);
            self.world.reposts.forget_id(id, None);
            if self.world.has_archived() {
                self.backlog.note_tombstone(id);
            }
        }
    }

    /// Makes all edges of one follower, which has none.
    pub(super) fn restore_following(&mut self, follower: SourceSlot, edges: Vec<Edge>) {
        for edge in &edges {
            let source = self.world.sources.at(edge.source);
            source.followers.write().insert(follower, edge.since, edge.hidden, self.world.sharding);
        }
        self.world.edges.fetch_add(edges.len(), Ordering::Relaxed);
        *self.world.sources.at(follower).following.write() = Arc::new(Following::restored(edges));
    }

    fn leave_for_pull(&self, source: &Source, position: Position) {
        let first = source.change_outbox(|outbox| {
            let first = !outbox.has_pulled();
            outbox.insert(position, Route::Pull);
            first
        });
        if first {
            self.world.pulled_epoch.fetch_add(1, Ordering::Release);
        }
    }

    fn edit(
        &mut self,
        id: PostId,
        found: Option<&Arc<Post>>,
        body: Option<&Body>,
        hidden: Option<bool>,
        at: UnixMicros,
    ) -> Applied {
        let in_memory = self.world.posts.stored(id);
        let is_archived = in_memory.is_none();
        // A tombstone in memory wins over a post that the archive still has.
        let Some(post) = in_memory.or_else(|| self.found(id, found)).and_then(Stored::live) else {
            return Applied::Done;
        };
        let edited = Arc::new(post.edited(body, hidden, at));
        // On both sides: what a hidden repost repeats must be met elsewhere before, and no sooner here than it shows.
        let world = Arc::clone(&self.world);
        let _taking_back = edited.repost_of.filter(|_| edited.hidden).map(|_| world.arrivals.take_back());
        if edited.hidden {
            self.world.reposts.hide(&edited);
        }
        self.world.posts.put(Arc::clone(&edited));
        self.world.reposts.hide(&edited);
        if is_archived || self.backlog.is_in_flight(id) {
            self.backlog.rewrite(id);
        }
        if hidden == Some(false) {
            let instant = UnixMicros(at.0.saturating_add(self.world.arrivals.ahead_us()));
            self.note_revealed(&edited, instant);
        }
        Applied::Edited(edited)
    }

    fn delete(&mut self, id: PostId, found: Option<&Arc<Post>>, repost_of: Option<PostId>) -> Applied {
        let in_memory = self.world.posts.get(id);
        let known = in_memory.map(Stored::Live).or_else(|| self.found(id, found));
        let world = Arc::clone(&self.world);
        let _taking_back = repost_of.map(|_| world.arrivals.take_back());
        let Some(Stored::Live(post)) = known else {
            self.world.posts.bury_as_tombstone(id);
            self.world.reposts.forget_id(id, repost_of);
            if known.is_some() {
                self.backlog.note_tombstone(id);
            }
            return Applied::Done;
        };
        let reposters = self.world.reposts.sources_of(id, LIVE_REPOSTERS_MAX);
        // What it repeats must be met elsewhere from now on.
        self.world.reposts.forget(&post);
        // The tombstone first: from then on no page shows the post, wherever its position still is.
        self.world.posts.bury_as_tombstone(id);
        for source in post.sources() {
            self.world.sources.at(source.slot).change_outbox(|outbox| {
                if !outbox.remove(post.position) {
                    outbox.unshelve(post.position);
                }
            });
        }
        self.backlog.bury_as_tombstone(&post);
        Applied::Deleted { post, reposters }
    }

    /// The route of a post that an outbox has shelved.
    fn archived_route(&mut self, source: &Source, position: Position) -> Option<Route> {
        let routes = [(Part::Pushed, Route::Push), (Part::Pulled, Route::Pull)];
        let is_archived = |part| self.world.is_archived(source, part, position);
        let mut found = routes.into_iter().map(|(part, route)| Ok(is_archived(part)?.then_some(route)));
        let found = found.find_map(Result::transpose).transpose();
        found.unwrap_or_else(|cause| {
            self.replay_failure = Some(cause);
            None
        })
    }

    /// What there is under an id that memory does not have: what was found when the event was judged.
    fn found(&mut self, id: PostId, found: Option<&Arc<Post>>) -> Option<Stored> {
        match found {
            Some(post) => Some(Stored::Live(Arc::clone(post))),
            None => self.archived(id),
        }
    }

    /// In a replay, what the archive has under an id. A replay takes a post that is damaged there for none, and has it written anew: if the
    /// event that published it is replayed, it is whole again.
    fn archived(&mut self, id: PostId) -> Option<Stored> {
        if !self.is_replaying {
            return None;
        }
        // In a replay that began before the post was archived its sources may not be known yet.
        let sources = &self.world.sources;
        let archived = self.world.archived_by(id, |source| Some(sources.intern(source)));
        match archived {
            Ok(archived) => return archived,
            Err(cause @ ArchiveError::Damaged { .. }) => {
                self.world.read_failures.note(&cause);
                self.backlog.rewrite(id);
            }
            Err(cause) => self.replay_failure = Some(cause),
        }
        None
    }
}
