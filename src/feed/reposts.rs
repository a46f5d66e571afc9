//! Reposts: which posts repeat one post, and by which sources each of them can come into a feed.
//!
//! Responsible for:
//! - finding, for a reader, the reposts that could bring an entry, in time that follows the smaller of two numbers: how
//!   many reposts there are, and how many sources the reader has chosen.
//!
//! Not responsible for:
//! - whether a repost counts for a reader (`state::viewer`), the reposts themselves (`state::posts`).

mod by_source;

use by_source::BySource;

use crate::feed::position::Position;
use crate::feed::runs::packed::{Key, unzigzag, zigzag};
use crate::id::SourceSlot;

/// One repost, as one of its sources has it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Repost {
    /// Its author, one of its tags, or its topic.
    pub source: SourceSlot,
    /// Where it stands.
    pub at: Position,
    /// Who published it.
    pub author: SourceSlot,
}

/// The source, by how much the author's number differs from it, and the position. Most have their author as the source.
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

/// The posts that repeat one post.
#[derive(Clone, Debug, Default)]
pub struct Reposts {
    by_source: BySource,
    /// Those that are kept out of feeds for now. Sorted.
    hidden: Vec<Position>,
}

/// Sources looked up one by one cost about as much as so many reposts met in a row.
const LOOKUP_COST: usize = 8;

impl Reposts {
    /// Adds a post that repeats this one, as all of its sources have it, each of which is named once. Returns how many of these
    /// reposts were not there.
    pub fn insert_post(
        &mut self,
        at: Position,
        author: SourceSlot,
        sources: impl Iterator<Item = SourceSlot>,
    ) -> usize {
        let before = self.len();
        // Nearly every one is newer than all before it: then there is nothing to look for.
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

    /// Adds reposts, each as one of its sources has it; fastest in ascending order. Returns how many were not there.
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

    /// Takes a repost out; false if it was not there.
    pub fn remove(&mut self, repost: Repost) -> bool {
        self.hide(repost.at, false);
        self.by_source.remove(repost)
    }

    /// Keeps a repost out of feeds, or lets it in again.
    pub fn hide(&mut self, at: Position, hidden: bool) {
        match (self.hidden.binary_search(&at), hidden) {
            (Err(place), true) => self.hidden.insert(place, at),
            (Ok(place), false) => {
                self.hidden.remove(place);
            }
            _ => {}
        }
    }

    /// Whether a repost is kept out of feeds.
    pub fn is_hidden(&self, at: Position) -> bool {
        self.hidden.binary_search(&at).is_ok()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many there are, each counted once for each of its sources.
    pub fn len(&self) -> usize {
        self.by_source.len()
    }

    /// Bytes on the heap, without the allocator's own.
    pub fn heap_bytes(&self) -> usize {
        self.by_source.heap_bytes() + self.hidden.capacity() * size_of::<Position>()
    }

    /// All of them, in no order.
    pub fn iter(&self) -> impl Iterator<Item = Repost> {
        self.by_source.iter()
    }

    /// Appends to `into` the reposts that any of `chosen` sources has. `is_chosen` says of one source whether it is among
    /// these, and `chosen_len` how many there are. Returns how many reposts were looked at; a source looked up counts as a few.
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
        fn both_ways_of_looking_find_the_same(
            all in prop::collection::btree_set((0..30u32, 0..40i64), 0..200),
            chosen in prop::collection::btree_set(0..30u32, 0..12),
        ) {
            let mut reposts = Reposts::default();
            // As many by the source itself as by others, whose numbers are larger or smaller.
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
