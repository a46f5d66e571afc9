//! The directory: which readers are awake, and the addresses of their actors.

use actix::dev::SendError;
use actix::{Addr, Handler, Message};
use dashmap::DashMap;
use parking_lot::{RwLock, RwLockReadGuard};
use roaring::RoaringBitmap;
use rustc_hash::FxBuildHasher;

use crate::clock::UnixMicros;
use crate::feed::followers::Sharding;
use crate::id::SourceSlot;
use crate::limits::{QUARANTINE, USER_PANICS_MAX};
use crate::runtime::reader::user::UserActor;

/// The awake readers and the addresses of their actors.
pub struct Directory {
    sharding: Sharding,
    users: DashMap<SourceSlot, Addr<UserActor>, FxBuildHasher>,
    /// The readers of each shard whose inboxes receive posts, by their numbers within the shard.
    active: Box<[RwLock<RoaringBitmap>]>,
    crashes: DashMap<SourceSlot, Crashes, FxBuildHasher>,
}

#[derive(Clone, Copy, Debug)]
struct Crashes {
    count: u32,
    last: UnixMicros,
}

impl Directory {
    /// Creates a directory in which all readers are asleep.
    pub fn new(sharding: Sharding) -> Self {
        let active = (0..sharding.shards()).map(|_| RwLock::default()).collect();
        Self { sharding, users: DashMap::default(), active, crashes: DashMap::default() }
    }

    /// Puts a message into the mailbox of a reader's actor.
    ///
    /// All senders share the one address stored here, since each clone of an address may exceed the mailbox's
    /// capacity by one message.
    ///
    /// # Errors
    /// Returns the message if the mailbox is full, or closed because the reader is asleep.
    pub fn send<M>(&self, reader: SourceSlot, message: M) -> Result<(), SendError<M>>
    where
        M: Message<Result = ()> + Send + 'static,
        UserActor: Handler<M>,
    {
        match self.users.get(&reader) {
            Some(user) => user.try_send(message),
            None => Err(SendError::Closed(message)),
        }
    }

    /// Returns true if a reader is awake.
    pub fn is_active(&self, reader: SourceSlot) -> bool {
        self.active(self.sharding.shard_of(reader)).contains(self.sharding.local(reader))
    }

    /// Returns the readers of a shard whose inboxes receive posts. The caller releases the guard soon, since waking a
    /// reader waits for it.
    pub fn active(&self, shard: usize) -> RwLockReadGuard<'_, RoaringBitmap> {
        self.active[shard].read()
    }

    /// Returns the number of awake readers of a shard.
    pub fn active_len(&self, shard: usize) -> usize {
        usize::try_from(self.active(shard).len()).unwrap_or(usize::MAX)
    }

    /// Returns the number of awake readers.
    pub fn len(&self) -> usize {
        (0..self.active.len()).map(|shard| self.active_len(shard)).sum()
    }

    /// Returns true if all readers are asleep.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a reader to the recipients of fan-out. The caller does this before it fills the inbox from outboxes: a
    /// post that is not in an outbox at that time is then pushed, so none is missed.
    pub fn enter(&self, reader: SourceSlot) {
        self.active[self.sharding.shard_of(reader)].write().insert(self.sharding.local(reader));
    }

    /// Stores the address of a reader's actor.
    pub fn list(&self, reader: SourceSlot, user: Addr<UserActor>) {
        self.users.insert(reader, user);
    }

    /// Removes a reader's actor, and removes the reader from the recipients of fan-out.
    pub fn leave(&self, reader: SourceSlot) {
        self.active[self.sharding.shard_of(reader)].write().remove(self.sharding.local(reader));
        self.users.remove(&reader);
    }

    /// Records a crash of a reader's actor.
    pub fn crashed(&self, reader: SourceSlot, at: UnixMicros) {
        let mut crashes = self.crashes.entry(reader).or_insert(Crashes { count: 0, last: at });
        if at >= crashes.last.saturating_add(QUARANTINE) {
            crashes.count = 0;
        }
        crashes.count += 1;
        crashes.last = at;
    }

    /// Returns the number of recent crashes of a reader's actor.
    pub fn crashes(&self, reader: SourceSlot) -> u32 {
        self.crashes.get(&reader).map_or(0, |crashes| crashes.count)
    }

    /// Returns the number of crashes of a reader's actor if the reader is quarantined at this time.
    pub fn quarantined(&self, reader: SourceSlot, at: UnixMicros) -> Option<u32> {
        let crashes = *self.crashes.get(&reader)?;
        // A crash that lies in the future was recorded by a clock that was ahead.
        if at >= crashes.last.saturating_add(QUARANTINE) || crashes.last > at.saturating_add(QUARANTINE) {
            self.crashes.remove(&reader);
            return None;
        }
        (crashes.count >= USER_PANICS_MAX).then_some(crashes.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_crashes_cause_a_temporary_quarantine() {
        let directory = Directory::new(Sharding::new(1));
        let (reader, start) = (SourceSlot(3), UnixMicros(0));
        for count in 1..=USER_PANICS_MAX {
            assert_eq!(directory.quarantined(reader, start), None);
            directory.crashed(reader, UnixMicros(i64::from(count)));
        }
        assert_eq!(directory.quarantined(reader, UnixMicros(9)), Some(USER_PANICS_MAX));
        let later = UnixMicros(9).saturating_add(QUARANTINE);
        assert_eq!(directory.quarantined(reader, later), None);
        assert_eq!(directory.quarantined(reader, UnixMicros(9)), None);
    }
}
