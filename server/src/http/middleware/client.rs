//! Clients: between whom what there is for all is shared out.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::LazyLock;

use actix_web::HttpMessage as _;
use actix_web::dev::ServiceRequest;

use crate::http::auth::Caller;
use crate::http::auth::rate::network;

/// Who sent a request, as far as shares go. Nobody's name is kept: a hash tells one from another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::http) enum Client {
    /// Whoever acts for many others: by a key of the server, or from the same machine.
    Trusted,
    /// A user, or without keys a network.
    One(u64),
}

/// Random, so that nobody finds a name that shares with another's.
static NAMES: LazyLock<RandomState> = LazyLock::new(RandomState::new);

impl Client {
    /// The client of a request that [`Access`](crate::http::auth::Access) let in.
    pub(in crate::http) fn of(request: &ServiceRequest) -> Self {
        match request.extensions().get::<Caller>() {
            Some(Caller::Server(..)) => return Self::Trusted,
            Some(Caller::User(user)) => return Self::One(NAMES.hash_one(user.id.as_str())),
            _ => {}
        }
        let elsewhere = request.peer_addr().map(network).filter(|address| !address.is_loopback());
        elsewhere.map_or(Self::Trusted, |address| Self::One(NAMES.hash_one(address)))
    }
}
