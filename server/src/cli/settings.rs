//! Settings of `tidewire serve`: from flags, the environment and a TOML file, in this order of precedence.
//!
//! Responsible for:
//! - reading raw settings, merging them over the defaults, and rejecting invalid values with the name of the option.
//!
//! Not responsible for:
//! - the effect of the settings (`config`).

mod archive;
mod backups;
#[cfg(feature = "cassandra")]
mod cassandra;
mod error;
mod reference;
mod values;

use std::net::SocketAddr;
use std::num::{NonZeroU64, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use crate::backup::url::BackupUrl;
use crate::bounded::read_text;
use crate::http::admission::AdmissionLimits;
use crate::http::auth::browser::Hosts;
use crate::http::auth::cors::Origins;
use crate::http::auth::rate::RequestsPerSecond;
use crate::http::auth::{AccessOptions, TokenPostIds};
use crate::http::proxies::Proxies;
use crate::http::sockets::connection_slots::ConnectionLimits;
use crate::http::tls::Certificate;
use tidewire::config::EngineConfig;
use tidewire::engine::StorageConfig;
use tidewire::limits::BULK_REQUEST_BYTES_MAX;
use tidewire::runtime::background::snapshotter::SnapshotOptions;
use tidewire::storage::journal::writer::JournalOptions;

pub use archive::{OldPosts, RemoteAccess};
pub use error::SettingsError;
pub use values::{Celebrity, Compression, Inboxes, LogFormat, Span, SyncPolicy};

/// Maximum bytes of a settings file.
const SETTINGS_FILE_BYTES_MAX: u64 = 256 * 1024;

/// Upper bound of the setting for edges of one follower: 12 bytes each, all in one record of a snapshot.
const FOLLOWING_MAX: usize = 4_000_000;

/// Maximum number of shards.
const SHARDS_MAX: usize = 256;

/// Raw settings: only the values that were set. The keys of the TOML file are the names of the flags.
#[derive(Debug, Clone, Default, clap::Args, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Settings {
    /// Address and port to serve on [default: 127.0.0.1:8080]
    #[arg(long, env = "TIDEWIRE_LISTEN", value_name = "ADDRESS:PORT")]
    pub listen: Option<SocketAddr>,

    /// Posts an inbox holds; scrolling goes on below by pull [posts, default: 300]
    #[arg(long, env = "TIDEWIRE_INBOX_POSTS", value_name = "POSTS")]
    pub inbox_posts: Option<NonZeroUsize>,

    /// Age at which posts leave inboxes; they can still be scrolled to [duration, default: none]
    #[arg(long, env = "TIDEWIRE_INBOX_AGE", value_name = "DURATION")]
    pub inbox_age: Option<Span>,

    /// What decides whose posts are pulled; auto: the processor time of either way, a number: having more followers, 0: pull all, off: push all [default: 10000]
    #[arg(long, env = "TIDEWIRE_CELEBRITY_FOLLOWERS", value_name = "auto|FOLLOWERS|0|off")]
    pub celebrity_followers: Option<Celebrity>,

    /// How long a reader stays awake after its last read [duration, default: 7d]
    #[arg(long, env = "TIDEWIRE_ACTIVE_WINDOW", value_name = "DURATION")]
    pub active_window: Option<Span>,

    /// Readers awake at the same time [readers, default: 2000000]
    #[arg(long, env = "TIDEWIRE_ACTIVE_READERS_MAX", value_name = "READERS")]
    pub active_readers_max: Option<NonZeroUsize>,

    /// Threads that readers are spread over [threads, default: one for each core]
    #[arg(long, env = "TIDEWIRE_SHARDS", value_name = "THREADS")]
    pub shards: Option<NonZeroUsize>,

    /// Sources one reader may follow [sources, default: 5000]
    #[arg(long, env = "TIDEWIRE_FOLLOWING_MAX", value_name = "SOURCES")]
    pub following_max: Option<NonZeroUsize>,

    /// Deliveries that posts on their way into inboxes may need yet; beyond it publishing is refused [deliveries, default:
    /// 2097152 for each shard]
    #[arg(long, env = "TIDEWIRE_FANOUT_BACKLOG_MAX", value_name = "DELIVERIES")]
    pub fanout_backlog_max: Option<NonZeroUsize>,

    /// Posts of one source that stay in memory; older ones are read from the archive [posts, default: 1000]
    #[arg(long, env = "TIDEWIRE_OUTBOX_POSTS", value_name = "POSTS")]
    pub outbox_posts: Option<NonZeroUsize>,

    /// Memory that posts may take; close to it older ones go to the archive [bytes, default: 8589934592]
    #[arg(long, env = "TIDEWIRE_STORE_BYTES_MAX", value_name = "BYTES")]
    pub store_bytes_max: Option<NonZeroUsize>,

    /// Sources that may be known; beyond it new ones are refused [sources, default: 50000000]
    #[arg(long, env = "TIDEWIRE_SOURCES_MAX", value_name = "SOURCES")]
    pub sources_max: Option<NonZeroUsize>,
    /// Follow edges that there may be; beyond it new ones are refused [edges, default: 500000000]
    #[arg(long, env = "TIDEWIRE_EDGES_MAX", value_name = "EDGES")]
    pub edges_max: Option<NonZeroUsize>,
    /// Memory that sources and follow edges may take; beyond it new ones are refused [bytes, default: 17179869184]
    #[arg(long, env = "TIDEWIRE_GRAPH_BYTES_MAX", value_name = "BYTES")]
    pub graph_bytes_max: Option<NonZeroUsize>,
    /// Reposts that there may be, counted for each of their sources; beyond it new ones are refused [reposts, default: 250000000]
    #[arg(long, env = "TIDEWIRE_REPOSTS_MAX", value_name = "REPOSTS")]
    pub reposts_max: Option<NonZeroUsize>,

    /// Directory of journal, snapshots and archive [directory, default: ./snapshots]
    #[arg(long, env = "TIDEWIRE_DATA_DIR", value_name = "DIR")]
    pub data_dir: Option<PathBuf>,

    /// Store for posts that are too old for memory, prepared by `tidewire archive init`; all nodes of a cluster share one [cassandra://HOST:PORT,…/KEYSPACE, default: archive.redb in the data directory, or none in a cluster]
    #[arg(long, env = "TIDEWIRE_ARCHIVE", value_name = "URL")]
    pub archive: Option<String>,
    /// Time after which what is archived there expires [duration, default: never]
    #[arg(long, env = "TIDEWIRE_ARCHIVE_TTL", value_name = "DURATION")]
    pub archive_ttl: Option<Span>,
    /// User of that store; TIDEWIRE_ARCHIVE_PASSWORD or the next option has the password [default: none]
    #[arg(long, env = "TIDEWIRE_ARCHIVE_USER", value_name = "NAME")]
    pub archive_user: Option<String>,
    /// File with the password of that user
    #[arg(long, env = "TIDEWIRE_ARCHIVE_PASSWORD_FILE", value_name = "FILE")]
    pub archive_password_file: Option<PathBuf>,
    /// Connect to that store over TLS: certificates by which those of its nodes are signed, as PEM [default: no TLS]
    #[arg(long, env = "TIDEWIRE_ARCHIVE_TLS_CA", value_name = "FILE")]
    pub archive_tls_ca: Option<PathBuf>,

    /// When a write is acknowledged: always: synced; everysec: written, synced once a second; no: written [default: always]
    #[arg(long, env = "TIDEWIRE_DURABILITY", value_name = "always|everysec|no")]
    pub durability: Option<SyncPolicy>,

    /// Time after which there is a new snapshot, if anything was written; 16 times that after a large one, unless the journal grew by a quarter of it [duration, default: 15m]
    #[arg(long, env = "TIDEWIRE_SNAPSHOT_INTERVAL", value_name = "DURATION")]
    pub snapshot_interval: Option<Span>,

    /// Bytes of journal after which there is a new snapshot, or a quarter of the last one if that is more [bytes, default: 268435456]
    #[arg(long, env = "TIDEWIRE_SNAPSHOT_JOURNAL_BYTES", value_name = "BYTES")]
    pub snapshot_journal_bytes: Option<NonZeroU64>,

    /// Inboxes in snapshots: of readers that are awake, so that they are warm after a restart, or none [default: resident]
    #[arg(long, env = "TIDEWIRE_SNAPSHOT_INBOXES", value_name = "resident|none")]
    pub snapshot_inboxes: Option<Inboxes>,

    /// Compression of snapshots [default: none]
    #[arg(long, env = "TIDEWIRE_SNAPSHOT_COMPRESSION", value_name = "none|zstd")]
    pub snapshot_compression: Option<Compression>,

    /// Store for backups; the environment has the credentials of S3 [file:///directory or s3://bucket/prefix, default: no backups]
    #[arg(long, env = "TIDEWIRE_BACKUP_TO", value_name = "URL")]
    pub backup_to: Option<BackupUrl>,
    /// How often the new journal is copied there [duration, default: 1h; 5m on a node of a cluster]
    #[arg(long, env = "TIDEWIRE_BACKUP_EVERY", value_name = "DURATION")]
    pub backup_every: Option<Span>,
    /// How far back every moment can be restored; older backups are removed [duration, default: 7d]
    #[arg(long, env = "TIDEWIRE_BACKUP_KEEP", value_name = "DURATION")]
    pub backup_keep: Option<Span>,

    /// Start although acknowledged events are gone from the data directory, and list them
    #[arg(long)]
    #[serde(skip)]
    pub repair: bool,

    /// Time one page may take in memory before it ends early; what could not be read by then comes with the next page, or is named as partial [duration, default: 50ms]
    #[arg(long, env = "TIDEWIRE_PULL_BUDGET", value_name = "DURATION")]
    pub pull_budget: Option<Span>,

    /// The same for a page that is read from the archive [duration, default: 2s]
    #[arg(long, env = "TIDEWIRE_ARCHIVE_BUDGET", value_name = "DURATION")]
    pub archive_budget: Option<Span>,

    /// Live connections at the same time, at most; no more than open files allow [default: 100000]
    #[arg(long, env = "TIDEWIRE_LIVE_MAX", value_name = "CONNECTIONS")]
    pub live_max: Option<NonZeroUsize>,

    /// How long what a reader's live connections were told is remembered after the last has gone [duration, default: 2m]
    #[arg(long, env = "TIDEWIRE_LIVE_LINGER", value_name = "DURATION")]
    pub live_linger: Option<Span>,

    /// Serve over TLS with this certificate and what it is signed by, as PEM; read again when it changes
    #[arg(long, env = "TIDEWIRE_TLS_CERT", value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,

    /// The private key of the certificate, as PEM
    #[arg(long, env = "TIDEWIRE_TLS_KEY", value_name = "FILE")]
    pub tls_key: Option<PathBuf>,

    /// Requests that take so long are told of in the log [duration, default: 1s]
    #[arg(long, env = "TIDEWIRE_SLOW_LOG", value_name = "DURATION")]
    pub slow_log: Option<Span>,

    /// How the log is written [default: text]
    #[arg(long, env = "TIDEWIRE_LOG_FORMAT", value_name = "text|json")]
    pub log_format: Option<LogFormat>,

    /// Requests that read, at the same time; more are refused [requests, default: 1024]
    #[arg(long, env = "TIDEWIRE_READS_MAX", value_name = "REQUESTS")]
    pub reads_max: Option<NonZeroUsize>,

    /// Requests that write, at the same time; more are refused [requests, default: 4096]
    #[arg(long, env = "TIDEWIRE_WRITES_MAX", value_name = "REQUESTS")]
    pub writes_max: Option<NonZeroUsize>,

    /// Bytes of their bodies, at the same time; more are refused [bytes, at least 3520000, default: 268435456]
    #[arg(long, env = "TIDEWIRE_WRITE_BYTES_MAX", value_name = "BYTES")]
    pub write_bytes_max: Option<NonZeroUsize>,

    /// TOML file with the keys that requests need; read again when it changes [default: none; then only on loopback]
    #[arg(long, env = "TIDEWIRE_ACCESS", value_name = "FILE")]
    pub access: Option<PathBuf>,

    /// Other origins whose pages may use the server, separated by commas [default: none]
    #[arg(long, env = "TIDEWIRE_CORS_ORIGINS", value_name = "ORIGINS")]
    pub cors_origins: Option<Origins>,

    /// Names that the server goes by without keys, beside addresses and localhost, separated by commas [default: none]
    #[arg(long, env = "TIDEWIRE_HOSTS", value_name = "NAMES")]
    pub hosts: Option<Hosts>,

    /// Requests a second of one client, twice as many at once; more are refused [requests, default: any number]
    #[arg(long, env = "TIDEWIRE_RATE_LIMIT", value_name = "REQUESTS")]
    pub rate_limit: Option<RequestsPerSecond>,

    /// Who chooses the ids of posts that are published by a user's token [default: server]
    #[arg(long, env = "TIDEWIRE_TOKEN_POST_IDS", value_name = "server|user")]
    pub token_post_ids: Option<TokenPostIds>,

    /// How long a user's token may be good, from its iat to its exp; others are refused, and those without iat [duration, default: any time]
    #[arg(long, env = "TIDEWIRE_TOKEN_LIFETIME_MAX", value_name = "DURATION")]
    pub token_lifetime_max: Option<Span>,

    /// Connections of one address (of IPv6: of one network of 64 bits); past it a new one ends the longest idle, or is refused [connections, default: a quarter of all]
    #[arg(long, env = "TIDEWIRE_CONNECTIONS_PER_ADDRESS_MAX", value_name = "CONNECTIONS")]
    pub connections_per_address_max: Option<NonZeroUsize>,

    /// Size from which answers are compressed for clients that accept gzip; read docs/http-api.md first [bytes, default: none are]
    #[arg(long, env = "TIDEWIRE_COMPRESS_FROM", value_name = "BYTES")]
    pub compress_from: Option<NonZeroUsize>,

    /// Addresses of proxies, separated by commas: what comes from there comes for many, and has no share [default: loopback]
    #[arg(long, env = "TIDEWIRE_PROXIES", value_name = "ADDRESSES|loopback|none")]
    pub proxies: Option<Proxies>,
}

