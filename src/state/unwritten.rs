//! Changes that the archive does not have yet, and the state of moving posts to it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use rustc_hash::FxHashSet;

use crate::feed::position::Position;
use crate::feed::post::Post;
use crate::id::{PostId, SourceSlot};
use crate::limits::HELD_BACK_SOURCES_MAX;
use crate::state::sources::Source;

/// Number of posts that an outbox may have in memory beyond its limit before its oldest posts are moved to the archive together.
pub(super) const TIERING_SLACK: usize = 128;

/// Limits of the posts in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TieringLimits {
    /// Maximum posts of one outbox in memory.
    pub outbox_posts: usize,
    /// Maximum bytes of all posts in memory. Above it, outboxes have fewer posts in memory than `outbox_posts`.
    pub posts_bytes: usize,
}

/// The changes that still have to be written to the archive.
#[derive(Default)]
pub(super) struct UnwrittenChanges {
    pub(super) limits: Option<TieringLimits>,
    /// Sources with more posts in memory than the limit.
    pub(super) full: FxHashSet<SourceSlot>,
    /// Archived posts that were edited. They stay in memory until the archive has the new version.
    pub(super) rewrites: FxHashSet<PostId>,
    pub(super) tombstoned: Vec<Deletion>,
    /// Tombstones in memory that the archive has too, oldest first.
    pub(super) tombstones: VecDeque<PostId>,
    /// Posts that are being written to the archive.
    pub(super) in_flight: FxHashSet<PostId>,
    pub(super) lap: Option<Lap>,
    /// Entries of replies that stayed in memory when those of their authors left it.
    pub(super) left_behind: Vec<(SourceSlot, Position)>,
    /// While a snapshot is loaded: posts are compared with the archive only above this many bytes.
    pub(super) load_bytes_max: usize,
}

/// A pass over all outboxes, made when posts take too many bytes: it moves every post below one position to the archive.
#[derive(Clone, Copy)]
pub(super) struct Lap {
    /// The index of the source to visit next.
    pub(super) next: usize,
    /// Posts below this position are moved.
    pub(super) cutoff: Position,
}

/// A deletion that the archive does not have yet: the entries of the post must be removed there, and its tombstone written.
#[derive(Clone, Debug)]
pub(super) struct Deletion {
    pub(super) id: PostId,
    /// None if the id was deleted before there was a post with it.
    pub(super) post: Option<Arc<Post>>,
}

impl UnwrittenChanges {
    pub(super) fn new(limits: Option<TieringLimits>) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Checks how many posts of an outbox are in memory, after a post was added.
    pub(super) fn note_size(&mut self, source: &Source) {
        let Some(limits) = self.limits else { return };
        if source.outbox().in_memory() > limits.outbox_posts.saturating_add(TIERING_SLACK.min(limits.outbox_posts)) {
            self.full.insert(source.slot);
        }
    }

    pub(super) fn rewrite(&mut self, id: PostId) {
        self.rewrites.insert(id);
    }

    /// Returns true if a post is being written, so that the archive may get an older version than memory has.
    pub(super) fn is_in_flight(&self, id: PostId) -> bool {
        self.in_flight.contains(&id)
    }

    /// Notes a tombstone that the archive has.
    pub(super) fn note_tombstone(&mut self, id: PostId) {
        if self.limits.is_some() {
            self.tombstones.push_back(id);
        }
    }

    pub(super) fn note_deleted(&mut self, post: &Arc<Post>) {
        if self.limits.is_some() {
            self.rewrites.remove(&post.id());
            self.tombstoned.push(Deletion { id: post.id(), post: Some(Arc::clone(post)) });
        }
    }

    /// Notes a deleted id that had no post.
    pub(super) fn note_deleted_id(&mut self, id: PostId) {
        if self.limits.is_some() {
            self.tombstoned.push(Deletion { id, post: None });
        }
    }
}

/// Sources whose posts are kept in memory, because a damaged page of the archive prevents writing them.
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
