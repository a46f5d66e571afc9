//! Rates: how often one client may ask.
//!
//! Responsible for:
//! - one bucket for each client, and bounded memory however many there are.
//!
//! Not responsible for:
//! - how much is under way at the same time (`api::admission`).

use std::hash::{BuildHasher as _, RandomState};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU32;
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};

use actix_web::http::StatusCode;
use governor::clock::{Clock, DefaultClock, Reference as _};
use governor::middleware::NoOpMiddleware;
use governor::state::keyed::DashMapStateStore;
use governor::{Quota, RateLimiter};
use parking_lot::Mutex;

use crate::api::access::caller::Caller;
use crate::api::problem::Problem;
use crate::limits::{RATED_CLIENTS_MAX, RATED_GROUPS};

/// Requests a second. Twice as many may come at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestsPerSecond(NonZeroU32);

/// More than that one client cannot send.
const RATE_MAX: u32 = 1_000_000;

impl FromStr for RequestsPerSecond {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rate = text.parse().ok().filter(|rate: &NonZeroU32| rate.get() <= RATE_MAX);
        rate.map(Self).ok_or_else(|| format!("{text:?} is no whole number from 1 to {RATE_MAX}"))
    }
}

/// Who is counted together: a hash, so that no key is kept of clients that come and go.
type Client = u64;

type Limiter<C> = RateLimiter<Client, DashMapStateStore<Client>, C, NoOpMiddleware<<C as Clock>::Instant>>;

/// How often clients asked.
pub(super) struct Rates<C: Clock = DefaultClock> {
    limiter: Limiter<C>,
    clock: C,
    hasher: RandomState,
    clients_max: usize,
    /// New clients there is surely room for.
    room: AtomicUsize,
    /// When those were last forgotten who had not asked for long.
    swept: Mutex<C::Instant>,
}

impl Rates {
    /// No client has asked yet.
    pub(super) fn new(rate: RequestsPerSecond) -> Self {
        Self::with(rate, DefaultClock::default(), RATED_CLIENTS_MAX)
    }
}

impl<C: Clock + Clone> Rates<C> {
    fn with(RequestsPerSecond(rate): RequestsPerSecond, clock: C, clients_max: usize) -> Self {
        let quota = Quota::per_second(rate).allow_burst(rate.saturating_mul(NonZeroU32::MIN.saturating_add(1)));
        Self {
            limiter: RateLimiter::new(quota, DashMapStateStore::default(), clock.clone()),
            swept: Mutex::new(clock.now()),
            clock,
            hasher: RandomState::new(),
            clients_max,
            room: AtomicUsize::new(clients_max),
        }
    }

    /// Counts a request, unless it is one too many.
    pub(super) fn enter(&self, caller: &Caller, peer: Option<SocketAddr>) -> Result<(), Problem> {
        let client = match caller {
            Caller::Server(_) => return Ok(()),
            Caller::User(user) => self.hasher.hash_one(user.id.as_str()),
            Caller::Anybody | Caller::Stranger | Caller::Refused => self.hasher.hash_one(peer.map(network)),
        };
        self.count(client)
    }

    fn count(&self, client: Client) -> Result<(), Problem> {
        let client = if self.has_room() { client } else { client % RATED_GROUPS };
        self.limiter.check_key(&client).map_err(|until| {
            let wait = until.wait_time_from(self.clock.now());
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            let detail = "more requests than one client may send in a second; nothing was done";
            Problem::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", detail).retry_after(seconds.max(1))
        })
    }

    /// Whether one more client may be known. Counts every request as one of a new client, until it is worth to look.
    fn has_room(&self) -> bool {
        let take = |room: usize| room.checked_sub(1);
        if self.room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() {
            return true;
        }
        // Whoever comes while another one sweeps is counted with others.
        let Some(mut swept) = self.swept.try_lock() else { return false };
        let now = self.clock.now();
        if now.duration_since(*swept).as_u64() >= SWEEP_NANOS || self.limiter.len() < self.clients_max {
            *swept = now;
            self.limiter.retain_recent();
            self.room.store(self.clients_max.saturating_sub(self.limiter.len()), Ordering::Relaxed);
        }
        false
    }
}

/// Time between two sweeps while there is no room: nobody is forgotten before a burst is through.
const SWEEP_NANOS: u64 = 1_000_000_000;

/// Addresses of one network of IPv6 are one client's.
pub(in crate::api) fn network(peer: SocketAddr) -> IpAddr {
    match peer.ip().to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use governor::clock::FakeRelativeClock;
    use std::time::Duration;

    fn rates(rate: &str, clients_max: usize) -> (Rates<FakeRelativeClock>, FakeRelativeClock) {
        let clock = FakeRelativeClock::default();
        (Rates::with(rate.parse().unwrap(), clock.clone(), clients_max), clock)
    }

    fn let_in(rates: &Rates<FakeRelativeClock>, client: Client) -> usize {
        (0..100).take_while(|_| rates.count(client).is_ok()).count()
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
        let clients = |of: std::ops::Range<u64>| of.filter(|client| rates.count(RATED_GROUPS + client).is_ok()).count();
        assert_eq!(clients(0..10_000), 10 + RATED_GROUPS as usize * 2);
        assert!(rates.limiter.len() <= 10 + RATED_GROUPS as usize);
        clock.advance(Duration::from_secs(10));
        // One finds no room, and makes it.
        clients(10_000..10_001);
        assert!(rates.limiter.len() <= 1);
        assert_eq!((let_in(&rates, 20_000), let_in(&rates, 20_000 + RATED_GROUPS)), (2, 2));
    }

    #[test]
    fn a_network_of_ipv6_is_one_client() {
        let network = |text: &str| network(text.parse().unwrap());
        assert_eq!(network("[2001:db8::1]:1"), network("[2001:db8::2:3]:9"));
        assert_ne!(network("[2001:db8:0:1::1]:1"), network("[2001:db8:0:2::1]:1"));
        assert_eq!(network("[::ffff:192.0.2.1]:1"), network("192.0.2.1:2"));
        assert_ne!(network("192.0.2.1:2"), network("192.0.2.2:2"));
    }

    #[test]
    fn nonsense_is_no_rate() {
        for text in ["0", "-1", "1.5", "", "1000001", "many"] {
            assert!(text.parse::<RequestsPerSecond>().is_err(), "{text}");
        }
    }
}
