//! Signature checks of tokens: counts them, and limits the checks that each network may cause with forged tokens.

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

/// Time in which a network earns one signature check.
const EACH: Duration = Duration::from_nanos(1_000_000_000 / FORGED_SIGNATURES_PER_SECOND as u64);

/// Time in which all proxies together earn one signature check.
const EACH_OF_PROXIES: Duration = Duration::from_nanos(1_000_000_000 / FORGED_SIGNATURES_OF_PROXIES_PER_SECOND as u64);

/// Maximum debt of a budget, as the time it takes to earn it back.
const AHEAD: Duration = EACH.saturating_mul(FORGED_SIGNATURES_AT_ONCE);

/// The number of signatures computed since the start, and the budgets.
pub(super) struct Signatures {
    computed: Counter,
    /// For each network, the time at which its budget is full again. Networks without an entry have a full budget.
    spent: Mutex<FxHashMap<u64, Instant>>,
    /// Networks are stored as keyed hashes, which a client cannot predict.
    hasher: RandomState,
    networks_max: usize,
}

/// The amount charged to a budget, for a refund.
#[derive(Debug)]
pub(super) struct SignatureCharge {
    network: u64,
    cost: Duration,
}

/// The context of a credential check: the budget that pays for it, and the time.
#[derive(Clone, Copy)]
pub(super) struct Check<'a> {
    pub(super) signatures: &'a Signatures,
    /// The address, or IPv6 network, whose budget is used. `None`: the common budget of proxies.
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

    /// Returns the number of signatures computed since the start.
    pub(super) fn computed(&self) -> u64 {
        self.computed.get()
    }

    /// Removes networks whose budget is full again.
    pub(super) fn sweep(&self, now: Instant) {
        self.spent.lock().retain(|_, earned_back| *earned_back > now);
    }

    fn take(&self, address: Option<IpAddr>, count: u32, now: Instant) -> Result<SignatureCharge, Denial> {
        let each = if address.is_some() { EACH } else { EACH_OF_PROXIES };
        let (network, cost) = (self.hasher.hash_one(address), each * count);
        let mut spent = self.spent.lock();
        let has_capacity = address.is_none() || spent.len() < self.networks_max || spent.contains_key(&network);
        // Beyond the limit, networks share budgets, but never the budget of proxies.
        let network = if has_capacity { network } else { network % RATED_GROUPS };
        let before = spent.get(&network).copied().unwrap_or(now).max(now);
        let (after, latest) = (before + cost, now + AHEAD);
        if after > latest {
            let wait = after - latest;
            return Err(Denial::TooMany(wait.as_secs() + u64::from(wait.subsec_nanos() > 0)));
        }
        spent.insert(network, after);
        Ok(SignatureCharge { network, cost })
    }

    fn give_back(&self, taken: &SignatureCharge, now: Instant) {
        let mut spent = self.spent.lock();
        let Some(earned_back) = spent.get_mut(&taken.network) else { return };
        match earned_back.checked_sub(taken.cost).filter(|earlier| *earlier > now) {
            Some(earlier) => *earned_back = earlier,
            // A full budget needs no entry, so clients with valid tokens use no memory.
            None => drop(spent.remove(&taken.network)),
        }
    }
}

impl Check<'_> {
    /// Charges `count` signature checks to the budget, before any is computed.
    pub(super) fn take(&self, count: usize) -> Result<SignatureCharge, Denial> {
        self.signatures.take(self.address, u32::try_from(count).unwrap_or(u32::MAX), self.at)
    }

    /// Counts one computed signature.
    pub(super) fn note_computed(&self) {
        self.signatures.computed.add(1);
    }

    /// Refunds the budget after a valid signature.
    pub(super) fn give_back(&self, taken: &SignatureCharge) {
        self.signatures.give_back(taken, self.at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::proxies::Proxies;
    use std::net::SocketAddr;

    fn peer(address: &str) -> Option<IpAddr> {
        let peer = SocketAddr::new(address.parse().unwrap(), 1);
        "loopback,192.0.2.9,2001:db8::9".parse::<Proxies>().unwrap().counted(Some(peer))
    }

    /// Returns the number of checks allowed without refunds, out of ten thousand attempts.
    fn in_vain(signatures: &Signatures, address: Option<IpAddr>, now: Instant) -> usize {
        (0..10_000).filter(|_| signatures.take(address, 1, now).is_ok()).count()
    }

    #[test]
    fn each_network_has_a_budget_that_refills_over_time() {
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
    fn all_proxies_share_a_budget_larger_than_that_of_a_network() {
        let (signatures, start) = (Signatures::default(), Instant::now());
        let of_proxies = FORGED_SIGNATURES_OF_PROXIES_PER_SECOND as usize;
        assert_eq!(in_vain(&signatures, peer("127.0.0.1"), start), 2 * of_proxies);
        assert_eq!(in_vain(&signatures, peer("192.0.2.9"), start), 0);
        assert_eq!(in_vain(&signatures, peer("192.0.2.1"), start), FORGED_SIGNATURES_AT_ONCE as usize, "its own");
        let later = start + Duration::from_secs(1);
        assert_eq!(in_vain(&signatures, peer("2001:db8::9"), later), of_proxies);
    }

    #[test]
    fn valid_signatures_use_no_budget_and_no_memory() {
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
