//! What outlives the process: the journal, snapshots, and how both become state again.

pub mod archive;
pub mod error;
pub mod files;
pub mod frame;
pub mod identity;
pub mod journal;
pub mod lock;
pub mod recovery;
pub mod segment;
pub mod snapshot;
