//! The engine's interface for the fan-out and the reposts of one post.

use std::cmp::Reverse;
use std::sync::Arc;

use crate::engine::Engine;
use crate::error::Error;
use crate::feed::celebrity::RouteBasis;
use crate::feed::outbox::Route;
use crate::feed::position::Position;
use crate::feed::post::Post;
use crate::id::{PostId, SourceId};
use crate::limits::{REPOSTS_EXAMINED_MAX, REPOSTS_LISTED_MAX};
use crate::runtime::fanout::records::{Deliveries, FanoutRecord, SourceReach};

/// The fan-out and the reposts of one post.
#[derive(Clone, Debug)]
pub struct PostFanout {
    /// The post itself.
    pub post: Arc<Post>,
    /// The progress of its fan-out. `None` if the record was dropped, or the post is older than the process.
    pub progress: Option<FanoutProgress>,
    /// The basis on which the routes of sources are chosen.
    pub decided_by: RouteBasis,
    /// The reposts of the post.
    pub reposts: Reposters,
}

/// The progress of the fan-out of one post.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FanoutProgress {
    /// The sources of the post: author, tags, topic, replies.
    pub sources: Vec<PostSource>,
    /// The deliveries so far. All zero for a post that no source pushes.
    pub deliveries: Deliveries,
}

/// The state of the fan-out of a post.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FanoutState {
    /// No source pushes the post: nothing is delivered.
    Pulled,
    /// Its deliveries have not begun.
    Queued,
    /// Some of its deliveries are confirmed, or on their way.
    Delivering,
    /// All of its deliveries are confirmed.
    Delivered,
}

/// The numbers of followers that a post reached, over the sources that push it. A follower of several sources counts
/// once for each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reached {
    /// The number of these followers that had an inbox.
    pub awake: u64,
    /// The number of inboxes to which the post was added.
    pub added: u64,
    /// The number of inboxes that had the post already.
    pub already_there: u64,
    /// The number of these followers that were asleep.
    pub asleep: u64,
}

impl FanoutProgress {
    /// Returns the state of the fan-out.
    pub fn state(&self) -> FanoutState {
        match self.deliveries {
            _ if self.sources.iter().all(|source| source.route == Route::Pull) => FanoutState::Pulled,
            Deliveries { finished: Some(_), .. } => FanoutState::Delivered,
            Deliveries { started: Some(_), .. } => FanoutState::Delivering,
            _ => FanoutState::Queued,
        }
    }

    /// Returns the number of followers that the post reaches by this route.
    pub fn followers(&self, route: Route) -> u64 {
        self.sources.iter().filter(|source| source.route == route).map(|source| source.followers).sum()
    }

    /// Returns the numbers of followers that the post reached. `None` until all deliveries are confirmed, since they
    /// still change.
    pub fn reached(&self) -> Option<Reached> {
        let is_final = matches!(self.state(), FanoutState::Pulled | FanoutState::Delivered);
        let Deliveries { awake, added, .. } = self.deliveries;
        is_final.then(|| Reached {
            awake,
            added,
            already_there: awake.saturating_sub(added),
            asleep: self.followers(Route::Push).saturating_sub(awake),
        })
    }
}

/// One source of a post when the post was accepted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PostSource {
    /// The author, a tag or the topic.
    pub id: SourceId,
    /// The way by which the post reaches the followers of this source.
    pub route: Route,
    /// The number of these followers.
    pub followers: u64,
}

/// Some of the reposts of a post.
#[derive(Clone, Debug, Default)]
pub struct Reposters {
    /// The number of reposts among those that were examined.
    pub count: usize,
    /// True if all reposts were examined.
    pub complete: bool,
    /// The newest of them, at most [`REPOSTS_LISTED_MAX`], newest first.
    pub newest: Vec<Reposter>,
}

/// One repost of a post.
#[derive(Clone, Debug)]
pub struct Reposter {
    /// The author of the repost.
    pub user: SourceId,
    /// The repost itself.
    pub at: Position,
    /// True if it is hidden from feeds.
    pub hidden: bool,
}

impl Engine {
    /// Returns the fan-out and the reposts of a post. Numbers of readers cover this process only.
    ///
    /// # Errors
    /// Fails if there is no such post, or the archive cannot be read.
    pub async fn fanout(&self, id: PostId) -> Result<PostFanout, Error> {
        let post = self.post(id).await?;
        let shared = self.shared();
        let named = |reach: &SourceReach| PostSource {
            id: shared.world.sources.at(reach.source).id.clone(),
            route: reach.route,
            followers: u64::from(reach.followers),
        };
        let progress = |record: FanoutRecord| FanoutProgress {
            sources: record.sources.iter().map(named).collect(),
            deliveries: record.deliveries,
        };
        let progress = shared.fanout_records.of(id).map(progress);
        Ok(PostFanout { post, progress, decided_by: shared.config.celebrity.basis(), reposts: self.reposters(id) })
    }

    fn reposters(&self, id: PostId) -> Reposters {
        let world = &self.shared().world;
        let Some(reposts) = world.reposts.of(id) else { return Reposters { complete: true, ..Reposters::default() } };
        let (complete, mut found) = {
            let reposts = reposts.read();
            // A repost with tags has an entry for each of them, too.
            let examined = reposts.iter().take(REPOSTS_EXAMINED_MAX).filter(|repost| repost.source == repost.author);
            let found: Vec<_> =
                examined.map(|repost| (repost.at, repost.author, reposts.is_hidden(repost.at))).collect();
            (reposts.len() <= REPOSTS_EXAMINED_MAX, found)
        };
        found.retain(|(_, author, _)| !world.sources.is_erased(*author));
        found.sort_unstable_by_key(|(at, ..)| Reverse(*at));
        let count = found.len();
        found.truncate(REPOSTS_LISTED_MAX);
        let named = |(at, author, hidden)| Reposter { user: world.sources.at(author).id.clone(), at, hidden };
        Reposters { count, complete, newest: found.into_iter().map(named).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn progress(routes: &[(Route, u64)], deliveries: Deliveries) -> FanoutProgress {
        let source = |(route, followers): &(Route, u64)| PostSource {
            id: SourceId::new("ann").unwrap(),
            route: *route,
            followers: *followers,
        };
        FanoutProgress { sources: routes.iter().map(source).collect(), deliveries }
    }

    #[test]
    fn figures_of_a_fan_out_are_reported_when_they_are_final() {
        let both = [(Route::Push, 7), (Route::Pull, 1_000)];
        let instant = Some(Duration::from_millis(1));
        let begun = Deliveries { started: instant, awake: 3, added: 1, ..Deliveries::default() };
        let ended = Deliveries { finished: instant, awake: 5, added: 4, ..begun };
        let whole = Reached { awake: 5, added: 4, already_there: 1, asleep: 2 };
        let none = Reached { awake: 0, added: 0, already_there: 0, asleep: 0 };
        for (routes, deliveries, state, reached) in [
            (&both[..], Deliveries::default(), FanoutState::Queued, None),
            (&both, begun, FanoutState::Delivering, None),
            (&both, ended, FanoutState::Delivered, Some(whole)),
            (&both[1..], Deliveries::default(), FanoutState::Pulled, Some(none)),
        ] {
            let progress = progress(routes, deliveries);
            assert_eq!((progress.state(), progress.reached()), (state, reached), "{progress:?}");
            assert_eq!(progress.followers(Route::Pull), 1_000);
        }
    }
}
