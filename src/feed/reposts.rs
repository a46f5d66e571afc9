//! Reposts of one post, and the sources through which each of them can reach a feed.
//!
//! Responsible for:
//! - finding, for a reader, the reposts that could add an entry, in time proportional to the smaller of two numbers: the reposts, and the
//!   sources that the reader follows.

mod by_source;

use by_source::BySource;

use crate::feed::position::Position;
use crate::feed::runs::packed::{Key, unzigzag, zigzag};
use crate::id::{PostId, SourceSlot};

/// One repost in the outbox of one of its sources.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Repost {
    /// The author of the repost, one of its tags, or its topic.
    pub source: SourceSlot,
    /// The position of the repost.
    pub at: Position,
    /// The author of the repost.
    pub author: SourceSlot,
}

/// Packs the source, the difference between the numbers of author and source, and the position. For most reposts author and source are the
/// same.
impl Key for Repost {
    type Numbers = [u64; 4];

    const WAYS: u8 = Position::WAYS;

    fn count_from(self, base: Self, way: u8) -> [u64; 4] {
        let source = u64::from(self.source.0).wrapping_sub(u64::from(base.source.0));
        let author = u64::from(self.author.0).wrapping_sub(u64::from(self.source.0));
        let [time, id] = self.at.count_from(base.at, way);
        [source, zigzag(author), zigzag(time), id]
    }

    fn count_to(base: Self, [source, author, time, id]: [u64; 4], way: u8) -> Self {
        let source = u64::from(base.source.0).wrapping_add(source);
        let author = source.wrapping_add(unzigzag(author));
        let at = Position::count_to(base.at, [unzigzag(time), id], way);
        Self { source: SourceSlot(source as u32), at, author: SourceSlot(author as u32) }
    }
}

/// The reposts of one post.
#[derive(Clone, Debug, Default)]
pub struct Reposts {
    by_source: BySource,
    /// The positions of hidden reposts, sorted.
    hidden: Vec<Position>,
}

/// The cost of looking up one source, as a number of reposts that are scanned in sequence at the same cost.
const LOOKUP_COST: usize = 8;

impl Reposts {
    /// Adds one repost for each of its sources, which must be distinct. Returns how many of these entries were new.
    pub fn insert_post(
        &mut self,
        at: Position,
        author: SourceSlot,
        sources: impl Iterator<Item = SourceSlot>,
    ) -> usize {
        let before = self.len();
        // Nearly every repost is newer than all before it: then no search is needed.
        let is_new = at > self.by_source.highest();
        for repost in sources.map(|source| Repost { source, at, author }) {
            if is_new {
                self.by_source.add(repost);
            } else {
                self.by_source.insert(repost);
            }
        }
        self.len() - before
    }

    /// Adds reposts, each for one of its sources; ascending order is fastest. Returns how many of them were new.
    pub fn extend(&mut self, reposts: &[Repost]) -> usize {
        let before = self.len();
        let mut last = self.by_source.last();
        for repost in reposts {
            if last.is_none_or(|last| last < *repost) {
                self.by_source.add(*repost);
                last = Some(*repost);
            } else {
                self.by_source.insert(*repost);
            }
        }
        self.len() - before
    }

    /// Removes a repost. Returns false if it was not there.
    pub fn remove(&mut self, repost: Repost) -> bool {
        self.hide(repost.at, false);
        self.by_source.remove(repost)
    }

    /// Hides a repost from feeds, or shows it again.
    pub fn hide(&mut self, at: Position, hidden: bool) {
        match (self.hidden.binary_search(&at), hidden) {
            (Err(place), true) => self.hidden.insert(place, at),
            (Ok(place), false) => {
                self.hidden.remove(place);
            }
            _ => {}
        }
    }

    /// Returns true if a repost is hidden from feeds.
    pub fn is_hidden(&self, at: Position) -> bool {
        self.hidden.binary_search(&at).is_ok()
    }

    /// Returns true if there are no reposts.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of reposts, each counted once for each of its sources.
    pub fn len(&self) -> usize {
        self.by_source.len()
    }

    /// Returns the number of reposts that are not hidden, each counted once. This takes the same time however many there are.
    pub fn shown(&self) -> usize {
        self.by_source.posts().saturating_sub(self.hidden.len())
    }

    /// Passes some reposts to `each`, each once for each of its sources and in no particular order. Returns the place where the next call
    /// continues, or `None` after the last repost. A call passes about `max` of them, so that the lock of a large set is not held for long.
    /// Reposts that are added between two calls may be passed twice or not at all.
    pub fn some(&self, above: Option<Repost>, max: usize, each: impl FnMut(Repost)) -> Option<Repost> {
        self.by_source.some(above, max, each)
    }

    /// Clears the hidden mark of the post with this id. The repost itself need not be there.
    pub fn forget_hidden(&mut self, id: PostId) {
        self.hidden.retain(|at| at.id != id);
    }

