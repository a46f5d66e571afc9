//! Ids and times of posts, as those who publish hand them out.
//!
//! Responsible for:
//! - ids as Tidewire mints them, as Snowflake services do, or without any order;
//! - times that grow, for posts of now and for those that are dated back.
//!
//! Not responsible for:
//! - who publishes (`workload`), how far posts lie apart that are there before (`prepare`).

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tidewire::clock::{Clock, SystemClock};

use crate::operation::{Post, User};

/// What ids are like. All designs get the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Ids {
    /// As Tidewire mints them: microseconds, shifted by 12 bits. These it packs best
    Minted,
    /// As a Snowflake service makes them: 41 bits of milliseconds, 10 of the machine, 12 of a count
    #[default]
    Snowflake,
    /// Any number of 63 bits, in no order
    Random,
}

impl Ids {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Minted, Self::Snowflake, Self::Random];

    /// Whether ids are in the order of time.
    pub fn are_in_order(self) -> bool {
        self != Self::Random
    }

    /// What is told of them.
    pub fn told(self) -> &'static str {
        match self {
            Self::Minted => "minted: microseconds, shifted by 12 bits, as Tidewire makes and packs them best",
            Self::Snowflake => "snowflake: milliseconds, one of 16 machines, a count",
            Self::Random => "random: 63 bits in no order",
        }
    }
}

/// Bits of a minted id below the microsecond.
const MINTED_SUB_BITS: u32 = 12;

/// What Snowflake counts milliseconds from: 4 November 2010. Nothing can be dated back further.
const EPOCH_MS: i64 = 1_288_834_974_657;

/// Machines of a service, of the 1,024 that there is room for.
const MACHINES: u64 = 16;

/// Bits of the machine, and of the count on it within a millisecond.
const MACHINE_BITS: u32 = 10;
const COUNT_BITS: u32 = 12;

/// Hands out ids and times of posts: ids once, times growing.
#[derive(Debug)]
pub struct Mint {
    ids: Ids,
    service: Service,
    state: Mutex<State>,
}

/// Who hands out. Ids of different ones are never the same, but for random ones, of which that is as unlikely as can be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Service {
    /// For the posts that are measured.
    Load,
    /// For histories by which answers are checked.
    Check,
}

#[derive(Debug)]
struct State {
    last_us: i64,
    rng: fastrand::Rng,
    /// Of each machine: the last millisecond, and how many ids it has made in that.
    counts: [(i64, u64); MACHINES as usize],
}

impl Default for Mint {
    fn default() -> Self {
        Self::new(Ids::default(), Service::Load, 0)
    }
}

impl Mint {
    /// A mint of such ids. The seed decides what is random about them.
    pub fn new(ids: Ids, service: Service, seed: u64) -> Self {
        let rng = fastrand::Rng::with_seed(seed.wrapping_mul(2).wrapping_add(service as u64));
        let state = State { last_us: i64::MIN, rng, counts: [(0, 0); MACHINES as usize] };
        Self { ids, service, state: Mutex::new(state) }
    }

    /// What its ids are like.
    pub fn ids(&self) -> Ids {
        self.ids
    }

    /// A post by `author` that is published now.
    pub fn post(&self, author: User) -> Post {
        self.post_at(author, SystemClock.now().0)
    }

    /// A post by `author` of this time, in microseconds since 1970, or of a later one if there were posts as late already.
    pub fn post_at(&self, author: User, at_us: i64) -> Post {
        // Nothing panics while it has the lock.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (id, published_at_us) = match self.ids {
            Ids::Minted => {
                let at_us = at_us.max(state.last_us.saturating_add(1));
                (at_us.cast_unsigned() << MINTED_SUB_BITS | self.service as u64, at_us)
            }
            Ids::Snowflake => state.snowflake(at_us / 1_000, self.service),
            // 0 is no id.
            Ids::Random => (state.rng.u64(1..1 << 63), at_us.max(state.last_us.saturating_add(1))),
        };
        state.last_us = published_at_us;
        drop(state);
        Post { id, author, published_at_us, body: body(id) }
    }
}

impl State {
    /// Id and time. The time is the one in the id, which such services take for the time of a post: a millisecond that
    /// several posts may have.
    fn snowflake(&mut self, at_ms: i64, service: Service) -> (u64, i64) {
        let mut at_ms = at_ms.max(self.last_us / 1_000).max(EPOCH_MS);
        loop {
            let machine = self.rng.u64(..MACHINES);
            let (last_ms, count) = &mut self.counts[machine as usize];
            if *last_ms != at_ms {
                (*last_ms, *count) = (at_ms, 0);
            }
            if *count < 1 << COUNT_BITS {
                let machine = machine + MACHINES * service as u64;
                let ms = (at_ms - EPOCH_MS).cast_unsigned();
                let id = ms << (MACHINE_BITS + COUNT_BITS) | machine << COUNT_BITS | *count;
                *count += 1;
                return (id, at_ms * 1_000);
            }
            at_ms += 1;
        }
    }
}

