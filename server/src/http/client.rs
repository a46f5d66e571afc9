//! The client of a request, for sharing limited bytes fairly.

use std::hash::{BuildHasher as _, Hash, RandomState};
use std::sync::LazyLock;

/// The key by which the bytes of requests and responses are shared. It is a hash, so no names are stored.
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