impl Settings {
    /// Reads the settings from a TOML file.
    ///
    /// # Errors
    /// The error names the file, and the line and key that are wrong.
    pub fn read(file: &Path) -> Result<Self, SettingsError> {
        let text = read_text(file, SETTINGS_FILE_BYTES_MAX)
            .map_err(|cause| SettingsError::Unreadable { file: file.to_owned(), cause })?;
        toml::from_str(&text).map_err(|cause| SettingsError::Malformed { file: file.to_owned(), cause })
    }
}

impl Settings {
    /// Returns these settings, with unset values taken from `other`.
    #[must_use]
    pub fn or(self, other: &Self) -> Self {
        Self {
            listen: self.listen.or(other.listen),
            inbox_posts: self.inbox_posts.or(other.inbox_posts),
            inbox_age: self.inbox_age.or(other.inbox_age),
            celebrity_followers: self.celebrity_followers.or(other.celebrity_followers),
            active_window: self.active_window.or(other.active_window),
            active_readers_max: self.active_readers_max.or(other.active_readers_max),
            shards: self.shards.or(other.shards),
            following_max: self.following_max.or(other.following_max),
            fanout_backlog_max: self.fanout_backlog_max.or(other.fanout_backlog_max),
            outbox_posts: self.outbox_posts.or(other.outbox_posts),
            archive_budget: self.archive_budget.or(other.archive_budget),
            live_max: self.live_max.or(other.live_max),
            live_linger: self.live_linger.or(other.live_linger),
            store_bytes_max: self.store_bytes_max.or(other.store_bytes_max),
            sources_max: self.sources_max.or(other.sources_max),
            edges_max: self.edges_max.or(other.edges_max),
            graph_bytes_max: self.graph_bytes_max.or(other.graph_bytes_max),
            reposts_max: self.reposts_max.or(other.reposts_max),
            data_dir: self.data_dir.or_else(|| other.data_dir.clone()),
            archive: self.archive.or_else(|| other.archive.clone()),
            archive_ttl: self.archive_ttl.or(other.archive_ttl),
            archive_user: self.archive_user.or_else(|| other.archive_user.clone()),
            archive_password_file: self.archive_password_file.or_else(|| other.archive_password_file.clone()),
            archive_tls_ca: self.archive_tls_ca.or_else(|| other.archive_tls_ca.clone()),
            durability: self.durability.or(other.durability),
            snapshot_interval: self.snapshot_interval.or(other.snapshot_interval),
            snapshot_journal_bytes: self.snapshot_journal_bytes.or(other.snapshot_journal_bytes),
            snapshot_inboxes: self.snapshot_inboxes.or(other.snapshot_inboxes),
            snapshot_compression: self.snapshot_compression.or(other.snapshot_compression),
            backup_to: self.backup_to.or_else(|| other.backup_to.clone()),
            backup_every: self.backup_every.or(other.backup_every),
            backup_keep: self.backup_keep.or(other.backup_keep),
            repair: self.repair,
            pull_budget: self.pull_budget.or(other.pull_budget),
            tls_cert: self.tls_cert.or_else(|| other.tls_cert.clone()),
            tls_key: self.tls_key.or_else(|| other.tls_key.clone()),
            slow_log: self.slow_log.or(other.slow_log),
            log_format: self.log_format.or(other.log_format),
            reads_max: self.reads_max.or(other.reads_max),
            writes_max: self.writes_max.or(other.writes_max),
            write_bytes_max: self.write_bytes_max.or(other.write_bytes_max),
            access: self.access.or_else(|| other.access.clone()),
            cors_origins: self.cors_origins.or_else(|| other.cors_origins.clone()),
            hosts: self.hosts.or_else(|| other.hosts.clone()),
            rate_limit: self.rate_limit.or(other.rate_limit),
            token_post_ids: self.token_post_ids.or(other.token_post_ids),
            token_lifetime_max: self.token_lifetime_max.or(other.token_lifetime_max),
            connections_per_address_max: self.connections_per_address_max.or(other.connections_per_address_max),
            compress_from: self.compress_from.or(other.compress_from),
            proxies: self.proxies.or_else(|| other.proxies.clone()),
        }
    }

