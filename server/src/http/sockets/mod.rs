//! Connections: their limits, and which of them are closed when a limit is reached.
//!
//! Responsible for:
//! - a slot for each connection ([`connection_slots`]). The limits leave open files for the journal, snapshots and the archive, and slots for
//!   other addresses. The longest idle connection is closed for a new one, so that idle connections cost nobody a slot;
//! - processing the requests of a connection one after the other, as a filter of the bytes that its client sends ([`request_order`], [`framing`]);
//! - handling that all responses have in common ([`answering`]), and requests with `Expect: 100-continue` ([`expecting`]).

pub(super) mod answering;
pub mod connection_slots;
pub(super) mod expecting;
mod framing;
pub mod open_files;
pub(super) mod request_order;
