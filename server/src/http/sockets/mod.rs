//! Connections: how many there may be, whose they are, and which of them end for others.
//!
//! Responsible for:
//! - a place for each connection ([`places`]), which leaves files for the journal, snapshots and the archive, and leaves room for other
//!   addresses; the longest idle connection ends for a new one, so that idle ones take nothing from anybody;
//! - requests of one connection one after the other, as a filter of what its client sends ([`turns`], [`framing`]);
//! - what is common to all answers ([`answering`]), and a request that wants to be asked for its body ([`expecting`]).
//!
//! Not responsible for:
//! - accepting connections (`actix_server`), HTTP itself (`actix_http`), clients that take nothing (`http::middleware::stalled_socket`).

pub(super) mod answering;
pub(super) mod expecting;
mod framing;
pub mod line;
pub mod open_files;
pub mod places;
pub mod proxies;
pub(super) mod turns;
