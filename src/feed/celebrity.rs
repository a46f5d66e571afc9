//! Push or pull: how the posts of a source reach its followers.
//!
//! The cost model is that of Silberstein, Terrace, Cooper and Ramakrishnan, "Feeding Frenzy: Selectively Materializing Users' Event Feeds"
//! (SIGMOD 2010). It pushes posts that are read more often than they are published, weighted with the cost of one delivery and of one pull.
//! The paper decides for each pair of source and reader; here one decision holds for all followers of a source.

use std::num::NonZeroU64;
use std::time::Duration;

use crate::feed::decaying::HALF_LIFE;
use crate::feed::outbox::Route;

/// Minimum number of edges from which the cost of a route change is computed. With fewer, the first posts and pages would decide the route,
/// although less than a millisecond depends on it.
const EDGES_MIN: usize = 10_000;

/// Decides which sources are celebrities, whose posts are pulled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CelebrityPolicy {
    /// No source is a celebrity: every post is pushed.
    PushAll,
    /// Every source is a celebrity: every post is pulled.
    PullAll,
    /// A source becomes a celebrity with more followers than this, and stops being one when it has fallen to 80 % of it. Without that
    /// hysteresis, a source near the threshold would change its route with every follower.
    Above(NonZeroU64),
    /// A source is a celebrity if pulling its posts takes less processor time than pushing them, at the rates at which it publishes and its
    /// followers read.
    ByCost(CostModel),
}

impl CelebrityPolicy {
    /// Returns true if a source with `followers` is a celebrity. `before` is true if it was one before; [`CelebrityPolicy::ByCost`] returns
    /// it unchanged, because the number of followers does not decide there.
    pub fn is_celebrity(self, followers: u64, before: bool) -> bool {
        match self {
            Self::PushAll => false,
            Self::PullAll => true,
            Self::Above(threshold) if before => followers > threshold.get() - threshold.get().div_ceil(5),
            Self::Above(threshold) => followers > threshold.get(),
            Self::ByCost(_) => before,
        }
    }

    /// Returns the route of new posts of a source to the source's followers.
    pub fn route(celebrity: bool) -> Route {
        if celebrity { Route::Pull } else { Route::Push }
    }

    /// Returns the basis on which the route of a source is decided.
    pub fn basis(self) -> RouteBasis {
        match self {
            Self::PushAll | Self::PullAll => RouteBasis::Setting,
            Self::Above(_) => RouteBasis::Followers,
            Self::ByCost(_) => RouteBasis::Cost,
        }
    }

    /// Returns the model by which costs are computed, even if the policy does not decide by cost.
    pub fn cost_model(self) -> CostModel {
        match self {
            Self::ByCost(model) => model,
            Self::PushAll | Self::PullAll | Self::Above(_) => CostModel::default(),
        }
    }
}

/// The basis on which the route of a source is decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RouteBasis {
    /// The setting: it is the same for all sources.
    Setting,
    /// The number of followers.
    Followers,
    /// The processor time that each route takes.
    Cost,
}

/// The processor time of the operations of push and pull, and the conditions of a route change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CostModel {
    /// The cost of a delivery, in nanoseconds.
    pub delivery_ns: u64,
    /// The cost of the fan-out of a post besides its deliveries, in nanoseconds.
    pub fanout_ns: u64,
    /// The cost of a pulled source in a page, in nanoseconds.
    pub pull_ns: u64,
    /// The cost of a route change for each edge, in nanoseconds: every reader searches its followed sources again for those with posts to
    /// pull.
    pub refresh_ns: u64,
    /// The cost of the current route from which a source changes its route, in percent of the cost of the other route. Without that
    /// hysteresis, a source with equal costs would change its route again and again.
    pub advantage_percent: u64,
    /// The average number of posts of a pulled source between two comparisons of costs. For a pushed source, it is an eighth.
    pub posts_per_comparison: u32,
    /// Minimum time between route changes. All changes that are due are made together.
    pub change_period: Duration,
}

/// The default costs were measured with `cargo bench --bench push_or_pull -- costs`. The refresh reads the same memory as a pull.
impl Default for CostModel {
    fn default() -> Self {
        Self {
            delivery_ns: 270,
            fanout_ns: 2_000,
            pull_ns: 90,
            refresh_ns: 90,
            advantage_percent: 150,
            posts_per_comparison: 16,
            change_period: Duration::from_secs(1),
        }
    }
}

/// The followers of a source that have inboxes, estimated from a sample.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Audience {
    /// The number of active followers.
    pub active: f64,
    /// The decaying count of the pages that they read.
    pub pages: f64,
}

/// The cost of a source by each route, in nanoseconds of processor time, for the posts and pages in its decaying counts.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Costs {
    /// The cost of pushing its posts.
    pub push_ns: f64,
    /// The cost of pulling its posts.
    pub pull_ns: f64,
}

impl CostModel {
    /// Returns the costs of a source for a decaying count of posts. The counts of posts and pages begin together and decay alike, so their
    /// ratio is the ratio of the rates from the first page on.
    pub fn costs(self, posts: f64, audience: Audience) -> Costs {
        let per_post = self.fanout_ns as f64 + audience.active * self.delivery_ns as f64;
        // Without active followers, the fan-out ends at once.
        let per_post = if audience.active > 0.0 { per_post } else { 0.0 };
        Costs { push_ns: posts * per_post, pull_ns: audience.pages * self.pull_ns as f64 }
    }

