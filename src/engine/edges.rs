//! Edges: following and what follows from it, as the engine's users ask for it.

use crate::actor::message::{Command, Followed};
use crate::clock::UnixMicros;
use crate::engine::Engine;
use crate::error::Error;
use crate::feed::event::NewEdge;
use crate::feed::following::Edge;
use crate::id::{SourceId, SourceSlot};

/// One line of a list of sources.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    /// Who.
    pub id: SourceId,
    /// The logical instant since when: no two edges share one.
    pub since: UnixMicros,
    /// Since when, as people are shown it.
    pub shown: UnixMicros,
}

impl Engine {
    /// Makes follow edges, all or none.
    ///
    /// # Errors
    /// Names every edge that cannot be made.
    pub async fn follow(&self, edges: Vec<NewEdge>) -> Result<Followed, Error> {
        self.command(|reply| Command::Follow { edges, reply }).await
    }

    /// Removes an edge, if there is one: what it brought leaves the feed.
    ///
    /// # Errors
    /// As every write.
    pub async fn unfollow(&self, follower: SourceId, source: SourceId) -> Result<(), Error> {
        self.command(|reply| Command::Unfollow { follower, source, keep: false, reply }).await
    }

    /// Removes an edge, if there is one: what it brought until now stays in the feed.
    ///
    /// # Errors
    /// As every write.
    pub async fn unfollow_but_keep(&self, follower: SourceId, source: SourceId) -> Result<(), Error> {
        self.command(|reply| Command::Unfollow { follower, source, keep: true, reply }).await
    }

    /// At most `max` sources that `follower` follows, the newest edge before `before` first.
    pub fn following(&self, follower: &SourceId, before: UnixMicros, max: usize) -> Vec<Listed> {
        let Some(follower) = self.inner.shared.world.sources.get(follower) else { return Vec::new() };
        self.listed(follower.following().newest_before(before, max))
    }

    /// At most `max` sources that `follower` follows virtually, the newest edge before `before` first. For operators: no
    /// reader is shown them.
    pub fn hidden_following(&self, follower: &SourceId, before: UnixMicros, max: usize) -> Vec<Listed> {
        let Some(follower) = self.inner.shared.world.sources.get(follower) else { return Vec::new() };
        self.listed(follower.following().hidden_before(before, max))
    }

    pub(super) fn listed(&self, edges: Vec<Edge>) -> Vec<Listed> {
        let listed = self.lister();
        edges.into_iter().map(|edge| listed(edge.since, edge.source)).collect()
    }

    /// At most `max` followers of `source`, the newest edge before `before` first.
    pub fn followers(&self, source: &SourceId, before: UnixMicros, max: usize) -> Vec<Listed> {
        let sources = &self.inner.shared.world.sources;
        let Some(source) = sources.get(source) else { return Vec::new() };
        let newest = source.followers().newest_before(before, max);
        let listed = self.lister();
        newest.into_iter().map(|(since, slot)| listed(since, slot)).collect()
    }

    /// Makes the lines of a list.
    pub(super) fn lister(&self) -> impl Fn(UnixMicros, SourceSlot) -> Listed {
        let shared = &self.inner.shared;
        let now = shared.clock.now();
        move |since, slot| Listed {
            id: shared.world.sources.at(slot).id.clone(),
            since,
            shown: shared.clock_report.shown(since, now),
        }
    }
}
