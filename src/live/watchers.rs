//! Watchers: the registry of watched readers, used by the parts that send notices about changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};

use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use roaring::RoaringBitmap;
use rustc_hash::FxHashMap;
use slab::Slab;

use crate::feed::followers::Sharding;
use crate::id::SourceSlot;
use crate::live::sessions::Sessions;
use crate::live::subscriber_queue::{Closing, SubscriberQueue};

/// The watched readers and the live connections.
#[derive(Debug)]
pub struct Watchers {
    sharding: Sharding,
    readers: AtomicUsize,
    /// The watched readers of each shard, by their numbers within the shard.
    watched: Box<[RwLock<RoaringBitmap>]>,
    /// For each source, the watched readers that no longer follow it but have retained posts of it.
    kept_by_source: RwLock<FxHashMap<SourceSlot, Vec<SourceSlot>>>,
    /// Set if a notice could not be queued, or there are too many. All watched readers are then notified that they missed something.
    missed: AtomicBool,
    connections: Mutex<Connections>,
    /// The sessions of users, which their tokens authenticated.
    pub sessions: Arc<Sessions>,
}

#[derive(Debug, Default)]
struct Connections {
    subscribers: Slab<Watching>,
    /// Connections that do not watch any reader yet.
    unauthenticated: Slab<Arc<SubscriberQueue>>,
    stopping: bool,
    /// Readers whose actor could not receive a notice, since its mailbox was full.
    mailbox_full: Vec<SourceSlot>,
    /// Readers that were not put to sleep, since a client had just connected.
    kept_awake: Vec<SourceSlot>,
}

/// A connection that watches a reader, or is about to: then it has no reader yet.
#[derive(Debug)]
struct Watching {
    subscriber: Arc<SubscriberQueue>,
    reader: SourceSlot,
}

/// The reason why a connection is not admitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotAdmitted {
    /// The number of connections has reached its limit.
    Full,
    /// The server is closing all connections.
    Stopping,
}

impl Watchers {
    /// Creates a registry without any watched reader.
    pub fn new(sharding: Sharding) -> Self {
        Self {
            sharding,
            readers: AtomicUsize::new(0),
            watched: (0..sharding.shards()).map(|_| RwLock::default()).collect(),
            kept_by_source: RwLock::default(),
            missed: AtomicBool::new(false),
            connections: Mutex::default(),
            sessions: Arc::default(),
        }
    }

    /// Adds a reader to the watched readers. The caller does this before it reads the feed: a change that this read
    /// does not see then causes a notice.
    pub fn enter(&self, reader: SourceSlot) {
        if self.watched[self.sharding.shard_of(reader)].write().insert(self.sharding.local(reader)) {
            self.readers.fetch_add(1, Ordering::Relaxed);
        }
        fence(Ordering::SeqCst);
    }

