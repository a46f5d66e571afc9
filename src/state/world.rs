//! The world: posts, outboxes and the follow graph, and the application of events to them.
//!
//! Responsible for:
//! - applying events, each idempotently, and keeping both sides of an edge, and a post and its outboxes, consistent with each other;
//! - deciding which sources are celebrities.
//!
//! All threads read the [`World`]. Only the [`StateMachine`] changes it, and there is exactly one: the type cannot be cloned.

mod celebrities;
mod delivery;
mod follows;
mod posts;
mod users;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::feed::celebrity::CelebrityPolicy;
use crate::feed::event::Event;
use crate::feed::followers::Sharding;
use crate::feed::outbox::{Part, Route};
use crate::feed::position::Position;
use crate::feed::post::{EarlierRepost, Post};
use crate::feed::preferences::Marker;
use crate::id::{PostId, SourceId, SourceSlot};
use crate::state::awaited::Awaited;
use crate::state::delivery_tracker::DeliveryTracker;
use crate::state::failures::ReadFailures;
use crate::state::free_ids::FreeIds;
use crate::state::held::Held;
use crate::state::notified::Notified;
use crate::state::posts::{Affected, Posts, Stored};
use crate::state::reposts::RepostIndex;
use crate::state::revocations::Revocations;
use crate::state::slow::SlowSources;
use crate::state::sources::{Source, Sources};
use crate::state::unwritten::{HeldBack, TieringLimits, UnwrittenChanges};
use crate::state::world::posts::Edit;
use crate::storage::archive::{Archive, ArchiveError, ReplicatedArchive};

/// The state shared by all threads.
pub struct World {
    /// All sources, by external id and by slot.
    pub sources: Sources,
    /// All posts and tombstones in memory.
    pub posts: Posts,
    /// The reposts of each post.
    pub reposts: RepostIndex,
    /// The users whose earlier tokens are rejected.
    pub revocations: Revocations,
    /// The assignment of followers to shards.
    pub sharding: Sharding,
    /// The readers who request notifications of posts that they miss.
    pub notified: Notified,
    policy: CelebrityPolicy,
    archive: Option<Arc<dyn Archive>>,
    /// The same, if this is the world of a node whose cluster has one.
    pub(super) replicated_archive: Option<Arc<ReplicatedArchive>>,
    /// Tracks the instant up to which posts are applied and delivered.
    pub delivery: DeliveryTracker,
    /// Failed reads of the archive.
    pub read_failures: ReadFailures,
    /// Sources that cannot be written to the archive.
    pub held_back: HeldBack,
    /// Sources whose archive reads are slow.
    pub slow_sources: SlowSources,
    /// Posts and outboxes kept in memory for commands that looked them up.
    pub(super) held: Arc<Held>,
    /// Replies to posts that are not known yet. Only the state machine changes them.
    pub(super) awaited: Mutex<Awaited>,
    edges: AtomicUsize,
    pulled_epoch: AtomicU64,
}

/// The only object that can change a [`World`].
pub struct StateMachine {
    world: Arc<World>,
    /// Changes that still have to be written to the archive.
    pub(super) backlog: UnwrittenChanges,
    /// The ids to be minted next, and which of them the archive already contains.
    pub free_ids: FreeIds,
    /// True while replaying the journal: the events were validated by an earlier process, and the archive may be newer than they are.
    is_replaying: bool,
    /// The archive error that makes the replay invalid, if one occurred.
    replay_failure: Option<ArchiveError>,
    due_changes: celebrities::DueChanges,
}

/// The effect of applying an event.
#[derive(Clone, Debug)]
pub enum Applied {
    /// A post is now in its outboxes.
    Published {
        /// The post that was published.
        post: Arc<Post>,
        /// The sources to whose followers the post must be pushed.
        push: Box<[SourceSlot]>,
        /// Replies to the post that arrived before it; `None` if there are too many.
        answers: Option<Vec<Affected>>,
    },
    /// The new version of an edited post.
    Edited(Arc<Post>),
    /// An edited post that is not in memory.
    EditedInArchive(Affected),
    /// A post was deleted.
    Deleted {
        /// The post that was deleted.
        post: Affected,
        /// The sources that have reposts of it; `None` if there are too many reposts.
        reposters: Option<Vec<SourceSlot>>,
    },
    /// The state was changed, or the event had already taken effect.
    Done,
}

/// The numbers of replies and reposts of one post.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PostCounts {
    /// The replies that are not hidden, archived ones included.
    pub replies: usize,
    /// The reposts that are not hidden.
    pub reposts: usize,
}

impl World {
    /// Creates an empty world without an archive, and its state machine.
    pub fn create(policy: CelebrityPolicy, sharding: Sharding) -> (Arc<Self>, StateMachine) {
        Self::create_with(policy, sharding, None)
    }

