//! Checks of a token beyond its signature and its own times.

use crate::http::auth::Access;
use crate::http::auth::caller::User;
use crate::http::auth::denial::Denial;
use tidewire::clock::UnixMicros;
use tidewire::engine::Engine;
use tidewire::limits::TOKEN_CLOCK_AHEAD_MAX;

const NO_IAT: Denial = Denial::Unknown("the token has no \"iat\", which it needs since --token-lifetime-max is set");

impl Access {
    /// Checks that a token was not issued in the future, and that its lifetime does not exceed the maximum.
    pub(super) fn check_lifetime(&self, user: &User, now: UnixMicros) -> Result<(), Denial> {
        // Such a token would count as issued after every revocation until then, and would be valid for longer than its lifetime.
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

    /// Returns the current time, against which token times are checked.
    pub(in crate::http) fn now(&self) -> UnixMicros {
        self.clock.now()
    }

    /// Returns the time before which revocations have no effect any more, because every token issued until then has expired or exceeds
    /// the maximum lifetime. `None` if there is no maximum lifetime.
    pub(in crate::http) fn forget_revoked_before(&self, now: UnixMicros) -> Option<UnixMicros> {
        self.token_lifetime_max.map(|longest| now.saturating_sub(longest))
    }
}

/// Checks that a token is not revoked.
pub(super) fn check_revoked(user: &User, engine: &Engine) -> Result<(), Denial> {
    if engine.is_token_revoked(&user.id, user.issued_at) { Err(Denial::Revoked) } else { Ok(()) }
}
