//! Proxies: addresses that many clients share, so that limits per address do not apply to them.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use crate::http::client::network;

/// Maximum number of addresses that may be configured as proxies.
const PROXIES_MAX: usize = 64;

/// The addresses of proxies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proxies {
    /// True if all loopback addresses count as proxies.
    loopback: bool,
    addresses: Vec<IpAddr>,
}

impl Default for Proxies {
    /// All loopback addresses are proxies.
    fn default() -> Self {
        Self { loopback: true, addresses: Vec::new() }
    }
}

impl Proxies {
    /// Returns the address, or IPv6 /64 network, whose limit a peer counts against. `None` for a proxy.
    pub(in crate::http) fn counted(&self, peer: Option<SocketAddr>) -> Option<IpAddr> {
        let peer = peer?;
        let address = peer.ip().to_canonical();
        let is_proxy = (self.loopback && address.is_loopback()) || self.addresses.contains(&address);
        (!is_proxy).then(|| network(peer))
    }
}

impl FromStr for Proxies {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut proxies = Self { loopback: false, addresses: Vec::new() };
        if text == "none" {
            return Ok(proxies);
        }
        for part in text.split(',').map(str::trim) {
            match part.parse::<IpAddr>() {
                _ if part == "loopback" => proxies.loopback = true,
                Ok(address) => proxies.addresses.push(address.to_canonical()),
                Err(_) => return Err(format!("{part:?} is neither an address, nor loopback, nor none")),
            }
        }
        match proxies.addresses.len() {
            ..=PROXIES_MAX => Ok(proxies),
            many => Err(format!("{many} addresses are more than the {PROXIES_MAX} allowed")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_or_ipv6_network_has_a_share_and_a_proxy_has_none() {
        let counted = |proxies: &str, peer: &str| {
            let proxies: Proxies = proxies.parse().unwrap();
            proxies.counted(Some(peer.parse().unwrap())).map(|address| address.to_string())
        };
        for (proxies, peer, expected) in [
            ("loopback", "127.0.0.9:1", None),
            ("loopback", "[::1]:1", None),
            ("loopback", "[::ffff:127.0.0.1]:1", None),
            ("loopback", "192.0.2.1:1", Some("192.0.2.1")),
            ("none", "127.0.0.1:1", Some("127.0.0.1")),
            ("192.0.2.1", "127.0.0.1:1", Some("127.0.0.1")),
            ("loopback, 192.0.2.1, 2001:db8::7", "[::ffff:192.0.2.1]:1", None),
            ("loopback,192.0.2.1,2001:db8::7", "[2001:db8::7]:1", None),
            ("loopback,192.0.2.1,2001:db8::7", "[2001:db8::8]:1", Some("2001:db8::")),
        ] {
            assert_eq!(counted(proxies, peer).as_deref(), expected, "{peer} with {proxies}");
        }
        assert_eq!("loopback".parse(), Ok(Proxies::default()));
        for nonsense in ["", "localhost", "10.0.0.0/8", "127.0.0.1:80", "none,loopback"] {
            assert!(nonsense.parse::<Proxies>().is_err(), "{nonsense}");
        }
    }
}
