//! The integration tests, in one binary.
#![allow(clippy::unwrap_used, missing_docs)]

mod api;
mod bad_input;
mod engine;
mod server;
