//! Watchers: who is watched, for those who must tell.
//!
//! Responsible for:
//! - the bitmap of watched readers that changes are intersected with, and whom what was kept of a source concerns;
//! - how many live connections there are, and ending all of them.
//!
//! Not responsible for:
//! - what a watched reader is told (`runtime::reader::watch`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};

use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use roaring::RoaringBitmap;
use rustc_hash::FxHashMap;
use slab::Slab;

use crate::feed::graph::Sharding;
use crate::id::SourceSlot;
use crate::live::sessions::Sessions;
use crate::live::subscriber_queue::{Closing, SubscriberQueue};

/// Who is watched.
#[derive(Debug)]
pub struct Watchers {
    sharding: Sharding,
    readers: AtomicUsize,
    /// By shard: the numbers within the shard of readers that are watched.
    watched: Box<[RwLock<RoaringBitmap>]>,
    /// Watched readers that keep what a source brought though they do not follow it any more.
    keeping: RwLock<FxHashMap<SourceSlot, Vec<SourceSlot>>>,
    /// Something could not be told to those concerned: all are told that they missed it.
    missed: AtomicBool,
    connections: Mutex<Connections>,
    /// Those of users, by their tokens.
    pub sessions: Arc<Sessions>,
}

#[derive(Debug, Default)]
struct Connections {
    subscribers: Slab<Arc<SubscriberQueue>>,
    /// Those that do not watch anybody yet.
    strangers: Slab<Arc<SubscriberQueue>>,
    stopping: bool,
    /// Readers whose actor had no room to be told something.
    unsettled: Vec<SourceSlot>,
    /// Readers that were to sleep when somebody had just connected.
    sleepless: Vec<SourceSlot>,
}

/// Why a connection is not let in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotAdmitted {
    /// There are as many as there may be.
    Full,
    /// All are being ended.
    Stopping,
}

impl Watchers {
    /// Nobody is watched.
    pub fn new(sharding: Sharding) -> Self {
        Self {
            sharding,
            readers: AtomicUsize::new(0),
            watched: (0..sharding.shards()).map(|_| RwLock::default()).collect(),
            keeping: RwLock::default(),
            missed: AtomicBool::new(false),
            connections: Mutex::default(),
            sessions: Arc::default(),
        }
    }

    /// Tells a reader of changes from now on. Must come before its feed is looked at: a change that is not seen then is told.
    pub fn enter(&self, reader: SourceSlot) {
        if self.watched[self.sharding.shard_of(reader)].write().insert(self.sharding.local(reader)) {
            self.readers.fetch_add(1, Ordering::Relaxed);
        }
        fence(Ordering::SeqCst);
    }

