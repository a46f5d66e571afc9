//! Paths that need no credentials: how often one address may ask for them.
//!
//! Responsible for:
//! - a rate for each address (of IPv6, each network of 64 bits) but those of proxies, by whom many come.
//!
//! Not responsible for:
//! - rates of those who have credentials (`access`).

use std::net::SocketAddr;

use actix_web::web::Data;
use actix_web::{HttpMessage as _, HttpRequest, HttpResponse};

use crate::http::Api;
use crate::http::auth::Denial;
use crate::http::auth::rate::Rates;
use crate::http::middleware::pipeline;
use crate::http::problem::Problem;
use crate::http::sockets::answering::Open;
use crate::http::sockets::proxies::Proxies;
use tidewire::limits::OPEN_REQUESTS_PER_SECOND;

/// Who asked for such paths, and how often.
pub struct OpenPaths {
    rates: Rates,
    proxies: Proxies,
}

impl OpenPaths {
    /// Nobody has asked yet. These addresses come for many.
    pub fn new(proxies: Proxies) -> Self {
        Self { rates: Rates::new(OPEN_REQUESTS_PER_SECOND), proxies }
    }

    /// Counts a request, unless it is one too many.
    pub(in crate::http) fn enter(&self, peer: Option<SocketAddr>) -> Result<(), Problem> {
        let Some(address) = self.proxies.counted(peer) else { return Ok(()) };
        let counted = self.rates.enter_from(Some(SocketAddr::from((address, 0))));
        counted.map_err(|seconds| Denial::TooOften(seconds).into())
    }

    /// The answer to a request that is one too many, and leads to no operation.
    pub(in crate::http) fn refusal(request: &HttpRequest) -> Option<HttpResponse> {
        request.extensions_mut().insert(Open);
        let api = request.app_data::<Data<Api>>()?;
        api.open_paths.enter(request.peer_addr()).err().map(|problem| pipeline::nowhere(request, &problem))
    }

    /// Forgets addresses that did not ask for long.
    pub(in crate::http) fn sweep(&self) {
        self.rates.sweep();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_rate_and_a_proxy_has_none() {
        let open = OpenPaths::new("loopback,192.0.2.9".parse().unwrap());
        let granted = |peer: &str| {
            let peer = Some(peer.parse().unwrap());
            (0..10_000).take_while(|_| open.enter(peer).is_ok()).count()
        };
        let burst = 2 * OPEN_REQUESTS_PER_SECOND.get() as usize;
        // Some come back meanwhile.
        assert!((burst..2 * burst).contains(&granted("192.0.2.1:1")));
        assert!(open.enter(Some("192.0.2.1:7".parse().unwrap())).is_err(), "whatever the port");
        assert!((burst..2 * burst).contains(&granted("192.0.2.2:1")), "another one has its own");
        assert_eq!((granted("127.0.0.1:1"), granted("192.0.2.9:1")), (10_000, 10_000));
    }
}
