//! Persistent storage: the journal, snapshots and the archive, and recovery of the state from them.

pub mod archive;
pub mod directory_identity;
pub mod disk_use;
pub mod error;
pub mod files;
pub mod frame;
pub mod identity;
pub mod journal;
pub mod lock;
pub mod log;
pub mod retained;
pub mod segment;
pub mod sequence;
pub mod snapshot;
