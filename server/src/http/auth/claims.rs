//! The claims of tokens.

use serde::{Deserialize, Deserializer};

use crate::http::auth::caller::User;
use crate::http::auth::denial::Denial;
use crate::http::auth::key::KeyId;
use tidewire::clock::UnixMicros;
use tidewire::id::SourceId;

/// The claims of a token that the server uses.
#[derive(Deserialize)]
pub(super) struct Claims {
    sub: String,
    exp: f64,
    #[serde(default, deserialize_with = "present")]
    iat: Option<f64>,
    #[serde(default, deserialize_with = "present")]
    nbf: Option<f64>,
    #[serde(default, deserialize_with = "present")]
    scope: Option<String>,
}

/// A claim of `null` is an error, not a missing claim.
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

/// The claims of a token with a valid signature, before the times are checked.
#[derive(Clone, Debug)]
pub(super) struct VerifiedClaims {
    user: User,
    /// The time from which the token is valid (`nbf`).
    from: Option<UnixMicros>,
}

impl VerifiedClaims {
    pub(super) fn new(claims: &Claims, key: KeyId) -> Result<Self, Denial> {
        let id = SourceId::new(&claims.sub).ok().filter(SourceId::is_user);
        let id = id.ok_or(Denial::Unknown("the token's \"sub\" is not the id of a user"))?;
        let may_write = match claims.scope.as_deref() {
            None | Some("write") => true,
            Some("read") => false,
            Some(_) => return Err(Denial::Unknown("the token's \"scope\" is neither \"read\" nor \"write\"")),
        };
        let (issued_at, until) = (claims.iat.map(instant), instant(claims.exp));
        let user = User { id, may_write, issued_at, until, key };
        Ok(Self { user, from: claims.nbf.map(instant) })
    }

    /// Returns the user of the token if the token is valid at `now`.
    pub(super) fn at(self, now: UnixMicros) -> Result<User, Denial> {
        if now >= self.user.until {
            return Err(Denial::Expired);
        }
        if self.from.is_some_and(|from| now < from) {
            return Err(Denial::Early);
        }
        Ok(self.user)
    }

    #[cfg(test)]
    pub(super) fn of(user: &str) -> Self {
        let id = SourceId::new(user).expect("tests name users");
        let user = User { id, may_write: true, issued_at: None, until: UnixMicros(0), key: KeyId::default() };
        Self { user, from: None }
    }
}

/// Converts a time in a token, in seconds with an optional fraction. Times out of range become the smallest or the largest time.
fn instant(seconds: f64) -> UnixMicros {
    #[expect(clippy::cast_possible_truncation, reason = "saturates")]
    UnixMicros((seconds * 1e6) as i64)
}
