//! The pure core: the data structures and algorithms of a feed, without actors, files, sockets, locks or clocks.
//!
//! Everything here is a plain value with plain methods. The rest of the crate decides when they are called.

pub mod body;
pub mod celebrity;
pub mod cursor;
pub mod decaying;
pub mod event;
pub mod followers;
pub mod following;
pub mod heap;
pub mod inbox;
pub mod kind;
pub mod lookups;
pub mod merge;
pub mod outbox;
pub mod page;
pub mod position;
pub mod post;
pub mod preferences;
pub mod record;
pub mod reposts;
pub mod resume;
pub mod rules;
pub mod runs;
pub mod schedule;
pub mod slice_queue;
pub mod stream;
mod without_users;
pub mod work;
