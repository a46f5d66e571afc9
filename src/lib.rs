//! Tidewire: a feed engine in one process.
//!
//! It answers one question, very fast and for very many people: what have the sources I follow published, newest first?
//! [`engine::Engine`] is everything it does, as one type. The crate `tidewire-server` serves that over HTTP.
//!
//! [`feed`] is the pure core, [`state`] what everybody reads and one writer writes, [`runtime`] who does what on which
//! thread. ARCHITECTURE.md is the map.

pub mod clock;
pub mod config;
pub mod engine;
pub mod error;
pub mod feed;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
pub mod id;
#[doc(hidden)]
pub mod json;
pub mod latency;
pub mod limits;
pub mod live;
pub mod runtime;
pub mod state;
pub mod storage;
#[doc(hidden)]
pub mod throttle;
