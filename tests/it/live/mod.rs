//! Live connections, over real sockets and, where much is to happen at the same time, within the process.

mod client;
mod events;
mod keeper;
mod limits;
mod races;
mod slow;
mod storm;
mod told;
