//! Tidewire
pub mod clock;
pub mod feed;
pub mod id;
pub mod limits;
