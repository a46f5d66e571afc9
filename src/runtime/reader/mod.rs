//! Readers: the directory of awake readers, the actor and the inbox of each, and the scheduling of reads.

pub mod activator;
pub(crate) mod direct;
pub(crate) mod direct_budget;
pub(super) mod fair_queue;
pub mod inboxes;
mod lock;
pub mod read_permit;
pub mod read_scheduler;
pub mod user;