/// A body of a good hundred bytes that names its post, so that no two are the same.
pub fn body(id: u64) -> String {
    format!(
        r#"{{"text":"Post {id} says what a post says on an ordinary day: not much, in a hundred bytes or so of text."}}"#
    )
}

/// Least time between two posts that are dated back: several milliseconds, so that no two have the same.
pub const GAP_MIN: Duration = Duration::from_millis(10);

/// Times of so many posts that are there before, in microseconds since 1970: the oldest first, all before `until_us`, `gap`
/// from one to the next on average, and at least half of that.
///
/// # Errors
/// When the oldest would be before anything can be dated back to.
pub fn dated_back(
    count: usize,
    gap: Duration,
    until_us: i64,
    rng: &mut fastrand::Rng,
) -> Result<impl Iterator<Item = i64>, String> {
    let gap_us = i64::try_from(gap.max(GAP_MIN).as_micros()).unwrap_or(i64::MAX);
    let span_us = gap_us.saturating_mul(i64::try_from(count).unwrap_or(i64::MAX));
    let first_us = until_us.saturating_sub(span_us);
    if first_us < EPOCH_MS * 1_000 {
        return Err(format!("{count} posts, one each {gap:?}, reach back to before 2011: set a shorter --post-gap"));
    }
    let mut rng = rng.fork();
    Ok((0..count as i64).map(move |nth| first_us + nth * gap_us + rng.i64(0..gap_us / 2)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn posts(ids: Ids, service: Service, count: usize) -> Vec<Post> {
        let mint = Mint::new(ids, service, 7);
        (0..count).map(|_| mint.post(1)).collect()
    }

    #[test]
    fn ids_are_handed_out_once_even_when_the_clock_stands() {
        for ids in Ids::ALL {
            let mint = Mint::new(ids, Service::Load, 1);
            let posts: Vec<Post> = (0..100_000).map(|_| mint.post_at(1, 1_760_000_000_000_000)).collect();
            assert_eq!(posts.iter().map(|post| post.id).collect::<HashSet<_>>().len(), posts.len(), "{ids:?}");
            assert!(posts.is_sorted_by_key(|post| post.published_at_us), "{ids:?}");
            assert!(posts.iter().all(|post| (1..1 << 63).contains(&post.id)), "{ids:?}");
        }
    }

    #[test]
    fn ids_in_order_stand_as_their_times_do() {
        for ids in Ids::ALL {
            let mut posts = posts(ids, Service::Load, 10_000);
            posts.sort_by_key(|post| post.id);
            assert_eq!(posts.is_sorted_by_key(|post| post.published_at_us), ids.are_in_order(), "{ids:?}");
        }
    }

    #[test]
    fn a_snowflake_has_its_time_a_machine_and_a_count() {
        let posts = posts(Ids::Snowflake, Service::Check, 2_000);
        for post in &posts {
            assert_eq!((post.id >> 22).cast_signed() + EPOCH_MS, post.published_at_us / 1_000);
            assert!((16..32).contains(&(post.id >> 12 & 0x3FF)), "{:x}", post.id);
        }
        let machines: HashSet<u64> = posts.iter().map(|post| post.id >> 12 & 0x3FF).collect();
        assert_eq!(machines.len(), 16);
    }

    #[test]
    fn services_share_no_ids() {
        for ids in Ids::ALL {
            let at = 1_760_000_000_000_000;
            let of = |service| {
                let mint = Mint::new(ids, service, 3);
                (0..100).map(|nth| mint.post_at(1, at + nth * 1_000).id).collect::<HashSet<_>>()
            };
            assert!(of(Service::Load).is_disjoint(&of(Service::Check)), "{ids:?}");
        }
    }

    #[test]
    fn posts_dated_back_lie_apart_and_end_before_now() {
        let mut rng = fastrand::Rng::with_seed(1);
        let until = 1_760_000_000_000_000;
        let times: Vec<i64> = dated_back(100, Duration::from_secs(60), until, &mut rng).unwrap().collect();
        assert_eq!(times.len(), 100);
        assert!(times.windows(2).all(|pair| (30_000_000..=90_000_000).contains(&(pair[1] - pair[0]))));
        assert!(times[99] < until && times[0] < until - 98 * 60_000_000);
        assert!(dated_back(10_000, Duration::from_secs(86_400), until, &mut rng).is_err());
    }
}
