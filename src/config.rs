//! What an operator may set. Checked once, then immutable.

use std::num::NonZeroUsize;
use std::time::Duration;

use crate::clock::UnixMicros;
use crate::feed::policy::Policy;
use crate::feed::stream::StreamLimits;
use crate::limits::FANOUT_BACKLOG_PER_SHARD_MAX;

/// The engine's settings.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// Entries an inbox holds at most. Default 300.
    pub inbox_posts: NonZeroUsize,
    /// Age at which a post leaves inboxes; it can still be reached by scrolling. Default: none.
    pub inbox_age: Option<Duration>,
    /// Which sources are celebrities, whose posts are pulled. Default: above 10,000 followers.
    pub celebrity: Policy,
    /// How long a reader stays awake after its last read. Default 7 days.
    pub active_window: Duration,
    /// Readers awake at the same time, at most, over all shards. Default 2,000,000.
    pub active_readers_max: NonZeroUsize,
    /// Threads that user actors are spread over. Default: one for each core.
    pub shards: NonZeroUsize,
    /// Deliveries that posts on their way into inboxes may need yet; beyond, publishing is refused. One author's posts may need
    /// a quarter of them. Default: [`FANOUT_BACKLOG_PER_SHARD_MAX`] for each shard.
    pub fanout_backlog_max: Option<NonZeroUsize>,
    /// Sources one reader may follow. Default 5,000.
    pub following_max: usize,
    /// Bytes that posts may take in memory. Beyond seven eighths of it the oldest go to the archive; beyond all of it publishing
    /// is refused. Default 8 GiB.
    pub store_bytes_max: usize,
    /// Posts of one outbox that stay in memory; older ones are read from the archive. Without a data directory there is no
    /// archive, and all stay. Default 1,000.
    pub outbox_posts: NonZeroUsize,
    /// Sources that may be known; beyond, new ones are refused. Default 50,000,000.
    pub sources_max: usize,
    /// Follow edges that there may be, hidden ones too; beyond, new ones are refused. Some tens of bytes each, on both sides. Default
    /// 500,000,000.
    pub edges_max: usize,
    /// Reposts that there may be, each counted once for each of its sources; beyond, new ones are refused. At most 24 bytes each,
    /// which stay in memory. Default 250,000,000.
    pub reposts_max: usize,
    /// Time that one page may take in memory before it ends early. What could not be read by then comes with the next page, or is named as
    /// partial. Default 50 ms.
    pub pull_budget: Duration,
    /// The same for a page that is read from the archive. Two reads of sources of which it was not known that they are slow may come on
    /// top. Default 2 s.
    pub archive_budget: Duration,
    /// Live connections at the same time, at most. Default 100,000.
    pub live_max: usize,
    /// Newest entries of a watched feed that are compared with what was told of it, and how many changes are remembered for
    /// clients that come back. Default 64 and 256.
    pub live: StreamLimits,
    /// How often a live connection is asked whether it is alive, and has to have answered. Default 30 s.
    pub live_heartbeat: Duration,
    /// How long what a reader's live connections were told is remembered after the last has gone. Default 2 minutes.
    pub live_linger: Duration,
}

impl Default for EngineConfig {
    fn default() -> Self {
        const fn some(value: usize) -> NonZeroUsize {
            NonZeroUsize::new(value).expect("the defaults are not zero")
        }
        Self {
            inbox_posts: some(300),
            inbox_age: None,
            celebrity: Policy::Above(std::num::NonZeroU64::new(10_000).expect("not zero")),
            active_window: Duration::from_secs(7 * 24 * 3_600),
            active_readers_max: some(2_000_000),
            shards: std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
            fanout_backlog_max: None,
            following_max: 5_000,
            store_bytes_max: 8 << 30,
            outbox_posts: some(1_000),
            sources_max: 50_000_000,
            edges_max: 500_000_000,
            reposts_max: 250_000_000,
            pull_budget: Duration::from_millis(50),
            archive_budget: Duration::from_secs(2),
            live_max: 100_000,
            live: StreamLimits::default(),
            live_heartbeat: Duration::from_secs(30),
            live_linger: Duration::from_secs(120),
        }
    }
}

impl EngineConfig {
    /// The share of one shard in the readers that may be awake.
    pub(crate) fn active_readers_max_per_shard(&self) -> usize {
        self.active_readers_max.get().div_ceil(self.shards.get())
    }

    /// Deliveries that posts on their way into inboxes may need yet.
    pub(crate) fn fanout_backlog_max(&self) -> usize {
        self.fanout_backlog_max.map_or(self.shards.get() * FANOUT_BACKLOG_PER_SHARD_MAX, NonZeroUsize::get)
    }

    /// The publish time at and before which posts have left the inboxes.
    pub(crate) fn oldest_in_inbox(&self, now: UnixMicros) -> UnixMicros {
        self.inbox_age.map_or(UnixMicros(i64::MIN), |age| now.saturating_sub(age))
    }
}
