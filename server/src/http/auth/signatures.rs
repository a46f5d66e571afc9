//! Signatures of tokens: how many were computed, and how many in vain for one network.
//!
//! Responsible for:
//! - a budget for each network: it is taken before a signature is computed, and given back if that turns out to be good, whatever else is
//!   wrong with the token. So forged tokens cost no more than the budget, and those that a key has signed nothing of it;
//! - a larger one for all proxies together, behind which many clients are: no share of a single address bounds them;
//! - bounded memory however many networks there are.
//!
//! Not responsible for:
//! - what is signed by whom (`access::keys`), reading the clock.

use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::http::auth::denial::Denial;
use tidewire::limits::{
    FORGED_SIGNATURES_AT_ONCE, FORGED_SIGNATURES_OF_PROXIES_PER_SECOND, FORGED_SIGNATURES_PER_SECOND,
    RATED_CLIENTS_MAX, RATED_GROUPS,
};
use tidewire::runtime::counters::Counter;

/// How long it takes a network to earn one signature more.
const EACH: Duration = Duration::from_nanos(1_000_000_000 / FORGED_SIGNATURES_PER_SECOND as u64);

/// How long it takes all proxies together.
const EACH_OF_PROXIES: Duration = Duration::from_nanos(1_000_000_000 / FORGED_SIGNATURES_OF_PROXIES_PER_SECOND as u64);

/// How far ahead of what was earned a budget may be spent.
const AHEAD: Duration = EACH.saturating_mul(FORGED_SIGNATURES_AT_ONCE);

/// What was computed since the start, and the budgets.
pub(super) struct Signatures {
    computed: Counter,
    /// By network: when what was taken from its budget is earned back. Of others all of it is there.
    spent: Mutex<FxHashMap<u64, Instant>>,
    /// Networks are kept as hashes, which nobody outside can predict.
    hasher: RandomState,
    networks_max: usize,
}

/// What was taken from a budget.
#[derive(Debug)]
pub(super) struct Taken {
    network: u64,
    cost: Duration,
}

/// Who has a credential checked, and when.
#[derive(Clone, Copy)]
pub(super) struct Check<'a> {
    pub(super) signatures: &'a Signatures,
    /// The address, or network of IPv6, whose budget is taken from. None: that of proxies.
    pub(super) address: Option<IpAddr>,
    pub(super) at: Instant,
}

impl Default for Signatures {
    fn default() -> Self {
        Self::new(RATED_CLIENTS_MAX)
    }
}

impl Signatures {
    fn new(networks_max: usize) -> Self {
        Self { computed: Counter::default(), spent: Mutex::default(), hasher: RandomState::new(), networks_max }
    }

    /// How many were computed.
    pub(super) fn computed(&self) -> u64 {
        self.computed.get()
    }

    /// Forgets networks that have all of their budget again.
    pub(super) fn sweep(&self, now: Instant) {
        self.spent.lock().retain(|_, earned_back| *earned_back > now);
    }

    fn take(&self, address: Option<IpAddr>, count: u32, now: Instant) -> Result<Taken, Denial> {
        let each = if address.is_some() { EACH } else { EACH_OF_PROXIES };
        let (network, cost) = (self.hasher.hash_one(address), each * count);
        let mut spent = self.spent.lock();
        let has_room = address.is_none() || spent.len() < self.networks_max || spent.contains_key(&network);
        // Past the limit networks share budgets, but not that of proxies.
        let network = if has_room { network } else { network % RATED_GROUPS };
        let before = spent.get(&network).copied().unwrap_or(now).max(now);
        let (after, latest) = (before + cost, now + AHEAD);
        if after > latest {
            let wait = after - latest;
            return Err(Denial::TooMany(wait.as_secs() + u64::from(wait.subsec_nanos() > 0)));
        }
        spent.insert(network, after);
        Ok(Taken { network, cost })
    }

    fn give_back(&self, taken: &Taken, now: Instant) {
        let mut spent = self.spent.lock();
        let Some(earned_back) = spent.get_mut(&taken.network) else { return };
        match earned_back.checked_sub(taken.cost).filter(|earlier| *earlier > now) {
            Some(earlier) => *earned_back = earlier,
            // Those whose tokens are good leave nothing behind.
            None => drop(spent.remove(&taken.network)),
        }
    }
}

