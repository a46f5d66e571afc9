//! Following: whom one reader follows, and how far back and forth each of them reaches.
//!
//! Responsible for:
//! - the edges of one follower ([`Following`]), with a version that tells a cache when to look again;
//! - which posts of a source an edge brings: all, those from a start on (`backfill`), or, once it is gone, those that
//!   were to be kept.
//!
//! Not responsible for:
//! - the source's side of an edge (`feed::graph`), limits (`runtime::writer`).
//!
//! The members of a list are edges too: a list is a reader that nothing is pushed to.

use crate::clock::UnixMicros;
use crate::feed::position::Position;
use crate::id::SourceSlot;
use crate::limits::KEPT_PER_SOURCE_MAX;

/// One followed source, as its follower keeps it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Edge {
    /// The followed source.
    pub source: SourceSlot,
    /// A virtual follow: it works, but shows in no list and no count.
    pub hidden: bool,
    /// When it was made. No two edges are made at the same instant, and a later one never has an earlier instant.
    pub since: UnixMicros,
}

/// How a post came from a source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Brought {
    /// By an edge that shows nowhere.
    pub hidden: bool,
    /// By an edge that is gone, and left what it had brought.
    pub kept: bool,
}

/// Whom one reader follows.
#[derive(Clone, Debug)]
pub struct Following {
    /// Sorted by source.
    edges: Vec<Edge>,
    /// Where edges begin that do not bring all a source has ever published. Sorted by source; few edges have one.
    starts: Vec<(SourceSlot, Position)>,
    /// What is kept of sources that are not followed any more, or are again. Sorted by source.
    kept: Vec<Kept>,
    hidden: usize,
    version: u64,
    last_made: UnixMicros,
}

/// Posts of a source that stay in a feed though their edge is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kept {
    /// The source.
    pub source: SourceSlot,
    /// The first post, if it exists.
    pub from: Position,
    /// The last one.
    pub until: Position,
    /// When the edge was made.
    pub since: UnixMicros,
    /// Whether the edge was hidden.
    pub hidden: bool,
}

impl Default for Following {
    fn default() -> Self {
        let (edges, starts, kept) = (Vec::new(), Vec::new(), Vec::new());
        Self { edges, starts, kept, hidden: 0, version: 0, last_made: UnixMicros(i64::MIN) }
    }
}

impl Following {
    /// Adds an edge; false if there is one, which then stays as it is.
    pub fn insert(&mut self, source: SourceSlot, since: UnixMicros, hidden: bool) -> bool {
        let Err(at) = self.find(source) else { return false };
        self.version += 1;
        self.last_made = self.last_made.max(since);
        self.edges.insert(at, Edge { source, hidden, since });
        self.hidden += usize::from(hidden);
        true
    }

    /// Lets an edge show or not, and takes it for made anew. What it brings stays, and so does what is kept.
    pub fn set_hidden(&mut self, source: SourceSlot, since: UnixMicros, hidden: bool) {
        let Ok(at) = self.find(source) else { return };
        self.version += 1;
        self.last_made = self.last_made.max(since);
        let before = std::mem::replace(&mut self.edges[at], Edge { source, hidden, since });
        self.hidden = self.hidden - usize::from(before.hidden) + usize::from(hidden);
    }

    /// Lets the edge to `source` bring only posts from `start` on.
    pub fn set_start(&mut self, source: SourceSlot, start: Position) {
        self.version += 1;
        match self.starts.binary_search_by_key(&source, |start| start.0) {
            Ok(at) => self.starts[at].1 = start,
            Err(at) => self.starts.insert(at, (source, start)),
        }
    }

    /// Where the edge to `source` begins; below every post if it has no start.
    pub fn start(&self, source: SourceSlot) -> Position {
        let found = self.starts.binary_search_by_key(&source, |start| start.0);
        found.map_or(Position::MIN, |at| self.starts[at].1)
    }

    /// Takes an edge out and returns it. Nothing stays of what it brought.
    pub fn remove(&mut self, source: SourceSlot) -> Option<Edge> {
        self.drop_kept(source);
        let at = self.find(source).ok()?;
        self.version += 1;
        let edge = self.edges.remove(at);
        self.hidden -= usize::from(edge.hidden);
        self.starts.retain(|start| start.0 != source);
        Some(edge)
    }

    /// Takes an edge out and returns it. What it brought up to `until` stays.
    pub fn remove_but_keep(&mut self, source: SourceSlot, until: Position) -> Option<Edge> {
        // A replay may find the edge taken out already, and what it brought kept.
        self.get(source)?;
        let before: Vec<Kept> = self.kept_of(source).copied().collect();
        let from = self.start(source);
        let edge = self.remove(source)?;
        let kept = Kept { source, from, until, since: edge.since, hidden: edge.hidden };
        // What one note keeps needs no other. An edge that was taken out before comes here again in a replay.
        let is_kept = from > until || before.iter().any(|older| older.from <= from && until <= older.until);
        before.into_iter().filter(|older| older.from < from || older.until > until).for_each(|older| self.keep(older));
        if !is_kept {
            self.keep(kept);
        }
        Some(edge)
    }

