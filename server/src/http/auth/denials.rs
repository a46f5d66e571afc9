//! Denials, counted: how many there were and why, and who sends too many.
//!
//! Responsible for:
//! - counts by reason, and a line in the log now and then;
//! - having an address wait that keeps sending credentials that are not known. Those that are good are let in from there all
//!   the same, since somebody else may be at that address; but for tokens that were not verified lately, while forged ones have spent what
//!   their signatures may cost (`access::signatures`). No proxy waits: whoever comes by it with a token that is not known any more is to learn
//!   that.
//!
//! Not responsible for:
//! - who is denied (`access`).

use std::net::{IpAddr, SocketAddr};

use tracing::warn;

use crate::http::auth::denial::{CODES, Denial};
use crate::http::auth::rate::Rates;
use tidewire::limits::UNKNOWN_CREDENTIALS_PER_SECOND;
use tidewire::runtime::counters::Counter;
use tidewire::throttle::Throttle;

/// What was denied since the start.
pub(super) struct Denials {
    by_code: [Counter; CODES.len()],
    unknown: Rates,
    told: Throttle,
}

impl Default for Denials {
    fn default() -> Self {
        let unknown = Rates::new(UNKNOWN_CREDENTIALS_PER_SECOND);
        Self { by_code: Default::default(), unknown, told: Throttle::default() }
    }
}

impl Denials {
    /// Takes note of a denial, and returns what to answer. It counts for `address`, if for any.
    pub(super) fn note(&self, denial: Denial, peer: Option<SocketAddr>, address: Option<IpAddr>) -> Denial {
        // Who had a good one before is told that it has expired, however many there are: all may come by one proxy.
        let address =
            address.filter(|_| matches!(denial, Denial::Unknown(_))).map(|address| SocketAddr::from((address, 0)));
        let counted = address.map_or(Ok(()), |address| self.unknown.enter_from(Some(address)));
        let denial = counted.map_or_else(Denial::TooMany, |()| denial);
        if let Some(nth) = CODES.iter().position(|code| *code == denial.code()) {
            self.by_code[nth].add(1);
        }
        self.tell(denial, peer);
        denial
    }

    /// How many there were, by the code they are answered with.
    pub(super) fn by_code(&self) -> impl Iterator<Item = (&'static str, u64)> {
        CODES.into_iter().zip(self.by_code.iter().map(Counter::get))
    }

    /// Forgets addresses that sent nothing bad for long.
    pub(super) fn sweep(&self) {
        self.unknown.sweep();
    }

    fn tell(&self, denial: Denial, peer: Option<SocketAddr>) {
        let Some(since) = self.told.due() else { return };
        let peer = peer.map(|peer| peer.ip().to_canonical().to_string());
        warn!(peer, reason = denial.code(), more_since_last = since, "a request was denied");
    }
}
