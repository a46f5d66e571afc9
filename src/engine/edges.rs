//! Edges: following and what follows from it, as the engine's users ask for it.

use crate::clock::UnixMicros;
use crate::engine::Engine;
use crate::error::Error;
use crate::feed::event::NewEdge;
use crate::feed::following::Edge;
use crate::id::{SourceId, SourceSlot};
use crate::runtime::message::{Command, Followed};

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
        let following = follower.following();
        let edge = |edge: &Edge| (edge.since, edge.source);
        let read = |before, max| following.newest_before(before, max).iter().map(edge).collect();
        self.listed(before, max, read)
    }

    /// At most `max` sources that `follower` follows virtually, the newest edge before `before` first. For operators: no
    /// reader is shown them.
    pub fn hidden_following(&self, follower: &SourceId, before: UnixMicros, max: usize) -> Vec<Listed> {
        let Some(follower) = self.inner.shared.world.sources.get(follower) else { return Vec::new() };
        let following = follower.following();
        let edge = |edge: &Edge| (edge.since, edge.source);
        let read = |before, max| following.hidden_before(before, max).iter().map(edge).collect();
        self.listed(before, max, read)
    }

    /// At most `max` lines of a list, those before `before`, the newest first, as `read` has them. Users who are being erased are on lists
    /// until their erasure comes to these, and not named.
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

    /// At most `max` followers of `source`, the newest edge before `before` first.
    pub fn followers(&self, source: &SourceId, before: UnixMicros, max: usize) -> Vec<Listed> {
        let sources = &self.inner.shared.world.sources;
        let Some(source) = sources.get(source) else { return Vec::new() };
        let newest = source.followers().newest_before(before, max);
        let listed = self.lister();
        newest.into_iter().map(|(since, slot)| listed(since, slot)).collect()
    }

    /// Makes the lines of a list.
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
