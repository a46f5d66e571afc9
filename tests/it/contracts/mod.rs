//! The engine's own implementations of its traits, under their contracts.

mod archive;
mod log;
mod shared_archive;
