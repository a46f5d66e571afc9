//! The readers with retained posts of a source that they no longer follow.

use parking_lot::RwLock;
use roaring::RoaringBitmap;
use rustc_hash::FxHashMap;

use crate::id::SourceSlot;

/// These readers, by source.
#[derive(Debug, Default)]
pub(super) struct Keepers(RwLock<FxHashMap<SourceSlot, RoaringBitmap>>);

/// Bytes that are counted for a reader with retained posts of a source. The first reader of a source takes more, and most
/// take less.
pub(super) const KEEPER_BYTES: usize = 64;

impl Keepers {
    /// Returns the readers with retained posts of a source.
    pub(super) fn of(&self, source: SourceSlot) -> RoaringBitmap {
        self.0.read().get(&source).cloned().unwrap_or_default()
    }

    /// Notes that a reader has retained posts of a source, or no longer has any. Returns true if that is new. Only the state
    /// machine calls it.
    pub(super) fn set(&self, reader: SourceSlot, source: SourceSlot, keeps: bool) -> bool {
        if keeps {
            return self.0.write().entry(source).or_default().insert(reader.0);
        }
        if !self.0.read().contains_key(&source) {
            return false;
        }
        let mut by_source = self.0.write();
        let Some(readers) = by_source.get_mut(&source) else { return false };
        let was_there = readers.remove(reader.0);
        if readers.is_empty() {
            by_source.remove(&source);
        }
        was_there
    }
}