    /// Returns the address and port to serve on.
    pub fn listen(&self) -> SocketAddr {
        self.listen.unwrap_or(SocketAddr::from(([127, 0, 0, 1], 8080)))
    }

    /// Returns the TLS certificate, or `None` if TLS is off.
    ///
    /// # Errors
    /// If its files cannot be used, or only one of the two options is set.
    pub fn certificate(&self) -> Result<Option<Arc<Certificate>>, SettingsError> {
        let missing = |option, other| {
            let what = format!("needed as well, since --{other} is given");
            Err(SettingsError::Nonsense { option, what })
        };
        match (&self.tls_cert, &self.tls_key) {
            (None, None) => Ok(None),
            (None, Some(_)) => missing("tls-cert", "tls-key"),
            (Some(_), None) => missing("tls-key", "tls-cert"),
            (Some(chain), Some(key)) => {
                let read = Certificate::read(chain.clone(), key.clone());
                read.map(Some).map_err(|cause| SettingsError::Nonsense { option: "tls-cert", what: cause.to_string() })
            }
        }
    }

    /// Returns the options for authentication and access control.
    ///
    /// # Errors
    /// If the maximum token lifetime is zero, so that no token could be valid.
    pub fn access(&self) -> Result<AccessOptions, SettingsError> {
        let token_lifetime_max = self.token_lifetime_max.map(|span| span.0);
        if token_lifetime_max.is_some_and(|longest| longest.is_zero()) {
            let what = "must be longer than nothing".to_owned();
            return Err(SettingsError::Nonsense { option: "token-lifetime-max", what });
        }
        Ok(AccessOptions {
            file: self.access.clone(),
            origins: self.cors_origins.clone().unwrap_or_default(),
            hosts: self.hosts.clone().unwrap_or_default(),
            rate: self.rate_limit,
            token_post_ids: self.token_post_ids.unwrap_or_default(),
            token_lifetime_max,
            proxies: self.proxies.clone().unwrap_or_default(),
        })
    }

