//! The slots of sources, found by external id.
//!
//! A table contains only slots, because the sources contain the ids: some 8 bytes for each source instead of 40.

use std::hash::BuildHasher;

use hashbrown::HashTable;
use parking_lot::RwLock;

use crate::id::{SourceId, SourceSlot};

/// Number of tables, each with a lock of its own. When a table grows, only the readers of that table wait.
const TABLES: usize = 256;

/// Tables of slots. `id_of` returns the id of a source, and is the same function in every call.
#[derive(Debug)]
pub(super) struct ById {
    tables: Box<[RwLock<HashTable<u32>>]>,
    /// Seeded, because ids come from outside.
    hasher: foldhash::fast::RandomState,
}

impl Default for ById {
    fn default() -> Self {
        let tables = (0..TABLES).map(|_| RwLock::default()).collect();
        Self { tables, hasher: foldhash::fast::RandomState::default() }
    }
}

impl ById {
    /// Returns the slot of the source with this id.
    pub(super) fn get<'a>(&self, id: &SourceId, id_of: impl Fn(SourceSlot) -> &'a SourceId) -> Option<SourceSlot> {
        let hash = self.hash(id);
        self.table(hash).read().find(hash, |slot| id_of(SourceSlot(*slot)) == id).copied().map(SourceSlot)
    }

    /// Adds a source whose id is not in the table.
    pub(super) fn insert<'a>(&self, slot: SourceSlot, id_of: impl Fn(SourceSlot) -> &'a SourceId) {
        let hash = self.hash(id_of(slot));
        let mut table = self.table(hash).write();
        table.insert_unique(hash, slot.0, |slot| self.hash(id_of(SourceSlot(*slot))));
    }

    /// Removes a source.
    pub(super) fn remove(&self, slot: SourceSlot, id: &SourceId) {
        let hash = self.hash(id);
        if let Ok(entry) = self.table(hash).write().find_entry(hash, |other| *other == slot.0) {
            entry.remove();
        }
    }

    fn hash(&self, id: &SourceId) -> u64 {
        self.hasher.hash_one(id)
    }

    /// Returns the table of a hash, by bits that the table itself does not use.
    fn table(&self, hash: u64) -> &RwLock<HashTable<u32>> {
        &self.tables[(hash >> 40) as usize % TABLES]
    }
}
