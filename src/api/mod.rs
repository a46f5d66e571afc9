//! The HTTP door: JSON in, JSON out, over the [`Engine`](crate::engine::Engine).
//!
//! Responsible for:
//! - checking requests, turning engine answers into responses, and every refusal into a problem document.
//!
//! Not responsible for:
//! - any decision about feeds: a handler calls the engine once and forwards what it says.

mod answer;
mod choices;
mod explain;
mod feeds;
mod follows;
mod lists;
mod live;
mod operations;
mod page_json;
mod posts;
pub mod problem;
mod request;
pub mod serve;
pub mod slot;
mod upgrade;
