//! Generates a world by a power law: a few authors have many followers, many have few.

use crate::operation::User;
use crate::world::World;

/// The parameters of a generated world.
#[derive(Clone, PartialEq, Debug)]
pub struct Recipe {
    /// Number of users.
    pub users: usize,
    /// Number of users who publish.
    pub authors: usize,
    /// Average number of followers of an author.
    pub mean_followers: usize,
    /// Maximum number of followers of an author.
    pub most_followers: usize,
    /// The n-th author has a share of followers proportional to n^(-exponent).
    pub exponent: f64,
    /// Share of the users that are active, 0 to 1.
    pub active_share: f64,
    /// The random seed. The same seed gives the same world.
    pub seed: u64,
}

impl Recipe {
    /// Generates the world. The followers of each author are spread over all users.
    pub fn make(&self) -> World {
        let mut rng = fastrand::Rng::with_seed(self.seed);
        let counts = self.follower_counts();
        let mut edges = Vec::with_capacity(counts.iter().sum());
        for (author, count) in counts.into_iter().enumerate() {
            let author = author as User;
            edges.extend(others(self.users, author, count, &mut rng).map(|follower| (follower, author)));
        }
        World::new(self.users, &edges, self.active_share, &mut rng)
    }

    /// Returns the number of followers of each author, in descending order. The scale is chosen by bisection so that the mean is correct
    /// although the counts are limited.
    fn follower_counts(&self) -> Vec<usize> {
        let authors = self.authors.clamp(1, self.users);
        let most = self.most_followers.clamp(1, self.users.saturating_sub(1).max(1));
        let share = |nth: usize| ((nth + 1) as f64).powf(-self.exponent);
        let counts = |scale: f64| (0..authors).map(move |nth| ((share(nth) * scale) as usize).clamp(1, most));
        let wanted = authors * self.mean_followers.clamp(1, most);
        let (mut low, mut high) = (0.0, wanted as f64 * (authors as f64).powf(self.exponent) + 1.0);
        for _ in 0..64 {
            let middle = (low + high) / 2.0;
            if counts(middle).sum::<usize>() < wanted { low = middle } else { high = middle }
        }
        counts(high).collect()
    }
}

/// Returns `count` different users other than `user`, spread over all users.
fn others(users: usize, user: User, count: usize, rng: &mut fastrand::Rng) -> impl Iterator<Item = User> + use<> {
    let others = users - 1;
    let start = rng.usize(..others.max(1));
    let mut stride = rng.usize(1..=others.max(1));
    while others > 1 && divisor(stride, others) > 1 {
        stride = stride % others + 1;
    }
    // A stride that is coprime to the number of users visits every user before it repeats one.
    (0..count.min(others)).map(move |nth| {
        let other = ((start as u64 + nth as u64 * stride as u64) % others as u64) as User;
        other + User::from(other >= user)
    })
}

fn divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn recipe() -> Recipe {
        Recipe {
            users: 2_000,
            authors: 100,
            mean_followers: 120,
            most_followers: 440,
            exponent: 0.8,
            active_share: 0.25,
            seed: 7,
        }
    }

    #[test]
    fn the_mean_and_the_maximum_are_as_requested() {
        let world = recipe().make();
        assert_eq!((world.users(), world.authors.len(), world.active.len()), (2_000, 100, 500));
        assert!((119.0..=121.0).contains(&world.mean_followers()), "{}", world.mean_followers());
        assert_eq!(world.most_followers(), 440);
    }

    #[test]
    fn users_follow_neither_twice_nor_themselves() {
        let edges = recipe().make().edges();
        assert_eq!(edges.iter().collect::<HashSet<_>>().len(), edges.len());
        assert!(edges.iter().all(|(follower, source)| follower != source));
    }

    #[test]
    fn the_seed_determines_the_edges() {
        assert_eq!(recipe().make(), recipe().make());
        assert_ne!(Recipe { seed: 8, ..recipe() }.make(), recipe().make());
    }

    #[test]
    fn the_smallest_worlds_can_be_generated() {
        for users in 1..5 {
            let world = Recipe { users, authors: 3, mean_followers: 9, ..recipe() }.make();
            assert_eq!(world.users(), users);
            assert!(world.most_followers() < users.max(1));
        }
    }
}
