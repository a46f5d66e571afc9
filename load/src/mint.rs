//! Creates ids and times of posts.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tidewire::clock::{Clock, SystemClock};

use crate::operation::{Post, User};

/// The kind of post ids. All designs get the same ids.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Ids {
    /// As Tidewire mints them: microseconds, shifted by 12 bits. Tidewire packs these best
    Minted,
    /// As a Snowflake service makes them: 41 bits of milliseconds, 10 bits of the machine, a counter of 12 bits
    #[default]
    Snowflake,
    /// Random numbers of 63 bits
    Random,
}

impl Ids {
    /// All kinds of ids.
    pub const ALL: [Self; 3] = [Self::Minted, Self::Snowflake, Self::Random];

    /// Returns true if ids are ordered by time.
    pub fn are_in_order(self) -> bool {
        self != Self::Random
    }

    /// Returns a description for the report.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Minted => "minted: microseconds, shifted by 12 bits, as Tidewire makes and packs them best",
            Self::Snowflake => "snowflake: milliseconds, one of 16 machines, a count",
            Self::Random => "random: 63 bits in no order",
        }
    }
}

/// Number of bits of a minted id below the microsecond.
const MINTED_SUB_BITS: u32 = 12;

/// The epoch of Snowflake timestamps: 4 November 2010. No post can be dated before it.
const EPOCH_MS: i64 = 1_288_834_974_657;

/// Number of machines of a service, of at most 1,024.
const MACHINES: u64 = 16;

/// Number of bits of the machine number. A counter of `COUNT_BITS` bits within a millisecond follows it.
const MACHINE_BITS: u32 = 10;
const COUNT_BITS: u32 = 12;

/// Creates unique ids and increasing times of posts.
#[derive(Debug)]
pub struct Mint {
    ids: Ids,
    service: Service,
    state: Mutex<State>,
}

/// The service that creates the ids. Ids of different services never collide; for random ids a collision is only extremely unlikely.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Service {
    /// The service for the posts of measurements.
    Load,
    /// The service for the histories that check answers.
    Check,
}

#[derive(Debug)]
struct State {
    last_us: i64,
    rng: fastrand::Rng,
    /// For each machine: the last millisecond, and the number of ids created in it.
    counts: [(i64, u64); MACHINES as usize],
}

impl Default for Mint {
    fn default() -> Self {
        Self::new(Ids::default(), Service::Load, 0)
    }
}

impl Mint {
    /// Creates a mint for this kind of ids. The seed determines the random parts.
    pub fn new(ids: Ids, service: Service, seed: u64) -> Self {
        let rng = fastrand::Rng::with_seed(seed.wrapping_mul(2).wrapping_add(service as u64));
        let state = State { last_us: i64::MIN, rng, counts: [(0, 0); MACHINES as usize] };
        Self { ids, service, state: Mutex::new(state) }
    }

    /// Returns the kind of the ids.
    pub fn ids(&self) -> Ids {
        self.ids
    }

    /// Creates a post by `author` that is published now.
    pub fn post(&self, author: User) -> Post {
        self.post_at(author, SystemClock.now().0)
    }

    /// Creates a post by `author` with this time in microseconds since 1970, or a later time if an earlier post has the same or a later
    /// one.
    pub fn post_at(&self, author: User, at_us: i64) -> Post {
        // No code panics while it holds the lock, so a poisoned lock can be used.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (id, published_at_us) = match self.ids {
            Ids::Minted => {
                let at_us = at_us.max(state.last_us.saturating_add(1));
                (at_us.cast_unsigned() << MINTED_SUB_BITS | self.service as u64, at_us)
            }
            Ids::Snowflake => state.snowflake(at_us / 1_000, self.service),
            // Id 0 is not valid.
            Ids::Random => (state.rng.u64(1..1 << 63), at_us.max(state.last_us.saturating_add(1))),
        };
        state.last_us = published_at_us;
        drop(state);
        Post { id, author, published_at_us, body: body(id) }
    }
}

impl State {
    /// Returns an id and a time. The time is the one in the id, as in services that use the id's timestamp as the time of the post:
    /// several posts can have the same millisecond.
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

/// Returns a body of a bit over 100 bytes that contains the id, so that no two bodies are the same.
pub fn body(id: u64) -> String {
    format!(
        r#"{{"text":"Post {id} says what a post says on an ordinary day: not much, in a hundred bytes or so of text."}}"#
    )
}

/// Minimum time between two backdated posts: several milliseconds, so that no two have the same time.
pub const GAP_MIN: Duration = Duration::from_millis(10);

/// Returns the times of `count` backdated posts in microseconds since 1970: oldest first, all before `until_us`. The interval is `gap` on
/// average, and at least half of it.
///
/// # Errors
/// If the oldest time is before the epoch of the ids.
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
    fn ids_are_unique_even_when_the_clock_stands_still() {
        for ids in Ids::ALL {
            let mint = Mint::new(ids, Service::Load, 1);
            let posts: Vec<Post> = (0..100_000).map(|_| mint.post_at(1, 1_760_000_000_000_000)).collect();
            assert_eq!(posts.iter().map(|post| post.id).collect::<HashSet<_>>().len(), posts.len(), "{ids:?}");
            assert!(posts.is_sorted_by_key(|post| post.published_at_us), "{ids:?}");
            assert!(posts.iter().all(|post| (1..1 << 63).contains(&post.id)), "{ids:?}");
        }
    }

    #[test]
    fn ordered_ids_sort_as_their_times() {
        for ids in Ids::ALL {
            let mut posts = posts(ids, Service::Load, 10_000);
            posts.sort_by_key(|post| post.id);
            assert_eq!(posts.is_sorted_by_key(|post| post.published_at_us), ids.are_in_order(), "{ids:?}");
        }
    }

    #[test]
    fn a_snowflake_consists_of_time_machine_and_counter() {
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
    fn backdated_posts_are_spaced_apart_and_end_before_now() {
        let mut rng = fastrand::Rng::with_seed(1);
        let until = 1_760_000_000_000_000;
        let times: Vec<i64> = dated_back(100, Duration::from_secs(60), until, &mut rng).unwrap().collect();
        assert_eq!(times.len(), 100);
        assert!(times.windows(2).all(|pair| (30_000_000..=90_000_000).contains(&(pair[1] - pair[0]))));
        assert!(times[99] < until && times[0] < until - 98 * 60_000_000);
        assert!(dated_back(10_000, Duration::from_secs(86_400), until, &mut rng).is_err());
    }
}
