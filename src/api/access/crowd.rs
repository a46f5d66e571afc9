//! How many connections of each address have yet to say who they are.
//!
//! Responsible for:
//! - leaving room for those of other addresses.
//!
//! Not responsible for:
//! - how many there may be of all addresses together (`api::admission`), which also bounds what is kept here.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use actix_web::http::StatusCode;
use parking_lot::Mutex;

use crate::api::access::rate::network;
use crate::api::problem::Problem;

/// Where they come from. What has no address is one of its own.
type Address = Option<IpAddr>;

/// All of them.
#[derive(Debug)]
pub(super) struct Crowd {
    of_address_max: usize,
    by_address: Mutex<HashMap<Address, usize>>,
}

impl Crowd {
    /// Nobody, of each address at most so many.
    pub(super) fn new(of_address_max: usize) -> Arc<Self> {
        Arc::new(Self { of_address_max, by_address: Mutex::default() })
    }

    /// Lets one in, until what is returned is dropped.
    pub(super) fn enter(self: &Arc<Self>, peer: Option<SocketAddr>) -> Result<Place, Problem> {
        let address = peer.map(network);
        let mut by_address = self.by_address.lock();
        let there = by_address.entry(address).or_default();
        if *there >= self.of_address_max {
            let detail = format!("{there} connections of this address have yet to say who they are");
            let problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many_connections", detail);
            return Err(problem.retry_after(1));
        }
        *there += 1;
        Ok(Place { crowd: Arc::clone(self), address })
    }
}

/// The place of one of them.
#[derive(Debug)]
pub(in crate::api) struct Place {
    crowd: Arc<Crowd>,
    address: Address,
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Entry::Occupied(mut there) = self.crowd.by_address.lock().entry(self.address) {
            *there.get_mut() -= 1;
            if *there.get() == 0 {
                there.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_its_share_and_nothing_is_kept_of_one_that_has_gone() {
        let crowd = Crowd::new(2);
        let enter = |address: &str| crowd.enter(Some(address.parse().unwrap()));
        let first = enter("192.0.2.1:1").unwrap();
        let second = enter("192.0.2.1:2").unwrap();
        assert!(enter("192.0.2.1:3").is_err() && enter("[::ffff:192.0.2.1]:3").is_err());
        assert!(enter("192.0.2.2:3").is_ok() && crowd.enter(None).is_ok());
        drop(first);
        let third = enter("192.0.2.1:3").unwrap();
        assert_eq!(crowd.by_address.lock().len(), 1);
        drop((second, third));
        assert_eq!(crowd.by_address.lock().len(), 0);
    }
}
