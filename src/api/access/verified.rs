//! Tokens whose signature was found to be good, so that it is not computed again for each of their requests.
//!
//! Responsible for:
//! - finding again what such a token says, by its hash, in bounded memory. The oldest half is forgotten at once.
//!
//! Not responsible for:
//! - whether the token is good at this moment (`access::keys` compares its times each time). What was verified goes with the
//!   keys that vouched for it.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::api::access::keys::{KeyHash, Vouched};
use crate::limits::VERIFIED_TOKENS_MAX;

type Tokens = HashMap<KeyHash, Vouched, foldhash::fast::RandomState>;

/// What such tokens say.
#[derive(Default)]
pub(super) struct Verified(Mutex<Halves>);

#[derive(Default)]
struct Halves {
    new: Tokens,
    old: Tokens,
}

impl Verified {
    /// What the token with this hash says, if it was verified lately.
    pub(super) fn get(&self, token: &KeyHash) -> Option<Vouched> {
        let halves = &mut *self.0.lock();
        if let Some(vouched) = halves.new.get(token) {
            return Some(vouched.clone());
        }
        let vouched = halves.old.remove(token)?;
        halves.put(*token, vouched.clone());
        Some(vouched)
    }

    /// Remembers what a token says whose signature is good.
    pub(super) fn put(&self, token: KeyHash, vouched: Vouched) {
        self.0.lock().put(token, vouched);
    }
}

impl Halves {
    fn put(&mut self, token: KeyHash, vouched: Vouched) {
        if self.new.len() >= VERIFIED_TOKENS_MAX / 2 {
            self.old = std::mem::take(&mut self.new);
        }
        self.new.insert(token, vouched);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_bounded_and_those_in_use_stay() {
        let verified = Verified::default();
        let token = |nth: usize| crate::api::access::keys::hash(&nth.to_string());
        for nth in 0..3 * VERIFIED_TOKENS_MAX {
            verified.put(token(nth), Vouched::of("ann"));
            assert!(verified.get(&token(0)).is_some(), "{nth}");
        }
        let halves = verified.0.lock();
        assert!(halves.new.len() + halves.old.len() <= VERIFIED_TOKENS_MAX);
    }
}
