//! The client of a request: the unit among which limited resources are shared fairly.

use std::hash::{BuildHasher as _, Hash, RandomState};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::LazyLock;

/// The client whose share the bytes of a request or response use. It is a hash, so no names are stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::http) enum Client {
    /// A client that acts for many others: it has a server key or connects from the same machine. It has no share limit.
    Trusted,
    /// A user, or a network if the user is not known.
    One(u64),
}

/// Randomly keyed, so that a client cannot choose a name with the same hash as another one.
static NAMES: LazyLock<RandomState> = LazyLock::new(RandomState::new);

impl Client {
    /// Returns the client with this name: a user id or a network.
    pub(in crate::http) fn named(name: impl Hash) -> Self {
        Self::One(NAMES.hash_one(name))
    }
}

/// Returns the address by which limits count a peer: all addresses of one IPv6 /64 network count as one client.
pub(in crate::http) fn network(peer: SocketAddr) -> IpAddr {
    match peer.ip().to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_network_counts_as_one_client() {
        let network = |text: &str| network(text.parse().unwrap());
        assert_eq!(network("[2001:db8::1]:1"), network("[2001:db8::2:3]:9"));
        assert_ne!(network("[2001:db8:0:1::1]:1"), network("[2001:db8:0:2::1]:1"));
        assert_eq!(network("[::ffff:192.0.2.1]:1"), network("192.0.2.1:2"));
        assert_ne!(network("192.0.2.1:2"), network("192.0.2.2:2"));
    }
}
