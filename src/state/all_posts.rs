//! All posts, by ascending id, in pages.
//!
//! Responsible for:
//! - the ids of the posts in memory, sorted once for many pages;
//! - a page of what memory and an archive on this machine have, without deleted posts and those of erased users.
//!
//! Not responsible for:
//! - posts that only a store across a network has: it has no order by id;
//! - who sees a post: hidden ones are included.

use std::sync::Arc;

use crate::feed::post::Post;
use crate::id::PostId;
use crate::state::posts::Stored;
use crate::state::world::World;
use crate::storage::archive::ArchiveError;

/// The bounds of a page of all posts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PostsBounds {
    /// Posts with larger ids only; `None` for all.
    pub after: Option<PostId>,
    /// Maximum number of posts.
    pub limit: usize,
    /// Bytes of JSON after which the page ends.
    pub bytes: usize,
}

/// A page of all posts.
#[derive(Clone, Debug, Default)]
pub struct PostsPage {
    /// The posts, by ascending id.
    pub posts: Vec<Arc<Post>>,
    /// Posts that a damaged page of the archive has, and that cannot be read.
    pub unreadable: Vec<PostId>,
    /// The id after which the next page begins; none if this is the last page. A page may have fewer posts than its limit, and none.
    pub next: Option<PostId>,
}

impl World {
    /// Returns the ids of the posts in memory, ascending. Looks at each of them.
    pub fn sorted_post_ids(&self) -> Vec<PostId> {
        let mut ids = self.posts.ids();
        ids.sort_unstable();
        ids
    }

    /// Returns true if there may be posts that [`World::posts_after`] does not list, since only a store across a network has them.
    pub fn has_unlisted_posts(&self) -> bool {
        self.archive().is_some_and(|archive| archive.is_remote() && !archive.is_empty())
    }

    /// Returns a page of all posts. `in_memory` are the ids that were in memory at some moment before. Blocks on disk reads.
    ///
    /// # Errors
    /// Fails if the archive cannot be read. A single damaged post is named in the page instead.
    pub fn posts_after(&self, in_memory: &[PostId], bounds: PostsBounds) -> Result<PostsPage, ArchiveError> {
        let mut page = PostsPage::default();
        let ids = self.ids_after(in_memory, bounds)?;
        let (is_full, mut bytes) = (ids.len() >= bounds.limit, 0);
        for (nth, id) in ids.iter().enumerate() {
            match self.find(*id) {
                Ok(found) => {
                    let live = found.and_then(Stored::live);
                    let is_there = |post: &Arc<Post>| !self.sources.is_erased(post.author().slot);
                    let post = live.filter(is_there);
                    bytes += post.as_ref().map_or(0, |post| post.json().len());
                    page.posts.extend(post);
                }
                Err(ArchiveError::Damaged { .. }) => page.unreadable.push(*id),
                Err(cause) => return Err(cause),
            }
            let is_last = nth + 1 == ids.len();
            if (is_last && is_full) || (!is_last && bytes >= bounds.bytes) {
                page.next = Some(*id);
                break;
            }
        }
        Ok(page)
    }

    /// Returns the next ids, at most `limit`, of posts in memory and of posts and tombstones in the archive.
    fn ids_after(&self, in_memory: &[PostId], bounds: PostsBounds) -> Result<Vec<PostId>, ArchiveError> {
        let from = bounds.after.map_or(Some(0), |after| after.0.checked_add(1)).map(PostId);
        let Some(from) = from else { return Ok(Vec::new()) };
        let start = in_memory.partition_point(|id| *id < from);
        let mut ids: Vec<PostId> = in_memory[start..].iter().take(bounds.limit).copied().collect();
        if let Some(archive) = self.archive().filter(|archive| !archive.is_remote()) {
            ids.extend(archive.ids_from(from, bounds.limit)?.into_iter().flatten());
            ids.sort_unstable();
            ids.dedup();
            ids.truncate(bounds.limit);
        }
        Ok(ids)
    }
}
