//! Actors: thin shells around `feed` and `state` that decide which thread does what, and when.
//!
//! | who | runs on | may change |
//! |---|---|---|
//! | scribe | its own thread | the world, through the one `Writer` |
//! | fan-out supervisor | its own arbiter | the fan-out schedule |
//! | courier, one per shard | the shard's arbiter | the inboxes of its shard |
//! | doorkeeper, one per shard | the shard's arbiter | who is awake |
//! | user actor, one per active reader | the shard's arbiter | its own inbox |
//!
//! The eraser, the keeper and the archivist are threads beside them, which may wait, and change the world by commands to the scribe.
//!
//! Nothing here blocks an actor's thread, and every queue has a limit in `limits`.

pub mod archivist;
pub mod counters;
pub mod courier;
pub mod directory;
pub mod doorkeeper;
pub(crate) mod eraser;
pub mod fanout;
pub mod fanout_latency;
pub mod keeper;
pub mod mailroom;
pub mod message;
pub mod open_fanouts;
pub mod reception;
pub mod resolver;
pub mod scribe;
pub mod ticker;
mod turns;
pub mod user;
pub mod vital;
mod watch;
