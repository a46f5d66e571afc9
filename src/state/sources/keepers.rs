//! The readers who keep earlier posts of a source that they follow no longer.

use parking_lot::RwLock;
use roaring::RoaringBitmap;
use rustc_hash::FxHashMap;

use crate::feed::following::Following;
use crate::id::SourceSlot;

/// These readers, by source.
#[derive(Debug, Default)]
pub(super) struct Keepers(RwLock<FxHashMap<SourceSlot, RoaringBitmap>>);

impl Keepers {
    /// Returns the readers who keep posts of a source.
    pub(super) fn of(&self, source: SourceSlot) -> RoaringBitmap {
        self.0.read().get(&source).cloned().unwrap_or_default()
    }

    /// Returns the sources whose posts a reader keeps without following them.
    pub(super) fn kept(following: &Following) -> Vec<SourceSlot> {
        following.only_kept().collect()
    }

    /// Notes that a reader keeps posts of other sources than before. Only the writer calls it.
    pub(super) fn replace(&self, reader: SourceSlot, before: &[SourceSlot], now: &[SourceSlot]) {
        if before == now {
            return;
        }
        let mut by_source = self.0.write();
        for source in before {
            if let Some(readers) = by_source.get_mut(source) {
                readers.remove(reader.0);
                if readers.is_empty() {
                    by_source.remove(source);
                }
            }
        }
        for source in now {
            by_source.entry(*source).or_default().insert(reader.0);
        }
    }
}
