//! Designs on real servers, against expected pages.
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub, reason = "tests")]

mod mariadb;
mod servers;
