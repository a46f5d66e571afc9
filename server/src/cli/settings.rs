//! Settings of `tidewire serve`: from flags, the environment and a TOML file, in this order of precedence.
//!
//! Responsible for:
//! - reading raw settings, merging them over the defaults, and rejecting invalid values with the name of the option.

mod archive;
mod backups;
#[cfg(feature = "cassandra")]
mod cassandra;
mod engine;
mod error;
pub(crate) mod names;
mod reference;
mod values;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;

use crate::backup::url::BackupUrl;
use crate::bounded::read_text;
use crate::http::auth::browser::Hosts;
use crate::http::auth::cors::Origins;
use crate::http::auth::rate::RequestsPerSecond;
use crate::http::auth::{Access, AccessOptions, TokenPostIds};
use crate::http::proxies::Proxies;
use crate::http::sockets::connection_slots::ConnectionLimits;
use crate::http::tls::Certificate;

pub use archive::{OldPosts, RemoteAccess};
pub use error::SettingsError;
use values::listen_address_in_toml;
pub use values::{
    Bytes, Celebrity, Compression, DurationArg, Inboxes, LogFormat, LogLevel, SyncPolicy, listen_address,
};
pub(crate) use values::{reachable, whole_number};

/// Maximum bytes of a settings file.
const SETTINGS_FILE_BYTES_MAX: u64 = 256 * 1024;

// The sections of the help text and of the reference.
const NETWORK: &str = "Network";
const ACCESS: &str = "Access";
const FEEDS: &str = "Feeds";
const LIMITS: &str = "Limits";
const DURABILITY: &str = "Durability";
const ARCHIVE: &str = "Archive";
const BACKUPS: &str = "Backups";
const LOGGING: &str = "Logging";