    /// Returns the bytes on the heap, without the overhead of the allocator.
    pub fn heap_bytes(&self) -> usize {
        self.by_source.heap_bytes() + self.hidden.capacity() * size_of::<Position>()
    }

    /// Returns all reposts, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = Repost> {
        self.by_source.iter()
    }

    /// Appends to `into` the reposts of any of the `chosen` sources. `is_chosen` returns true for these sources, and `chosen_len` is their
    /// number. Returns the work in examined reposts; the look-up of a source counts as `LOOKUP_COST` of them.
    pub fn of(
        &self,
        chosen: impl Iterator<Item = SourceSlot>,
        chosen_len: usize,
        is_chosen: impl Fn(SourceSlot) -> bool,
        into: &mut Vec<Repost>,
    ) -> usize {
        if self.len() <= chosen_len.saturating_mul(LOOKUP_COST) {
            into.extend(self.iter().filter(|repost| is_chosen(repost.source)));
            return self.len();
        }
        let before = into.len();
        for source in chosen {
            self.by_source.copy_of(source, into);
        }
        into.len() - before + chosen_len.saturating_mul(LOOKUP_COST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::position::at;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn a_visible_repost_counts_once_for_any_number_of_sources(
            changes in prop::collection::vec((0..4u8, 0..12i64, 0..4u32), 0..80),
        ) {
            let (mut reposts, mut there) = (Reposts::default(), std::collections::BTreeMap::new());
            for (change, time, sources) in changes {
                // Half of the authors have larger numbers than the tags of their reposts.
                let (author, place) = (SourceSlot(if time % 2 == 0 { 3 } else { 30 }), at(time, 0));
                let each = |sources: u32| std::iter::once(author).chain((10..10 + sources).map(SourceSlot));
                match change {
                    0 | 1 if !there.contains_key(&time) => {
                        reposts.insert_post(place, author, each(sources));
                        there.insert(time, (sources, false));
                    }
                    2 => {
                        for source in there.remove(&time).into_iter().flat_map(|(sources, _)| each(sources)) {
                            let repost = Repost { source, at: place, author };
                            prop_assert!(reposts.remove(repost));
                        }
                    }
                    3 => {
                        if let Some((_, hidden)) = there.get_mut(&time) {
                            *hidden = sources % 2 == 0;
                            reposts.hide(place, *hidden);
                        }
                    }
                    _ => {}
                }
                prop_assert_eq!(reposts.shown(), there.values().filter(|(_, hidden)| !hidden).count());
            }
        }

        #[test]
        fn both_search_strategies_find_the_same_reposts(
            all in prop::collection::btree_set((0..30u32, 0..40i64), 0..200),
            chosen in prop::collection::btree_set(0..30u32, 0..12),
        ) {
            let mut reposts = Reposts::default();
            // About half of the reposts are by the source itself, the others by authors with larger or smaller numbers.
            let author = |source: u32, time: i64| SourceSlot(if time % 2 == 0 { source } else { u32::MAX - source * 7 });
            let repost = |&(source, time)| Repost { source: SourceSlot(source), at: at(time, 0), author: author(source, time) };
            for repost in all.iter().map(repost) {
                prop_assert_eq!((reposts.extend(&[repost]), reposts.extend(&[repost])), (1, 0));
            }
            let sorted: Vec<Repost> = all.iter().map(repost).collect();
            let mut restored = Reposts::default();
            let (some, more) = sorted.split_at(sorted.len() / 2);
            prop_assert_eq!((restored.extend(more), restored.extend(some), restored.extend(&sorted)), (more.len(), some.len(), 0));
            prop_assert!(restored.iter().collect::<BTreeSet<_>>().into_iter().eq(sorted));
            let mut found: Vec<Repost> = reposts.iter().collect();
            found.sort_unstable();
            prop_assert!(found.into_iter().eq(all.iter().map(repost)));
            let (mut above, mut passed) = (None, Vec::new());
            loop {
                above = reposts.some(above, 1, |repost| passed.push(repost));
                if above.is_none() {
                    break;
                }
            }
            passed.sort_unstable();
            prop_assert!(passed.into_iter().eq(all.iter().map(repost)), "each repost is passed once");
            let expected: BTreeSet<(u32, i64)> = all.iter().filter(|(source, _)| chosen.contains(source)).copied().collect();
            for chosen_len in [0, usize::MAX] {
                let mut found = Vec::new();
                let sources = chosen.iter().map(|source| SourceSlot(*source));
                reposts.of(sources, chosen_len, |source| chosen.contains(&source.0), &mut found);
                let found: BTreeSet<_> = found.iter().map(|repost| (repost.source.0, repost.at.published_at.0)).collect();
                prop_assert_eq!(&found, &expected);
            }
        }
    }
}
