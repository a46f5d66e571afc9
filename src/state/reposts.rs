//! The repost index: the reposts of each post.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dashmap::DashMap;
use parking_lot::RwLock;

use crate::feed::position::Position;
use crate::feed::post::Post;
use crate::feed::reposts::{Repost, Reposts};
use crate::id::{PostId, SourceSlot};

/// Number of posts whose reposts are sampled to estimate the bytes of all reposts.
const REPOSTS_SAMPLE_MAX: usize = 256;

/// The reposts of all posts that have any. They are kept in memory even if the posts are archived: a reader who scrolls
/// down must not see again a post that was shown further up.
#[derive(Debug, Default)]
pub struct RepostIndex {
    by_origin: DashMap<PostId, Arc<RwLock<Reposts>>, foldhash::fast::RandomState>,
    /// At least the number of posts that have reposts.
    origins: AtomicUsize,
    /// The number of reposts, each counted once for each of its sources.
    reposts: AtomicUsize,
    /// The original of each redirected repost, even if the original is deleted. The archive may have the redirected repost as a repost of
    /// the repost that it names.
    redirected: DashMap<PostId, PostId, foldhash::fast::RandomState>,
}

/// Bytes of the index itself for one original post: its entry in a table that is two thirds full, and the allocation to
/// which that points.
const ENTRY_BYTES: usize = size_of::<(PostId, usize)>() * 3 / 2 + size_of::<RwLock<Reposts>>() + 2 * size_of::<usize>();

/// Bytes of one redirected repost, by the same rule.
const REDIRECTED_BYTES: usize = size_of::<(PostId, PostId)>() * 3 / 2;

impl RepostIndex {
    /// Returns the reposts of a post, if it has any.
    pub fn of(&self, origin: PostId) -> Option<Arc<RwLock<Reposts>>> {
        if self.origins.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.by_origin.get(&origin).map(|found| Arc::clone(&found))
    }

    /// The number of reposts, each counted once for each of its sources.
    pub fn len(&self) -> usize {
        self.reposts.load(Ordering::Relaxed)
    }

    /// Returns the number of reposts of a post that are not hidden, each counted once.
    pub fn shown_of(&self, origin: PostId) -> usize {
        self.of(origin).map_or(0, |reposts| reposts.read().shown())
    }

    /// Returns true if there are no reposts.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the sources that have reposts of a post, each once, or `None` if there are more than `max` reposts to examine.
    pub fn sources_of(&self, origin: PostId, max: usize) -> Option<Vec<SourceSlot>> {
        let Some(reposts) = self.of(origin) else { return Some(Vec::new()) };
        let reposts = reposts.read();
        if reposts.len() > max {
            return None;
        }
        let mut sources: Vec<SourceSlot> = reposts.iter().map(|repost| repost.source).collect();
        sources.sort_unstable();
        sources.dedup();
        Some(sources)
    }

    /// Adds reposts, each as stored for one of its sources. Only the state machine calls it.
    pub(super) fn extend(&self, origin: PostId, reposts: &[Repost]) {
        if !reposts.is_empty() {
            let added = self.get_or_create(origin).write().extend(reposts);
            self.reposts.fetch_add(added, Ordering::Relaxed);
        }
    }

    /// Returns the reposts of a post, and creates the set if the post has none yet.
    fn get_or_create(&self, origin: PostId) -> Arc<RwLock<Reposts>> {
        self.of(origin).unwrap_or_else(|| {
            self.origins.fetch_add(1, Ordering::Release);
            let reposts = Arc::default();
            self.by_origin.insert(origin, Arc::clone(&reposts));
            reposts
        })
    }

