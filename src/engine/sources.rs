//! The engine's interface for facts about a source.

use crate::clock::UnixMicros;
use crate::engine::Engine;
use crate::error::Error;
use crate::feed::celebrity::RouteBasis;
use crate::feed::outbox::Route;
use crate::id::SourceId;
use crate::state::sources::Source;

/// The public facts about a source.
#[derive(Clone, Debug)]
pub struct SourceInfo {
    /// The id of the source.
    pub id: SourceId,
    /// The number of visible followers.
    pub followers: usize,
    /// The number of visible followed sources.
    pub following: usize,
    /// The number of posts in its outbox.
    pub posts: usize,
    /// True if followers pull its posts on read, instead of fan-out pushing them.
    pub celebrity: bool,
    /// The cost of its posts by either route.
    pub cost: RouteCost,
    /// True if the source is awake.
    pub active: bool,
    /// The time at which it last read its feed.
    pub last_seen: Option<UnixMicros>,
}

/// The cost of a source's posts by either route, at current rates, in microseconds of processor time per hour. The
/// rates are measured since the start of the process.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RouteCost {
    /// The cost of pushing its posts to the followers that have inboxes.
    pub push_us_per_hour: f64,
    /// The cost of pulling its posts for each page of a follower.
    pub pull_us_per_hour: f64,
    /// The basis on which its route is chosen. The costs matter only for [`RouteBasis::Cost`].
    pub decided_by: RouteBasis,
}

impl Engine {
    /// Returns the public facts about a source.
    ///
    /// # Errors
    /// Fails if the source is unknown.
    pub fn source(&self, id: &SourceId) -> Result<SourceInfo, Error> {
        let source = self.inner.shared.world.sources.get(id).ok_or_else(|| Error::UnknownSource(id.clone()))?;
        Ok(self.source_info(&source))
    }

    pub(super) fn source_info(&self, source: &Source) -> SourceInfo {
        let shared = &self.inner.shared;
        let (followers, posts) = (source.followers().visible_len(), source.outbox().len());
        SourceInfo {
            id: source.id.clone(),
            followers,
            following: source.following().visible_len(),
            posts,
            celebrity: shared.world.route(source) == Route::Pull,
            cost: self.route_cost(source),
            active: shared.directory.is_active(source.slot),
            last_seen: source.last_seen(),
        }
    }

    /// Returns the cost of a source's posts by either route.
    fn route_cost(&self, source: &Source) -> RouteCost {
        let shared = self.shared();
        let costs = shared.world.costs(source, shared.clock.now());
        let (push_us_per_hour, pull_us_per_hour) = costs.us_per_hour();
        RouteCost { push_us_per_hour, pull_us_per_hour, decided_by: shared.config.celebrity.basis() }
    }
}
