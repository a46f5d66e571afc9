//! Rate limits for paths that need no credentials.

use std::net::SocketAddr;
use std::num::NonZeroU32;

use crate::http::auth::Denial;
use crate::http::auth::rate::Rates;
use crate::http::client::Client;
use crate::http::problem::Problem;
use crate::http::proxies::Proxies;

/// The rate limits of addresses on paths without credentials.
pub struct OpenPaths {
    rates: Rates,
    proxies: Proxies,
}

impl OpenPaths {
    /// Creates limits of `rate` requests per second for each address except those of `proxies`.
    pub fn new(rate: NonZeroU32, proxies: Proxies) -> Self {
        Self { rates: Rates::new(rate), proxies }
    }

    /// Returns the client against whose limits an address counts.
    pub(super) fn client_at(&self, peer: Option<SocketAddr>) -> Client {
        self.proxies.counted(peer).map_or(Client::Trusted, Client::named)
    }

    /// Counts a request against the rate of its address, or refuses it.
    pub(in crate::http) fn enter(&self, peer: Option<SocketAddr>) -> Result<(), Problem> {
        let Some(address) = self.proxies.counted(peer) else { return Ok(()) };
        let counted = self.rates.enter_from(Some(SocketAddr::from((address, 0))));
        counted.map_err(|seconds| Denial::TooOften(seconds).into())
    }

    /// Removes addresses that have sent no requests for a long time.
    pub(in crate::http) fn sweep(&self) {
        self.rates.sweep();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidewire::limits::OPEN_REQUESTS_PER_SECOND;

    #[test]
    fn an_address_is_rate_limited_and_a_proxy_is_not() {
        let open = OpenPaths::new(OPEN_REQUESTS_PER_SECOND, "loopback,192.0.2.9".parse().unwrap());
        let granted = |peer: &str| {
            let peer = Some(peer.parse().unwrap());
            (0..10_000).take_while(|_| open.enter(peer).is_ok()).count()
        };
        let burst = 2 * OPEN_REQUESTS_PER_SECOND.get() as usize;
        // The limiter refills during the loop, so the count may exceed the burst.
        assert!((burst..2 * burst).contains(&granted("192.0.2.1:1")));
        assert!(open.enter(Some("192.0.2.1:7".parse().unwrap())).is_err(), "whatever the port");
        assert!((burst..2 * burst).contains(&granted("192.0.2.2:1")), "another one has its own");
        assert_eq!((granted("127.0.0.1:1"), granted("192.0.2.9:1")), (10_000, 10_000));
    }
}
