//! Where accepted events are kept.

pub mod journal;
