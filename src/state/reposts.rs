//! Reposts by the post they repeat.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dashmap::DashMap;
use parking_lot::RwLock;

use crate::feed::post::Post;
use crate::feed::reposts::{Repost, Reposts};
use crate::id::{PostId, SourceSlot};
use crate::limits::REPOSTS_SAMPLE_MAX;

/// The reposts of all posts that have any. They stay in memory though posts go to the archive: who scrolls must not meet
/// again what was shown further up.
#[derive(Debug, Default)]
pub struct RepostIndex {
    by_origin: DashMap<PostId, Arc<RwLock<Reposts>>, foldhash::fast::RandomState>,
    /// How many posts have reposts, never less.
    origins: AtomicUsize,
    /// How many reposts there are, each counted once for each of its sources.
    reposts: AtomicUsize,
}

/// What the index itself has of a post that is repeated: its entry in a table that is two thirds full, and what that points to.
const ENTRY_BYTES: usize = size_of::<(PostId, usize)>() * 3 / 2 + size_of::<RwLock<Reposts>>() + 2 * size_of::<usize>();

impl RepostIndex {
    /// The reposts of a post, if it has any.
    pub fn of(&self, origin: PostId) -> Option<Arc<RwLock<Reposts>>> {
        if self.origins.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.by_origin.get(&origin).map(|found| Arc::clone(&found))
    }

    /// How many reposts there are, each counted once for each of its sources.
    pub fn len(&self) -> usize {
        self.reposts.load(Ordering::Relaxed)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The sources by which reposts of a post can come into feeds, each once; nothing if there are more than `max` to look at.
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

    /// Takes note of reposts, each as one of its sources has it. Only the writer calls it.
    pub(super) fn extend(&self, origin: PostId, reposts: &[Repost]) {
        if !reposts.is_empty() {
            let added = self.of_or_none_yet(origin).write().extend(reposts);
            self.reposts.fetch_add(added, Ordering::Relaxed);
        }
    }

    /// The reposts of a post, which has some from now on.
    fn of_or_none_yet(&self, origin: PostId) -> Arc<RwLock<Reposts>> {
        self.of(origin).unwrap_or_else(|| {
            self.origins.fetch_add(1, Ordering::Release);
            let reposts = Arc::default();
            self.by_origin.insert(origin, Arc::clone(&reposts));
            reposts
        })
    }

    /// Bytes that reposts take, without the allocator's own: by what some take, picked by the hash of what they repeat.
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
        on_heap as usize + self.origins.load(Ordering::Relaxed) * ENTRY_BYTES
    }

    /// Takes note of a post that repeats another, and of whether it is hidden. Only the writer calls it.
    pub(super) fn note(&self, post: &Post) {
        let Some(origin) = post.repost_of else { return };
        let reposts = self.of_or_none_yet(origin);
        let sources = post.sources().iter().map(|source| source.slot);
        let mut reposts = reposts.write();
        let added = reposts.insert_post(post.position, post.author().slot, sources);
        reposts.hide(post.position, post.hidden);
        self.reposts.fetch_add(added, Ordering::Relaxed);
    }

    /// Takes note of whether a post that repeats another is hidden. Only the writer calls it.
    pub(super) fn hide(&self, post: &Post) {
        if let Some(reposts) = post.repost_of.and_then(|origin| self.of(origin)) {
            reposts.write().hide(post.position, post.hidden);
        }
    }

    /// Forgets a post that is deleted: as a repost, and with all that repeat it. Only the writer calls it.
    pub(super) fn forget(&self, post: &Post) {
        self.remove(post.id());
        self.take_out(post.repost_of, |_| each(post).collect());
    }

    /// Forgets a post of which nothing else is left: as a repost of `origin`, and with all that repeat it. Only the writer calls
    /// it.
    pub(super) fn forget_id(&self, id: PostId, origin: Option<PostId>) {
        self.remove(id);
        self.take_out(origin, |reposts| reposts.iter().filter(|repost| repost.at.id == id).collect());
    }

    /// Takes some of the reposts of `origin` out, and all that is known of them with the last.
    fn take_out(&self, origin: Option<PostId>, which: impl FnOnce(&Reposts) -> Vec<Repost>) {
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

    /// The posts that have reposts, in no order. Only the snapshotter of snapshots asks.
    pub(super) fn origins(&self) -> Vec<PostId> {
        #[expect(clippy::disallowed_methods, reason = "a snapshot walks it once, and only copies ids")]
        let origins = self.by_origin.iter().map(|entry| *entry.key()).collect();
        origins
    }
}

/// A repost, as each of its sources has it.
fn each(post: &Post) -> impl Iterator<Item = Repost> {
    let (at, author) = (post.position, post.author().slot);
    post.sources().iter().map(move |source| Repost { source: source.slot, at, author })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::position::at;

    #[test]
    fn bytes_follow_what_comes_and_goes() {
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
        assert!(index.bytes() < of_many * 3 / 4, "half are gone, and {} of {of_many} bytes are told", index.bytes());
        index.forget_id(PostId(1), None);
        assert!(index.bytes() < 1_000, "one is left, and {} bytes are told", index.bytes());
        index.forget_id(PostId(3), Some(PostId(2)));
        assert_eq!(index.bytes(), 0);
    }
}