    /// Drops the notes of what the edge to `source` brings anyway.
    pub fn drop_superfluous(&mut self, source: SourceSlot) {
        let start = self.start(source);
        self.kept.retain(|kept| kept.source != source || kept.from < start);
    }

    /// Notes posts that stay without an edge. Of too many notes on one source the oldest goes.
    pub fn keep(&mut self, kept: Kept) {
        self.version += 1;
        self.last_made = self.last_made.max(kept.since);
        let end = self.kept.partition_point(|other| other.source <= kept.source);
        if self.kept_of(kept.source).count() == KEPT_PER_SOURCE_MAX {
            self.kept.remove(end - KEPT_PER_SOURCE_MAX);
            self.kept.insert(end - 1, kept);
        } else {
            self.kept.insert(end, kept);
        }
    }

    fn drop_kept(&mut self, source: SourceSlot) {
        let before = self.kept.len();
        self.kept.retain(|kept| kept.source != source);
        self.version += u64::from(self.kept.len() < before);
    }

    /// What stays of `source` without an edge, oldest note first.
    pub fn kept_of(&self, source: SourceSlot) -> impl Iterator<Item = &Kept> {
        let start = self.kept.partition_point(|kept| kept.source < source);
        self.kept[start..].iter().take_while(move |kept| kept.source == source)
    }

    /// What stays without edges, by source.
    pub fn kept(&self) -> &[Kept] {
        &self.kept
    }

    /// Whether an edge, or what is kept of one, brings a post of `source`; and whether that edge is hidden.
    pub fn brings(&self, source: SourceSlot, position: Position) -> Option<Brought> {
        let edge = self.get(source).filter(|_| self.starts.is_empty() || position >= self.start(source));
        if let Some(edge) = edge {
            return Some(Brought { hidden: edge.hidden, kept: false });
        }
        let within = |kept: &&Kept| (kept.from..=kept.until).contains(&position);
        self.kept_of(source).find(within).map(|kept| Brought { hidden: kept.hidden, kept: true })
    }

    /// The edge to `source`.
    pub fn get(&self, source: SourceSlot) -> Option<&Edge> {
        self.find(source).ok().map(|at| &self.edges[at])
    }

    /// Whether there is an edge to `source`, hidden or not.
    pub fn contains(&self, source: SourceSlot) -> bool {
        self.find(source).is_ok()
    }

    /// The edges that were stored somewhere, sorted by source.
    pub fn restored(edges: Vec<Edge>) -> Self {
        let last_made = edges.iter().map(|edge| edge.since).max().unwrap_or(UnixMicros(i64::MIN));
        let hidden = edges.iter().filter(|edge| edge.hidden).count();
        Self { hidden, version: 1, last_made, edges, ..Self::default() }
    }

    /// Where edges begin that do not bring everything, by source.
    pub fn starts(&self) -> &[(SourceSlot, Position)] {
        &self.starts
    }

    /// All edges, by source.
    pub fn edges(&self) -> &[Edge] {
        &self.edges
    }

    /// All sources that bring anything: followed ones, hidden ones too, and those of which something is kept.
    pub fn sources(&self) -> impl Iterator<Item = SourceSlot> + Clone {
        self.edges.iter().map(|edge| edge.source).chain(self.only_kept())
    }

    /// The sources without an edge of which something is kept. They push nothing any more, not even what is dated back to
    /// where they did.
    pub fn only_kept(&self) -> impl Iterator<Item = SourceSlot> + Clone {
        let is_last = |nth: usize| self.kept.get(nth + 1).is_none_or(|next| next.source != self.kept[nth].source);
        let kept = self.kept.iter().enumerate().filter(move |(nth, _)| is_last(*nth));
        kept.map(|(_, kept)| kept.source).filter(|source| !self.contains(*source))
    }

    /// Whether something of a source is kept that has no edge.
    pub fn is_only_kept(&self, source: SourceSlot) -> bool {
        self.kept_of(source).next().is_some() && !self.contains(source)
    }

    /// The sources whose edges were made after `since`.
    pub fn made_after(&self, since: UnixMicros) -> impl Iterator<Item = SourceSlot> + Clone {
        self.edges.iter().filter(move |edge| edge.since > since).map(|edge| edge.source)
    }

    /// When the last edge was made, whether it is still there or not.
    pub fn last_made(&self) -> UnixMicros {
        self.last_made
    }

    /// Grows with every change.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// How many sources bring anything.
    pub fn reach_len(&self) -> usize {
        self.edges.len() + self.kept.len()
    }

