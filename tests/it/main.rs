//! The integration tests, in one binary.
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub, reason = "tests")]

mod access;
mod api;
mod archive;
mod archive_faults;
mod bad_input;
mod browser;
mod concurrency;
mod damage;
mod description;
mod engine;
mod export;
mod faults;
mod fixtures;
mod hostile;
mod kept;
mod kill;
mod live;
mod metrics;
mod modes;
mod operations;
mod oracle;
mod overload;
mod paging;
mod personal;
mod power;
mod properties;
mod recovery;
mod reposts;
mod requirements;
mod server;
mod tidy;
mod tls;
mod tools;
mod world;
