//! Requests that arrive at another node of a cluster than the one that handles them.

mod deliveries;
mod failures;
mod live;
mod moves;
mod nodes;
mod operations;
mod peer;
mod rights;
mod waits;

/// The metrics of a node.
pub fn metrics() -> String {
    nodes::Nodes::of_own_worlds().a().get("/metrics").text
}