/// Raw settings: only the values that were set. The keys of the TOML file are the names of the flags.
#[derive(Debug, Clone, Default, clap::Args, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Settings {
    /// Address and port to listen on; without an address, or with localhost, on this machine only [default: 127.0.0.1:8080]
    #[arg(long, help_heading = NETWORK, env = "TIDEWIRE_LISTEN", value_name = "ADDRESS:PORT", value_parser = listen_address)]
    #[serde(deserialize_with = "listen_address_in_toml")]
    pub listen: Option<SocketAddr>,

    /// Address and port for clients of Redis; see docs/redis-protocol.md [default: none]
    #[arg(long, help_heading = NETWORK, env = "TIDEWIRE_RESP", value_name = "ADDRESS:PORT", value_parser = listen_address)]
    #[serde(deserialize_with = "listen_address_in_toml")]
    pub resp: Option<SocketAddr>,

    /// PEM file with the certificate chain; enables TLS, and is reloaded when it changes
    #[arg(long, help_heading = NETWORK, env = "TIDEWIRE_TLS_CERT", value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,

    /// PEM file with the private key of the certificate
    #[arg(long, help_heading = NETWORK, env = "TIDEWIRE_TLS_KEY", value_name = "FILE")]
    pub tls_key: Option<PathBuf>,

    /// Addresses of proxies, separated by commas; the limits per address do not apply to them [default: loopback]
    #[arg(long, help_heading = NETWORK, hide_short_help = true, env = "TIDEWIRE_PROXIES", value_name = "ADDRESSES|loopback|none")]
    pub proxies: Option<Proxies>,

    /// Maximum connections of one address (IPv6: one network of 64 bits); beyond it, a new connection closes the longest idle one, or is refused if none is idle [connections, default: a quarter of all]
    #[arg(long, help_heading = NETWORK, hide_short_help = true, env = "TIDEWIRE_CONNECTIONS_PER_ADDRESS_MAX", value_name = "CONNECTIONS", value_parser = whole_number)]
    pub connections_per_address_max: Option<NonZeroUsize>,

    /// Maximum concurrent live connections, within the limit on open files [default: 100000]
    #[arg(long, help_heading = NETWORK, hide_short_help = true, env = "TIDEWIRE_LIVE_MAX", value_name = "CONNECTIONS", value_parser = whole_number)]
    pub live_max: Option<NonZeroUsize>,

    /// Minimum size of responses to compress for clients that accept gzip; read docs/http-api.md first [size, default: nothing is compressed]
    #[arg(long, help_heading = NETWORK, hide_short_help = true, env = "TIDEWIRE_COMPRESS_MIN_BYTES", value_name = "SIZE")]
    #[serde(alias = "compress-from")]
    pub compress_min_bytes: Option<Bytes>,

    /// TOML file with the keys that requests need; reloaded when it changes [default: none; then only on loopback]
    #[arg(long, help_heading = ACCESS, env = "TIDEWIRE_ACCESS", value_name = "FILE")]
    pub access: Option<PathBuf>,

    /// Other origins whose pages may use the server, separated by commas [default: none]
    #[arg(long, help_heading = ACCESS, env = "TIDEWIRE_CORS_ORIGINS", value_name = "ORIGINS")]
    pub cors_origins: Option<Origins>,

    /// Host names that a server without keys accepts, besides addresses and localhost, separated by commas [default: none]
    #[arg(long, help_heading = ACCESS, hide_short_help = true, env = "TIDEWIRE_ALLOWED_HOSTS", value_name = "NAMES")]
    #[serde(alias = "hosts")]
    pub allowed_hosts: Option<Hosts>,

    /// Maximum requests per second of one client, in bursts of twice as many; more are refused [requests, default: any number]
    #[arg(long, help_heading = ACCESS, hide_short_help = true, env = "TIDEWIRE_RATE_LIMIT", value_name = "REQUESTS")]
    pub rate_limit: Option<RequestsPerSecond>,

    /// Origin of the ids of posts that are published with a user token [default: server]
    #[arg(long, help_heading = ACCESS, hide_short_help = true, env = "TIDEWIRE_TOKEN_POST_IDS", value_name = "server|user")]
    pub token_post_ids: Option<TokenPostIds>,

    /// Maximum lifetime of a user token, from iat to exp; longer ones and those without iat are refused [duration, default: any time]
    #[arg(long, help_heading = ACCESS, hide_short_help = true, env = "TIDEWIRE_TOKEN_LIFETIME_MAX", value_name = "DURATION")]
    pub token_lifetime_max: Option<DurationArg>,

    /// Maximum posts in an inbox; older ones are read from the outboxes of the followed sources [posts, default: 300]
    #[arg(long, help_heading = FEEDS, env = "TIDEWIRE_INBOX_POSTS", value_name = "POSTS", value_parser = whole_number)]
    pub inbox_posts: Option<NonZeroUsize>,

    /// Age at which posts leave inboxes; they stay in the feed [duration, default: none]
    #[arg(long, help_heading = FEEDS, hide_short_help = true, env = "TIDEWIRE_INBOX_AGE", value_name = "DURATION")]
    pub inbox_age: Option<DurationArg>,

    /// Sources whose posts are pulled; auto: those for which pulling costs less processor time, a number: those with more followers, 0: all, off: none [default: 10000]
    #[arg(long, help_heading = FEEDS, env = "TIDEWIRE_CELEBRITY_FOLLOWERS", value_name = "auto|FOLLOWERS|0|off")]
    pub celebrity_followers: Option<Celebrity>,

    /// Maximum sources that one reader may follow [sources, default: 5000]
    #[arg(long, help_heading = FEEDS, hide_short_help = true, env = "TIDEWIRE_FOLLOWING_MAX", value_name = "SOURCES", value_parser = whole_number)]
    pub following_max: Option<NonZeroUsize>,

    /// Time for which a reader stays awake after the last read [duration, default: 7d]
    #[arg(long, help_heading = FEEDS, hide_short_help = true, env = "TIDEWIRE_ACTIVE_WINDOW", value_name = "DURATION")]
    pub active_window: Option<DurationArg>,

    /// Maximum readers awake at the same time [readers, default: 2000000]
    #[arg(long, help_heading = FEEDS, hide_short_help = true, env = "TIDEWIRE_ACTIVE_READERS_MAX", value_name = "READERS", value_parser = whole_number)]
    pub active_readers_max: Option<NonZeroUsize>,

    /// Time to keep the messages of a reader after the last live connection has closed, for clients that resume [duration, default: 2m]
    #[arg(long, help_heading = FEEDS, hide_short_help = true, env = "TIDEWIRE_LIVE_HISTORY_TTL", value_name = "DURATION")]
    #[serde(alias = "live-linger")]
    pub live_history_ttl: Option<DurationArg>,

    /// Maximum time to build a page from memory; the rest comes with the next page, or is reported as partial [duration, default: 50ms]
    #[arg(long, help_heading = FEEDS, hide_short_help = true, env = "TIDEWIRE_PULL_BUDGET", value_name = "DURATION")]
    pub pull_budget: Option<DurationArg>,

    /// Number of threads that share the readers [threads, default: one for each core]
    #[arg(long, help_heading = FEEDS, hide_short_help = true, env = "TIDEWIRE_SHARDS", value_name = "THREADS", value_parser = whole_number)]
    pub shards: Option<NonZeroUsize>,

    /// Maximum memory of posts; close to it, older ones move to the archive [size, default: a quarter of this machine's or container's memory, at most 8GiB]
    #[arg(long, help_heading = LIMITS, env = "TIDEWIRE_STORE_BYTES_MAX", value_name = "SIZE")]
    pub store_bytes_max: Option<Bytes>,

    /// Maximum posts of one source in memory; older ones are read from the archive [posts, default: 1000]
    #[arg(long, help_heading = LIMITS, hide_short_help = true, env = "TIDEWIRE_OUTBOX_POSTS", value_name = "POSTS", value_parser = whole_number)]
    pub outbox_posts: Option<NonZeroUsize>,

    /// Maximum memory of sources, follow edges and preferences; beyond it, new ones are refused [size, default: half of this machine's or container's memory, at most 16GiB]
    #[arg(long, help_heading = LIMITS, env = "TIDEWIRE_GRAPH_BYTES_MAX", value_name = "SIZE")]
    pub graph_bytes_max: Option<Bytes>,

    /// Maximum known sources; beyond it, new ones are refused [sources, default: 50000000]
    #[arg(long, help_heading = LIMITS, hide_short_help = true, env = "TIDEWIRE_SOURCES_MAX", value_name = "SOURCES", value_parser = whole_number)]
    pub sources_max: Option<NonZeroUsize>,

    /// Maximum follow edges; beyond it, new ones are refused [edges, default: 500000000]
    #[arg(long, help_heading = LIMITS, hide_short_help = true, env = "TIDEWIRE_EDGES_MAX", value_name = "EDGES", value_parser = whole_number)]
    pub edges_max: Option<NonZeroUsize>,

    /// Maximum reposts, counted for each of their sources; beyond it, new ones are refused [reposts, default: 250000000]
    #[arg(long, help_heading = LIMITS, hide_short_help = true, env = "TIDEWIRE_REPOSTS_MAX", value_name = "REPOSTS", value_parser = whole_number)]
    pub reposts_max: Option<NonZeroUsize>,

    /// Maximum pending deliveries; beyond it, publishes are refused [deliveries, default:
    /// 2097152 for each shard]
    #[arg(long, help_heading = LIMITS, hide_short_help = true, env = "TIDEWIRE_FANOUT_BACKLOG_MAX", value_name = "DELIVERIES", value_parser = whole_number)]
    pub fanout_backlog_max: Option<NonZeroUsize>,

    /// Maximum concurrent reads; more are refused [requests, default: 1024]
    #[arg(long, help_heading = LIMITS, hide_short_help = true, env = "TIDEWIRE_READS_MAX", value_name = "REQUESTS", value_parser = whole_number)]
    pub reads_max: Option<NonZeroUsize>,

    /// Maximum concurrent writes; more are refused [requests, default: 4096]
    #[arg(long, help_heading = LIMITS, hide_short_help = true, env = "TIDEWIRE_WRITES_MAX", value_name = "REQUESTS", value_parser = whole_number)]
    pub writes_max: Option<NonZeroUsize>,

    /// Maximum bytes of the bodies of concurrent writes; more are refused [size, at least 3580000, default: 256MiB]
    #[arg(long, help_heading = LIMITS, hide_short_help = true, env = "TIDEWIRE_WRITE_BYTES_MAX", value_name = "SIZE")]
    pub write_bytes_max: Option<Bytes>,

    /// Directory of journal, snapshots and archive [directory, default: ./snapshots]
    #[arg(long, help_heading = DURABILITY, env = "TIDEWIRE_DATA_DIR", value_name = "DIR")]
    pub data_dir: Option<PathBuf>,

    /// Point at which a write is acknowledged; always: synced, everysec: written, and synced once a second, no: written [default: always]
    #[arg(long, help_heading = DURABILITY, env = "TIDEWIRE_DURABILITY", value_name = "always|everysec|no")]
    pub durability: Option<SyncPolicy>,

    /// Interval between snapshots, if anything was written; 16 times as long after a large one, unless the journal grew by a quarter of it [duration, default: 15m]
    #[arg(long, help_heading = DURABILITY, hide_short_help = true, env = "TIDEWIRE_SNAPSHOT_INTERVAL", value_name = "DURATION")]
    pub snapshot_interval: Option<DurationArg>,

    /// Bytes of journal that trigger a snapshot, or a quarter of the last one if that is more [size, default: 256MiB]
    #[arg(long, help_heading = DURABILITY, hide_short_help = true, env = "TIDEWIRE_SNAPSHOT_JOURNAL_BYTES", value_name = "SIZE")]
    pub snapshot_journal_bytes: Option<Bytes>,

    /// Inboxes to keep in snapshots: those of active readers, which a restart then finds filled, or none [default: active]
    #[arg(long, help_heading = DURABILITY, hide_short_help = true, env = "TIDEWIRE_SNAPSHOT_INBOXES", value_name = "active|none")]
    pub snapshot_inboxes: Option<Inboxes>,

    /// Compression of snapshots [default: none]
    #[arg(long, help_heading = DURABILITY, hide_short_help = true, env = "TIDEWIRE_SNAPSHOT_COMPRESSION", value_name = "none|zstd")]
    pub snapshot_compression: Option<Compression>,

    /// Time for which an erasure waits for consumers of changes that are behind, before it removes the journal; only if one was active within the last hour; at most a day [duration, default: 1m]
    #[arg(long, help_heading = DURABILITY, hide_short_help = true, env = "TIDEWIRE_ERASURE_GRACE", value_name = "DURATION")]
    pub erasure_grace: Option<DurationArg>,

    /// Time to keep segments of the journal for consumers of changes after snapshots no longer need them; if at least the grace time of erasures, an erasure rewrites them and cuts off no consumer [duration, default: not at all]
    #[arg(long, help_heading = DURABILITY, hide_short_help = true, env = "TIDEWIRE_CHANGES_RETENTION", value_name = "DURATION")]
    pub changes_retention: Option<DurationArg>,

    /// Maximum bytes of such segments, also for registered consumers of changes that are behind [size, default: 4GiB]
    #[arg(long, help_heading = DURABILITY, hide_short_help = true, env = "TIDEWIRE_CHANGES_RETENTION_BYTES", value_name = "SIZE")]
    pub changes_retention_bytes: Option<Bytes>,

    /// Start although acknowledged events are missing from the data directory, and list them
    #[arg(long, help_heading = DURABILITY, hide_short_help = true)]
    #[serde(skip)]
    pub repair: bool,

    /// Store for posts that are too old for memory, prepared by `tidewire archive init`; all nodes of a cluster share one [cassandra://HOST:PORT,…/KEYSPACE, default: archive.redb in the data directory, or none in a cluster]
    #[arg(long, help_heading = ARCHIVE, env = "TIDEWIRE_ARCHIVE", value_name = "URL")]
    pub archive: Option<String>,

    /// Time after which posts in that store expire [duration, default: never]
    #[arg(long, help_heading = ARCHIVE, hide_short_help = true, env = "TIDEWIRE_ARCHIVE_TTL", value_name = "DURATION")]
    pub archive_ttl: Option<DurationArg>,

    /// User of that store; the password is in TIDEWIRE_ARCHIVE_PASSWORD or in the next option's file [default: none]
    #[arg(long, help_heading = ARCHIVE, hide_short_help = true, env = "TIDEWIRE_ARCHIVE_USER", value_name = "NAME")]
    pub archive_user: Option<String>,

    /// File with the password of that user
    #[arg(long, help_heading = ARCHIVE, hide_short_help = true, env = "TIDEWIRE_ARCHIVE_PASSWORD_FILE", value_name = "FILE")]
    pub archive_password_file: Option<PathBuf>,

    /// PEM file with the certificates of the authorities to trust; enables TLS to that store [default: no TLS]
    #[arg(long, help_heading = ARCHIVE, hide_short_help = true, env = "TIDEWIRE_ARCHIVE_TLS_CA", value_name = "FILE")]
    pub archive_tls_ca: Option<PathBuf>,

    /// Datacentre of that store to use, the same on all nodes of a cluster; required if the keyspace is in several [default: the only one]
    #[arg(long, help_heading = ARCHIVE, hide_short_help = true, env = "TIDEWIRE_ARCHIVE_DATACENTER", value_name = "NAME")]
    pub archive_datacenter: Option<String>,

    /// Maximum time to build a page from the archive, before it ends early [duration, default: 2s]
    #[arg(long, help_heading = ARCHIVE, hide_short_help = true, env = "TIDEWIRE_ARCHIVE_BUDGET", value_name = "DURATION")]
    pub archive_budget: Option<DurationArg>,

    /// Store for backups; the credentials of S3 come from the environment [file:///directory or s3://bucket/prefix, default: no backups]
    #[arg(long, help_heading = BACKUPS, env = "TIDEWIRE_BACKUP_TO", value_name = "URL")]
    pub backup_to: Option<BackupUrl>,

    /// Interval at which the new journal is copied to that store [duration, default: 1h; 5m on a node of a cluster]
    #[arg(long, help_heading = BACKUPS, hide_short_help = true, env = "TIDEWIRE_BACKUP_EVERY", value_name = "DURATION")]
    pub backup_every: Option<DurationArg>,

    /// Period within which every moment can be restored; older backups are removed [duration, default: 7d]
    #[arg(long, help_heading = BACKUPS, hide_short_help = true, env = "TIDEWIRE_BACKUP_KEEP", value_name = "DURATION")]
    pub backup_keep: Option<DurationArg>,

    /// Least level of log messages, or a filter by module [default: RUST_LOG, or else info]
    #[arg(long, help_heading = LOGGING, env = "TIDEWIRE_LOG_LEVEL", value_name = "off|error|warn|info|debug|trace")]
    pub log_level: Option<LogLevel>,

    /// Format of the log [default: text]
    #[arg(long, help_heading = LOGGING, hide_short_help = true, env = "TIDEWIRE_LOG_FORMAT", value_name = "text|json")]
    pub log_format: Option<LogFormat>,

    /// Log requests slower than this [duration, default: 1s]
    #[arg(long, help_heading = LOGGING, hide_short_help = true, env = "TIDEWIRE_SLOW_LOG", value_name = "DURATION")]
    pub slow_log: Option<DurationArg>,
}

