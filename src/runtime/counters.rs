//! What happened since the start, in numbers anyone may read at any time.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::latency::Latency;
use crate::runtime::fanout::latency::AUDIENCES;

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Nothing was counted.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Adds to it.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// What it shows.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that several contribute to, and change what they contribute.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// Puts one part of it in place of what that was before.
    pub fn change(&self, before: u64, now: u64) {
        self.0.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
    }

    /// What it shows.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What refuses requests when it is full.
pub const SHEDDING: [&str; 13] = [
    "scribe",
    "scribe_bytes",
    "fanout",
    "fanout_deliveries",
    "author_fanout",
    "author_fanout_deliveries",
    "post_bytes",
    "read_turns",
    "user_mailbox",
    "wake_up",
    "archive",
    "snapshot",
    "live_connections",
];

/// Requests refused, by what was full.
#[derive(Debug, Default)]
pub struct Shed([Counter; SHEDDING.len()]);

impl Shed {
    /// Counts a refusal.
    pub fn count(&self, queue: &'static str) {
        let nth = SHEDDING.iter().position(|known| *known == queue);
        debug_assert!(nth.is_some(), "{queue} is not among those that are counted");
        nth.into_iter().for_each(|nth| self.0[nth].add(1));
    }

    /// How many, by what was full.
    pub fn by_queue(&self) -> impl Iterator<Item = (&'static str, u64)> {
        SHEDDING.into_iter().zip(self.0.iter().map(Counter::get))
    }

    /// How many in all.
    pub fn get(&self) -> u64 {
        self.by_queue().map(|(_, count)| count).sum()
    }
}

/// The engine's counters.
#[derive(Debug, Default)]
pub struct Counters {
    /// Posts published, pushed or not.
    pub published: Counter,
    /// Posts pushed into inboxes, one for each recipient.
    pub deliveries: Counter,
    /// Deliveries of a post that was there already.
    pub duplicates: Counter,
    /// Deliveries of a post older than what the inbox covers.
    pub below_floor: Counter,
    /// Pages built by user actors.
    pub pages: Counter,
    /// Pages built with the archive.
    pub cold_pages: Counter,
    /// Pages built beside the shards, since they took long.
    pub long_pages: Counter,
    /// Pages that lacked a post which could not be read, or an outbox, or one that could not be in time.
    pub partial_pages: Counter,
    /// Readers woken.
    pub wakes: Counter,
    /// Readers put to sleep.
    pub sleeps: Counter,
    /// User actors that crashed.
    pub user_crashes: Counter,
    /// Snapshots taken.
    pub snapshots: Counter,
    /// Work done to find out what live connections are to be sent, in units of [`Work::units`](crate::feed::work::Work::units).
    pub live_work: Counter,
    /// Times that the entry of a single post was looked at for that.
    pub live_looks: Counter,
    /// Messages handed to live connections.
    pub live_messages: Counter,
    /// Live connections cut off since they were too slow.
    pub live_cut_off: Counter,
    /// Requests refused because a queue was full.
    pub shed: Shed,
    /// From a publish until it was answered.
    pub publish_latency: Latency,
    /// From the hand-over of a post until all inboxes had it, by the magnitude of its followers.
    pub fanout_latency: [Latency; AUDIENCES.len()],
    /// From asking for a home feed's page until it was there.
    pub page_latency: Latency,
    /// Filling the inbox of a reader that woke.
    pub wake_latency: Latency,
    /// Bytes that inboxes take, as of about a second ago and by a sample.
    pub inboxes_bytes: Gauge,
}
