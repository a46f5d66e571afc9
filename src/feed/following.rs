//! Following: the sources that one reader follows, and the range of posts that each follow edge delivers.
//!
//! Responsible for:
//! - the edges of one follower ([`Following`]), with a version that invalidates caches;
//! - the posts of a source that an edge delivers: all of them, those from a start position (`backfill`) or, after the edge is removed,
//!   the retained ones.
//!
//! The members of a list are edges too: a list behaves like a reader to whom nothing is pushed.

mod columns;

use crate::clock::UnixMicros;
use crate::feed::following::columns::EdgeColumns;
use crate::feed::heap::allocated;
use crate::feed::position::Position;
use crate::id::SourceSlot;

/// Maximum number of retained ranges of one source in a feed, if the source is unfollowed repeatedly.
const KEPT_PER_SOURCE_MAX: usize = 8;

/// One follow edge, as its follower stores it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Edge {
    /// The followed source.
    pub source: SourceSlot,
    /// True for a hidden follow: it delivers posts, but no list and no count includes it.
    pub hidden: bool,
    /// The instant of its creation. No two edges have the same instant, and a later edge never has an earlier one.
    pub since: UnixMicros,
}

/// The kind of edge by which a post reached the reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Brought {
    /// True if the edge is hidden.
    pub hidden: bool,
    /// True if the edge is removed and its posts are retained.
    pub kept: bool,
}

/// The sources that one reader follows.
#[derive(Clone, Debug)]
pub struct Following {
    /// The edges, sorted by source.
    edges: EdgeColumns,
    /// Data that few readers have.
    rare: Option<Box<Rare>>,
    last_made: UnixMicros,
    version: u32,
}

/// Facts about edges that few readers have.
#[derive(Clone, Debug, Default)]
struct Rare {
    /// The sources of the hidden edges, sorted.
    hidden: Vec<SourceSlot>,
    /// Start positions of the edges that do not deliver all posts of their source. Sorted by source; few edges have one.
    starts: Vec<(SourceSlot, Position)>,
    /// Retained ranges of sources that are no longer followed, or are followed again. Sorted by source.
    kept: Vec<RetainedRange>,
}

impl Rare {
    fn set_hidden(&mut self, source: SourceSlot, hidden: bool) {
        match (self.hidden.binary_search(&source), hidden) {
            (Err(at), true) => self.hidden.insert(at, source),
            (Ok(at), false) => drop(self.hidden.remove(at)),
            _ => {}
        }
    }

    fn heap_bytes(&self) -> usize {
        allocated(size_of::<Self>())
            + allocated(self.hidden.capacity() * size_of::<SourceSlot>())
            + allocated(self.starts.capacity() * size_of::<(SourceSlot, Position)>())
            + allocated(self.kept.capacity() * size_of::<RetainedRange>())
    }
}

/// A range of a source's posts that stays in a feed although the edge is removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RetainedRange {
    /// The source of the posts.
    pub source: SourceSlot,
    /// The position of the first post, inclusive.
    pub from: Position,
    /// The position of the last post, inclusive.
    pub until: Position,
    /// The instant at which the edge was created.
    pub since: UnixMicros,
    /// True if the edge was hidden.
    pub hidden: bool,
}

impl Default for Following {
    fn default() -> Self {
        Self { edges: EdgeColumns::default(), rare: None, version: 0, last_made: UnixMicros(i64::MIN) }
    }
}

impl Following {
    /// Adds an edge. Returns false, and changes nothing, if there is one.
    pub fn insert(&mut self, source: SourceSlot, since: UnixMicros, hidden: bool) -> bool {
        let Err(at) = self.edges.find(source) else { return false };
        self.note_change();
        self.last_made = self.last_made.max(since);
        self.edges.insert(at, source, since);
        if hidden {
            self.rare_mut().set_hidden(source, true);
        }
        true
    }

    /// Makes an edge hidden or visible, and sets its creation instant. Its start and the retained ranges do not change.
    pub fn set_hidden(&mut self, source: SourceSlot, since: UnixMicros, hidden: bool) {
        let Ok(at) = self.edges.find(source) else { return };
        self.note_change();
        self.last_made = self.last_made.max(since);
        self.edges.set_since(at, since);
        self.rare_mut().set_hidden(source, hidden);
        self.drop_empty_rare();
    }

    /// Restricts the edge to `source` to posts from `start` on.
    pub fn set_start(&mut self, source: SourceSlot, start: Position) {
        self.note_change();
        let starts = &mut self.rare_mut().starts;
        match starts.binary_search_by_key(&source, |start| start.0) {
            Ok(at) => starts[at].1 = start,
            Err(at) => starts.insert(at, (source, start)),
        }
    }

    /// Returns the start position of the edge to `source`; [`Position::MIN`] if it has none.
    pub fn start(&self, source: SourceSlot) -> Position {
        let starts = self.starts();
        let found = starts.binary_search_by_key(&source, |start| start.0);
        found.map_or(Position::MIN, |at| starts[at].1)
    }