/// The settings of the valid lines of a file, and the text of these lines.
pub type GoodLines = (Settings, String);

/// Maximum number of invalid lines in a report.
const WRONG_LINES_MAX: usize = 100;

fn wrong_in(file: &Path, text: &str, cause: toml::de::Error) -> SettingsError {
    names::unknown_key(file, text, &cause).unwrap_or(SettingsError::Malformed { file: file.to_owned(), cause })
}

/// Returns the byte range of the line with this byte, without its end.
fn line_at(text: &str, at: usize) -> Range<usize> {
    let bytes = text.as_bytes();
    let at = at.min(bytes.len());
    let is_end = |byte: &u8| *byte == b'\n';
    let start = bytes[..at].iter().rposition(is_end).map_or(0, |end| end + 1);
    let end = bytes[at..].iter().position(is_end).map_or(bytes.len(), |length| at + length);
    start..end
}

impl Settings {
    /// Reads the settings from a TOML file.
    ///
    /// # Errors
    /// The error names the file and the invalid line and key.
    pub fn read(file: &Path) -> Result<Self, SettingsError> {
        let text = read_text(file, SETTINGS_FILE_BYTES_MAX)
            .map_err(|cause| SettingsError::Unreadable { file: file.to_owned(), cause })?;
        toml::from_str(&text).map_err(|cause| wrong_in(file, &text, cause))
    }

