//! Tokens whose signature was found to be good, so that it is not computed again for each of their requests.
//!
//! Responsible for:
//! - finding again what such a token says, by its hash, in bounded memory. The oldest half is forgotten at once. One that is never good,
//!   such as one for another audience, is kept as well: its signature is not computed again either.
//!
//! Not responsible for:
//! - whether the token is good at this moment (`access::keys` compares its times each time);
//! - what becomes of it when the keys change (`access::keys` takes over what the new ones would find as well).

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::http::auth::denial::Denial;
use crate::http::auth::keys::{KeyHash, KeyId, Vouched};
use tidewire::limits::VERIFIED_TOKENS_MAX;

/// What was found out of a token whose signature is good.
#[derive(Clone, Debug)]
pub(super) struct Found {
    /// What it says, or why it is good at no time.
    pub(super) says: Result<Vouched, Denial>,
    /// The key that vouches for it.
    pub(super) key: KeyId,
    /// The `kid` in its header, as a hash, if no key had that name: a key that gets the name would be tried in place of the one above.
    pub(super) unknown_kid: Option<KeyId>,
}

type Tokens = HashMap<KeyHash, Found, foldhash::fast::RandomState>;

/// What was found out of such tokens.
#[derive(Default)]
pub(super) struct Verified(Mutex<Halves>);

#[derive(Default, Clone)]
struct Halves {
    new: Tokens,
    old: Tokens,
}

impl Verified {
    /// What the token with this hash says, if it was verified lately.
    pub(super) fn get(&self, token: &KeyHash) -> Option<Found> {
        let halves = &mut *self.0.lock();
        if let Some(found) = halves.new.get(token) {
            return Some(found.clone());
        }
        let found = halves.old.remove(token)?;
        halves.put(*token, found.clone());
        Some(found)
    }

    /// Remembers what a token says whose signature is good.
    pub(super) fn put(&self, token: KeyHash, found: Found) {
        self.0.lock().put(token, found);
    }

    /// A copy of those for which `stays` is true.
    pub(super) fn those(&self, stays: impl Fn(&Found) -> bool) -> Self {
        let mut halves = self.0.lock().clone();
        halves.new.retain(|_, found| stays(found));
        halves.old.retain(|_, found| stays(found));
        Self(Mutex::new(halves))
    }
}

impl Halves {
    fn put(&mut self, token: KeyHash, found: Found) {
        if self.new.len() >= VERIFIED_TOKENS_MAX / 2 {
            self.old = std::mem::take(&mut self.new);
        }
        self.new.insert(token, found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_bounded_and_those_in_use_stay() {
        let verified = Verified::default();
        let token = |nth: usize| crate::http::auth::keys::hash(&nth.to_string());
        for nth in 0..3 * VERIFIED_TOKENS_MAX {
            let says = Ok(Vouched::of("ann"));
            verified.put(token(nth), Found { says, key: KeyId::default(), unknown_kid: None });
            assert!(verified.get(&token(0)).is_some(), "{nth}");
        }
        let halves = verified.0.lock();
        assert!(halves.new.len() + halves.old.len() <= VERIFIED_TOKENS_MAX);
    }
}
