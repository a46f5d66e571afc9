//! Requests that arrive at another node of a cluster than the one that handles them.

mod failures;
mod live;
mod nodes;
mod operations;
mod peer;
mod rights;
