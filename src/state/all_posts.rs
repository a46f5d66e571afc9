//! Pages of all posts, by ascending id, and of all posts of one author, newest first.

use std::sync::Arc;

use crate::feed::outbox::{OutboxQuery, Part};
use crate::feed::position::{Direction, Position, PositionRange};
use crate::feed::post::Post;
use crate::id::{PostId, SourceSlot};
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
    /// Posts that cannot be read, because they are on a damaged page of the archive.
    pub unreadable: Vec<PostId>,
    /// The id after which the next page begins; none if this is the last page. A page may have fewer posts than its limit, or none at all.
    pub next: Option<PostId>,
}

/// A page of the posts of one author.
#[derive(Clone, Debug, Default)]
pub struct AuthorPosts {
    /// The posts, the newest first.
    pub posts: Vec<Arc<Post>>,
    /// Posts of the outbox that the archive has lost or cannot read.
    pub unreadable: Vec<PostId>,
    /// The position below which the next page begins; none if this is the last page. A page may have fewer posts than its limit, or none at
    /// all.
    pub next: Option<Position>,
}

impl World {
    /// Returns a page of the posts of an author below a position. It has at most `limit` posts, and ends once they have `bytes` of JSON.
    /// Blocks on disk reads.
    ///
    /// # Errors
    /// Fails if the archive cannot be read. A single damaged post is named in the page instead.
    pub fn posts_of_author(
        &self,
        author: SourceSlot,
        below: Position,
        limit: usize,
        bytes: usize,
    ) -> Result<AuthorPosts, ArchiveError> {
        let (source, span) = (self.sources.at(author), PositionRange { below, ..PositionRange::ALL });
        let ask = OutboxQuery { part: Part::Whole, span, direction: Direction::Older, max: limit };
        let mut positions = Vec::new();
        // Reads memory first: a post that leaves memory meanwhile is in the archive already. `World::pull_whole` does the same, but does not
        // return the error of the archive, which the caller reports.
        if let (Err(_), Some(archive)) = (source.pull(ask, &mut positions), self.archive()) {
            archive.positions(&source.id, ask, &mut positions)?;
        }
        positions.sort_unstable_by(|a, b| b.cmp(a));
        positions.dedup();
        let is_full = positions.len() >= limit;
        positions.truncate(limit);
        self.prefetch_posts(positions.iter().map(|position| position.id));
        let (mut page, mut taken) = (AuthorPosts::default(), 0);
        for (nth, position) in positions.iter().enumerate() {
            match self.find(position.id) {
                Ok(Some(Stored::Live(post))) => {
                    taken += post.json().len();
                    page.posts.push(post);
                }
                Ok(Some(Stored::Deleted)) => {}
                Ok(None) if !self.note_missing(position.id) => {}
                Ok(None) | Err(ArchiveError::Damaged { .. }) => page.unreadable.push(position.id),
                Err(cause) => return Err(cause),
            }
            let is_last = nth + 1 == positions.len();
            if (is_last && is_full) || (!is_last && taken >= bytes) {
                page.next = Some(*position);
                break;
            }
        }
        Ok(page)
    }

    /// Returns the ids of the posts in memory, ascending. Visits each of them.
    pub fn sorted_post_ids(&self) -> Vec<PostId> {
        let mut ids = self.posts.ids();
        ids.sort_unstable();
        ids
    }

    /// Returns true if an archive on the network may have posts that [`World::posts_after`] does not list.
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
