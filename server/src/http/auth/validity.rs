//! Whether a token of a user is good here, beyond what it says of itself.
//!
//! Responsible for:
//! - when it may have been made, and how long it may be good at most;
//! - whether it was revoked, which the engine knows.
//!
//! Not responsible for:
//! - its signature, its own times (`access::keys`).

use crate::http::auth::Access;
use crate::http::auth::caller::User;
use crate::http::auth::denial::Denial;
use tidewire::clock::UnixMicros;
use tidewire::engine::Engine;
use tidewire::limits::TOKEN_CLOCK_AHEAD_MAX;

const NO_IAT: Denial = Denial::Unknown("the token has no \"iat\", which it needs since --token-lifetime-max is set");

impl Access {
    /// Checks when a token was made, as far as it says so, and how long it is good from then on.
    pub(super) fn check_lifetime(&self, user: &User, now: UnixMicros) -> Result<(), Denial> {
        // It would count as made after every revocation until then, and be good for longer than it says.
        if user.issued_at > Some(now.saturating_add(TOKEN_CLOCK_AHEAD_MAX)) {
            return Err(Denial::IssuedInFuture);
        }
        let Some(longest) = self.token_lifetime_max else { return Ok(()) };
        let issued_at = user.issued_at.ok_or(NO_IAT)?;
        if user.until > issued_at.saturating_add(longest) {
            return Err(Denial::LastsTooLong(longest.as_secs()));
        }
        Ok(())
    }

    /// The time that tokens are compared with.
    pub(in crate::http) fn now(&self) -> UnixMicros {
        self.clock.now()
    }

    /// Before when a revocation refuses nothing any more: what was made by then has expired, or lasts too long. None: there is no
    /// longest lifetime.
    pub(in crate::http) fn forget_revoked_before(&self, now: UnixMicros) -> Option<UnixMicros> {
        self.token_lifetime_max.map(|longest| now.saturating_sub(longest))
    }
}

/// Checks that a token was not revoked.
pub(super) fn check_revoked(user: &User, engine: &Engine) -> Result<(), Denial> {
    if engine.is_token_revoked(&user.id, user.issued_at) { Err(Denial::Revoked) } else { Ok(()) }
}
