//! A client of the Redis protocol (RESP), for all designs that speak it.
//!
//! Responsible for:
//! - encoding commands and parsing replies (`protocol`);
//! - connections that clients share (`link`, `pool`).

pub(in crate::target) mod link;
pub(in crate::target) mod pool;
pub(in crate::target) mod protocol;
