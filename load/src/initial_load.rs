//! The users, edges and posts that all designs are loaded with before they are measured.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use tidewire::clock::{Clock, SystemClock};

use crate::mint::{Ids, Mint, Service, dated_back};
use crate::operation::{Post, User};
use crate::target::kind::Settings;
use crate::world::World;

/// Up to this number of sources per reader, the default limit of Tidewire is sufficient.
const FOLLOWING_USUAL: usize = 2_500;

/// How far the limit is raised above the largest number of sources in the world, for mixes with follows.
const FOLLOWS_MORE: usize = 100_000;

/// The initial data that all designs are loaded with.
#[derive(Clone, Debug)]
pub struct Load {
    /// The users and their edges.
    pub world: Arc<World>,
    /// The posts that are published before any reader is active, by author, oldest first.
    pub posts: Arc<BTreeMap<User, Vec<Post>>>,
    /// Creates the posts of the runs.
    pub mint: Arc<Mint>,
    /// Number of posts in an inbox.
    pub inbox_posts: usize,
    /// Readers who have a live connection during the measurement.
    pub online: Arc<[User]>,
}

/// How posts are created.
#[derive(Clone, Copy, Debug)]
pub struct Posts {
    /// The kind of their ids.
    pub ids: Ids,
    /// Average time between two posts of the initial load.
    pub gap: Duration,
    /// The seed of the random parts.
    pub seed: u64,
}

impl Load {
    /// Creates a load with enough backdated posts to fill the inboxes of most readers.
    ///
    /// # Errors
    /// If the oldest post would be dated before the epoch of the ids.
    pub fn new(world: World, inbox_posts: usize, posts: &Posts) -> Result<Self, String> {
        // 10 % more posts than fill the inboxes on average. The distribution is random, so some inboxes are still not full.
        let wanted = world.users() as f64 * inbox_posts as f64 * 1.1 / world.mean_followers().max(1.0);
        let rounds = ((wanted / world.authors.len().max(1) as f64).ceil() as usize).max(1);
        let mint = Mint::new(posts.ids, Service::Load, posts.seed);
        let mut rng = fastrand::Rng::with_seed(posts.seed);
        let times = dated_back(rounds * world.authors.len(), posts.gap, SystemClock.now().0, &mut rng)?;
        let mut by_author: BTreeMap<User, Vec<Post>> = BTreeMap::new();
        for (author, at_us) in world.authors.iter().cycle().zip(times) {
            by_author.entry(*author).or_default().push(mint.post_at(*author, at_us));
        }
        Ok(Self {
            world: Arc::new(world),
            posts: Arc::new(by_author),
            mint: Arc::new(mint),
            inbox_posts,
            online: Arc::default(),
        })
    }

    /// Returns the same load with a random share (0 to 1) of the active readers online.
    #[must_use]
    pub fn with_online(self, share: f64, seed: u64) -> Self {
        let count = (self.world.active.len() as f64 * share).round() as usize;
        let online = fastrand::Rng::with_seed(seed).choose_multiple(self.world.active.iter().copied(), count);
        Self { online: online.into(), ..self }
    }

    /// Returns the number of cores that clients may use: one for each of their threads, and one for readers online.
    pub fn client_cores(&self, threads: NonZeroUsize) -> f64 {
        threads.get() as f64 + if self.online.is_empty() { 0.0 } else { 1.0 }
    }

    /// Returns the settings of the designs for this world.
    pub fn settings(&self, settings: &Settings) -> Settings {
        let most = self.world.most_following();
        let following_max = (most > FOLLOWING_USUAL).then(|| most + FOLLOWS_MORE);
        Settings { ids: self.mint.ids(), following_max, ..settings.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::generated::Recipe;

    fn world() -> World {
        let recipe = Recipe {
            users: 400,
            authors: 40,
            mean_followers: 100,
            most_followers: 200,
            exponent: 0.5,
            active_share: 1.0,
            seed: 1,
        };
        recipe.make()
    }

    fn posts(gap: Duration) -> Posts {
        Posts { ids: Ids::Snowflake, gap, seed: 1 }
    }

    #[test]
    fn most_inboxes_are_filled_with_old_posts() {
        let load = Load::new(world(), 50, &posts(Duration::from_secs(60))).unwrap();
        let of = |user: &User| load.posts.get(user).map_or(0, Vec::len);
        let in_feed = |reader: &User| of(reader) + load.world.following.of(*reader).iter().map(of).sum::<usize>();
        let full = load.world.active.iter().filter(|reader| in_feed(reader) >= 50).count();
        assert!(full >= 240, "{full} of 400");
        assert_eq!(load.posts.len(), 40);
        let mut times: Vec<i64> = load.posts.values().flatten().map(|post| post.published_at_us).collect();
        assert!(load.posts.values().all(|theirs| theirs.is_sorted_by_key(Post::position)));
        times.sort_unstable();
        // Posts are a minute apart on average, and posts published now are newer than all of them.
        let span = times[times.len() - 1] - times[0];
        assert!((span / 60_000_000).abs_diff(times.len() as i64) <= 2, "{span}");
        assert!(load.mint.post(0).published_at_us > times[times.len() - 1]);
    }

    #[test]
    fn posts_that_would_be_dated_back_too_far_are_refused() {
        let refused = Load::new(world(), 300, &posts(Duration::from_secs(365 * 86_400))).unwrap_err();
        assert!(refused.contains("set a shorter --post-gap"), "{refused}");
    }

    #[test]
    fn only_worlds_with_long_follow_lists_raise_the_default_limit() {
        let mut load = Load::new(world(), 50, &posts(Duration::from_secs(1))).unwrap();
        assert_eq!(load.settings(&Settings::default()).following_max, None);
        let edges: Vec<(User, User)> = (1..6_001).map(|source| (0, source)).collect();
        load.world = Arc::new(World::new(6_001, &edges, 1.0, &mut fastrand::Rng::with_seed(1)));
        let settings = load.settings(&Settings::default());
        assert_eq!((settings.following_max, settings.ids), (Some(106_000), Ids::Snowflake));
    }
}
