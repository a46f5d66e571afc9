//! Reposts by the post they repeat.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dashmap::DashMap;
use parking_lot::RwLock;

use crate::feed::post::Post;
use crate::feed::reposts::{Repost, Reposts};
use crate::id::{PostId, SourceSlot};

/// The reposts of all posts that have any. They stay in memory though posts go to the archive: who scrolls must not meet
/// again what was shown further up.
#[derive(Debug, Default)]
pub struct RepostIndex {
    by_origin: DashMap<PostId, Arc<RwLock<Reposts>>, foldhash::fast::RandomState>,
    /// How many posts have reposts, never less.
    origins: AtomicUsize,
}

impl RepostIndex {
    /// The reposts of a post, if it has any.
    pub fn of(&self, origin: PostId) -> Option<Arc<RwLock<Reposts>>> {
        if self.origins.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.by_origin.get(&origin).map(|found| Arc::clone(&found))
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

    /// Takes note of a repost, as one of its sources has it. Only the writer calls it.
    pub(super) fn insert(&self, origin: PostId, repost: Repost) {
        let reposts = self.of(origin).unwrap_or_else(|| {
            self.origins.fetch_add(1, Ordering::Release);
            let reposts = Arc::default();
            self.by_origin.insert(origin, Arc::clone(&reposts));
            reposts
        });
        reposts.write().insert(repost);
    }

    /// Takes note of a post that repeats another, and of whether it is hidden. Only the writer calls it.
    pub(super) fn note(&self, post: &Post) {
        let Some(origin) = post.repost_of else { return };
        each(post).for_each(|repost| self.insert(origin, repost));
        self.hide(post);
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
            for repost in which(reposts) {
                reposts.remove(repost);
            }
            reposts.is_empty()
        };
        if is_last {
            self.remove(origin);
        }
    }

    fn remove(&self, origin: PostId) {
        if self.by_origin.remove(&origin).is_some() {
            self.origins.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// The posts that have reposts, in no order. Only the keeper of snapshots asks.
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
