//! Sources whose posts stay in memory, since a damaged page of the archive is in the way of writing them there.
//!
//! Responsible for:
//! - which these are, at most [`HELD_BACK_SOURCES_MAX`], and how many, for whoever asks.
//!
//! Not responsible for:
//! - finding them (`state::tiering::parts`), the damage: a restart tries again.

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
    /// Holds one back. False if there are too many already: then it is tried again and again.
    pub(super) fn insert(&self, slot: SourceSlot) -> bool {
        let mut slots = self.slots.lock();
        let has_room = slots.len() < HELD_BACK_SOURCES_MAX || slots.contains(&slot);
        if has_room {
            slots.insert(slot);
            self.count.store(slots.len(), Ordering::Relaxed);
        }
        has_room
    }

    pub(super) fn contains(&self, slot: SourceSlot) -> bool {
        // Mostly there is none.
        self.sources() > 0 && self.slots.lock().contains(&slot)
    }

    /// How many there are.
    pub fn sources(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}
