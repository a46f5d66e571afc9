//! Counters of an outbox besides its posts in memory: the archived posts and, for the replies to a post, the hidden ones.
//!
//! A network archive does not count its outboxes, so after a restart the counters are upper bounds. Replies are counted exactly, because
//! the archived ones are listed.

use crate::feed::outbox::{Outbox, Part, Route};
use crate::feed::position::Position;
use crate::feed::runs::SortedRuns;
use crate::id::PostId;

/// Counters that most outboxes do not need.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    pub(super) archived: ArchivedCounts,
    /// `None` for sources of other kinds.
    replies: Option<Box<Replies>>,
}

/// The archived and the hidden replies to a post.
#[derive(Clone, Debug, Default)]
struct Replies {
    /// The archived replies, if they are listed.
    listed: Option<SortedRuns<Position>>,
    /// The ids of the hidden replies, sorted, archived ones included.
    hidden: Vec<PostId>,
}

impl Counts {
    /// Returns the number of archived posts.
    pub(super) fn archived_posts(&self) -> usize {
        let counted = || (self.archived.pushed.posts + self.archived.pulled.posts) as usize;
        self.listed().map_or_else(counted, SortedRuns::len)
    }

    /// Returns the bytes of this and on the heap.
    pub(super) fn bytes(&self) -> usize {
        let of_replies = |Replies { listed, hidden }: &Replies| {
            let listed = listed.as_ref().map_or(0, SortedRuns::heap_bytes);
            size_of::<Replies>() + listed + hidden.capacity() * size_of::<PostId>()
        };
        size_of::<Self>() + self.replies.as_deref().map_or(0, of_replies)
    }

    fn listed(&self) -> Option<&SortedRuns<Position>> {
        self.replies.as_ref()?.listed.as_ref()
    }
}

/// Counters of the archived posts of one outbox.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ArchivedCounts {
    /// Counters of the posts that were pushed.
    pub pushed: RouteCount,
    /// Counters of the posts that are left to be pulled.
    pub pulled: RouteCount,
}

/// Counters of the archived posts of one source and one route.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RouteCount {
    /// The newest position ever archived: an upper bound, since it does not decrease when that post is removed.
    pub newest: Option<Position>,
    /// The current number of archived posts.
    pub posts: u64,
}

impl RouteCount {
    /// Counts an archived post.
    pub fn add(&mut self, position: Position) {
        self.posts += 1;
        self.newest = self.newest.max(Some(position));
    }
}

impl ArchivedCounts {
    /// Returns the counters of the posts that took `route`.
    pub fn of_route(&self, route: Route) -> &RouteCount {
        match route {
            Route::Push => &self.pushed,
            Route::Pull => &self.pulled,
        }
    }

    /// The same, as a mutable reference.
    pub fn of_route_mut(&mut self, route: Route) -> &mut RouteCount {
        match route {
            Route::Push => &mut self.pushed,
            Route::Pull => &mut self.pulled,
        }
    }
}

/// Methods for the replies to a post only.
impl Outbox {
    /// Returns the number of posts that are not hidden, archived ones included.
    pub fn shown(&self) -> usize {
        self.len().saturating_sub(self.hidden().len())
    }

    /// Returns the ids of the hidden posts, sorted.
    pub fn hidden(&self) -> &[PostId] {
        let replies = self.counts.as_ref().and_then(|counts| counts.replies.as_ref());
        replies.map_or(&[], |replies| &replies.hidden)
    }

    /// Counts a post as hidden, or no longer. It must be in the outbox, or in its archived part.
    pub fn hide(&mut self, id: PostId, hidden: bool) {
        match (self.hidden().binary_search(&id), hidden) {
            (Err(place), true) => self.replies_mut().hidden.insert(place, id),
            (Ok(place), false) => {
                self.replies_mut().hidden.remove(place);
            }
            _ => {}
        }
    }

    /// Returns the archived posts in order, if they are listed.
    pub fn listed(&self) -> Option<impl Iterator<Item = Position>> {
        Some(self.counts.as_ref()?.listed()?.above(Position::MIN))
    }

    /// Lists a post in memory that is about to be moved to the archive. Does nothing if earlier archived posts are not listed.
    pub fn list(&mut self, position: Position) {
        let is_first = self.archived(Part::Whole).is_none();
        let replies = self.replies_mut();
        if is_first {
            replies.listed.get_or_insert_default();
        }
        if let Some(listed) = &mut replies.listed {
            listed.insert(position);
        }
    }

    /// Adds archived posts to the list, except for those that are in memory as well.
    pub fn restore_listed(&mut self, archived: impl Iterator<Item = Position>) {
        let archived: Vec<Position> = archived.filter(|position| !self.contains(*position)).collect();
        let listed = self.replies_mut().listed.get_or_insert_default();
        for position in archived {
            listed.insert(position);
        }
    }

    /// Removes a post from the list, because it is in memory again or was deleted.
    pub fn unlist(&mut self, position: Position) {
        let replies = self.counts.as_mut().and_then(|counts| counts.replies.as_mut());
        if let Some(listed) = replies.and_then(|replies| replies.listed.as_mut()) {
            listed.remove(&position);
        }
    }

    fn replies_mut(&mut self) -> &mut Replies {
        self.counts.get_or_insert_default().replies.get_or_insert_default()
    }
}