    /// Removes an edge and returns it. None of its posts are retained, nor are those of earlier edges.
    pub fn remove(&mut self, source: SourceSlot) -> Option<Edge> {
        self.remove_kept(source);
        let edge = self.get(source);
        if let Ok(at) = self.edges.find(source) {
            self.note_change();
            self.edges.remove(at);
        }
        if let Some(rare) = &mut self.rare {
            rare.set_hidden(source, false);
            rare.starts.retain(|start| start.0 != source);
            self.drop_empty_rare();
        }
        edge
    }

    /// Removes an edge and returns it. The posts that it delivered up to `until` are retained.
    pub fn remove_but_keep(&mut self, source: SourceSlot, until: Position) -> Option<Edge> {
        // A replay may find that the edge is already removed and its posts are retained.
        self.get(source)?;
        let before: Vec<RetainedRange> = self.kept_of(source).copied().collect();
        let from = self.start(source);
        let edge = self.remove(source)?;
        let kept = RetainedRange { source, from, until, since: edge.since, hidden: edge.hidden };
        // A range inside another one is superfluous. In a replay, an edge that was removed before is removed here again.
        let is_kept = from > until || before.iter().any(|older| older.from <= from && until <= older.until);
        before.into_iter().filter(|older| older.from < from || older.until > until).for_each(|older| self.keep(older));
        if !is_kept {
            self.keep(kept);
        }
        Some(edge)
    }

    /// Removes the retained ranges that the edge to `source` delivers anyway.
    pub fn drop_superfluous(&mut self, source: SourceSlot) {
        let start = self.start(source);
        if let Some(rare) = &mut self.rare {
            rare.kept.retain(|kept| kept.source != source || kept.from < start);
            self.drop_empty_rare();
        }
    }

    /// Adds a retained range. Beyond the maximum for one source, its oldest range is removed.
    pub fn keep(&mut self, kept: RetainedRange) {
        self.note_change();
        self.last_made = self.last_made.max(kept.since);
        let is_full = self.kept_of(kept.source).count() == KEPT_PER_SOURCE_MAX;
        let all = &mut self.rare_mut().kept;
        let end = all.partition_point(|other| other.source <= kept.source);
        if is_full {
            all.remove(end - KEPT_PER_SOURCE_MAX);
            all.insert(end - 1, kept);
        } else {
            all.insert(end, kept);
        }
    }

    fn remove_kept(&mut self, source: SourceSlot) {
        if self.kept_of(source).next().is_some() {
            self.note_change();
            self.rare_mut().kept.retain(|kept| kept.source != source);
            self.drop_empty_rare();
        }
    }

    /// Returns the retained ranges of `source`, oldest first.
    pub fn kept_of(&self, source: SourceSlot) -> impl Iterator<Item = &RetainedRange> {
        let kept = self.kept();
        let start = kept.partition_point(|kept| kept.source < source);
        kept[start..].iter().take_while(move |kept| kept.source == source)
    }

    /// Returns all retained ranges, sorted by source.
    pub fn kept(&self) -> &[RetainedRange] {
        self.rare.as_ref().map_or(&[], |rare| &rare.kept)
    }

    /// Returns how the post of `source` at `position` reaches the reader: by an edge or by a retained range. None if it does not.
    pub fn brings(&self, source: SourceSlot, position: Position) -> Option<Brought> {
        let Some(rare) = &self.rare else {
            return self.contains(source).then_some(Brought { hidden: false, kept: false });
        };
        let edge = self.get(source).filter(|_| rare.starts.is_empty() || position >= self.start(source));
        if let Some(edge) = edge {
            return Some(Brought { hidden: edge.hidden, kept: false });
        }
        let within = |kept: &&RetainedRange| (kept.from..=kept.until).contains(&position);
        self.kept_of(source).find(within).map(|kept| Brought { hidden: kept.hidden, kept: true })
    }

    /// Returns the edge to `source`, if there is one.
    pub fn get(&self, source: SourceSlot) -> Option<Edge> {
        self.edges.find(source).ok().map(|at| self.edge(self.edges.get(at)))
    }

    /// Returns true if there is an edge to `source`, hidden or not.
    pub fn contains(&self, source: SourceSlot) -> bool {
        self.edges.find(source).is_ok()
    }

    /// Restores stored edges, which must be sorted by source.
    pub fn restored(edges: &[Edge]) -> Self {
        let last_made = edges.iter().map(|edge| edge.since).max().unwrap_or(UnixMicros(i64::MIN));
        let columns = EdgeColumns::of(edges.iter().map(|edge| (edge.source, edge.since)));
        let mut restored = Self { edges: columns, rare: None, last_made, version: 1 };
        let hidden: Vec<SourceSlot> = edges.iter().filter(|edge| edge.hidden).map(|edge| edge.source).collect();
        if !hidden.is_empty() {
            restored.rare_mut().hidden = hidden;
        }
        restored
    }

    /// Returns the start positions of edges that do not deliver everything, sorted by source.
    pub fn starts(&self) -> &[(SourceSlot, Position)] {
        self.rare.as_ref().map_or(&[], |rare| &rare.starts)
    }

