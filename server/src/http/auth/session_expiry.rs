//! Ends live connections when their token expires, when it is revoked, or when their key is removed.

use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use actix_web::rt::time::{Sleep, sleep};

use crate::http::auth::Access;
use crate::http::auth::caller::{Caller, User};
use crate::http::auth::denial::Denial;
use crate::http::auth::key::KeyId;
use tidewire::clock::UnixMicros;
use tidewire::engine::Engine;
use tidewire::live::sessions::Session;

/// Maximum time of one sleep, because the system clock may be set in the meantime.
const SLEEP_MAX: Duration = Duration::from_secs(3_600);

/// The conditions under which a connection must end.
pub(in crate::http) struct SessionExpiry {
    access: Arc<Access>,
    key: KeyId,
    /// Expiry and revocation of the token, if the connection authenticated with one.
    token: Option<Token>,
}

/// The token that a connection authenticated with.
struct Token {
    issued_at: Option<UnixMicros>,
    until: UnixMicros,
    asleep: Pin<Box<Sleep>>,
    /// Wakes the connection when tokens of the user are revoked.
    session: Session,
    engine: Engine,
}

impl SessionExpiry {
    /// Returns the expiry of a caller's connection, or `None` if the server has no keys.
    pub(in crate::http) fn of(access: &Arc<Access>, caller: &Caller, engine: &Engine) -> Option<Box<Self>> {
        let token = |user: &User| Token {
            issued_at: user.issued_at,
            until: user.until,
            asleep: Box::pin(sleep(access.left(user.until))),
            session: engine.session(user.id.clone()),
            engine: engine.clone(),
        };
        let (key, token) = match caller {
            Caller::Server(key, _) => (*key, None),
            Caller::User(user) => (user.key, Some(token(user))),
            Caller::Anybody | Caller::Unauthenticated | Caller::Refused(_) => return None,
        };
        Some(Box::new(Self { access: Arc::clone(access), key, token }))
    }

    /// Returns the code of the reason if the connection must end. Otherwise registers the task to be woken when the token expires or is
    /// revoked.
    pub(in crate::http) fn ended(&mut self, task: &mut Context<'_>) -> Option<&'static str> {
        let Token { issued_at, until, asleep, session, engine } = self.token.as_mut()?;
        // Loops until no signal is pending, because only then a later signal wakes the task.
        while session.was_signalled(task) {
            if engine.is_token_revoked(session.user(), *issued_at) {
                return Some(Denial::Revoked.code());
            }
        }
        while asleep.as_mut().poll(task).is_ready() {
            let left = self.access.left(*until);
            if left.is_zero() {
                return Some(Denial::Expired.code());
            }
            asleep.set(sleep(left));
        }
        None
    }

    /// Returns true if the key that authenticated the caller is still valid.
    pub(in crate::http) fn is_key_valid(&self) -> bool {
        self.access.contains_key(self.key)
    }
}

impl Access {
    /// Returns the time to sleep until an instant or until the next check.
    fn left(&self, until: UnixMicros) -> Duration {
        let micros = until.0.saturating_sub(self.clock.now().0);
        Duration::from_micros(u64::try_from(micros).unwrap_or(0)).min(SLEEP_MAX)
    }
}
