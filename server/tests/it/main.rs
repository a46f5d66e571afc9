//! The integration tests of the server, in one binary.
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub, reason = "tests")]

mod access;
mod all_posts;
mod all_users;
mod api;
mod archive_damage;
#[cfg(feature = "backup")]
mod backup;
mod bad_input;
mod browser;
mod bulk;
mod caching;
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
mod external_ids;
mod failed_start;
mod faults;
mod first_configuration;
mod held_files;
mod identity;
mod idle;
mod import_files;
mod kill;
mod live;
mod many_feeds;
mod metrics;
mod migrate;
mod names;
#[cfg(feature = "cluster")]
mod nodes;
mod operations;
mod ops;
mod overload;
mod oversized;
mod personal;
mod program;
mod random_history;
mod recovery;
mod replies;
mod reposts_and_counts;
mod requirements;
mod resp;
mod server;
mod signals;
mod slow_log;
mod strangers;
#[cfg(feature = "cluster")]
mod three_nodes;
mod tls;
mod tools;
mod user_data;
mod wire;