    /// Returns the connection limits for a process that may have `open_files` files open.
    pub fn connections(&self, open_files: u64) -> ConnectionLimits {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let default = ConnectionLimits::within(open_files, threads + self.shards.map_or(threads, NonZeroUsize::get));
        ConnectionLimits {
            per_address: self.connections_per_address_max.map_or(default.per_address, NonZeroUsize::get),
            proxies: self.proxies.clone().unwrap_or_default(),
            ..default
        }
    }

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
            write_bytes: number(self.write_bytes_max, default.write_bytes),
            ..default
        };
        if limits.write_bytes < BULK_REQUEST_BYTES_MAX {
            let what = format!(
                "{} is too small: one request that follows many may have {BULK_REQUEST_BYTES_MAX}",
                limits.write_bytes
            );
            return Err(SettingsError::Nonsense { option: "write-bytes-max", what });
        }
        Ok(limits)
    }

    /// Returns the configuration of the engine: these settings over the defaults.
    ///
    /// # Errors
    /// The error names the option whose value is invalid.
    pub fn engine(&self) -> Result<EngineConfig, SettingsError> {
        let default = EngineConfig::default();
        let span = |span: Option<Span>, default| span.map_or(default, |span| span.0);
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
            store_bytes_max: number(self.store_bytes_max, default.store_bytes_max),
            sources_max: number(self.sources_max, default.sources_max),
            edges_max: number(self.edges_max, default.edges_max),
            graph_bytes_max: number(self.graph_bytes_max, default.graph_bytes_max),
            reposts_max: number(self.reposts_max, default.reposts_max),
            pull_budget: span(self.pull_budget, default.pull_budget),
            live_max: number(self.live_max, default.live_max),
            live: default.live,
            live_heartbeat: default.live_heartbeat,
            live_linger: span(self.live_linger, default.live_linger),
        };
        check(&config)?;
        Ok(config)
    }
}

