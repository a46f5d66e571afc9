//! Middleware: what every request and every answer passes, whatever it asks for.

pub mod admission;
pub(super) mod body;
pub(super) mod client;
pub mod open_paths;
pub mod pace;
pub(super) mod pipeline;
pub mod request_metrics;
pub(super) mod response_guard;
#[cfg(feature = "otel")]
pub mod spans;
pub(super) mod stalled_socket;