    /// Creates an empty world, with an archive if one is given, and its state machine.
    pub fn create_with(
        policy: CelebrityPolicy,
        sharding: Sharding,
        archive: Option<(Arc<dyn Archive>, TieringLimits)>,
    ) -> (Arc<Self>, StateMachine) {
        Self::create_beside(policy, sharding, archive, None)
    }

    /// Creates an empty world of a node whose cluster has an archive, and its state machine.
    pub fn create_replicated(
        policy: CelebrityPolicy,
        sharding: Sharding,
        archive: Arc<ReplicatedArchive>,
        limits: TieringLimits,
    ) -> (Arc<Self>, StateMachine) {
        Self::create_beside(policy, sharding, Some((Arc::clone(&archive) as _, limits)), Some(archive))
    }

    fn create_beside(
        policy: CelebrityPolicy,
        sharding: Sharding,
        archive: Option<(Arc<dyn Archive>, TieringLimits)>,
        replicated_archive: Option<Arc<ReplicatedArchive>>,
    ) -> (Arc<Self>, StateMachine) {
        let backlog = UnwrittenChanges::new(archive.as_ref().map(|(_, limits)| *limits));
        let world = Arc::new(Self {
            sources: Sources::default(),
            posts: Posts::default(),
            reposts: RepostIndex::default(),
            revocations: Revocations::default(),
            sharding,
            notified: Notified::new(sharding),
            policy,
            archive: archive.map(|(archive, _)| archive),
            replicated_archive,
            delivery: DeliveryTracker::default(),
            read_failures: ReadFailures::default(),
            held_back: Default::default(),
            slow_sources: SlowSources::default(),
            held: Arc::default(),
            awaited: Mutex::default(),
            edges: AtomicUsize::new(0),
            pulled_epoch: AtomicU64::new(0),
        });
        let machine = StateMachine {
            world: Arc::clone(&world),
            backlog,
            free_ids: FreeIds::default(),
            is_replaying: false,
            replay_failure: None,
            due_changes: Default::default(),
        };
        (world, machine)
    }

    /// Returns the archive, the second storage level, if there is one.
    pub fn archive(&self) -> Option<&Arc<dyn Archive>> {
        self.archive.as_ref()
    }

    /// Returns the author whom a reply answers, if known. More replies than are recorded may wait for one post. For these, the author is
    /// known only while that post is in memory.
    pub fn answered_by(&self, reply: &Post) -> Option<SourceSlot> {
        let author = reply.answered.as_deref().map(|author| author.slot);
        author.or_else(|| Some(self.posts.get(reply.reply_to?)?.author().slot))
    }

    /// Returns true if a user may see another user's post: it is not hidden, and neither of them blocks the other.
    /// Authors may see all of their own posts.
    pub fn is_shown_to(&self, user: &SourceId, post: &Post) -> bool {
        let is_blocked = || match (self.sources.get(user), self.sources.get(&post.author().id)) {
            (Some(user), Some(author)) => user.has_block(&author),
            _ => false,
        };
        *user == post.author().id || !(post.hidden || is_blocked())
    }

    /// Makes every reader refresh its list of sources with posts to pull.
    pub(super) fn renew_pulled_epoch(&self) {
        self.pulled_epoch.fetch_add(1, Ordering::Release);
    }

    /// Returns the counts of a post: the replies and reposts on all their pages together, as everybody sees them. Posts of a user who is
    /// being erased count until they are deleted. The call takes the same time however many there are.
    pub fn counts(&self, post: PostId) -> PostCounts {
        let replies = self.sources.get(&SourceId::replies_to(post));
        PostCounts {
            replies: replies.map_or(0, |replies| replies.outbox().shown()),
            reposts: self.reposts.shown_of(post),
        }
    }

    /// Returns the bytes of all sources with their edges, outboxes and preferences. The latter two are estimated from a sample.
    pub fn sources_bytes(&self) -> usize {
        self.sources.bytes()
    }

    /// The number of follow edges, including hidden ones.
    pub fn edges(&self) -> usize {
        self.edges.load(Ordering::Relaxed)
    }

    /// Returns a counter that changes when a source gets posts to pull above the result of [`World::pulled_until`]. Until it changes, a
    /// reader's list of such sources stays valid.
    pub fn pulled_epoch(&self) -> u64 {
        self.pulled_epoch.load(Ordering::Acquire)
    }
}

impl StateMachine {
    /// Returns the world that this state machine changes.
    pub fn world(&self) -> &Arc<World> {
        &self.world
    }

    /// Switches replay on or off. Events of a replay were validated by an earlier process, and not against the current state.
    pub fn set_replaying(&mut self, is_replaying: bool) {
        self.is_replaying = is_replaying;
    }

    /// Returns true while replaying the journal.
    pub(super) fn is_replaying(&self) -> bool {
        self.is_replaying
    }

