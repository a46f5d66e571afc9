//! The directory: who is awake, and where.
//!
//! Responsible for:
//! - the address of each active reader's actor, and the bitmap of active readers that fan-out intersects with;
//! - remembering who crashed, and keeping away from an actor that does so again and again.
//!
//! Not responsible for:
//! - waking readers and putting them to sleep (`runtime::reader::activator`).

use actix::dev::SendError;
use actix::{Addr, Handler, Message};
use dashmap::DashMap;
use parking_lot::{RwLock, RwLockReadGuard};
use roaring::RoaringBitmap;
use rustc_hash::FxBuildHasher;

use crate::clock::UnixMicros;
use crate::feed::graph::Sharding;
use crate::id::SourceSlot;
use crate::limits::{QUARANTINE, USER_PANICS_MAX};
use crate::runtime::reader::user::UserActor;

/// Who is awake, and where.
pub struct Directory {
    sharding: Sharding,
    users: DashMap<SourceSlot, Addr<UserActor>, FxBuildHasher>,
    /// By shard: the numbers within the shard of readers whose inbox takes mail.
    active: Box<[RwLock<RoaringBitmap>]>,
    crashes: DashMap<SourceSlot, Crashes, FxBuildHasher>,
}

#[derive(Clone, Copy, Debug)]
struct Crashes {
    count: u32,
    last: UnixMicros,
}

impl Directory {
    /// A directory in which everyone sleeps.
    pub fn new(sharding: Sharding) -> Self {
        let active = (0..sharding.shards()).map(|_| RwLock::default()).collect();
        Self { sharding, users: DashMap::default(), active, crashes: DashMap::default() }
    }

    /// Puts a message into the mailbox of a reader's actor.
    ///
    /// All senders share the one address kept here, since each clone of an address gets a message past a full mailbox.
    ///
    /// # Errors
    /// Hands the message back if the mailbox is full, or closed: nobody is awake there.
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

    /// Whether a reader is awake.
    pub fn is_active(&self, reader: SourceSlot) -> bool {
        self.active(self.sharding.shard_of(reader)).contains(self.sharding.local(reader))
    }

    /// The readers of a shard whose inboxes take mail. The guard must be short-lived: waking waits for it.
    pub fn active(&self, shard: usize) -> RwLockReadGuard<'_, RoaringBitmap> {
        self.active[shard].read()
    }

    /// How many readers of a shard are awake.
    pub fn active_len(&self, shard: usize) -> usize {
        usize::try_from(self.active(shard).len()).unwrap_or(usize::MAX)
    }

    /// How many readers are awake.
    pub fn len(&self) -> usize {
        (0..self.active.len()).map(|shard| self.active_len(shard)).sum()
    }

    /// Whether nobody is awake.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sends a reader mail from now on. Must come before its inbox is filled from outboxes: a post that is in no outbox
    /// yet when those are read is then pushed, and none is missed.
    pub fn enter(&self, reader: SourceSlot) {
        self.active[self.sharding.shard_of(reader)].write().insert(self.sharding.local(reader));
    }

    /// Makes a reader's actor known.
    pub fn list(&self, reader: SourceSlot, user: Addr<UserActor>) {
        self.users.insert(reader, user);
    }

    /// Forgets a reader's actor, and sends it no more mail.
    pub fn leave(&self, reader: SourceSlot) {
        self.active[self.sharding.shard_of(reader)].write().remove(self.sharding.local(reader));
        self.users.remove(&reader);
    }

    /// Notes that a reader's actor crashed.
    pub fn crashed(&self, reader: SourceSlot, at: UnixMicros) {
        let mut crashes = self.crashes.entry(reader).or_insert(Crashes { count: 0, last: at });
        if at >= crashes.last.saturating_add(QUARANTINE) {
            crashes.count = 0;
        }
        crashes.count += 1;
        crashes.last = at;
    }

    /// How often a reader's actor crashed lately.
    pub fn crashes(&self, reader: SourceSlot) -> u32 {
        self.crashes.get(&reader).map_or(0, |crashes| crashes.count)
    }

    /// How often a reader's actor crashed, if so often that it must be left alone at this time.
    pub fn quarantined(&self, reader: SourceSlot, at: UnixMicros) -> Option<u32> {
        let crashes = *self.crashes.get(&reader)?;
        // A crash in the future was seen by a clock that was ahead.
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
    fn repeated_crashes_are_quarantined_for_a_while() {
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
