//! Open fan-outs: the posts that are not yet delivered everywhere, their authors, and the number of deliveries they
//! need.

use std::collections::hash_map::Entry;
use std::ops::Add;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::clock::UnixMicros;
use crate::feed::position::Position;
use crate::id::SourceSlot;

/// Posts that are queued for fan-out and not yet delivered everywhere.
#[derive(Debug, Default)]
pub struct OpenFanouts {
    open: Mutex<Open>,
    /// A separate counter, since every publish reads it while the supervisor changes the rest.
    deliveries: AtomicUsize,
}

#[derive(Debug, Default)]
struct Open {
    times: FxHashMap<Position, u32>,
    by_author: FxHashMap<SourceSlot, Backlog>,
}

/// Undelivered posts. A post counts with all its deliveries until the last of them is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Backlog {
    /// The number of posts.
    pub posts: usize,
    /// The maximum number of deliveries that these posts need.
    pub deliveries: usize,
}

impl Add for Backlog {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            posts: self.posts.saturating_add(other.posts),
            deliveries: self.deliveries.saturating_add(other.deliveries),
        }
    }
}

/// A post in fan-out to inboxes.
#[derive(Clone, Copy, Debug)]
pub struct OpenFanout {
    /// The position of the post in feeds.
    pub position: Position,
    /// The author of the post.
    pub author: SourceSlot,
    /// The maximum number of deliveries that it needs.
    pub deliveries: usize,
    /// The time at which it was accepted. None if it was delivered before.
    pub accepted_at: Option<UnixMicros>,
}

impl OpenFanouts {
    /// Returns the number of open posts.
    pub fn len(&self) -> usize {
        self.open.lock().times.len()
    }

    /// Returns true if no post is open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the positions of all open posts, in no particular order.
    pub fn positions(&self) -> Vec<Position> {
        self.open.lock().times.keys().copied().collect()
    }

    /// Returns the maximum number of deliveries that all open posts need.
    pub fn deliveries(&self) -> usize {
        self.deliveries.load(Ordering::Relaxed)
    }

    /// Returns the backlog of one author.
    pub fn of(&self, author: SourceSlot) -> Backlog {
        self.open.lock().by_author.get(&author).copied().unwrap_or_default()
    }

    /// Adds a post that is queued for fan-out.
    pub fn begin(&self, OpenFanout { position, author, deliveries, .. }: OpenFanout) {
        self.deliveries.fetch_add(deliveries, Ordering::Relaxed);
        let mut open = self.open.lock();
        *open.times.entry(position).or_default() += 1;
        let of_author = open.by_author.entry(author).or_default();
        of_author.posts += 1;
        of_author.deliveries += deliveries;
    }

    /// Removes a delivered post. A post that was queued again before its first delivery ended is open until both
    /// deliveries have ended.
    pub fn end(&self, OpenFanout { position, author, deliveries, .. }: OpenFanout) {
        self.deliveries.fetch_sub(deliveries, Ordering::Relaxed);
        let open = &mut *self.open.lock();
        if let Entry::Occupied(mut times) = open.times.entry(position) {
            *times.get_mut() -= 1;
            if *times.get() == 0 {
                times.remove();
            }
        }
        if let Entry::Occupied(mut of_author) = open.by_author.entry(author) {
            let backlog = of_author.get_mut();
            backlog.posts -= 1;
            backlog.deliveries -= deliveries;
            if backlog.posts == 0 {
                of_author.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::PostId;

    fn post(id: u64, author: u32, deliveries: usize) -> OpenFanout {
        let position = Position { published_at: UnixMicros(7), id: PostId(id) };
        OpenFanout { position, author: SourceSlot(author), deliveries, accepted_at: None }
    }

    #[test]
    fn a_fanout_counts_until_it_is_delivered() {
        let open = OpenFanouts::default();
        let posts = [post(1, 1, 100), post(2, 1, 100), post(3, 2, 5)];
        posts.into_iter().for_each(|post| open.begin(post));
        assert_eq!((open.len(), open.deliveries()), (3, 205));
        assert_eq!(open.of(SourceSlot(1)), Backlog { posts: 2, deliveries: 200 });
        open.end(posts[0]);
        assert_eq!(open.of(SourceSlot(1)), Backlog { posts: 1, deliveries: 100 });
        open.end(posts[1]);
        open.end(posts[2]);
        assert_eq!((open.is_empty(), open.deliveries(), open.of(SourceSlot(1))), (true, 0, Backlog::default()));
    }

    #[test]
    fn a_post_with_two_fanouts_is_open_until_both_end() {
        let open = OpenFanouts::default();
        open.begin(post(1, 1, 10));
        open.begin(post(1, 1, 12));
        open.end(post(1, 1, 10));
        assert_eq!((open.positions().len(), open.deliveries()), (1, 12));
        open.end(post(1, 1, 12));
        assert!(open.is_empty());
    }
}