    /// Estimates the bytes of reposts, without the overhead of the allocator, from a sample chosen by the hash of the original's id.
    #[expect(
        clippy::disallowed_methods,
        reason = "a few hundred entries are in one shard or two, and held for microseconds"
    )]
    pub fn bytes(&self) -> usize {
        let (mut looked, mut bytes) = (0, 0);
        let sample: Vec<_> = self.by_origin.iter().take(REPOSTS_SAMPLE_MAX).map(|entry| Arc::clone(&entry)).collect();
        for reposts in sample {
            let reposts = reposts.read();
            looked += reposts.len();
            bytes += reposts.heap_bytes();
        }
        let each = bytes as f64 / looked.max(1) as f64;
        let on_heap = each * self.reposts.load(Ordering::Relaxed) as f64;
        let redirected = self.redirected.len() * REDIRECTED_BYTES;
        on_heap as usize + self.origins.load(Ordering::Relaxed) * ENTRY_BYTES + redirected
    }

    /// Adds a repost with its hidden mark. Does nothing if the post is not a repost. Only the state machine calls it.
    pub(super) fn note(&self, post: &Post) {
        let Some(origin) = post.repost_of else { return };
        let sources = post.sources().iter().map(|source| source.slot);
        self.insert(origin, post.position, post.author().slot, sources, post.hidden);
    }

    /// Returns the original of a redirected repost.
    pub fn redirected_to(&self, repost: PostId) -> Option<PostId> {
        self.redirected.get(&repost).map(|origin| *origin)
    }

    /// Returns the redirected reposts, each with its original, in no order. Called only for snapshots.
    pub fn all_redirected(&self) -> Vec<(PostId, PostId)> {
        #[expect(clippy::disallowed_methods, reason = "a snapshot walks it once, and only copies ids")]
        let all = self.redirected.iter().map(|entry| (*entry.key(), *entry.value())).collect();
        all
    }

    /// Returns true if any repost is redirected.
    pub fn has_redirected(&self) -> bool {
        !self.redirected.is_empty()
    }

    /// Marks a repost as redirected. Only the state machine calls it.
    pub(super) fn note_redirected(&self, repost: PostId, origin: PostId) {
        self.redirected.insert(repost, origin);
    }

    /// Adds a repost of `origin`, as stored for each of its sources, with its hidden mark. Only the state machine calls it.
    pub(super) fn insert(
        &self,
        origin: PostId,
        at: Position,
        author: SourceSlot,
        sources: impl Iterator<Item = SourceSlot>,
        hidden: bool,
    ) {
        let reposts = self.get_or_create(origin);
        let mut reposts = reposts.write();
        let added = reposts.insert_post(at, author, sources);
        reposts.hide(at, hidden);
        self.reposts.fetch_add(added, Ordering::Relaxed);
    }

    /// Removes a repost of `origin`, as stored for each of its sources. Only the state machine calls it.
    pub(super) fn remove_each(&self, origin: PostId, reposts: impl Iterator<Item = Repost>) {
        self.remove_some(Some(origin), |_| reposts.collect());
    }

    /// Updates the hidden mark of the repost at this position. Does nothing if the post is not a repost. Only the state machine calls it.
    pub(super) fn hide(&self, repost_of: Option<PostId>, at: Position, hidden: bool) {
        if let Some(reposts) = repost_of.and_then(|origin| self.of(origin)) {
            reposts.write().hide(at, hidden);
        }
    }

    /// Removes a deleted post: as a repost, and with all its own reposts. Only the state machine calls it.
    pub(super) fn forget(&self, post: &Post) {
        self.remove(post.id());
        self.redirected.remove(&post.id());
        self.remove_some(post.repost_of, |_| each(post).collect());
    }

    /// Removes a post of which only the id is known: as a repost of `origin`, and with all its own reposts. Only the state machine calls
    /// it.
    pub(super) fn forget_id(&self, id: PostId, origin: Option<PostId>) {
        self.remove(id);
        self.redirected.remove(&id);
        if let Some(reposts) = origin.and_then(|origin| self.of(origin)) {
            reposts.write().forget_hidden(id);
        }
        self.remove_some(origin, |reposts| reposts.iter().filter(|repost| repost.at.id == id).collect());
    }

    /// Removes some of the reposts of `origin`, and the whole set with the last one.
    fn remove_some(&self, origin: Option<PostId>, which: impl FnOnce(&Reposts) -> Vec<Repost>) {
        let Some((origin, reposts)) = origin.and_then(|origin| Some((origin, self.of(origin)?))) else { return };
        let is_last = {
            let reposts = &mut *reposts.write();
            let removed = which(reposts).into_iter().filter(|repost| reposts.remove(*repost)).count();
            self.reposts.fetch_sub(removed, Ordering::Relaxed);
            reposts.is_empty()
        };
        if is_last {
            self.remove(origin);
        }
    }

    fn remove(&self, origin: PostId) {
        if let Some((_, reposts)) = self.by_origin.remove(&origin) {
            self.origins.fetch_sub(1, Ordering::Relaxed);
            self.reposts.fetch_sub(reposts.read().len(), Ordering::Relaxed);
        }
    }

    /// Returns the posts that have reposts, in no order. Called only for snapshots.
    pub fn origins(&self) -> Vec<PostId> {
        #[expect(clippy::disallowed_methods, reason = "a snapshot walks it once, and only copies ids")]
        let origins = self.by_origin.iter().map(|entry| *entry.key()).collect();
        origins
    }
}

/// Returns a repost as stored for each of its sources.
fn each(post: &Post) -> impl Iterator<Item = Repost> {
    let (at, author) = (post.position, post.author().slot);
    post.sources().iter().map(move |source| Repost { source: source.slot, at, author })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::position::at;

    #[test]
    fn the_byte_count_follows_insertions_and_removals() {
        let index = RepostIndex::default();
        let repost = |id| Repost {
            source: SourceSlot(id as u32),
            at: at(id as i64 * 1_000_000, id),
            author: SourceSlot(id as u32),
        };
        assert_eq!(index.bytes(), 0);
        (10..1_010).for_each(|id| index.extend(PostId(1), &[repost(id)]));
        let of_many = index.bytes();
        assert!((1_000..50_000).contains(&of_many), "{of_many} bytes");
        (10..1_010).for_each(|id| index.extend(PostId(1), &[repost(id)]));
        assert_eq!(index.bytes(), of_many, "twice is once");
        index.extend(PostId(2), &[repost(3)]);
        (10..510).for_each(|id| index.forget_id(PostId(id), Some(PostId(1))));
        assert!(
            index.bytes() < of_many * 3 / 4,
            "half are gone, and {} of {of_many} bytes are reported",
            index.bytes()
        );
        index.forget_id(PostId(1), None);
        assert!(index.bytes() < 1_000, "one is left, and {} bytes are reported", index.bytes());
        index.forget_id(PostId(3), Some(PostId(2)));
        assert_eq!(index.bytes(), 0);
    }
}
