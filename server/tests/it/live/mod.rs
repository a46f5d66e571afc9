//! Live connections, over real sockets and, where much is to happen at the same time, within the process.

mod archived;
mod asleep;
mod beats;
pub mod client;
mod events;
mod feed_client;
mod flood;
mod limits;
mod races;
mod slow;
mod sockets;
mod starting;
mod storm;
mod told;
mod unread;