    /// Reads the settings from a TOML file, without the invalid lines. Returns the settings with the text that they were read from, and all
    /// errors. Returns no settings if an error has no line.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn read_all(file: &Path) -> Result<(Option<GoodLines>, Vec<SettingsError>), SettingsError> {
        let mut text = read_text(file, SETTINGS_FILE_BYTES_MAX)
            .map_err(|cause| SettingsError::Unreadable { file: file.to_owned(), cause })?;
        let mut wrong = Vec::new();
        while wrong.len() < WRONG_LINES_MAX {
            let cause: toml::de::Error = match toml::from_str(&text) {
                Ok(settings) => return Ok((Some((settings, text)), wrong)),
                Err(cause) => cause,
            };
            let line = cause.span().map(|span| line_at(&text, span.start));
            wrong.push(wrong_in(file, &text, cause));
            // Replace the line by blanks, so that the numbers of other lines do not change.
            match line.filter(|line| !text[line.clone()].trim().is_empty()) {
                Some(line) => text.replace_range(line.clone(), &" ".repeat(line.len())),
                None => break,
            }
        }
        Ok((None, wrong))
    }
}

impl Settings {
    /// Returns these settings, with unset values taken from `other`.
    #[must_use]
    pub fn or(self, other: &Self) -> Self {
        Self {
            listen: self.listen.or(other.listen),
            resp: self.resp.or(other.resp),
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
            live_history_ttl: self.live_history_ttl.or(other.live_history_ttl),
            erasure_grace: self.erasure_grace.or(other.erasure_grace),
            changes_retention: self.changes_retention.or(other.changes_retention),
            changes_retention_bytes: self.changes_retention_bytes.or(other.changes_retention_bytes),
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
            archive_datacenter: self.archive_datacenter.or_else(|| other.archive_datacenter.clone()),
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
            log_level: self.log_level.or_else(|| other.log_level.clone()),
            reads_max: self.reads_max.or(other.reads_max),
            writes_max: self.writes_max.or(other.writes_max),
            write_bytes_max: self.write_bytes_max.or(other.write_bytes_max),
            access: self.access.or_else(|| other.access.clone()),
            cors_origins: self.cors_origins.or_else(|| other.cors_origins.clone()),
            allowed_hosts: self.allowed_hosts.or_else(|| other.allowed_hosts.clone()),
            rate_limit: self.rate_limit.or(other.rate_limit),
            token_post_ids: self.token_post_ids.or(other.token_post_ids),
            token_lifetime_max: self.token_lifetime_max.or(other.token_lifetime_max),
            connections_per_address_max: self.connections_per_address_max.or(other.connections_per_address_max),
            compress_min_bytes: self.compress_min_bytes.or(other.compress_min_bytes),
            proxies: self.proxies.or_else(|| other.proxies.clone()),
        }
    }

