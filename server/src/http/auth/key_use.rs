//! Counts the uses of each key, with the time of the last one, for operators.

use std::sync::atomic::{AtomicI64, Ordering};

use crate::http::auth::key::KeyScope;
use tidewire::clock::UnixMicros;
use tidewire::runtime::counters::Counter;

const NEVER: i64 = i64::MIN;

const SECOND_US: i64 = 1_000_000;

/// The use of one key since the start of the server.
#[derive(Debug)]
pub(super) struct KeyUse {
    requests: Counter,
    /// The time of the last use, in seconds.
    last_used: AtomicI64,
}

impl Default for KeyUse {
    fn default() -> Self {
        Self { requests: Counter::new(), last_used: AtomicI64::new(NEVER) }
    }
}

impl KeyUse {
    /// Counts a request. Writes the time at most once per second, because all workers read it.
    pub(super) fn note(&self, now: UnixMicros) {
        self.requests.add(1);
        let second = now.0.div_euclid(SECOND_US);
        if self.last_used.load(Ordering::Relaxed) != second {
            self.last_used.store(second, Ordering::Relaxed);
        }
    }
}

/// A key of the access file, without the key itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct KeyFigures {
    /// The name in the access file.
    pub(in crate::http) name: Option<Box<str>>,
    /// The scope of a server key; `None` for a key that verifies tokens.
    pub(in crate::http) scope: Option<KeyScope>,
    /// The number of requests that used the key, or tokens that it verified.
    pub(in crate::http) requests: u64,
    /// The time of the last of these requests, in whole seconds.
    pub(in crate::http) last_used: Option<UnixMicros>,
}

impl KeyFigures {
    pub(super) fn new(name: Option<&str>, scope: Option<KeyScope>, of: &KeyUse) -> Self {
        let last_used = match of.last_used.load(Ordering::Relaxed) {
            NEVER => None,
            second => Some(UnixMicros(second.saturating_mul(SECOND_US))),
        };
        Self { name: name.map(Into::into), scope, requests: of.requests.get(), last_used }
    }
}