    /// Tells a reader of nothing any more.
    pub fn leave(&self, reader: SourceSlot, kept: &[SourceSlot]) {
        self.keep(reader, kept, &[]);
        if self.watched[self.sharding.shard_of(reader)].write().remove(self.sharding.local(reader)) {
            self.readers.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Replaces the sources of which a watched reader keeps what they brought.
    pub fn keep(&self, reader: SourceSlot, before: &[SourceSlot], now: &[SourceSlot]) {
        if before == now {
            return;
        }
        let mut keeping = self.keeping.write();
        for source in before {
            if let Some(readers) = keeping.get_mut(source) {
                readers.retain(|other| *other != reader);
                if readers.is_empty() {
                    keeping.remove(source);
                }
            }
        }
        for source in now {
            keeping.entry(*source).or_default().push(reader);
        }
    }

    /// Whether anybody is watched. Asked after a change was applied: whoever comes later sees the change.
    pub fn any(&self) -> bool {
        fence(Ordering::SeqCst);
        self.readers.load(Ordering::Relaxed) > 0
    }

    /// How many readers are watched.
    pub fn readers(&self) -> usize {
        self.readers.load(Ordering::Relaxed)
    }

    /// Whether this reader is watched.
    pub fn is_watched(&self, reader: SourceSlot) -> bool {
        self.watched(self.sharding.shard_of(reader)).contains(self.sharding.local(reader))
    }

    /// The watched readers of a shard. The guard must be short-lived.
    pub fn watched(&self, shard: usize) -> RwLockReadGuard<'_, RoaringBitmap> {
        self.watched[shard].read()
    }

    /// Appends to `into` the numbers within `shard` of the source itself and of those who keep what it brought, if watched.
    pub fn concerned(&self, source: SourceSlot, shard: usize, into: &mut Vec<u32>) {
        let keeping = self.keeping.read();
        let keeping = keeping.get(&source).map(Vec::as_slice).unwrap_or_default();
        let watched = self.watched(shard);
        let here = keeping.iter().chain([&source]).filter(|reader| self.sharding.shard_of(**reader) == shard);
        into.extend(here.map(|reader| self.sharding.local(*reader)).filter(|local| watched.contains(*local)));
    }

    /// Notes that something could not be told to those concerned.
    pub fn miss(&self) {
        self.missed.store(true, Ordering::Release);
    }

    /// Whether that was noted since the last time.
    pub fn take_missed(&self) -> bool {
        self.missed.load(Ordering::Relaxed) && self.missed.swap(false, Ordering::AcqRel)
    }

    /// Lets a connection in, unless there are `max`.
    ///
    /// # Errors
    /// Why not.
    pub fn admit(&self, subscriber: &Arc<SubscriberQueue>, max: usize) -> Result<usize, NotAdmitted> {
        let mut connections = self.connections.lock();
        if connections.stopping {
            return Err(NotAdmitted::Stopping);
        }
        if connections.subscribers.len() >= max {
            return Err(NotAdmitted::Full);
        }
        Ok(connections.subscribers.insert(Arc::clone(subscriber)))
    }

    /// Takes note of a connection that does not watch anybody yet. None: all are being ended.
    pub fn meet(&self, subscriber: &Arc<SubscriberQueue>) -> Option<usize> {
        let mut connections = self.connections.lock();
        (!connections.stopping).then(|| connections.strangers.insert(Arc::clone(subscriber)))
    }

    /// Forgets such a connection by the key that was returned for it.
    pub fn remove_unauthenticated(&self, key: usize) {
        self.connections.lock().strangers.try_remove(key);
    }

    /// Forgets a connection by the key it was let in with.
    pub fn dismiss(&self, key: usize) {
        self.connections.lock().subscribers.try_remove(key);
    }

    /// How many connections there are that watch somebody, or are about to.
    pub fn connections(&self) -> usize {
        self.connections.lock().subscribers.len()
    }

    /// Bytes that wait for live connections to take them; a text that waits for several counts for each of them.
    pub fn waiting_bytes(&self) -> usize {
        // Copied first: whoever wants to be let in does not wait for all to be asked.
        let subscribers: Vec<Arc<SubscriberQueue>> =
            self.connections.lock().subscribers.iter().map(|(_, subscriber)| Arc::clone(subscriber)).collect();
        subscribers.iter().map(|subscriber| subscriber.bytes()).sum()
    }

    /// Ends all connections, and lets none in any more.
    pub fn stop(&self) {
        let mut connections = self.connections.lock();
        connections.stopping = true;
        let all = connections.subscribers.iter().chain(&connections.strangers);
        all.for_each(|(_, subscriber)| subscriber.close(Closing::Restart));
    }

    /// Notes that a reader's actor had no room to be told something.
    pub fn unsettle(&self, reader: SourceSlot) {
        self.connections.lock().unsettled.push(reader);
    }

    /// Those of a shard that were noted since the last time.
    pub fn take_unsettled(&self, shard: usize) -> Vec<SourceSlot> {
        self.of_shard(&mut self.connections.lock().unsettled, shard)
    }

    /// Notes that a reader was to sleep when somebody had just connected.
    pub fn stay_awake(&self, reader: SourceSlot) {
        self.connections.lock().sleepless.push(reader);
    }

    /// Those of a shard that were noted since the last time.
    pub fn take_sleepless(&self, shard: usize) -> Vec<SourceSlot> {
        self.of_shard(&mut self.connections.lock().sleepless, shard)
    }

    fn of_shard(&self, readers: &mut Vec<SourceSlot>, shard: usize) -> Vec<SourceSlot> {
        readers.extract_if(.., |reader| self.sharding.shard_of(*reader) == shard).collect()
    }
}
