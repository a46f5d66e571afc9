//! Decides which sources become celebrities, whose posts are pulled, and which stop being celebrities.

use std::sync::atomic::Ordering;

use rustc_hash::FxHashMap;

use crate::clock::UnixMicros;
use crate::feed::celebrity::{Audience, CelebrityPolicy, Costs};
use crate::feed::outbox::Route;
use crate::feed::position::Position;
use crate::feed::post::Post;
use crate::id::SourceSlot;
use crate::state::sources::Source;
use crate::state::world::{StateMachine, World};

/// Maximum number of sources whose route change waits for others: some 2 MB.
const CHANGES_MAX: usize = 65_536;

/// Number of followers from which an audience is estimated: some 5 us of cache misses.
const SAMPLE_MAX: usize = 64;

/// Number of followers if a sample of [`SAMPLE_MAX`] would be expensive relative to the deliveries that it decides about.
const SMALL_SAMPLE_MAX: usize = 8;

/// Number of deliveries since the start, of posts of one source, from which on the larger sample is taken.
const SMALL_DELIVERIES_MAX: f32 = 500.0;

/// A reader with fewer pages than this does not count as active. A page therefore stops counting after seven half-lives, when its reader
/// falls asleep with the default settings.
const ACTIVE_PAGES_MIN: f32 = 1.0 / 128.0;

/// Route changes that each pay for one source. They wait until together they pay for all readers.
#[derive(Debug)]
pub(super) struct DueChanges {
    /// The advantage of each change, in nanoseconds.
    advantages_ns: FxHashMap<SourceSlot, f64>,
    sum_ns: f64,
    made_at: Option<UnixMicros>,
    /// Chooses the posts at which costs are compared.
    random: fastrand::Rng,
}

impl Default for DueChanges {
    fn default() -> Self {
        let random = fastrand::Rng::with_seed(0);
        Self { advantages_ns: FxHashMap::default(), sum_ns: 0.0, made_at: None, random }
    }
}

impl DueChanges {
    /// Stores the advantage of a route change of one source, or removes it if it is not above zero.
    fn note(&mut self, source: SourceSlot, advantage_ns: f64) {
        self.sum_ns -= self.advantages_ns.remove(&source).unwrap_or(0.0);
        if advantage_ns > 0.0 && self.advantages_ns.len() < CHANGES_MAX {
            self.advantages_ns.insert(source, advantage_ns);
            self.sum_ns += advantage_ns;
        }
    }
}

impl World {
    /// Returns the sources to whose followers a known post was pushed.
    pub fn pushed(&self, post: &Post) -> Box<[SourceSlot]> {
        let by_push = |slot: &SourceSlot| self.sources.at(*slot).outbox().was_pushed(post.position);
        post.sources().iter().map(|source| source.slot).filter(by_push).collect()
    }

    /// Returns the route by which a post reaches the followers of one of its sources now.
    pub fn route(&self, source: &Source) -> Route {
        // The pure modes ignore the flag: it is computed when an edge changes, so a source without edges may not have it.
        match self.policy {
            CelebrityPolicy::PullAll => Route::Pull,
            CelebrityPolicy::PushAll => Route::Push,
            CelebrityPolicy::Above(_) | CelebrityPolicy::ByCost(_) => CelebrityPolicy::route(source.is_celebrity()),
        }
    }

    /// Returns the costs of a source by push and by pull, at present rates.
    pub fn costs(&self, source: &Source, now: UnixMicros) -> Costs {
        self.costs_by_sample(source, SAMPLE_MAX, now)
    }

    fn costs_by_sample(&self, source: &Source, sample_max: usize, now: UnixMicros) -> Costs {
        let posts = f64::from(source.posts(now));
        self.policy.cost_model().costs(posts, self.audience(source, sample_max, now))
    }

