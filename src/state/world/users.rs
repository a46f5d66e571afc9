//! Applies events that erase users and revoke their tokens.
//!
//! An erased source keeps its slot, because slots are permanent. It loses its id, its follow edges and its preferences
//! at once. Edges and preferences of other users that name it, and its posts, are removed by ordinary events that
//! follow (`runtime::background::eraser`), because there may be millions of them.

use std::sync::Arc;

use crate::clock::UnixMicros;
use crate::id::{SourceId, SourceSlot};
use crate::state::world::{Applied, StateMachine};

impl StateMachine {
    pub(in crate::state) fn revoke(
        &mut self,
        user: &SourceId,
        not_before: UnixMicros,
        forget_before: Option<UnixMicros>,
    ) -> Applied {
        self.world.revocations.add(user, not_before, forget_before);
        Applied::Done
    }

    pub(super) fn erase(&mut self, user: &SourceId, at: UnixMicros) -> Applied {
        let world = Arc::clone(&self.world);
        // In a replay, a snapshot taken during the erasure may contain it already. Edges and preferences that were
        // replayed since are then removed again.
        let source =
            world.sources.erasures().at(at).map_or_else(|| world.sources.intern(user), |e| Arc::clone(&e.source));
        world.sources.begin_erasure(&source, at);
        world.revocations.remove(user);
        let followed: Vec<SourceSlot> = source.following().sources().collect();
        followed.into_iter().for_each(|slot| self.remove_edge(&source, world.sources.at(slot), None));
        let preferences = world.sources.change_preferences(&source, Option::take);
        for (blocked, since) in preferences.iter().flat_map(|preferences| preferences.blocks.iter()) {
            world.sources.at(blocked).note_blocked(since, false);
        }
        Applied::Done
    }

    /// Ignored in a replay, because the replay may have written the user's data back to the archive.
    pub(super) fn note_scrubbed(&mut self, at: UnixMicros) -> Applied {
        if !self.is_replaying {
            self.world.sources.erasures().scrub(at);
        }
        Applied::Done
    }

    pub(super) fn end_erasure(&mut self, at: UnixMicros) -> Applied {
        self.world.sources.erasures().end(at);
        if let Some(archive) = self.world.replicated_archive() {
            // The sequencer has removed the user there. Cached reads of this node may name the user, whose id is free now.
            archive.forget_everything();
        }
        Applied::Done
    }
}
