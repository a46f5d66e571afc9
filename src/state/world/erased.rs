//! How events erase users, and revoke their tokens.
//!
//! The source stays in its slot, since slots are for good, and loses its id, whom it follows and what it decided at once. Others' edges and
//! decisions about it, and its posts, go by ordinary events that follow (`runtime::background::eraser`): there may be millions of them.

use std::sync::Arc;

use crate::clock::UnixMicros;
use crate::id::{SourceId, SourceSlot};
use crate::state::world::{Applied, Writer};

impl Writer {
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
        // A replay may find it begun, by a snapshot that was taken meanwhile; what it replayed since goes once more.
        let source =
            world.sources.erasures().at(at).map_or_else(|| world.sources.intern(user), |e| Arc::clone(&e.source));
        world.sources.begin_erasure(&source, at);
        world.revocations.remove(user);
        let followed: Vec<SourceSlot> = source.following().sources().collect();
        followed.into_iter().for_each(|slot| self.remove_edge(&source, world.sources.at(slot), None));
        let preferences = source.preferences.write().take();
        for (blocked, since) in preferences.iter().flat_map(|preferences| preferences.blocks.iter()) {
            world.sources.at(blocked).note_blocked(since, false);
        }
        Applied::Done
    }

    /// Only as far as this process knows: a replay may have brought back into the archive what had gone from it.
    pub(super) fn note_scrubbed(&mut self, at: UnixMicros) -> Applied {
        if !self.is_replaying {
            self.world.sources.erasures().scrub(at);
        }
        Applied::Done
    }

    pub(super) fn end_erasure(&mut self, at: UnixMicros) -> Applied {
        self.world.sources.erasures().end(at);
        Applied::Done
    }
}
