//! What happened since the start, in numbers anyone may read at any time.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to it.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// What it shows.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
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
    /// Messages handed to live connections.
    pub live_messages: Counter,
    /// Live connections cut off since they were too slow.
    pub live_cut_off: Counter,
    /// Requests refused because a queue was full.
    pub shed: Counter,
}
