//! Posts and tombstones in memory, by id.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dashmap::{DashMap, DashSet};

use crate::feed::position::Position;
use crate::feed::post::Post;
use crate::id::{PostId, SourceSlot};

/// The data stored for a post id: a post, or a tombstone.
#[derive(Clone, Debug)]
pub enum Stored {
    /// A post that is not deleted.
    Live(Arc<Post>),
    /// A post that was deleted: the tombstone takes precedence over every later publish.
    Deleted,
}

type State = foldhash::fast::RandomState;

impl Stored {
    /// Returns the post, unless it was deleted.
    pub fn live(self) -> Option<Arc<Post>> {
        match self {
            Self::Live(post) => Some(post),
            Self::Deleted => None,
        }
    }
}

/// All posts and tombstones in memory.
#[derive(Debug, Default)]
pub struct Posts {
    by_id: DashMap<PostId, Arc<Post>, State>,
    deleted: DashSet<PostId, State>,
    /// At least the number of ids in `deleted`; counting the set itself is slow.
    tombstones: AtomicUsize,
    /// The number of tombstones ever written. Each is counted after it is in the set.
    tombstoned: AtomicUsize,
    live: AtomicUsize,
    bytes: AtomicUsize,
}

/// Bytes of a map entry besides the post: key, value, control byte, at the usual load factor.
const ENTRY_BYTES: usize = 24;

/// Bytes of a tombstone, estimated in the same way.
const TOMBSTONE_BYTES: usize = 16;

impl Posts {
    /// Returns the post or tombstone in memory of an id.
    pub fn stored(&self, id: PostId) -> Option<Stored> {
        // A delete writes the tombstone before it removes the post, so a known id is always found in one of the two.
        let live = self.get(id).map(Stored::Live);
        live.or_else(|| self.is_deleted(id).then_some(Stored::Deleted))
    }

    /// Returns true if an id has a tombstone in memory.
    pub(super) fn is_deleted(&self, id: PostId) -> bool {
        self.tombstones.load(Ordering::Relaxed) > 0 && self.deleted.contains(&id)
    }

    /// The number of tombstones ever written. Every counted id is found as deleted as long as its tombstone is in
    /// memory.
    pub(super) fn tombstoned(&self) -> usize {
        self.tombstoned.load(Ordering::Acquire)
    }

    /// Returns the post with this id, unless it was deleted.
    pub fn get(&self, id: PostId) -> Option<Arc<Post>> {
        self.by_id.get(&id).map(|entry| Arc::clone(entry.value()))
    }

    /// The number of posts in memory, without deleted ones.
    pub fn len(&self) -> usize {
        self.live.load(Ordering::Relaxed)
    }

    /// Returns true if there are no posts.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes of posts and tombstones, without the overhead of the allocator.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns the positions of at most `max` posts. They are chosen by the hash of their ids, so practically at
    /// random, but are the same ones if nothing changes.
    #[expect(
        clippy::disallowed_methods,
        reason = "a thousand entries are in one shard or two, and held for microseconds"
    )]
    pub(super) fn sample(&self, max: usize) -> Vec<Position> {
        self.by_id.iter().take(max).map(|post| post.position).collect()
    }

    /// Returns the ids of all posts, in no order. One that is published or deleted meanwhile may or may not be included.
    #[expect(
        clippy::disallowed_methods,
        reason = "rare: each shard is locked while its ids are copied, some milliseconds"
    )]
    pub(super) fn ids(&self) -> Vec<PostId> {
        // Some are published meanwhile.
        let mut ids = Vec::with_capacity(self.len() + 64);
        ids.extend(self.by_id.iter().map(|entry| *entry.key()));
        ids
    }

    /// Returns the ids of deleted posts, in no order. An id that is deleted meanwhile may or may not be included.
    pub fn deleted(&self) -> impl Iterator<Item = PostId> {
        self.deleted.iter().map(|id| *id)
    }

    /// Stores a new or edited post. Only the state machine calls it.
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

    /// Removes a post that is in the archive now. Only the state machine calls it.
    pub(super) fn forget(&self, id: PostId) {
        if let Some((_, post)) = self.by_id.remove(&id) {
            self.live.fetch_sub(1, Ordering::Relaxed);
            self.bytes.fetch_sub(post.bytes() + ENTRY_BYTES, Ordering::Relaxed);
        }
    }

    /// Removes a tombstone that is in the archive now. Only the state machine calls it.
    pub(super) fn forget_deleted(&self, id: PostId) {
        if self.deleted.remove(&id).is_some() {
            self.tombstones.fetch_sub(1, Ordering::Relaxed);
            self.bytes.fetch_sub(TOMBSTONE_BYTES, Ordering::Relaxed);
        }
    }

    /// Writes a tombstone, and removes and returns the post if there was one. Only the state machine calls it.
    pub(super) fn write_tombstone(&self, id: PostId) -> Option<Arc<Post>> {
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

/// The part of a post that determines which readers a change of it concerns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Affected {
    /// The position in feeds.
    pub position: Position,
    /// The original post, if it is a repost.
    pub repost_of: Option<PostId>,
    /// The sources whose outboxes contain it.
    pub sources: Box<[SourceSlot]>,
}

impl Affected {
    /// Returns this part of a post.
    pub fn of(post: &Post) -> Self {
        let sources = post.sources().iter().map(|source| source.slot).collect();
        Self { position: post.position, repost_of: post.repost_of, sources }
    }
}
