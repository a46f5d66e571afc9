//! The shared state: read by many threads, written only by the command processor.
//!
//! The state depends only on the events applied to it and on their order, and replay runs the same code. The only exception is the route of
//! a post, which may depend on how often feeds are read; no page depends on it. No code in this module starts a thread or accesses a file
//! or a socket directly; the archive is accessed through its trait.

pub mod activity;
pub mod all_posts;
mod awaited;
mod catch_up;
pub mod delivery_tracker;
pub mod digest;
pub mod direct_page;
pub mod explain;
pub mod failures;
pub mod feed_filter;
pub mod free_ids;
pub mod held;
pub mod notified;
pub mod posts;
pub mod read_clock;
pub mod reader;
pub mod records;
pub mod reposts;
pub mod resolved;
pub mod revealed;
pub mod revocations;
pub mod slow;
pub mod sources;
pub mod tiering;
pub mod unwritten;
pub mod verify;
pub mod viewer;
pub mod world;
