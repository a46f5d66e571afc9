//! Counters since the start of the engine, which any thread may read at any time.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::latency::Latency;
use crate::runtime::fanout::latency::AUDIENCES;

/// A number that only increases.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Creates a counter with the value zero.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Adds `count` to the value.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// Returns the current value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The sum of parts that several threads contribute and update.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// Replaces one part of the sum.
    pub fn change(&self, before: u64, now: u64) {
        self.0.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
    }

    /// Returns the current sum.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The queues and limits that refuse requests when they are full.
pub const SHEDDING: [&str; 15] = [
    "commands",
    "command_bytes",
    "fanout",
    "fanout_deliveries",
    "author_fanout",
    "author_fanout_deliveries",
    "post_bytes",
    "read_permits",
    "user_mailbox",
    "wake_up",
    "archive",
    "snapshot",
    "live_connections",
    "erasures",
    "replication",
];

/// The number of refused requests, by the full queue.
#[derive(Debug, Default)]
pub struct Shed([Counter; SHEDDING.len()]);

impl Shed {
    /// Counts a refusal by this queue.
    pub fn count(&self, queue: &'static str) {
        let nth = SHEDDING.iter().position(|known| *known == queue);
        debug_assert!(nth.is_some(), "{queue} is not among those that are counted");
        nth.into_iter().for_each(|nth| self.0[nth].add(1));
    }

    /// Returns the number of refusals of each queue.
    pub fn by_queue(&self) -> impl Iterator<Item = (&'static str, u64)> {
        SHEDDING.into_iter().zip(self.0.iter().map(Counter::get))
    }

    /// Returns the number of all refusals.
    pub fn get(&self) -> u64 {
        self.by_queue().map(|(_, count)| count).sum()
    }
}

/// The engine's counters.
#[derive(Debug, Default)]
pub struct Counters {
    /// Published posts, pushed or not.
    pub published: Counter,
    /// Posts pushed into inboxes, counted once for each recipient.
    pub deliveries: Counter,
    /// Deliveries of a post that was already in the inbox.
    pub duplicates: Counter,
    /// Deliveries of a post below the floor of the inbox.
    pub below_floor: Counter,
    /// Pages built, on shards and on other threads.
    pub pages: Counter,
    /// Pages built on the threads of their callers.
    pub direct_pages: Counter,
    /// Pages built with the archive.
    pub cold_pages: Counter,
    /// Pages built outside the shards, since they took too long.
    pub long_pages: Counter,
    /// Pages that lack a post or an outbox that could not be read, or not in time.
    pub partial_pages: Counter,
    /// Readers that were woken.
    pub wakes: Counter,
    /// Readers that were put to sleep.
    pub sleeps: Counter,
    /// User actors and direct reads that panicked.
    pub user_crashes: Counter,
    /// Snapshots that were taken.
    pub snapshots: Counter,
    /// Work to determine the events of live connections, in units of [`Work::units`](crate::feed::work::Work::units).
    pub live_work: Counter,
    /// Lookups of the entry of a single post for live connections.
    pub live_looks: Counter,
    /// Messages queued for live connections.
    pub live_messages: Counter,
    /// Live connections that were closed since they were too slow.
    pub live_cut_off: Counter,
    /// Requests refused because a queue was full.
    pub shed: Shed,
    /// The time from a publish to its answer.
    pub publish_latency: Latency,
    /// The time from the queueing of a post until all inboxes contain it, by the class of its audience.
    pub fanout_latency: [Latency; AUDIENCES.len()],
    /// The time from the request of a home feed's page to its answer.
    pub page_latency: Latency,
    /// The time to fill the inbox of a reader that wakes.
    pub wake_latency: Latency,
    /// Bytes of all inboxes, estimated from a sample that is about a second old.
    pub inboxes_bytes: Gauge,
}