    /// Removes a reader from the watched readers.
    pub fn leave(&self, reader: SourceSlot, kept: &[SourceSlot]) {
        self.replace_kept(reader, kept, &[]);
        if self.watched[self.sharding.shard_of(reader)].write().remove(self.sharding.local(reader)) {
            self.readers.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Replaces the list of unfollowed sources of which a watched reader has retained posts.
    pub fn replace_kept(&self, reader: SourceSlot, before: &[SourceSlot], now: &[SourceSlot]) {
        if before == now {
            return;
        }
        let mut kept_by_source = self.kept_by_source.write();
        for source in before {
            if let Some(readers) = kept_by_source.get_mut(source) {
                readers.retain(|other| *other != reader);
                if readers.is_empty() {
                    kept_by_source.remove(source);
                }
            }
        }
        for source in now {
            kept_by_source.entry(*source).or_default().push(reader);
        }
    }

    /// Returns true if any reader is watched. The caller asks after it applied a change: a reader that is added later
    /// sees the change.
    pub fn any(&self) -> bool {
        fence(Ordering::SeqCst);
        self.readers.load(Ordering::Relaxed) > 0
    }

    /// Returns the number of watched readers.
    pub fn readers(&self) -> usize {
        self.readers.load(Ordering::Relaxed)
    }

    /// Returns true if this reader is watched.
    pub fn is_watched(&self, reader: SourceSlot) -> bool {
        self.watched(self.sharding.shard_of(reader)).contains(self.sharding.local(reader))
    }

    /// Returns the watched readers of a shard. The caller releases the guard soon, since [`Self::enter`] and
    /// [`Self::leave`] wait for it.
    pub fn watched(&self, shard: usize) -> RwLockReadGuard<'_, RoaringBitmap> {
        self.watched[shard].read()
    }

    /// Appends to `into` the numbers within `shard` of the source itself and of the readers that have retained posts of it, if they
    /// are watched.
    pub fn affected(&self, source: SourceSlot, shard: usize, into: &mut Vec<u32>) {
        let kept_by_source = self.kept_by_source.read();
        let keepers = kept_by_source.get(&source).map(Vec::as_slice).unwrap_or_default();
        let watched = self.watched(shard);
        let here = keepers.iter().chain([&source]).filter(|reader| self.sharding.shard_of(**reader) == shard);
        into.extend(here.map(|reader| self.sharding.local(*reader)).filter(|local| watched.contains(*local)));
    }

    /// Records that all watched readers have to compare their feeds: a notice could not be queued, or there are too many.
    pub fn note_missed(&self) {
        self.missed.store(true, Ordering::Release);
    }

    /// Returns true if [`Self::note_missed`] was called since the last call, and resets this state.
    pub fn take_missed(&self) -> bool {
        self.missed.load(Ordering::Relaxed) && self.missed.swap(false, Ordering::AcqRel)
    }

    /// Admits a connection, unless there are already `max`. Returns its key.
    ///
    /// # Errors
    /// Fails if the limit is reached, or all connections are being closed.
    pub fn admit(&self, subscriber: &Arc<SubscriberQueue>, max: usize) -> Result<usize, NotAdmitted> {
        let mut connections = self.connections.lock();
        if connections.stopping {
            return Err(NotAdmitted::Stopping);
        }
        if connections.subscribers.len() >= max {
            return Err(NotAdmitted::Full);
        }
        Ok(connections.subscribers.insert(Watching { subscriber: Arc::clone(subscriber), reader: SourceSlot::NONE }))
    }

    /// Records the reader that an admitted connection watches.
    pub fn set_reader(&self, key: usize, reader: SourceSlot) {
        self.connections.lock().subscribers.get_mut(key).into_iter().for_each(|watching| watching.reader = reader);
    }

    /// Registers a connection that does not watch any reader yet. Returns its key, or None if all connections are
    /// being closed.
    pub fn add_unauthenticated(&self, subscriber: &Arc<SubscriberQueue>) -> Option<usize> {
        let mut connections = self.connections.lock();
        (!connections.stopping).then(|| connections.unauthenticated.insert(Arc::clone(subscriber)))
    }

    /// Removes an unauthenticated connection by its key.
    pub fn remove_unauthenticated(&self, key: usize) {
        self.connections.lock().unauthenticated.try_remove(key);
    }

    /// Removes an admitted connection by its key.
    pub fn remove(&self, key: usize) {
        self.connections.lock().subscribers.try_remove(key);
    }

    /// Returns the number of connections that watch a reader or are about to.
    pub fn connections(&self) -> usize {
        self.connections.lock().subscribers.len()
    }

    /// Returns the bytes queued for live connections. A text that is queued for several connections counts once for
    /// each of them.
    pub fn waiting_bytes(&self) -> usize {
        // The list is copied first, so that admitting a connection does not wait until all queues have been read.
        let subscribers: Vec<Arc<SubscriberQueue>> =
            self.connections.lock().subscribers.iter().map(|(_, watching)| Arc::clone(&watching.subscriber)).collect();
        subscribers.iter().map(|subscriber| subscriber.bytes()).sum()
    }

    /// Returns true once all connections are closed for good.
    pub fn is_stopped(&self) -> bool {
        self.connections.lock().stopping
    }

    /// Closes all connections, and admits no more.
    pub fn stop(&self) {
        let mut connections = self.connections.lock();
        connections.stopping = true;
        connections.subscribers.iter().for_each(|(_, watching)| watching.subscriber.close(Closing::Restart));
        connections.unauthenticated.iter().for_each(|(_, subscriber)| subscriber.close(Closing::Restart));
    }

    /// Closes the connections of readers that this server does not serve any more. The clients reconnect to the server that serves
    /// the reader.
    pub fn close_where(&self, is_gone: impl Fn(SourceSlot) -> bool) {
        // The list is copied first, as in `waiting_bytes`.
        let watching: Vec<_> = {
            let connections = self.connections.lock();
            let all = connections.subscribers.iter().map(|(_, watching)| watching);
            all.map(|watching| (Arc::clone(&watching.subscriber), watching.reader)).collect()
        };
        let gone = watching.iter().filter(|(_, reader)| *reader != SourceSlot::NONE && is_gone(*reader));
        gone.for_each(|(subscriber, _)| subscriber.close(Closing::Restart));
    }

    /// Records that the mailbox of a reader's actor was too full for a notice.
    pub fn note_mailbox_full(&self, reader: SourceSlot) {
        self.connections.lock().mailbox_full.push(reader);
    }

    /// Returns the readers of a shard that were recorded since the last call.
    pub fn take_mailbox_full(&self, shard: usize) -> Vec<SourceSlot> {
        self.of_shard(&mut self.connections.lock().mailbox_full, shard)
    }

    /// Records that a reader was not put to sleep, since a client had just connected.
    pub fn note_kept_awake(&self, reader: SourceSlot) {
        self.connections.lock().kept_awake.push(reader);
    }

    /// Returns the readers of a shard that were recorded since the last call.
    pub fn take_kept_awake(&self, shard: usize) -> Vec<SourceSlot> {
        self.of_shard(&mut self.connections.lock().kept_awake, shard)
    }

    fn of_shard(&self, readers: &mut Vec<SourceSlot>, shard: usize) -> Vec<SourceSlot> {
        readers.extract_if(.., |reader| self.sharding.shard_of(*reader) == shard).collect()
    }
}
