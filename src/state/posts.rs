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

use dashmap::DashMap;

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

/// All posts.
#[derive(Debug, Default)]
pub struct Posts {
    by_id: DashMap<PostId, Stored, foldhash::fast::RandomState>,
    live: AtomicUsize,
    bytes: AtomicUsize,
}

/// What a map entry takes beside the post: key, value, control byte, at the usual load.
const ENTRY_BYTES: usize = 32;

impl Posts {
    /// What is known under `id`.
    pub fn stored(&self, id: PostId) -> Option<Stored> {
        self.by_id.get(&id).map(|entry| entry.value().clone())
    }

    /// The post with this id, unless it was deleted.
    pub fn get(&self, id: PostId) -> Option<Arc<Post>> {
        match self.by_id.get(&id)?.value() {
            Stored::Live(post) => Some(Arc::clone(post)),
            Stored::Deleted => None,
        }
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

    /// Stores a post, new or edited. Only the writer calls it.
    pub(super) fn put(&self, post: Arc<Post>) {
        self.bytes.fetch_add(post.bytes(), Ordering::Relaxed);
        match self.by_id.insert(post.id(), Stored::Live(post)) {
            Some(Stored::Live(before)) => {
                self.bytes.fetch_sub(before.bytes(), Ordering::Relaxed);
            }
            Some(Stored::Deleted) => {
                self.live.fetch_add(1, Ordering::Relaxed);
            }
            None => {
                self.live.fetch_add(1, Ordering::Relaxed);
                self.bytes.fetch_add(ENTRY_BYTES, Ordering::Relaxed);
            }
        }
    }

    /// Puts a tombstone in place of a post, and returns the post if there was one. Only the writer calls it.
    pub(super) fn bury(&self, id: PostId) -> Option<Arc<Post>> {
        match self.by_id.insert(id, Stored::Deleted) {
            Some(Stored::Live(post)) => {
                self.live.fetch_sub(1, Ordering::Relaxed);
                self.bytes.fetch_sub(post.bytes(), Ordering::Relaxed);
                Some(post)
            }
            Some(Stored::Deleted) => None,
            None => {
                self.bytes.fetch_add(ENTRY_BYTES, Ordering::Relaxed);
                None
            }
        }
    }
}
