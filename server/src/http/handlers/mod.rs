//! Handlers: each one parses a request, calls the engine, and writes the response.

pub(super) mod all_posts;
pub(super) mod all_users;
pub(super) mod bulk_posts;
pub(super) mod diagnostics;
pub(super) mod erase;
pub(super) mod explain;
pub(super) mod feeds;
pub(super) mod follows;
pub(super) mod lists;
pub(in crate::http) mod many_feeds;
pub(super) mod metrics;
pub(in crate::http) mod page_query;
#[cfg(feature = "cluster")]
pub(super) mod peer_snapshot;
pub(super) mod posts;
pub(super) mod preferences;
pub(super) mod readiness;
pub(super) mod server;
pub(super) mod user_data;
pub(super) mod users;