    /// Returns the address and port to serve on.
    pub fn listen(&self) -> SocketAddr {
        self.listen.unwrap_or(SocketAddr::from(([127, 0, 0, 1], 8080)))
    }

    /// Returns an error text if a server must not listen on one of its addresses without keys.
    pub(super) fn refusal_to_listen(&self) -> Option<String> {
        self.addresses().find_map(|address| Access::refusal_to_listen(address, self.access.as_deref()))
    }

    /// Returns all addresses to listen on, each with its option.
    pub(super) fn addresses(&self) -> impl Iterator<Item = (&'static str, SocketAddr)> {
        [("--listen", self.listen())].into_iter().chain(self.resp.map(|resp| ("--resp", resp)))
    }

    /// Returns the TLS certificate, or `None` if TLS is off.
    ///
    /// # Errors
    /// If a file cannot be used, or only one of the two options is set.
    pub fn certificate(&self) -> Result<Option<Arc<Certificate>>, SettingsError> {
        let missing = |option, other| {
            let what = format!("required, since --{other} is given");
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
            let what = "must be longer than zero".to_owned();
            return Err(SettingsError::Nonsense { option: "token-lifetime-max", what });
        }
        Ok(AccessOptions {
            file: self.access.clone(),
            origins: self.cors_origins.clone().unwrap_or_default(),
            hosts: self.allowed_hosts.clone().unwrap_or_default(),
            rate: self.rate_limit,
            token_post_ids: self.token_post_ids.unwrap_or_default(),
            token_lifetime_max,
            proxies: self.proxies.clone().unwrap_or_default(),
        })
    }

    /// Returns the connection limits of a process with the open-file limit `open_files`.
    pub fn connections(&self, open_files: u64) -> ConnectionLimits {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let default = ConnectionLimits::within(open_files, threads + self.shards.map_or(threads, NonZeroUsize::get));
        ConnectionLimits {
            per_address: self.connections_per_address_max.map_or(default.per_address, NonZeroUsize::get),
            proxies: self.proxies.clone().unwrap_or_default(),
            ..default
        }
    }
}

#[cfg(test)]
mod tests;
