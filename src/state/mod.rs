//! The shared state: read by many threads, written by the scribe alone.
//!
//! State is a function of the events applied to it, in their order; replay runs the same code. Nothing here starts a
//! thread, touches a file or a socket.

pub mod arrivals;
mod awaited;
mod catch_up;
pub mod erasures;
pub mod explain;
pub mod failures;
pub mod free_ids;
pub mod held;
pub mod held_back;
pub mod posts;
pub mod pruning;
pub mod reader;
pub mod records;
pub mod reposts;
pub mod resolved;
pub mod revealed;
pub mod revocations;
pub mod slow;
pub mod sources;
pub mod tiering;
pub mod verify;
pub mod view;
pub mod viewer;
pub mod world;
