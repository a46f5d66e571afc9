//! Actors: thin shells around `feed` and `state`. They decide which thread performs which work, and when.
//!
//! | actor | runs on | may change |
//! |---|---|---|
//! | command processor | its own thread | the world, through the one `StateMachine` |
//! | fan-out supervisor | its own arbiter | the fan-out schedule |
//! | courier, one per shard | the shard's arbiter | the inboxes of its shard |
//! | activator, one per shard | the shard's arbiter | the set of awake readers |
//! | user actor, one per active reader | the shard's arbiter | its own inbox |
//!
//! The eraser, the snapshotter and the archiver are separate threads. They may block, and they change the world by
//! sending commands to the command processor.
//!
//! No code here blocks an actor's thread, and every queue has a limit in `limits`.

pub mod abort_on_exit;
pub mod background;
pub(crate) mod change_consumers;
pub(crate) mod change_readers;
pub mod core;
pub mod counters;
pub mod fanout;
pub mod hybrid_logical_clock;
pub mod message;
pub mod processor;
pub mod reader;
pub mod shared;
