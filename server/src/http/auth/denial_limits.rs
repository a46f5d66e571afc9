//! Counts denials by reason, and limits the rate of unknown credentials of each address.

use std::net::{IpAddr, SocketAddr};

use tracing::warn;

use crate::http::auth::denial::{CODES, Denial};
use crate::http::auth::rate::Rates;
use tidewire::limits::UNKNOWN_CREDENTIALS_PER_SECOND;
use tidewire::runtime::counters::Counter;
use tidewire::throttle::Throttle;

/// The counts of denials since the start, and the rates of unknown credentials.
pub(super) struct DenialLimits {
    by_code: [Counter; CODES.len()],
    unknown: Rates,
    log_throttle: Throttle,
}

impl Default for DenialLimits {
    fn default() -> Self {
        let unknown = Rates::new(UNKNOWN_CREDENTIALS_PER_SECOND);
        Self { by_code: Default::default(), unknown, log_throttle: Throttle::default() }
    }
}

impl DenialLimits {
    /// Counts a denial and returns the denial for the response. The denial counts against the rate of `address`, if there is one.
    pub(super) fn note(&self, denial: Denial, peer: Option<SocketAddr>, address: Option<IpAddr>) -> Denial {
        // Only unknown credentials count against the rate. A client with an expired token always gets that denial, because many clients
        // may share the address.
        let address =
            address.filter(|_| matches!(denial, Denial::Unknown(_))).map(|address| SocketAddr::from((address, 0)));
        let counted = address.map_or(Ok(()), |address| self.unknown.enter_from(Some(address)));
        let denial = counted.map_or_else(Denial::TooMany, |()| denial);
        if let Some(nth) = CODES.iter().position(|code| *code == denial.code()) {
            self.by_code[nth].add(1);
        }
        self.log(denial, peer);
        denial
    }

    /// Returns the number of denials by code.
    pub(super) fn by_code(&self) -> impl Iterator<Item = (&'static str, u64)> {
        CODES.into_iter().zip(self.by_code.iter().map(Counter::get))
    }

    /// Removes addresses that have sent no unknown credentials for a long time.
    pub(super) fn sweep(&self) {
        self.unknown.sweep();
    }

    fn log(&self, denial: Denial, peer: Option<SocketAddr>) {
        let Some(since) = self.log_throttle.due() else { return };
        let peer = peer.map(|peer| peer.ip().to_canonical().to_string());
        warn!(peer, reason = denial.code(), more_since_last = since, "a request was denied");
    }
}
