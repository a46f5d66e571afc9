//! Readers: who is awake, the actor of each, its inbox, and the order in which reads are served.

pub mod activator;
pub mod directory;
pub(super) mod fair_queue;
pub mod inbox_store;
pub mod read_scheduler;
pub mod user;
pub(super) mod watch;
