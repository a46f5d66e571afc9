//! Connections: their limits, evictions at a limit, and the order of their requests.
//!
//! Responsible for:
//! - a slot for each connection ([`connection_slots`]). The limits leave open files for the journal, snapshots and the archive, and slots
//!   for other addresses. A new connection evicts the longest idle one if all slots are in use;
//! - processing the requests of a connection one after the other, by filtering the received bytes ([`request_order`], [`framing`]);
//! - handling that is common to all responses ([`answering`]), and requests with `Expect: 100-continue` ([`expecting`]).

pub(super) mod answering;
pub mod connection_slots;
pub(super) mod expecting;
mod framing;
pub mod open_files;
pub(super) mod request_order;