    /// Estimates the active followers of a source, and their pages, from an even sample. The sample is always the same, so that a decision
    /// does not depend on whether it happens to contain the most active reader.
    fn audience(&self, source: &Source, sample_max: usize, now: UnixMicros) -> Audience {
        let (count, sample) = {
            let followers = source.followers();
            (followers.len(), followers.sample(sample_max, self.sharding))
        };
        let scale = count as f64 / sample.len().max(1) as f64;
        let pages = sample.iter().map(|slot| self.sources.at(*slot).pages(now));
        let of_active = pages.filter(|pages| *pages >= ACTIVE_PAGES_MIN);
        let add =
            |so_far: Audience, pages| Audience { active: so_far.active + 1.0, pages: so_far.pages + f64::from(pages) };
        let sum = of_active.fold(Audience::default(), add);
        Audience { active: sum.active * scale, pages: sum.pages * scale }
    }

    /// Returns the position above which a source has no posts to pull until the pulled epoch changes; `None` if it has no posts to pull at
    /// all.
    pub fn pulled_until(&self, source: &Source) -> Option<Position> {
        // The flag is read before the outbox: once it is cleared, the outbox has all posts that were left to be pulled.
        let is_celebrity = source.is_celebrity();
        let newest = source.outbox().newest_left_to_pull();
        match self.policy {
            CelebrityPolicy::PushAll => newest,
            CelebrityPolicy::PullAll => newest.map(|_| Position::MAX),
            CelebrityPolicy::Above(_) | CelebrityPolicy::ByCost(_) if is_celebrity => Some(Position::MAX),
            CelebrityPolicy::Above(_) | CelebrityPolicy::ByCost(_) => newest,
        }
    }
}

impl StateMachine {
    /// Decides again which sources are celebrities, after all edges are restored: the threshold may have changed since
    /// they were stored.
    pub fn update_celebrities(&mut self) {
        for source in self.world.sources.iter() {
            let followers = source.followers().len();
            self.update_celebrity(source, followers);
        }
    }

    /// Decides again if a source with this number of followers is a celebrity.
    pub(super) fn update_celebrity(&self, source: &Source, followers: u64) {
        let before = source.is_celebrity();
        let after = self.world.policy.is_celebrity(followers, before);
        if before != after {
            source.celebrity.store(after, Ordering::Release);
            // Lists of sources with posts to pull store the newest position to pull of this source.
            self.world.renew_pulled_epoch();
        }
    }

    /// Counts a new post of a source, and decides by cost whether the source is a celebrity from now on. Does nothing in a replay: its
    /// posts are of an earlier process, whose page counts are not known.
    pub(super) fn note_post(&mut self, source: &Source, now: UnixMicros) {
        if self.is_replaying {
            return;
        }
        source.note_post(now);
        let CelebrityPolicy::ByCost(model) = self.world.policy else { return };
        let is_celebrity = source.is_celebrity();
        // Random, because posts come in patterns.
        if self.due_changes.random.u32(0..model.posts_per_comparison(is_celebrity)) == 0 {
            let is_small = source.posts(now) * source.followers().len() as f32 <= SMALL_DELIVERIES_MAX;
            let sample_max = if is_small { SMALL_SAMPLE_MAX } else { SAMPLE_MAX };
            let costs = self.world.costs_by_sample(source, sample_max, now);
            self.due_changes.note(source.slot, model.advantage_ns(costs, is_celebrity));
        }
        let due = &self.due_changes;
        // A clock that stepped back must not stop the changes.
        let is_time = due.made_at.is_none_or(|at| now < at || now >= at.saturating_add(model.change_period));
        if is_time && due.sum_ns > model.change_ns(self.world.edges()) {
            self.change_routes(now);
        }
    }

    fn change_routes(&mut self, now: UnixMicros) {
        let due = &mut self.due_changes;
        (due.sum_ns, due.made_at) = (0.0, Some(now));
        for source in std::mem::take(&mut due.advantages_ns).into_keys().map(|slot| self.world.sources.at(slot)) {
            source.celebrity.store(!source.is_celebrity(), Ordering::Release);
        }
        // Done once for all of them, because all readers then search their followed sources again.
        self.world.renew_pulled_epoch();
    }
}