    /// Returns the cost of the current route less the cost of the other one with the required advantage, in nanoseconds. A change pays if
    /// the result is above zero.
    pub fn advantage_ns(self, costs: Costs, is_celebrity: bool) -> f64 {
        let Costs { push_ns, pull_ns } = costs;
        let (present, other) = if is_celebrity { (pull_ns, push_ns) } else { (push_ns, pull_ns) };
        present - other * self.advantage_percent as f64 / 100.0
    }

    /// Returns the cost of a route change, after which all readers search their followed sources, `edges` in total.
    pub fn change_ns(self, edges: usize) -> f64 {
        edges.max(EDGES_MIN) as f64 * self.refresh_ns as f64
    }

    /// Returns the average number of posts of a source between two comparisons. A comparison is expensive relative to the post of a pulled
    /// source, and cheap relative to deliveries.
    pub fn posts_per_comparison(self, is_celebrity: bool) -> u32 {
        if is_celebrity { self.posts_per_comparison.max(1) } else { self.posts_per_comparison.div_ceil(8).max(1) }
    }
}

impl Costs {
    /// Returns the costs per hour, in microseconds: by push and by pull.
    pub fn us_per_hour(self) -> (f64, f64) {
        let half_life_hours = HALF_LIFE.as_secs_f64() / 3_600.0;
        let to_us = std::f64::consts::LN_2 / half_life_hours / 1_000.0;
        (self.push_ns * to_us, self.pull_ns * to_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_pulled_above_the_threshold_and_pushed_again_at_eighty_percent() {
        let policy = CelebrityPolicy::Above(NonZeroU64::new(10).unwrap());
        let mut celebrity = false;
        let sides: Vec<bool> = [9, 10, 11, 10, 9, 8, 9, 10, 11]
            .map(|followers| {
                celebrity = policy.is_celebrity(followers, celebrity);
                celebrity
            })
            .into();
        assert_eq!(sides, [false, false, true, true, true, false, false, false, true]);
    }

    #[test]
    fn the_pure_modes_ignore_follower_counts() {
        for followers in [0, 1, u64::MAX] {
            assert!(!CelebrityPolicy::PushAll.is_celebrity(followers, true));
            assert!(CelebrityPolicy::PullAll.is_celebrity(followers, false));
        }
    }

    #[test]
    fn the_smallest_threshold_can_still_be_undercut() {
        let policy = CelebrityPolicy::Above(NonZeroU64::MIN);
        assert!(policy.is_celebrity(2, false));
        assert!(policy.is_celebrity(1, true));
        assert!(!policy.is_celebrity(0, true));
    }

    #[test]
    fn follower_counts_do_not_change_the_route_of_a_cost_based_source() {
        let policy = CelebrityPolicy::ByCost(CostModel::default());
        for before in [false, true] {
            assert_eq!([0, 1, u64::MAX].map(|followers| policy.is_celebrity(followers, before)), [before; 3]);
        }
    }

    const MODEL: CostModel = CostModel {
        delivery_ns: 200,
        fanout_ns: 1_000,
        pull_ns: 100,
        refresh_ns: 50,
        advantage_percent: 150,
        posts_per_comparison: 16,
        change_period: Duration::ZERO,
    };

    #[test]
    fn the_route_changes_if_the_other_one_costs_a_third_less() {
        for (push_ns, pull_ns, pays) in [
            (300.0, 100.0, [true, false]),
            (100.0, 300.0, [false, true]),
            (290.0, 200.0, [false, false]),
            (200.0, 290.0, [false, false]),
            (1.0, 0.0, [true, false]),
            (0.0, 1.0, [false, true]),
            (0.0, 0.0, [false, false]),
        ] {
            let costs = Costs { push_ns, pull_ns };
            let found = [false, true].map(|is_celebrity| MODEL.advantage_ns(costs, is_celebrity) > 0.0);
            assert_eq!(found, pays, "of pushing for {push_ns} and pulling for {pull_ns}");
        }
        assert_eq!(MODEL.advantage_ns(Costs { push_ns: 500.0, pull_ns: 200.0 }, false), 200.0);
        assert_eq!([3, EDGES_MIN, 1_000_000].map(|edges| MODEL.change_ns(edges)), [500_000.0, 500_000.0, 50_000_000.0]);
    }

    #[test]
    fn costs_cover_all_deliveries_and_all_pages() {
        let costs = MODEL.costs(10.0, Audience { active: 1_000.0, pages: 5_000.0 });
        assert_eq!(costs, Costs { push_ns: 10.0 * 201_000.0, pull_ns: 500_000.0 });
        assert_eq!(MODEL.costs(10.0, Audience::default()), Costs::default(), "nobody reads");
        let (push_us, pull_us) = costs.us_per_hour();
        assert!((push_us - 2_010.0 * 0.028_881).abs() < 0.01 && (pull_us - 500.0 * 0.028_881).abs() < 0.01);
    }

    #[test]
    fn costs_are_compared_more_often_while_posts_are_pushed() {
        let every = |posts_per_comparison| CostModel { posts_per_comparison, ..MODEL };
        let both = |posts| [false, true].map(|is_celebrity| every(posts).posts_per_comparison(is_celebrity));
        assert_eq!([16, 1, 0].map(both), [[2, 16], [1, 1], [1, 1]]);
    }
}