    /// Returns all edges, sorted by source.
    pub fn edges(&self) -> impl ExactSizeIterator<Item = Edge> + DoubleEndedIterator + Clone {
        self.edges.iter().map(|edge| self.edge(edge))
    }

    /// Returns the sources of all edges, sorted: faster than [`Following::edges`].
    pub fn followed(&self) -> impl ExactSizeIterator<Item = SourceSlot> + DoubleEndedIterator + Clone {
        self.edges.sources()
    }

    /// Returns all sources that deliver anything: the followed ones, hidden ones included, and those with retained ranges.
    pub fn sources(&self) -> impl Iterator<Item = SourceSlot> + Clone {
        self.followed().chain(self.only_kept())
    }

    /// Returns the sources with retained ranges but without an edge. They push nothing any more, not even posts that are backdated into
    /// those ranges.
    pub fn only_kept(&self) -> impl Iterator<Item = SourceSlot> + Clone {
        let all = self.kept();
        let is_last = |nth: usize| all.get(nth + 1).is_none_or(|next| next.source != all[nth].source);
        let kept = all.iter().enumerate().filter(move |(nth, _)| is_last(*nth));
        kept.map(|(_, kept)| kept.source).filter(|source| !self.contains(*source))
    }

    /// Returns true if a source has retained ranges but no edge.
    pub fn is_only_kept(&self, source: SourceSlot) -> bool {
        self.kept_of(source).next().is_some() && !self.contains(source)
    }

    /// Returns the sources whose edges were created after `since`.
    pub fn made_after(&self, since: UnixMicros) -> impl Iterator<Item = SourceSlot> + Clone {
        self.edges.iter().filter(move |edge| edge.1 > since).map(|edge| edge.0)
    }

    /// Returns the instant at which the last edge was created, even if that edge has been removed.
    pub fn last_made(&self) -> UnixMicros {
        self.last_made
    }

    /// Returns the version, which changes with every change.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Returns the number of edges and retained ranges: an upper bound of the sources that deliver anything.
    pub fn reach_len(&self) -> usize {
        self.edges.len() + self.kept().len()
    }

    /// Returns the number of hidden edges, or of visible ones.
    pub fn len_of(&self, hidden: bool) -> usize {
        if hidden { self.hidden().len() } else { self.visible_len() }
    }

    /// Returns the number of edges, hidden ones included.
    pub fn len(&self) -> usize {
        self.edges.len()
    }

    /// Returns true if there are no edges.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of visible edges.
    pub fn visible_len(&self) -> usize {
        self.edges.len() - self.hidden().len()
    }

    /// Returns at most `max` visible edges that were created before `before`, newest first.
    pub fn newest_before(&self, before: UnixMicros, max: usize) -> Vec<Edge> {
        self.newest_of(false, before, max)
    }

    /// Returns at most `max` hidden edges that were created before `before`, newest first.
    pub fn hidden_before(&self, before: UnixMicros, max: usize) -> Vec<Edge> {
        self.newest_of(true, before, max)
    }

    fn newest_of(&self, hidden: bool, before: UnixMicros, max: usize) -> Vec<Edge> {
        let is_requested = |edge: &Edge| edge.hidden == hidden && edge.since < before;
        let mut edges: Vec<Edge> = self.edges().filter(is_requested).collect();
        edges.sort_unstable_by_key(|edge| std::cmp::Reverse(edge.since));
        edges.truncate(max);
        edges
    }

    /// Returns the bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        self.edges.heap_bytes() + self.rare.as_ref().map_or(0, |rare| rare.heap_bytes())
    }

    fn edge(&self, (source, since): (SourceSlot, UnixMicros)) -> Edge {
        Edge { source, since, hidden: self.hidden().binary_search(&source).is_ok() }
    }

    fn hidden(&self) -> &[SourceSlot] {
        self.rare.as_ref().map_or(&[], |rare| &rare.hidden)
    }

    fn rare_mut(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    fn drop_empty_rare(&mut self) {
        self.rare.take_if(|rare| rare.hidden.is_empty() && rare.starts.is_empty() && rare.kept.is_empty());
    }

    fn note_change(&mut self) {
        // Versions are compared only for equality. No cached version lives for four billion changes of one reader's edges.
        self.version = self.version.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::position::at;

    #[test]
    fn hidden_edges_are_followed_but_not_listed() {
        let mut following = Following::default();
        following.insert(SourceSlot(5), UnixMicros(1), true);
        following.insert(SourceSlot(3), UnixMicros(2), false);
        assert!(following.contains(SourceSlot(5)));
        assert_eq!((following.len(), following.visible_len()), (2, 1));
        let shown = following.newest_before(UnixMicros(9), 9);
        assert!(shown.iter().map(|edge| edge.source).eq([SourceSlot(3)]));
    }

    #[test]
    fn a_recreated_edge_is_a_new_edge() {
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
    fn start_and_end_bound_the_posts_of_an_edge() {
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
    fn an_unbounded_edge_replaces_earlier_kept_ranges_whose_number_is_limited() {
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
