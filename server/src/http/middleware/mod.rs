//! Middleware: the processing steps that all requests and responses have in common.

pub(super) mod body;
pub mod open_paths;
pub mod pace;
pub(super) mod pipeline;
pub(super) mod pipeline_state;
pub(super) mod response_guard;
#[cfg(feature = "otel")]
pub mod spans;
pub(super) mod stalled_socket;
mod starting;