    /// Checks that the events replayed so far could be compared with the archive.
    ///
    /// # Errors
    /// Returns the archive error, if the archive could not be read.
    pub fn check_replay(&mut self) -> Result<(), ArchiveError> {
        self.replay_failure.take().map_or(Ok(()), Err)
    }

    /// Interns a source id, and returns its source.
    pub fn intern(&self, id: &SourceId) -> Arc<Source> {
        self.world.sources.intern(id)
    }

    /// Applies an event. Idempotent.
    pub fn apply(&mut self, event: &Event) -> Applied {
        self.apply_validated(event, None)
    }

    /// Applies an event; `found` is the post that it changes, if it was found during validation. Reads the archive only in a replay.
    pub fn apply_validated(&mut self, event: &Event, found: Option<&Arc<Post>>) -> Applied {
        match event {
            Event::Published { position, draft, accepted_at } => {
                self.publish(Post::new(*position, draft, *accepted_at), &draft.earlier_reposts)
            }
            Event::Edited { id, body, hidden, at, post } => {
                self.edit(*id, found, post.as_deref(), Edit { body: body.as_ref(), hidden: *hidden, at: *at })
            }
            Event::Deleted { id, repost_of, post } => self.delete(*id, found, post.as_deref(), *repost_of),
            Event::Followed { edges, since } => self.follow(edges, *since),
            Event::Unfollowed { follower, source, keep_until } => self.unfollow(follower, source, *keep_until),
            Event::FollowsChanged { follows, since, unfollows } => {
                self.follow(follows, *since);
                for edge in unfollows {
                    self.unfollow(&edge.follower, &edge.source, None);
                }
                Applied::Done
            }
            Event::MuteChanged { reader, source, how, since } => self.silence(reader, source, *how, *since),
            Event::RulesChanged { reader, rules } => {
                self.world.notified.set(self.world.sources.intern(reader).slot, rules.notify);
                self.change_preferences(reader, |preferences| preferences.rules = *rules)
            }
            Event::MarkerMoved { reader, at, seen } => self
                .change_preferences(reader, |preferences| preferences.marker = Some(Marker { at: *at, seen: *seen })),
            Event::ListMemberChanged { reader, list, source, since } => self.list(reader, list, source, *since),
            Event::ListDeleted { reader, list } => {
                self.change_preferences(reader, |preferences| drop(preferences.lists.remove(list)))
            }
            Event::Revoked { user, not_before, forget_before } => self.revoke(user, *not_before, *forget_before),
            Event::Erased { user, at } => self.erase(user, *at),
            Event::ErasureScrubbed { at } => self.note_scrubbed(*at),
            Event::ErasureEnded { at } => self.end_erasure(*at),
            Event::ClockJumped { at, drift_us } => {
                self.world.delivery.set_ahead(*drift_us, *at);
                Applied::Done
            }
        }
    }

