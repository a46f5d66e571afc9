//! SessionExpiry: how long a connection may stay that was let in.

use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use actix_web::rt::time::{Sleep, sleep};

use crate::http::auth::Access;
use crate::http::auth::caller::{Caller, User};
use crate::http::auth::keys::KeyId;
use tidewire::clock::UnixMicros;
use tidewire::engine::Engine;
use tidewire::live::sessions::Session;

/// Longest time slept at a stretch: clocks are set meanwhile.
const SLEEP_MAX: Duration = Duration::from_secs(3_600);

/// How long a connection may stay.
pub(in crate::http) struct SessionExpiry {
    access: Arc<Access>,
    key: KeyId,
    /// What ends it sooner, if it came by a token.
    token: Option<Token>,
}

/// The token by which a connection was let in.
struct Token {
    issued_at: Option<UnixMicros>,
    until: UnixMicros,
    asleep: Pin<Box<Sleep>>,
    /// Called when tokens of its user are revoked.
    session: Session,
    engine: Engine,
}

impl SessionExpiry {
    /// That of a caller; for ever, where everybody may do everything.
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
            Caller::Anybody | Caller::Unauthenticated | Caller::Refused => return None,
        };
        Some(Box::new(Self { access: Arc::clone(access), key, token }))
    }

    /// Why it has ended, so that the connection must. Wakes the task when a token ends or is revoked.
    pub(in crate::http) fn ended(&mut self, task: &mut Context<'_>) -> Option<&'static str> {
        let Token { issued_at, until, asleep, session, engine } = self.token.as_mut()?;
        // Until it was not called: only then a later call wakes the task.
        while session.was_called(task) {
            if engine.is_token_revoked(session.user(), *issued_at) {
                return Some("the token was revoked");
            }
        }
        while asleep.as_mut().poll(task).is_ready() {
            let left = self.access.left(*until);
            if left.is_zero() {
                return Some("the token has expired");
            }
            asleep.set(sleep(left));
        }
        None
    }

    /// Whether the key that vouches for it is still good.
    pub(in crate::http) fn is_vouched_for(&self) -> bool {
        self.access.holds(self.key)
    }
}

impl Access {
    /// How long to sleep until an instant, or to look again.
    fn left(&self, until: UnixMicros) -> Duration {
        let micros = until.0.saturating_sub(self.clock.now().0);
        Duration::from_micros(u64::try_from(micros).unwrap_or(0)).min(SLEEP_MAX)
    }
}
