//! The memory of sources, edges and preferences, for their budget.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::feed::preferences::Preferences;
use crate::id::SourceSlot;
use crate::state::sources::keepers::KEEPER_BYTES;
use crate::state::sources::{Edges, SOURCES_SAMPLE_MAX, Source, Sources, preferences_bytes};

impl Sources {
    /// The bytes of all sources, edges and preferences, without posts.
    pub fn graph_bytes(&self) -> usize {
        self.graph_bytes.load(Ordering::Relaxed)
    }

    /// Returns the bytes of all sources with their edges, preferences and outboxes. The latter are estimated from a sample.
    pub fn bytes(&self) -> usize {
        let step = self.len().div_ceil(SOURCES_SAMPLE_MAX).max(1);
        // A varying offset within each step, so that sources made in a regular pattern, such as users and their tags,
        // are all sampled.
        let within = |start: usize| start + start.wrapping_mul(0x9E37_79B9) / 64 % step;
        let sample = (0..self.len()).step_by(step).filter_map(|start| self.by_slot.get(within(start)));
        let (looked, more) =
            sample.fold((0_usize, 0), |(looked, more), source| (looked + 1, more + source.more_bytes()));
        self.graph_bytes() + (more as f64 / looked.max(1) as f64 * self.len() as f64).round() as usize
    }

    /// Changes the edges of a source. Only the state machine calls it.
    pub(in crate::state) fn change_edges<T>(&self, source: &Source, change: impl FnOnce(&mut Edges) -> T) -> T {
        let mut edges = source.edges.write();
        let before = edges.bytes();
        let changed = change(&mut edges);
        self.note_graph_bytes(before, edges.bytes());
        changed
    }

    /// Notes if a reader has retained posts of a source, after an edge between them was changed. Only the state machine calls
    /// it.
    pub(in crate::state) fn note_kept(&self, reader: &Source, source: SourceSlot) {
        let keeps = reader.following().is_only_kept(source);
        if self.keepers.set(reader.slot, source, keeps) {
            let bytes = [0, KEEPER_BYTES];
            self.note_graph_bytes(bytes[usize::from(!keeps)], bytes[usize::from(keeps)]);
        }
    }

    /// Returns the readers with retained posts of a source that they no longer follow.
    pub fn keepers_of(&self, source: SourceSlot) -> impl Iterator<Item = SourceSlot> + use<> {
        self.keepers.of(source).into_iter().map(SourceSlot)
    }

    /// Changes the preferences of a source; `None` stands for the default ones. Only the state machine calls it.
    pub(in crate::state) fn change_preferences<T>(
        &self,
        source: &Source,
        change: impl FnOnce(&mut Option<Arc<Preferences>>) -> T,
    ) -> T {
        let mut preferences = source.preferences_lock().write();
        let before = preferences_bytes(preferences.as_deref());
        let changed = change(&mut preferences);
        self.note_graph_bytes(before, preferences_bytes(preferences.as_deref()));
        changed
    }

    pub(super) fn note_graph_bytes(&self, before: usize, after: usize) {
        // Not a read-modify-write operation, because there is one writer.
        self.graph_bytes.store(self.graph_bytes() + after - before, Ordering::Relaxed);
    }
}
