//! Live: what passes between a watched reader's actor and the connections that watch.
//!
//! Responsible for:
//! - what is told ([`event`]), the bounded queue of each connection ([`subscriber`]), and who is watched ([`watchers`]),
//!   which connections came by a user's token ([`sessions`]).
//!
//! Not responsible for:
//! - what must be told (`feed::stream`, `runtime::reader::watch`), sockets and words (`http::live` of the server).

pub mod event;
pub mod sessions;
pub mod subscriber_queue;
pub mod watchers;