    /// How many edges there are that are hidden, or that show.
    pub fn len_of(&self, hidden: bool) -> usize {
        if hidden { self.hidden } else { self.visible_len() }
    }

    /// How many edges there are, hidden ones too.
    pub fn len(&self) -> usize {
        self.edges.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.edges.is_empty()
    }

    /// How many edges show.
    pub fn visible_len(&self) -> usize {
        self.edges.len() - self.hidden
    }

    /// At most `max` edges that show and were made before `before`, newest first.
    pub fn newest_before(&self, before: UnixMicros, max: usize) -> Vec<Edge> {
        self.newest_of(false, before, max)
    }

    /// At most `max` hidden edges that were made before `before`, newest first.
    pub fn hidden_before(&self, before: UnixMicros, max: usize) -> Vec<Edge> {
        self.newest_of(true, before, max)
    }

    fn newest_of(&self, hidden: bool, before: UnixMicros, max: usize) -> Vec<Edge> {
        let is_asked = |edge: &&Edge| edge.hidden == hidden && edge.since < before;
        let mut edges: Vec<Edge> = self.edges.iter().filter(is_asked).copied().collect();
        edges.sort_unstable_by_key(|edge| std::cmp::Reverse(edge.since));
        edges.truncate(max);
        edges
    }

    /// Bytes on the heap, without the allocator's own.
    pub fn heap_bytes(&self) -> usize {
        let edges = self.edges.capacity() * size_of::<Edge>();
        edges + self.starts.capacity() * size_of::<(SourceSlot, Position)>() + self.kept.capacity() * size_of::<Kept>()
    }

    fn find(&self, source: SourceSlot) -> Result<usize, usize> {
        self.edges.binary_search_by_key(&source, |edge| edge.source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::position::at;

    #[test]
    fn hidden_edges_work_but_do_not_show() {
        let mut following = Following::default();
        following.insert(SourceSlot(5), UnixMicros(1), true);
        following.insert(SourceSlot(3), UnixMicros(2), false);
        assert!(following.contains(SourceSlot(5)));
        assert_eq!((following.len(), following.visible_len()), (2, 1));
        let shown = following.newest_before(UnixMicros(9), 9);
        assert!(shown.iter().map(|edge| edge.source).eq([SourceSlot(3)]));
    }

    #[test]
    fn an_edge_made_again_is_a_new_one() {
        let mut following = Following::default();
        following.insert(SourceSlot(1), UnixMicros(1), false);
        let (version, seen) = (following.version(), following.last_made());
        following.remove(SourceSlot(1));
        assert!(following.version() > version);
        assert_eq!(following.last_made(), seen);
        following.insert(SourceSlot(1), UnixMicros(2), false);
        following.insert(SourceSlot(2), UnixMicros(3), true);
        assert!(following.made_after(seen).eq([SourceSlot(1), SourceSlot(2)]));
        assert_eq!(following.made_after(following.last_made()).count(), 0);
    }

    #[test]
    fn a_start_and_an_end_bound_what_an_edge_brings() {
        let (source, mut following) = (SourceSlot(1), Following::default());
        let brings = |following: &Following| -> Vec<i64> {
            (0..10).filter(|time| following.brings(SourceSlot(1), at(*time, 0)).is_some()).collect()
        };
        following.insert(source, UnixMicros(1), false);
        following.set_start(source, at(3, 0));
        assert_eq!(brings(&following), [3, 4, 5, 6, 7, 8, 9]);
        assert!(following.remove_but_keep(source, at(5, 0)).is_some());
        assert_eq!(brings(&following), [3, 4, 5]);
        assert!(!following.contains(source) && following.sources().eq([source]));
        following.insert(source, UnixMicros(2), false);
        following.set_start(source, at(8, 0));
        assert_eq!(brings(&following), [3, 4, 5, 8, 9]);
        assert!(following.sources().eq([source]), "each source once");
        assert!(following.remove_but_keep(source, at(8, 0)).is_some());
        assert_eq!(brings(&following), [3, 4, 5, 8]);
        assert!(following.remove(source).is_none());
        assert!(brings(&following).is_empty());
        assert!(following.sources().eq([]));
    }

    #[test]
    fn an_edge_that_brings_everything_makes_older_notes_superfluous() {
        let (source, mut following) = (SourceSlot(1), Following::default());
        for time in 1..100 {
            following.insert(source, UnixMicros(time), false);
            following.remove_but_keep(source, at(time, 0));
        }
        assert_eq!(following.kept().len(), 1);
        for time in 100..200 {
            following.insert(source, UnixMicros(time), false);
            following.set_start(source, at(2 * time, 0));
            following.remove_but_keep(source, at(2 * time, 9));
        }
        assert_eq!(following.kept().len(), KEPT_PER_SOURCE_MAX);
        assert!(following.brings(source, at(398, 5)).is_some());
    }
}
