//! Background threads beside the actors, which may wait for a disk.

pub mod archive_copier;
pub mod archiver;
pub(crate) mod eraser;
pub mod resolver;
pub mod snapshotter;
