//! Live connections over real sockets.

mod client;
mod events;
mod limits;
mod slow;
mod told;
