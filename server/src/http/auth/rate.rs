//! Rate limits of clients.

use std::hash::{BuildHasher as _, RandomState};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use governor::clock::{Clock, DefaultClock};
use governor::middleware::NoOpMiddleware;
use governor::state::keyed::DashMapStateStore;
use governor::{Quota, RateLimiter};

use crate::http::auth::caller::Caller;
use crate::http::auth::denial::Denial;
use crate::http::client::network;
use tidewire::id::SourceId;
use tidewire::limits::{RATED_CLIENTS_MAX, RATED_GROUPS};

/// A request rate per second. The burst is twice the rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestsPerSecond(pub(super) NonZeroU32);

/// Maximum rate that can be set.
const RATE_MAX: u32 = 1_000_000;

impl FromStr for RequestsPerSecond {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rate = text.parse().ok().filter(|rate: &NonZeroU32| rate.get() <= RATE_MAX);
        rate.map(Self).ok_or_else(|| format!("{text:?} is not a whole number from 1 to {RATE_MAX}"))
    }
}

/// Selects whether the request still has to be counted: against the rate of its caller, and as a use of its key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::http) enum Counted {
    NotYet,
    /// The request was counted before. Only its credentials are checked again.
    Before,
}

/// The hash of a client. Clients are stored as hashes, so that no identifying data is stored.
type Client = u64;

type Limiter<C> = RateLimiter<Client, DashMapStateStore<Client>, C, NoOpMiddleware<<C as Clock>::Instant>>;

/// The token buckets of clients.
pub(in crate::http) struct Rates<C: Clock = DefaultClock> {
    limiter: Limiter<C>,
    clock: C,
    hasher: RandomState,
    clients_max: usize,
    /// Lower bound of the number of new clients that can be added.
    free_clients: AtomicUsize,
}

impl Rates {
    /// Creates a limiter with this rate per second and a burst of twice the rate.
    pub(in crate::http) fn new(rate: NonZeroU32) -> Self {
        Self::with(per_second(rate), DefaultClock::default(), RATED_CLIENTS_MAX)
    }

    /// Creates a limiter with a burst of `count` that is refilled over `period`.
    pub(super) fn over(period: Duration, count: NonZeroU32) -> Self {
        let quota = Quota::with_period(period / count.get()).unwrap_or(Quota::per_second(count));
        Self::with(quota.allow_burst(count), DefaultClock::default(), RATED_CLIENTS_MAX)
    }
}

fn per_second(rate: NonZeroU32) -> Quota {
    Quota::per_second(rate).allow_burst(rate.saturating_mul(NonZeroU32::MIN.saturating_add(1)))
}

impl<C: Clock + Clone> Rates<C> {
    fn with(quota: Quota, clock: C, clients_max: usize) -> Self {
        Self {
            limiter: RateLimiter::new(quota, DashMapStateStore::default(), clock.clone()),
            clock,
            hasher: RandomState::new(),
            clients_max,
            free_clients: AtomicUsize::new(clients_max),
        }
    }

    /// Counts a request against the caller's rate, or denies it.
    pub(super) fn enter(&self, caller: &Caller, peer: Option<SocketAddr>) -> Result<(), Denial> {
        match caller {
            Caller::Server(..) => Ok(()),
            Caller::User(user) => self.take(&user.id, NonZeroU32::MIN).map_err(Denial::TooOften),
            Caller::Anybody | Caller::Unauthenticated | Caller::Refused(_) => {
                self.enter_from(peer).map_err(Denial::TooOften)
            }
        }
    }

    /// Counts a request against the rate of an address. If the rate is exceeded, returns the seconds to wait.
    pub(in crate::http) fn enter_from(&self, peer: Option<SocketAddr>) -> Result<(), u64> {
        self.count(self.hasher.hash_one(peer.map(network)), NonZeroU32::MIN)
    }

    /// Counts `count` requests against the rate of a user. If the rate is exceeded, returns the seconds to wait.
    pub(super) fn take(&self, user: &SourceId, count: NonZeroU32) -> Result<(), u64> {
        self.count(self.hasher.hash_one(user.as_str()), count)
    }

    fn count(&self, client: Client, count: NonZeroU32) -> Result<(), u64> {
        let client = if self.has_capacity() { client } else { client % RATED_GROUPS };
        // A count larger than the burst can never succeed.
        let counted = self.limiter.check_key_n(&client, count).map_err(|_| u64::MAX)?;
        counted.map_err(|until| {
            let wait = until.wait_time_from(self.clock.now());
            (wait.as_secs() + u64::from(wait.subsec_nanos() > 0)).max(1)
        })
    }

    /// Returns true if one more client can be added. Counts every request as a new client until the estimate is used up, and then reads
    /// the real number.
    fn has_capacity(&self) -> bool {
        let take = |free_clients: usize| free_clients.checked_sub(1);
        if self.free_clients.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() {
            return true;
        }
        let free_clients = self.clients_max.saturating_sub(self.limiter.len());
        self.free_clients.store(free_clients.saturating_sub(1), Ordering::Relaxed);
        free_clients > 0
    }

    /// Removes inactive clients if there are many. Iterates over all clients, so it must not run inside a request.
    pub(in crate::http) fn sweep(&self) {
        if self.limiter.len() > self.clients_max / 2 {
            self.limiter.retain_recent();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use governor::clock::FakeRelativeClock;

    fn rates(rate: &str, clients_max: usize) -> (Rates<FakeRelativeClock>, FakeRelativeClock) {
        let clock = FakeRelativeClock::default();
        let RequestsPerSecond(rate) = rate.parse().unwrap();
        (Rates::with(per_second(rate), clock.clone(), clients_max), clock)
    }

    fn let_in(rates: &Rates<FakeRelativeClock>, client: Client) -> usize {
        (0..100).take_while(|_| rates.count(client, NonZeroU32::MIN).is_ok()).count()
    }

    #[test]
    fn a_client_has_a_burst_of_twice_its_rate_and_then_its_rate() {
        let (rates, clock) = rates("3", 1_000);
        assert_eq!((let_in(&rates, 1), let_in(&rates, 2)), (6, 6), "one does not count for the other");
        clock.advance(Duration::from_secs(1));
        assert_eq!(let_in(&rates, 1), 3);
    }

    #[test]
    fn clients_past_the_limit_share_rates_until_others_are_forgotten() {
        let (rates, clock) = rates("1", 10);
        let clients = |of: std::ops::Range<u64>| {
            of.filter(|client| rates.count(RATED_GROUPS + client, NonZeroU32::MIN).is_ok()).count()
        };
        assert_eq!(clients(0..10_000), 10 + RATED_GROUPS as usize * 2);
        assert!(rates.limiter.len() <= 10 + RATED_GROUPS as usize);
        rates.sweep();
        assert_eq!(clients(0..10_000), 0, "nobody is forgotten before a burst is through");
        clock.advance(Duration::from_secs(10));
        assert!(rates.limiter.len() > 10, "and no request walks over all clients");
        rates.sweep();
        assert_eq!(rates.limiter.len(), 0);
        assert_eq!((let_in(&rates, 20_000), let_in(&rates, 20_000 + RATED_GROUPS)), (2, 2));
    }

    #[test]
    fn invalid_rates_are_refused() {
        for text in ["0", "-1", "1.5", "", "1000001", "many"] {
            assert!(text.parse::<RequestsPerSecond>().is_err(), "{text}");
        }
    }
}
