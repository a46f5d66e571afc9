//! The integration tests of the load tool, in one binary.
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub, reason = "tests")]

mod contract;
mod live;
mod live_compare;
mod mariadb;
mod redis;
mod run;
mod servers;
