//! Push or pull: how the posts of a source reach its followers.

use std::num::NonZeroU64;

use crate::feed::outbox::Route;

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
}

impl CelebrityPolicy {
    /// Returns true if a source with `followers` is a celebrity, given whether it was one before.
    pub fn is_celebrity(self, followers: u64, before: bool) -> bool {
        match self {
            Self::PushAll => false,
            Self::PullAll => true,
            Self::Above(threshold) if before => followers > threshold.get() - threshold.get().div_ceil(5),
            Self::Above(threshold) => followers > threshold.get(),
        }
    }

    /// Returns the route of new posts of a source to the source's followers.
    pub fn route(celebrity: bool) -> Route {
        if celebrity { Route::Pull } else { Route::Push }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_changes_sides_above_the_threshold_and_back_at_eighty_percent() {
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
    fn the_pure_modes_do_not_count() {
        for followers in [0, 1, u64::MAX] {
            assert!(!CelebrityPolicy::PushAll.is_celebrity(followers, true));
            assert!(CelebrityPolicy::PullAll.is_celebrity(followers, false));
        }
    }

    #[test]
    fn the_smallest_threshold_still_has_a_way_back() {
        let policy = CelebrityPolicy::Above(NonZeroU64::MIN);
        assert!(policy.is_celebrity(2, false));
        assert!(policy.is_celebrity(1, true));
        assert!(!policy.is_celebrity(0, true));
    }
}
