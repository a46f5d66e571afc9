//! The integration tests of the server, in one binary.
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub, reason = "tests")]

mod access;
mod all_posts;
mod api;
mod archive_damage;
#[cfg(feature = "backup")]
mod backup;
mod bad_input;
mod browser;
mod bulk;
mod caching;
#[cfg(feature = "cassandra")]
#[path = "../../../tests/support/cassandra_node.rs"]
pub mod cassandra_node;
mod changes;
mod cli;
#[cfg(feature = "cluster")]
mod cluster;
mod commands;
mod compression;
mod connections;
mod demo;
mod description;
mod diagnostics;
mod erasure;
mod export;
mod failed_start;
mod faults;
mod first_configuration;
#[path = "../../../tests/it/fixture_files.rs"]
#[allow(dead_code, reason = "the tests of the engine use the rest")]
mod fixture_files;
mod identity;
mod idle;
mod import_files;
#[path = "../../../tests/it/kept.rs"]
#[allow(dead_code, reason = "the tests of the engine use the rest")]
mod kept;
mod kill;
mod live;
mod many_feeds;
mod metrics;
mod migrate;
#[cfg(feature = "cluster")]
mod nodes;
#[path = "../../../tests/it/observed_archive.rs"]
#[allow(dead_code, reason = "the tests of the engine use the rest")]
mod observed_archive;
mod operations;
mod ops;
#[path = "../../../tests/it/oracle.rs"]
#[allow(dead_code, reason = "the tests of the engine use the rest")]
mod oracle;
mod overload;
mod oversized;
mod personal;
mod random_history;
mod recovery;
mod replies;
mod requirements;
mod server;
mod signals;
mod slow_log;
mod strangers;
#[path = "../../../tests/support/test_servers.rs"]
pub mod test_servers;
#[cfg(feature = "cluster")]
mod three_nodes;
mod tls;
mod tools;
#[path = "../../../tests/it/world.rs"]
#[allow(dead_code, reason = "the tests of the engine use the rest")]
mod world;
