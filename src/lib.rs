//! Tidewire
pub mod actor;
pub mod api;
pub mod cli;
pub mod clock;
pub mod config;
pub mod engine;
pub mod error;
pub mod feed;
pub mod id;
pub mod limits;
pub mod state;
pub mod storage;
