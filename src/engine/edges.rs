//! The engine's interface for follow edges and their lists.

use crate::clock::UnixMicros;
use crate::engine::Engine;
use crate::error::Error;
use crate::feed::event::{NewEdge, OldEdge};
use crate::feed::following::Edge;
use crate::id::{SourceId, SourceSlot};
use crate::runtime::message::{Command, FollowResult};

/// One line of a list of sources.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    /// The id of the source.
    pub id: SourceId,
    /// The logical instant at which it was added, unique for each edge.
    pub since: UnixMicros,
    /// The time at which it was added, as shown to people.
    pub shown: UnixMicros,
}

impl Engine {
    /// Creates follow edges, either all of them or none.
    ///
    /// # Errors
    /// The error lists every edge that cannot be created.
    pub async fn follow(&self, edges: Vec<NewEdge>) -> Result<FollowResult, Error> {
        self.change_edges(edges, Vec::new()).await
    }

    /// Removes an edge, if there is one. Its posts are removed from the feed.
    ///
    /// # Errors
    /// Fails for the same reasons as every write.
    pub async fn unfollow(&self, follower: SourceId, source: SourceId) -> Result<(), Error> {
        self.change_edges(Vec::new(), vec![OldEdge { follower, source }]).await.map(drop)
    }

    /// Removes an edge, if there is one. The posts that it has brought until now are kept in the feed.
    ///
    /// # Errors
    /// Fails for the same reasons as every write.
    pub async fn unfollow_but_keep(&self, follower: SourceId, source: SourceId) -> Result<(), Error> {
        let (follows, unfollows) = (Vec::new(), vec![OldEdge { follower, source }]);
        self.command(|reply| Command::ChangeEdges { follows, unfollows, keep: true, reply }).await.map(drop)
    }

    /// Creates edges, and then removes others. Either all of it is done or nothing.
    ///
    /// # Errors
    /// The error lists every edge that cannot be created. Repeating the request is safe.
    pub async fn change_edges(&self, follows: Vec<NewEdge>, unfollows: Vec<OldEdge>) -> Result<FollowResult, Error> {
        self.command(|reply| Command::ChangeEdges { follows, unfollows, keep: false, reply }).await
    }

    /// Removes edges, and returns how many existed. Either all are removed or none.
    ///
    /// # Errors
    /// Fails for the same reasons as every write. Removing the same edges again is safe.
    pub async fn unfollow_many(&self, edges: Vec<OldEdge>) -> Result<usize, Error> {
        self.change_edges(Vec::new(), edges).await.map(|result| result.removed)
    }

    /// Returns at most `max` sources that `follower` follows by edges from before `before`, newest edge first.
    pub fn following(&self, follower: &SourceId, before: UnixMicros, max: usize) -> Vec<Listed> {
        let Some(follower) = self.inner.shared.world.sources.get(follower) else { return Vec::new() };
        let following = follower.following();
        let edge = |edge: &Edge| (edge.since, edge.source);
        let read = |before, max| following.newest_before(before, max).iter().map(edge).collect();
        self.listed(before, max, read)
    }

    /// Returns at most `max` sources that `follower` follows virtually, by edges from before `before`, newest edge
    /// first. For operators only: no reader sees these edges.
    pub fn hidden_following(&self, follower: &SourceId, before: UnixMicros, max: usize) -> Vec<Listed> {
        let Some(follower) = self.inner.shared.world.sources.get(follower) else { return Vec::new() };
        let following = follower.following();
        let edge = |edge: &Edge| (edge.since, edge.source);
        let read = |before, max| following.hidden_before(before, max).iter().map(edge).collect();
        self.listed(before, max, read)
    }

    /// Returns at most `max` lines of a list from before `before`, newest first, as `read` returns them. Users who
    /// are being erased are on lists until their erasure reaches them; they are omitted.
    pub(super) fn listed(
        &self,
        mut before: UnixMicros,
        max: usize,
        read: impl Fn(UnixMicros, usize) -> Vec<(UnixMicros, SourceSlot)>,
    ) -> Vec<Listed> {
        let (listed, sources) = (self.lister(), &self.inner.shared.world.sources);
        let mut lines = Vec::new();
        loop {
            let asked = max - lines.len();
            let found = read(before, asked);
            let is_there = |line: &&(UnixMicros, SourceSlot)| !sources.is_erased(line.1);
            lines.extend(found.iter().filter(is_there).map(|(since, source)| listed(*since, *source)));
            match found.last() {
                Some((last, _)) if found.len() == asked && lines.len() < max => before = *last,
                _ => return lines,
            }
        }
    }

    /// Returns at most `max` followers of `source` by edges from before `before`, newest edge first.
    pub fn followers(&self, source: &SourceId, before: UnixMicros, max: usize) -> Vec<Listed> {
        let sources = &self.inner.shared.world.sources;
        let Some(source) = sources.get(source) else { return Vec::new() };
        let newest = self.inner.shared.world.followers_before(&source, before, max);
        let listed = self.lister();
        newest.into_iter().map(|(since, slot)| listed(since, slot)).collect()
    }

    /// Returns a function that makes the lines of a list.
    fn lister(&self) -> impl Fn(UnixMicros, SourceSlot) -> Listed {
        let shared = &self.inner.shared;
        let now = shared.clock.now();
        move |since, slot| Listed {
            id: shared.world.sources.at(slot).id.clone(),
            since,
            shown: shared.clock_report.shown(since, now),
        }
    }
}
