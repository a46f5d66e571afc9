//! Live: what passes between a watched reader's actor and the connections that watch.
//!
//! Responsible for:
//! - what is told ([`event`]), the bounded queue of each connection ([`outlet`]), and who is watched ([`watchers`]).
//!
//! Not responsible for:
//! - what must be told (`feed::stream`, `actor::watch`), sockets and words (`api::live`).

pub mod event;
pub mod outlet;
pub mod watchers;