    /// Publishes a post, and redirects the earlier reposts that name it to its original. Idempotent.
    pub fn publish(&mut self, post: Post, earlier: &[EarlierRepost]) -> Applied {
        // Redirect before the post is known, since no page may show it as an original. This applies even if the post has been deleted
        // since.
        self.redirect(&post, earlier);
        // For a replayed post, the archive may name the author whom it answers, although the post was published before its parent.
        let was_answered = post.answered.is_some();
        let mut applied = self.put_in_outboxes(post);
        if let Applied::Published { post, answers, .. } = &mut applied {
            // Noted after the post is in its outboxes, so that a reader that sees the note also finds the post there.
            *answers = self.note_arrival(post, was_answered);
            self.note_redirected(earlier, post.accepted_at);
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
        // The post is stored first: a reader that finds its position in an outbox must also find the post.
        self.world.posts.put(Arc::clone(&post));
        sources.iter().for_each(|source| self.note_post(source, post.accepted_at));
        let push = sources.iter().filter(|source| self.place(source, position) == Route::Push);
        let push = push.map(|source| source.slot).collect();
        // Noted after the post is in its outboxes: until pages find the repost there, the entry of the original must keep its position.
        self.note_repost(&post);
        Applied::published(post, push)
    }

    /// Adds a repost to the index, unless it is there or the original was deleted. Does nothing for other posts.
    pub fn note_repost(&self, post: &Post) {
        if !post.repost_of.is_some_and(|origin| self.world.posts.is_deleted(origin)) {
            self.world.reposts.note(post);
        }
    }

    /// Returns true if an outbox may have archived a replayed post. If the post was deleted, its deletion is replayed later.
    fn may_be_archived(&self, post: &Post) -> bool {
        let has_archived = |source: Arc<Source>| source.outbox().archived(Part::Whole) >= Some(post.position);
        let mut sources = post.sources().iter();
        self.is_replaying && sources.any(|source| self.world.sources.get(&source.id).is_some_and(has_archived))
    }

    /// Completes, in a replay, the publishing of a post that a snapshot or the archive already has. A snapshot taken while the post was
    /// being applied may have it in only some of its outboxes. Entries in the archive stay there. If the archive does not count them, they
    /// are in memory again as well. The counts of the snapshot may not include them, so they are counted when they are archived.
    fn complete(&mut self, post: Arc<Post>) -> Applied {
        self.note_repost(&post);
        let mut push = Vec::new();
        for member in post.sources() {
            let source = Arc::clone(self.world.sources.at(member.slot));
            let in_memory = source.outbox().route(post.position);
            let is_counted = self.world.archive().is_some_and(|archive| !archive.is_remote());
            let archived = if in_memory.is_none() { self.archived_route(&source, post.position) } else { None };
            let route = match in_memory.or(archived.filter(|_| is_counted)) {
                Some(route) => route,
                None => {
                    self.world.posts.put(Arc::clone(&post));
                    let route = archived.unwrap_or_else(|| self.world.route(&source));
                    self.place_by(route, &source, post.position);
                    route
                }
            };
            if route == Route::Push {
                push.push(member.slot);
            }
        }
        Applied::published(post, push.into())
    }

    /// Returns the sources to whose followers a post was pushed, if it still exists in memory or in the archive. Used only in a replay.
    pub fn pushed_again(&mut self, position: Position) -> Option<Box<[SourceSlot]>> {
        let known = self.world.posts.stored(position.id).or_else(|| self.archived(position.id));
        match self.complete(known?.live()?) {
            Applied::Published { push, .. } => Some(push),
            _ => None,
        }
    }

    /// Puts a post into an outbox, by the route that applies to its followers now.
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
            Route::Pull => self.insert_pulled(source, position),
        }
        self.backlog.note_size(source);
    }

    /// Restores a post into its outboxes; `route` returns the stored route for its n-th source, or `None` if the post is not placed there.
    pub(super) fn restore_placed(&mut self, post: &Arc<Post>, route: impl Fn(usize) -> Option<Route>) {
        let position = post.position;
        self.world.posts.put(Arc::clone(post));
        self.world.reposts.note(post);
        if post.hidden {
            self.hide_reply(&Affected::of(post), true);
        }
        self.restore_answer(post);
        for (nth, source) in post.sources().iter().enumerate() {
            let source = Arc::clone(self.world.sources.at(source.slot));
            if let Some(route) = route(nth) {
                self.place_by(route, &source, position);
            }
        }
    }

    /// Restores a tombstone. The archive may have been written before the snapshot was complete.
    pub(super) fn restore_tombstone(&mut self, id: PostId) {
        if self.world.posts.get(id).is_some() {
            self.delete(id, None, None, None);
        } else {
            self.world.posts.write_tombstone(id);
            self.world.reposts.forget_id(id, None);
            if self.world.has_archived() {
                self.backlog.note_tombstone(id);
            }
        }
    }

    fn insert_pulled(&self, source: &Source, position: Position) {
        let known_until = self.world.pulled_until(source);
        source.change_outbox(|outbox| outbox.insert(position, Route::Pull));
        if known_until < Some(position) {
            self.world.renew_pulled_epoch();
        }
    }

    /// Returns the route of a post that an outbox has archived, unless the archive is that of a cluster, which has no routes.
    fn archived_route(&mut self, source: &Source, position: Position) -> Option<Route> {
        if self.world.replicated_archive().is_some() {
            return None;
        }
        let routes = [(Part::Pushed, Route::Push), (Part::Pulled, Route::Pull)];
        let is_archived = |part| self.world.is_archived(source, part, position);
        let mut found = routes.into_iter().map(|(part, route)| Ok(is_archived(part)?.then_some(route)));
        let found = found.find_map(Result::transpose).transpose();
        found.unwrap_or_else(|cause| {
            self.replay_failure = Some(cause);
            None
        })
    }

    /// Returns the post or tombstone of an id that is not in memory: as found during validation, or in a replay as archived.
    fn found(&mut self, id: PostId, found: Option<&Arc<Post>>) -> Option<Stored> {
        match found {
            Some(post) => Some(Stored::Live(Arc::clone(post))),
            None => self.archived(id),
        }
    }

    /// Returns, in a replay, the archived post or tombstone of an id. A damaged post counts as absent and is marked to be rewritten: if the
    /// event that published it is replayed too, it becomes whole again. The archive of a cluster is not read. It may be newer than the
    /// replayed events, and has all their posts once these leave memory.
    fn archived(&mut self, id: PostId) -> Option<Stored> {
        if !self.is_replaying || self.world.replicated_archive().is_some() {
            return None;
        }
        // If the replay began before the post was archived, its sources may not be known yet.
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
