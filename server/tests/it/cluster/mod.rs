//! Requests that arrive at another node of a cluster than the one that handles them.

mod nodes;
mod operations;
