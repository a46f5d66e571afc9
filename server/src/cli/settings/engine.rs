//! Converts the settings for the engine, its storage and the admission of requests.

use std::num::NonZeroUsize;
use std::time::Duration;

use super::{Bytes, Compression, DurationArg, Inboxes, Settings, SettingsError, SyncPolicy};
use crate::http::admission::AdmissionLimits;
use tidewire::config::EngineConfig;
use tidewire::engine::StorageConfig;
use tidewire::limits::{BULK_REQUEST_BYTES_MAX, ERASURE_GRACE_MAX, ERASURE_GRACE_OF_SERVER};
use tidewire::runtime::background::snapshotter::SnapshotOptions;
use tidewire::storage::journal::writer::JournalOptions;

/// Upper bound of the maximum number of edges of one follower: 12 bytes each, all in one record of a snapshot.
const FOLLOWING_MAX: usize = 4_000_000;

/// Maximum number of shards.
const SHARDS_MAX: usize = 256;

/// Upper bound of `inbox-posts`. With more posts, waking a reader would take longer than a page by pull.
const INBOX_POSTS_MAX: usize = 100_000;

impl Settings {
    /// Returns the admission limits: these settings over the defaults.
    ///
    /// # Errors
    /// If the limit on body bytes is smaller than one bulk request.
    pub fn admission(&self) -> Result<AdmissionLimits, SettingsError> {
        let default = AdmissionLimits::default();
        let number = |number: Option<NonZeroUsize>, default| number.map_or(default, NonZeroUsize::get);
        let reads = number(self.reads_max, default.reads);
        let limits = AdmissionLimits {
            reads,
            wake_ups: default.wake_ups.min(reads.div_ceil(2)),
            writes: number(self.writes_max, default.writes),
            write_bytes: self.write_bytes_max.map_or(default.write_bytes, Bytes::in_memory),
            ..default
        };
        if limits.write_bytes < BULK_REQUEST_BYTES_MAX {
            let what = format!(
                "{} is too small: one request with many follows may have {BULK_REQUEST_BYTES_MAX}",
                limits.write_bytes
            );
            return Err(SettingsError::Nonsense { option: "write-bytes-max", what });
        }
        Ok(limits)
    }

    /// Returns the configuration of the engine: these settings over the defaults.
    ///
    /// # Errors
    /// The error names the option with the invalid value.
    pub fn engine(&self) -> Result<EngineConfig, SettingsError> {
        let default = EngineConfig::default();
        let span = |span: Option<DurationArg>, default| span.map_or(default, |span| span.0);
        let number = |number: Option<NonZeroUsize>, default| number.map_or(default, NonZeroUsize::get);
        let config = EngineConfig {
            inbox_posts: self.inbox_posts.unwrap_or(default.inbox_posts),
            inbox_age: self.inbox_age.map(|age| age.0),
            celebrity: self.celebrity_followers.map_or(default.celebrity, |celebrity| celebrity.0),
            active_window: span(self.active_window, default.active_window),
            active_readers_max: self.active_readers_max.unwrap_or(default.active_readers_max),
            shards: self.shards.unwrap_or(default.shards),
            following_max: number(self.following_max, default.following_max),
            fanout_backlog_max: self.fanout_backlog_max,
            outbox_posts: self.outbox_posts.unwrap_or(default.outbox_posts),
            archive_budget: span(self.archive_budget, default.archive_budget),
            store_bytes_max: self.store_bytes_max.map_or(default.store_bytes_max, Bytes::in_memory),
            sources_max: number(self.sources_max, default.sources_max),
            edges_max: number(self.edges_max, default.edges_max),
            graph_bytes_max: self.graph_bytes_max.map_or(default.graph_bytes_max, Bytes::in_memory),
            reposts_max: number(self.reposts_max, default.reposts_max),
            pull_budget: span(self.pull_budget, default.pull_budget),
            live_max: number(self.live_max, default.live_max),
            live: default.live,
            live_heartbeat: default.live_heartbeat,
            live_history_ttl: span(self.live_history_ttl, default.live_history_ttl),
            erasure_grace: span(self.erasure_grace, ERASURE_GRACE_OF_SERVER),
            changes_retention: span(self.changes_retention, default.changes_retention),
            changes_retention_bytes: self
                .changes_retention_bytes
                .map_or(default.changes_retention_bytes, |bytes| bytes.0.get()),
        };
        check(&config)?;
        Ok(config)
    }
}

impl Settings {
    /// Returns the configuration of the storage: these settings over the defaults.
    ///
    /// # Errors
    /// The error names the option with the invalid value.
    pub fn storage(&self) -> Result<StorageConfig, SettingsError> {
        let default = StorageConfig::default();
        let interval = self.snapshot_interval.map_or(default.snapshots.interval, |span| span.0);
        if interval.is_zero() {
            let what = "must be longer than zero".to_owned();
            return Err(SettingsError::Nonsense { option: "snapshot-interval", what });
        }
        let durability = self.durability.map_or(default.journal.durability, |SyncPolicy(durability)| durability);
        Ok(StorageConfig {
            directory: self.data_dir.clone().unwrap_or(default.directory),
            journal: JournalOptions { durability, ..default.journal },
            snapshots: SnapshotOptions {
                interval,
                journal_bytes: self
                    .snapshot_journal_bytes
                    .map_or(default.snapshots.journal_bytes, |bytes| bytes.0.get()),
                inboxes: self.snapshot_inboxes.unwrap_or(Inboxes(default.snapshots.inboxes)).0,
                compress: self.snapshot_compression.unwrap_or(Compression(default.snapshots.compress)).0,
            },
            repair: self.repair,
        })
    }
}

/// Rejects values that parse but are out of range.
fn check(config: &EngineConfig) -> Result<(), SettingsError> {
    let refuse = |option, what: String| Err(SettingsError::Nonsense { option, what });
    if config.inbox_posts.get() > INBOX_POSTS_MAX {
        return refuse("inbox-posts", format!("{} is more than the {INBOX_POSTS_MAX} allowed", config.inbox_posts));
    }
    if config.shards.get() > SHARDS_MAX {
        return refuse("shards", format!("{} is more than the {SHARDS_MAX} allowed", config.shards));
    }
    if config.following_max > FOLLOWING_MAX {
        return refuse("following-max", format!("{} is more than the {FOLLOWING_MAX} allowed", config.following_max));
    }
    if config.erasure_grace > ERASURE_GRACE_MAX {
        return refuse("erasure-grace", format!("{:?} is more than the maximum, one day", config.erasure_grace));
    }
    let durations = [
        ("inbox-age", config.inbox_age.unwrap_or(Duration::MAX)),
        ("active-window", config.active_window),
        ("pull-budget", config.pull_budget),
        ("archive-budget", config.archive_budget),
        ("live-history-ttl", config.live_history_ttl),
    ];
    match durations.iter().find(|(_, duration)| duration.is_zero()) {
        Some((option, _)) => refuse(option, "must be longer than zero".to_owned()),
        None => Ok(()),
    }
}
