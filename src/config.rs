//! The engine's settings, which an operator may change. They are validated once at the start and are immutable afterwards.

use std::num::NonZeroUsize;
use std::time::Duration;

use crate::clock::UnixMicros;
use crate::feed::celebrity::CelebrityPolicy;
use crate::feed::stream::StreamLimits;

/// Maximum number of pending deliveries for each shard: a shard delivers this many in half a second to a second. Beyond it the engine
/// refuses to publish, because further posts would reach their readers too late.
const FANOUT_BACKLOG_PER_SHARD_MAX: usize = 2 << 20;

/// The engine's settings.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Maximum number of entries in an inbox. Default 300.
    pub inbox_posts: NonZeroUsize,
    /// Age at which a post is removed from inboxes. Readers can still reach it by scrolling. Default: none.
    pub inbox_age: Option<Duration>,
    /// Decides which sources are celebrities, whose posts are pulled. Default: sources with more than 10,000 followers.
    pub celebrity: CelebrityPolicy,
    /// Time that a reader stays awake after its last read. Default 7 days.
    pub active_window: Duration,
    /// Maximum number of readers that are awake at the same time, over all shards. Default 2,000,000.
    pub active_readers_max: NonZeroUsize,
    /// Number of threads over which the user actors are distributed. Default: one for each core.
    pub shards: NonZeroUsize,
    /// Maximum number of pending deliveries of posts being fanned out. Beyond it, publishing is refused. The posts of one author may use a
    /// quarter of it. Default: 2 Mi deliveries for each shard.
    pub fanout_backlog_max: Option<NonZeroUsize>,
    /// Maximum number of sources that one reader may follow. Default 5,000.
    pub following_max: usize,
    /// Maximum bytes of posts in memory. Beyond seven eighths of it, the oldest posts are moved to the archive. At the maximum, publishing
    /// is refused. Default 8 GiB.
    pub store_bytes_max: usize,
    /// Number of posts of one outbox that stay in memory. Older ones are read from the archive. Without a data directory there is no
    /// archive, and all posts stay in memory. Default 1,000.
    pub outbox_posts: NonZeroUsize,
    /// Maximum number of known sources. Beyond it, new sources are refused. Default 50,000,000.
    pub sources_max: usize,
    /// Maximum number of follow edges, hidden ones included. Beyond it, new edges are refused. An edge takes some 20 bytes, counting
    /// both sides. Default 500,000,000.
    pub edges_max: usize,
    /// Maximum bytes of sources and follow edges in memory, without outboxes and preferences. Beyond it, new ones are refused; edges can
    /// still be removed. Default 16 GiB.
    pub graph_bytes_max: usize,
    /// Maximum number of reposts, each counted once for each of its sources. Beyond it, new reposts are refused. A repost takes at most 24
    /// bytes, which always stay in memory. Default 250,000,000.
    pub reposts_max: usize,
    /// Maximum time to build one page from memory; after it the page ends early. Posts that were not read by then are on the next page, or
    /// their sources are listed as partial. Default 50 ms.
    pub pull_budget: Duration,
    /// Maximum time to build a page that is read from the archive. Up to two reads of sources that were not known to be slow may exceed it.
    /// Default 2 s.
    pub archive_budget: Duration,
    /// Maximum number of live connections at the same time. Default 100,000.
    pub live_max: usize,
    /// Number of newest entries of a watched feed that are compared with the sent state, and number of changes that are stored for clients
    /// that reconnect. Default 64 and 256.
    pub live: StreamLimits,
    /// Interval of the heartbeat pings on a live connection, and the time by which the client must have answered one. Default 30 s.
    pub live_heartbeat: Duration,
    /// Time that the sent changes of a reader are stored after its last live connection has closed. Default 2 minutes.
    pub live_history_ttl: Duration,
    /// Time for which the erasure of a user retains the journal for readers of the change stream that are behind, if one was connected
    /// within the last hour. The erasure takes longer by this time, unless `changes_retention` is at least as long. Default: none; the
    /// server's is a minute.
    pub erasure_grace: Duration,
    /// Time for which segments of the journal that no snapshot needs are retained for consumers of changes. Default: none.
    pub changes_retention: Duration,
    /// Maximum bytes of these segments, and of those that wait for a registered consumer. Default 4 GiB.
    pub changes_retention_bytes: u64,
}

impl Default for EngineConfig {
    fn default() -> Self {
        const fn some(value: usize) -> NonZeroUsize {
            NonZeroUsize::new(value).expect("the defaults are not zero")
        }
        Self {
            inbox_posts: some(300),
            inbox_age: None,
            celebrity: CelebrityPolicy::Above(std::num::NonZeroU64::new(10_000).expect("not zero")),
            active_window: Duration::from_secs(7 * 24 * 3_600),
            active_readers_max: some(2_000_000),
            shards: std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
            fanout_backlog_max: None,
            following_max: 5_000,
            store_bytes_max: 8 << 30,
            outbox_posts: some(1_000),
            sources_max: 50_000_000,
            edges_max: 500_000_000,
            graph_bytes_max: 16 << 30,
            reposts_max: 250_000_000,
            pull_budget: Duration::from_millis(50),
            archive_budget: Duration::from_secs(2),
            live_max: 100_000,
            live: StreamLimits::default(),
            live_heartbeat: Duration::from_secs(30),
            live_history_ttl: Duration::from_secs(120),
            erasure_grace: Duration::ZERO,
            changes_retention: Duration::ZERO,
            changes_retention_bytes: 4 << 30,
        }
    }
}

impl EngineConfig {
    /// Returns the maximum number of awake readers in one shard.
    pub(crate) fn active_readers_max_per_shard(&self) -> usize {
        self.active_readers_max.get().div_ceil(self.shards.get())
    }

    /// Returns the maximum number of pending deliveries of posts being fanned out.
    pub(crate) fn fanout_backlog_max(&self) -> usize {
        self.fanout_backlog_max.map_or(self.shards.get() * FANOUT_BACKLOG_PER_SHARD_MAX, NonZeroUsize::get)
    }

    /// Returns the publish time at and before which posts are no longer in inboxes.
    pub(crate) fn oldest_in_inbox(&self, now: UnixMicros) -> UnixMicros {
        self.inbox_age.map_or(UnixMicros(i64::MIN), |age| now.saturating_sub(age))
    }
}
