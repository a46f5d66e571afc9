//! Helpers that the tests of the engine, the server and the load tool share.
#![allow(clippy::unwrap_used, clippy::missing_panics_doc, missing_docs, reason = "tests")]

mod cases;
pub mod cassandra;
pub mod cluster_nodes;
mod connect;
pub mod contract;
mod eventually;
pub mod fixture_files;
pub mod histories;
pub mod kafka;
pub mod observed_archive;
mod on_drop;
pub mod oracle;
mod output;
mod page_count;
pub mod test_servers;
pub mod world;

pub use cases::{cases, seed, stride};
pub use connect::connect;
pub use eventually::{DEADLINE, ended, eventually, eventually_async, in_time, reached};
pub use on_drop::OnDrop;
pub use output::{output, output_of};
pub use page_count::PageCount;
