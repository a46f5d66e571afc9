//! Posts by id.
//!
//! Responsible for:
//! - finding a post, and remembering ids that were deleted, so that a late redelivery cannot bring a post back;
//! - how many bytes posts take.
//!
//! Not responsible for:
//! - which outboxes a post is in (`state::world`).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dashmap::{DashMap, DashSet};

use crate::feed::position::Position;
use crate::feed::post::Post;
use crate::id::PostId;

/// What is known under a post id.
#[derive(Clone, Debug)]
pub enum Stored {
    /// A post.
    Live(Arc<Post>),
    /// A post that was deleted: the tombstone wins over every later publish.
    Deleted,
}

type State = foldhash::fast::RandomState;

impl Stored {
    /// The post, unless it was deleted.
    pub fn live(self) -> Option<Arc<Post>> {
        match self {
            Self::Live(post) => Some(post),
            Self::Deleted => None,
        }
    }
}

/// All posts.
#[derive(Debug, Default)]
pub struct Posts {
    by_id: DashMap<PostId, Arc<Post>, State>,
    deleted: DashSet<PostId, State>,
    /// How many of them there are, never less: the set itself counts slowly.
    tombstones: AtomicUsize,
    /// How many there ever were, counted once they are in the set.
    tombstoned: AtomicUsize,
    live: AtomicUsize,
    bytes: AtomicUsize,
}

/// What a map entry takes beside the post: key, value, control byte, at the usual load.
const ENTRY_BYTES: usize = 24;

/// What a tombstone takes, reckoned likewise.
const TOMBSTONE_BYTES: usize = 16;

impl Posts {
    /// What is known under `id`.
    pub fn stored(&self, id: PostId) -> Option<Stored> {
        // A delete buries before it removes, so an id is never found in neither.
        let live = self.get(id).map(Stored::Live);
        live.or_else(|| self.is_deleted(id).then_some(Stored::Deleted))
    }

    /// Whether an id was deleted, as far as memory knows.
    pub(super) fn is_deleted(&self, id: PostId) -> bool {
        self.tombstones.load(Ordering::Relaxed) > 0 && self.deleted.contains(&id)
    }

    /// How often an id was deleted. Whatever is counted is found deleted, for as long as memory keeps its tombstone.
    pub(super) fn tombstoned(&self) -> usize {
        self.tombstoned.load(Ordering::Acquire)
    }

    /// The post with this id, unless it was deleted.
    pub fn get(&self, id: PostId) -> Option<Arc<Post>> {
        self.by_id.get(&id).map(|entry| Arc::clone(entry.value()))
    }

    /// How many posts there are, without deleted ones.
    pub fn len(&self) -> usize {
        self.live.load(Ordering::Relaxed)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that posts and tombstones take, without the allocator's own.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Posts picked by the hash of their ids, so as good as at random: at most `max`, the same ones if nothing changes.
    #[expect(
        clippy::disallowed_methods,
        reason = "a thousand entries are in one shard or two, and held for microseconds"
    )]
    pub(super) fn sample(&self, max: usize) -> Vec<Position> {
        self.by_id.iter().take(max).map(|post| post.position).collect()
    }

    /// The ids of deleted posts, in no order. Whatever is deleted meanwhile may be among them or not.
    pub fn deleted(&self) -> impl Iterator<Item = PostId> {
        self.deleted.iter().map(|id| *id)
    }

    /// Stores a post, new or edited. Only the writer calls it.
    pub(super) fn put(&self, post: Arc<Post>) {
        self.bytes.fetch_add(post.bytes() + ENTRY_BYTES, Ordering::Relaxed);
        match self.by_id.insert(post.id(), post) {
            Some(before) => {
                self.bytes.fetch_sub(before.bytes() + ENTRY_BYTES, Ordering::Relaxed);
            }
            None => {
                self.live.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Lets go of a post that the archive has now. Only the writer calls it.
    pub(super) fn forget(&self, id: PostId) {
        if let Some((_, post)) = self.by_id.remove(&id) {
            self.live.fetch_sub(1, Ordering::Relaxed);
            self.bytes.fetch_sub(post.bytes() + ENTRY_BYTES, Ordering::Relaxed);
        }
    }

    /// Lets go of a tombstone that the archive has now. Only the writer calls it.
    pub(super) fn forget_deleted(&self, id: PostId) {
        if self.deleted.remove(&id).is_some() {
            self.tombstones.fetch_sub(1, Ordering::Relaxed);
            self.bytes.fetch_sub(TOMBSTONE_BYTES, Ordering::Relaxed);
        }
    }

    /// Puts a tombstone in place of a post, and returns the post if there was one. Only the writer calls it.
    pub(super) fn bury_as_tombstone(&self, id: PostId) -> Option<Arc<Post>> {
        if !self.is_deleted(id) {
            self.tombstones.fetch_add(1, Ordering::Relaxed);
            self.bytes.fetch_add(TOMBSTONE_BYTES, Ordering::Relaxed);
            self.deleted.insert(id);
            self.tombstoned.fetch_add(1, Ordering::Release);
        }
        let (_, post) = self.by_id.remove(&id)?;
        self.live.fetch_sub(1, Ordering::Relaxed);
        self.bytes.fetch_sub(post.bytes() + ENTRY_BYTES, Ordering::Relaxed);
        Some(post)
    }
}