impl Check<'_> {
    /// Takes so many signatures from the budget of whoever asks, before any is computed.
    pub(super) fn take(&self, count: usize) -> Result<Taken, Denial> {
        self.signatures.take(self.address, u32::try_from(count).unwrap_or(u32::MAX), self.at)
    }

    /// Notes that one is computed.
    pub(super) fn note_computed(&self) {
        self.signatures.computed.add(1);
    }

    /// One of them was good.
    pub(super) fn give_back(&self, taken: &Taken) {
        self.signatures.give_back(taken, self.at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::sockets::proxies::Proxies;
    use std::net::SocketAddr;

    fn peer(address: &str) -> Option<IpAddr> {
        let peer = SocketAddr::new(address.parse().unwrap(), 1);
        "loopback,192.0.2.9,2001:db8::9".parse::<Proxies>().unwrap().counted(Some(peer))
    }

    /// How many are let through in vain, of a thousand.
    fn in_vain(signatures: &Signatures, address: Option<IpAddr>, now: Instant) -> usize {
        (0..10_000).filter(|_| signatures.take(address, 1, now).is_ok()).count()
    }

    #[test]
    fn a_network_has_a_budget_that_comes_back_with_time() {
        let (signatures, start) = (Signatures::default(), Instant::now());
        let at_once = FORGED_SIGNATURES_AT_ONCE as usize;
        assert_eq!(in_vain(&signatures, peer("2001:db8::1"), start), at_once);
        assert_eq!(in_vain(&signatures, peer("2001:db8::ffff:2"), start), 0, "it is the same network of 64 bits");
        assert_eq!(in_vain(&signatures, peer("2001:db8:0:1::1"), start), at_once, "another one");
        assert_eq!(in_vain(&signatures, peer("192.0.2.1"), start), at_once);
        assert_eq!(in_vain(&signatures, peer("::ffff:192.0.2.1"), start), 0);
        let waits = signatures.take(peer("192.0.2.1"), 8, start).unwrap_err();
        assert_eq!(waits, Denial::TooMany(1));
        let later = start + Duration::from_secs(1);
        assert_eq!(in_vain(&signatures, peer("192.0.2.1"), later), FORGED_SIGNATURES_PER_SECOND as usize);
        let long_after = start + Duration::from_secs(3_600);
        assert_eq!(in_vain(&signatures, peer("192.0.2.1"), long_after), at_once, "no more than at once");
        signatures.sweep(long_after);
        assert_eq!(signatures.spent.lock().len(), 1);
    }

    #[test]
    fn proxies_have_a_budget_together_that_is_larger_than_that_of_a_network() {
        let (signatures, start) = (Signatures::default(), Instant::now());
        let of_proxies = FORGED_SIGNATURES_OF_PROXIES_PER_SECOND as usize;
        assert_eq!(in_vain(&signatures, peer("127.0.0.1"), start), 2 * of_proxies);
        assert_eq!(in_vain(&signatures, peer("192.0.2.9"), start), 0);
        assert_eq!(in_vain(&signatures, peer("192.0.2.1"), start), FORGED_SIGNATURES_AT_ONCE as usize, "its own");
        let later = start + Duration::from_secs(1);
        assert_eq!(in_vain(&signatures, peer("2001:db8::9"), later), of_proxies);
    }

    #[test]
    fn what_was_good_costs_nothing_and_leaves_nothing() {
        let (signatures, now) = (Signatures::default(), Instant::now());
        for _ in 0..10_000 {
            let taken = signatures.take(peer("192.0.2.1"), 8, now).unwrap();
            signatures.give_back(&taken, now);
        }
        assert_eq!(signatures.spent.lock().len(), 0);
        assert_eq!(in_vain(&signatures, peer("192.0.2.1"), now), FORGED_SIGNATURES_AT_ONCE as usize);
    }

    #[test]
    fn networks_past_the_limit_share_budgets() {
        let (signatures, now) = (Signatures::new(10), Instant::now());
        for nth in 0..5_000_u32 {
            let address = std::net::IpAddr::from(nth.to_be_bytes());
            signatures.take(Some(address), 1, now).unwrap();
        }
        assert!(signatures.spent.lock().len() <= 10 + RATED_GROUPS as usize);
        signatures.sweep(now + Duration::from_secs(3_600));
        assert_eq!(signatures.spent.lock().len(), 0);
    }
}