impl Settings {
    /// Returns the configuration of the storage: these settings over the defaults.
    ///
    /// # Errors
    /// The error names the option whose value is invalid.
    pub fn storage(&self) -> Result<StorageConfig, SettingsError> {
        let default = StorageConfig::default();
        let interval = self.snapshot_interval.map_or(default.snapshots.interval, |span| span.0);
        if interval.is_zero() {
            let what = "must be longer than nothing".to_owned();
            return Err(SettingsError::Nonsense { option: "snapshot-interval", what });
        }
        let durability = self.durability.map_or(default.journal.durability, |SyncPolicy(durability)| durability);
        Ok(StorageConfig {
            directory: self.data_dir.clone().unwrap_or(default.directory),
            journal: JournalOptions { durability, ..default.journal },
            snapshots: SnapshotOptions {
                interval,
                journal_bytes: self.snapshot_journal_bytes.map_or(default.snapshots.journal_bytes, NonZeroU64::get),
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
    let durations = [
        ("inbox-age", config.inbox_age.unwrap_or(Duration::MAX)),
        ("active-window", config.active_window),
        ("pull-budget", config.pull_budget),
        ("archive-budget", config.archive_budget),
        ("live-linger", config.live_linger),
    ];
    match durations.iter().find(|(_, duration)| duration.is_zero()) {
        Some((option, _)) => refuse(option, "must be longer than nothing".to_owned()),
        None => Ok(()),
    }
}

/// The upper limit of `inbox-posts`: with more posts, waking a reader up would take longer than a page by pull.
const INBOX_POSTS_MAX: usize = 100_000;

#[cfg(test)]
mod tests;
