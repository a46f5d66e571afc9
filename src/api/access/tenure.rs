//! Tenure: how long a connection may stay that was let in.

use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use actix_web::rt::time::{Sleep, sleep};

use crate::api::access::Access;
use crate::api::access::caller::{Caller, User};
use crate::api::access::keys::KeyId;
use crate::clock::UnixMicros;

/// Longest time slept at a stretch: clocks are set meanwhile.
const SLEEP_MAX: Duration = Duration::from_secs(3_600);

/// How long a connection may stay.
pub(in crate::api) struct Tenure {
    access: Arc<Access>,
    key: KeyId,
    /// When the token ends, if it is one.
    until: Option<(UnixMicros, Pin<Box<Sleep>>)>,
}

impl Tenure {
    /// That of a caller; for ever, where everybody may do everything.
    pub(in crate::api) fn of(access: &Arc<Access>, caller: &Caller) -> Option<Box<Self>> {
        let (key, until) = match caller {
            Caller::Server(key, _) => (*key, None),
            Caller::User(User { key, until, .. }) => (*key, Some(*until)),
            Caller::Anybody | Caller::Stranger | Caller::Refused => return None,
        };
        let until = until.map(|until| (until, Box::pin(sleep(access.left(until)))));
        Some(Box::new(Self { access: Arc::clone(access), key, until }))
    }

    /// Whether it has ended, so that the connection must. Wakes the task when a token ends.
    pub(in crate::api) fn is_over(&mut self, task: &mut Context<'_>) -> bool {
        let Some((until, asleep)) = &mut self.until else { return false };
        while asleep.as_mut().poll(task).is_ready() {
            let left = self.access.left(*until);
            if left.is_zero() {
                return true;
            }
            asleep.set(sleep(left));
        }
        false
    }

    /// Whether the key that vouches for it is still good.
    pub(in crate::api) fn is_vouched_for(&self) -> bool {
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
