//! Sources whose posts are kept in memory, because a damaged page of the archive prevents writing them.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use rustc_hash::FxHashSet;

use crate::id::SourceSlot;
use crate::limits::HELD_BACK_SOURCES_MAX;

/// The sources that are held back.
#[derive(Debug, Default)]
pub struct HeldBack {
    slots: Mutex<FxHashSet<SourceSlot>>,
    count: AtomicUsize,
}

impl HeldBack {
    /// Holds a source back. Returns false if there are too many already: then every round retries the source.
    pub(crate) fn insert(&self, slot: SourceSlot) -> bool {
        let mut slots = self.slots.lock();
        let has_capacity = slots.len() < HELD_BACK_SOURCES_MAX || slots.contains(&slot);
        if has_capacity {
            slots.insert(slot);
            self.count.store(slots.len(), Ordering::Relaxed);
        }
        has_capacity
    }

    pub(super) fn contains(&self, slot: SourceSlot) -> bool {
        // Usually no source is held back.
        self.sources() > 0 && self.slots.lock().contains(&slot)
    }

    /// The number of sources that are held back.
    pub fn sources(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}
