//! The contracts of the engine's traits, each as one suite that runs for every implementation, in any crate.

pub mod archive;
pub mod log;
pub mod shared_archive;
