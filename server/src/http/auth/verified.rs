//! Cache of tokens with a verified signature, so that the signature is not computed for every request.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::http::auth::claims::VerifiedClaims;
use crate::http::auth::denial::Denial;
use crate::http::auth::key::{KeyHash, KeyId};

/// Maximum number of verified tokens that are cached: about 150 bytes each, twice that with the longest ids.
const VERIFIED_TOKENS_MAX: usize = 64 * 1_024;

/// The result of verifying a token with a valid signature.
#[derive(Clone, Debug)]
pub(super) struct VerifiedToken {
    /// The claims, or the reason why the token is never valid.
    pub(super) claims: Result<VerifiedClaims, Denial>,
    /// The key that verified the token.
    pub(super) key: KeyId,
    /// The hash of the `kid` in the header, if no key had this `kid`. The server would select a new key with this `kid` instead of the
    /// key above.
    pub(super) unknown_kid: Option<KeyId>,
}

type Tokens = HashMap<KeyHash, VerifiedToken, foldhash::fast::RandomState>;

/// The cache, in two generations.
#[derive(Default)]
pub(super) struct VerifiedTokens(Mutex<Halves>);

#[derive(Default, Clone)]
struct Halves {
    new: Tokens,
    old: Tokens,
}

impl VerifiedTokens {
    /// Returns the result for the token with this hash, if it was verified recently.
    pub(super) fn get(&self, token: &KeyHash) -> Option<VerifiedToken> {
        let halves = &mut *self.0.lock();
        if let Some(found) = halves.new.get(token) {
            return Some(found.clone());
        }
        let found = halves.old.remove(token)?;
        halves.put(*token, found.clone());
        Some(found)
    }

    /// Stores the result of verifying a token.
    pub(super) fn put(&self, token: KeyHash, found: VerifiedToken) {
        self.0.lock().put(token, found);
    }

    /// Returns a copy with the entries for which `keep` returns true.
    pub(super) fn filtered(&self, keep: impl Fn(&VerifiedToken) -> bool) -> Self {
        let mut halves = self.0.lock().clone();
        halves.new.retain(|_, found| keep(found));
        halves.old.retain(|_, found| keep(found));
        Self(Mutex::new(halves))
    }
}

impl Halves {
    fn put(&mut self, token: KeyHash, found: VerifiedToken) {
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
    fn the_cache_is_bounded_and_keeps_tokens_in_use() {
        let verified = VerifiedTokens::default();
        let token = |nth: usize| crate::http::auth::key::hash(&nth.to_string());
        for nth in 0..3 * VERIFIED_TOKENS_MAX {
            let claims = Ok(VerifiedClaims::of("ann"));
            verified.put(token(nth), VerifiedToken { claims, key: KeyId::default(), unknown_kid: None });
            assert!(verified.get(&token(0)).is_some(), "{nth}");
        }
        let halves = verified.0.lock();
        assert!(halves.new.len() + halves.old.len() <= VERIFIED_TOKENS_MAX);
    }
}
