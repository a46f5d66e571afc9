//! The engine's interface for its figures, for operators.

use crate::engine::Engine;
use crate::limits::{
    ARCHIVE_QUEUE_MAX, COMMAND_QUEUE_BYTES_MAX, COMMAND_QUEUE_MAX, FANOUT_JOBS_MAX, FANOUT_QUEUE_MAX,
    READS_WAITING_PER_SHARD_MAX, SNAPSHOT_REQUESTS_MAX, WAKE_QUEUE_MAX,
};

/// The fill level of a queue, for operators.
#[derive(Clone, Copy, Debug)]
pub struct QueueDepth {
    /// The name of the queue, as in metrics.
    pub name: &'static str,
    /// The current number of elements, or of bytes for byte limits.
    pub depth: usize,
    /// The maximum of `depth`.
    pub limit: usize,
}

/// The contents of the engine at one instant. Bytes are estimates from samples: of at most 512 sources, 256 posts, and
/// some inboxes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EngineFigures {
    /// The number of known sources.
    pub sources: usize,
    /// The number of readers that are awake.
    pub active: usize,
    /// The number of follow edges.
    pub edges: usize,
    /// The number of posts in memory.
    pub posts: usize,
    /// The number of live connections.
    pub live_connections: usize,
    /// The number of readers with live connections.
    pub watched_readers: usize,
    /// The bytes of posts in memory.
    pub posts_bytes: u64,
    /// The bytes of sources, with edges and outboxes.
    pub sources_bytes: u64,
    /// The bytes of inboxes.
    pub inboxes_bytes: u64,
    /// The bytes of the data about reposts.
    pub reposts_bytes: u64,
}

impl Engine {
    /// Returns the current figures of the engine. Estimates bytes from samples, and holds no lock for longer than a
    /// copy takes.
    pub fn figures(&self) -> EngineFigures {
        let shared = self.shared();
        let world = &shared.world;
        EngineFigures {
            sources: world.sources.len(),
            active: shared.directory.len(),
            edges: world.edges(),
            posts: world.posts.len(),
            live_connections: shared.watchers.connections(),
            watched_readers: shared.watchers.readers(),
            posts_bytes: world.posts.bytes() as u64,
            sources_bytes: world.sources_bytes() as u64,
            inboxes_bytes: shared.counters.inboxes_bytes.get(),
            reposts_bytes: world.reposts.bytes() as u64,
        }
    }

    /// Returns the fill levels of the engine's queues.
    pub fn queues(&self) -> Vec<QueueDepth> {
        let shared = &self.inner.shared;
        vec![
            QueueDepth { name: "commands", depth: self.inner.commands.len(), limit: COMMAND_QUEUE_MAX },
            QueueDepth { name: "command_bytes", depth: self.inner.commands.bytes(), limit: COMMAND_QUEUE_BYTES_MAX },
            QueueDepth {
                name: "read_permits",
                depth: self.inner.shards.iter().map(|shard| shard.read_scheduler.waiting()).sum(),
                limit: self.inner.shards.len() * READS_WAITING_PER_SHARD_MAX,
            },
            QueueDepth {
                name: "wake_up",
                depth: self.inner.shards.iter().map(|shard| shard.read_scheduler.waking()).sum(),
                limit: self.inner.shards.len() * WAKE_QUEUE_MAX,
            },
            QueueDepth { name: "archive", depth: shared.archive_readers.waiting(), limit: ARCHIVE_QUEUE_MAX },
            QueueDepth {
                name: "snapshot",
                depth: self.inner.snapshotter.lock().as_ref().map_or(0, |snapshotter| snapshotter.requests.len()),
                limit: SNAPSHOT_REQUESTS_MAX,
            },
            QueueDepth { name: "fanout", depth: shared.open_fanouts.len(), limit: FANOUT_QUEUE_MAX + FANOUT_JOBS_MAX },
            QueueDepth {
                name: "fanout_deliveries",
                depth: shared.open_fanouts.deliveries(),
                limit: shared.config.fanout_backlog_max(),
            },
        ]
    }
}
