//! The Redis protocol: a second form of the operations of HTTP, for the clients that Redis has in every language.
//!
//! Responsible for:
//! - parsing commands and writing replies, in RESP2 and RESP3 ([`protocol`], [`replies`]);
//! - the request of each feed command ([`commands`]), which the application of the worker answers like a request that came over HTTP. So
//!   permissions, limits, rates, metrics, problems and the nodes of a cluster are the same. The page of an awake reader is read without a
//!   request (`feed_of_command` in `routes.rs`), under the same checks;
//! - one connection: its commands in order, its credential and its protocol ([`connection`]);
//! - the live feeds that a connection watches ([`subscriptions`]);
//! - the handshake and introspection commands ([`session`]).

mod commands;
mod connection;
#[cfg(any(test, feature = "fuzzing"))]
pub(in crate::http) mod fuzzing;
mod protocol;
mod replies;
mod session;
mod subscriptions;

pub(in crate::http) use crate::http::resp::connection::{RespContext, serve};
