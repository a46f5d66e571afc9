//! A set of reposts ordered by source, for a post with very many reposts.
//!
//! The set is a tree of runs. A run is packed, and new reposts are stored unsorted beside it. Only when a run has 64 of these are they
//! sorted and packed with it. [`SortedRuns`](crate::feed::runs::SortedRuns) are made for keys that arrive in ascending order; there, each
//! new repost would search its run and write it again.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::feed::position::Position;
use crate::feed::reposts::Repost;
use crate::feed::runs::packed::Packed;
use crate::id::SourceSlot;

/// Maximum number of unpacked reposts beside a run. A search for a source scans all of them.
const LATE_MAX: usize = 64;

/// Maximum number of packed reposts in one run. Each is packed about `PACKED_MAX / LATE_MAX` times on average.
const PACKED_MAX: usize = 3 * LATE_MAX;

/// A key that is below all reposts.
const LOWEST: Repost = Repost { source: SourceSlot(0), at: Position::MIN, author: SourceSlot(0) };

/// A set of reposts, ordered by source.
#[derive(Clone, Debug)]
pub(super) struct BySource {
    /// All reposts, unsorted, while they are too few for a run.
    few: Vec<Repost>,
    /// The runs. Each holds the reposts from its key up to the key of the next run. The first key is [`LOWEST`].
    runs: BTreeMap<Repost, Run>,
    len: u32,
    /// The number of these entries that are in the outbox of the repost's author: every repost has exactly one.
    posts: u32,
    /// No added repost ever had a position above this one.
    highest: Position,
}

/// A run of adjacent reposts.
#[derive(Clone, Debug)]
struct Run {
    /// The base of the packed reposts.
    base: Repost,
    packed: Packed,
    /// The reposts added since the last packing, unsorted.
    late: Vec<Repost>,
}

impl Default for BySource {
    fn default() -> Self {
        Self { few: Vec::new(), runs: BTreeMap::new(), len: 0, posts: 0, highest: Position::MIN }
    }
}

impl BySource {
    /// Returns the number of reposts, each counted once for each of its sources.
    pub(super) fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns the number of reposts, each counted once.
    pub(super) fn posts(&self) -> usize {
        self.posts as usize
    }

    /// Returns the highest position ever added: no repost in the set has a higher one.
    pub(super) fn highest(&self) -> Position {
        self.highest
    }

    /// Returns the last repost in the order by source.
    pub(super) fn last(&self) -> Option<Repost> {
        let run = self.runs.values().next_back().into_iter().flat_map(Run::iter);
        self.few.iter().copied().chain(run).max()
    }

    /// Adds a repost. Returns false if it was there.
    pub(super) fn insert(&mut self, repost: Repost) -> bool {
        let is_new = repost.at > self.highest || !self.contains(repost);
        if is_new {
            self.add(repost);
        }
        is_new
    }

    /// Adds a repost that is not in the set.
    pub(super) fn add(&mut self, repost: Repost) {
        self.highest = self.highest.max(repost.at);
        self.len += 1;
        self.posts += u32::from(repost.source == repost.author);
        if let Some((_, run)) = self.runs.range_mut(..=repost).next_back() {
            run.late.push(repost);
            if run.late.len() >= LATE_MAX
                && let Some(upper) = run.settle()
            {
                self.runs.insert(upper.base, upper);
            }
            return;
        }
        self.few.push(repost);
        if self.few.len() >= LATE_MAX {
            let mut few = std::mem::take(&mut self.few);
            few.sort_unstable();
            self.runs.insert(LOWEST, Run::of(&few));
        }
    }

    /// Removes a repost. Returns false if it was not there.
    pub(super) fn remove(&mut self, repost: Repost) -> bool {
        let removed = match self.runs.range_mut(..=repost).next_back() {
            None => take(&mut self.few, repost),
            Some((&from, run)) => {
                let removed = run.remove(repost);
                // The first run is never removed, so that every new repost belongs to a run.
                if run.is_empty() && from != LOWEST {
                    self.runs.remove(&from);
                }
                removed
            }
        };
        self.len -= u32::from(removed);
        self.posts -= u32::from(removed && repost.source == repost.author);
        removed
    }

    /// Returns all reposts, in no particular order.
    pub(super) fn iter(&self) -> impl Iterator<Item = Repost> {
        self.few.iter().copied().chain(self.runs.values().flat_map(Run::iter))
    }

    /// Passes some reposts to `each`, in no particular order: those of the first runs above `above`, until `max` are passed. Returns the
    /// place where the next call continues, or `None` after the last repost. Reposts that are added between two calls may be passed twice
    /// or not at all.
    pub(super) fn some(&self, above: Option<Repost>, max: usize, mut each: impl FnMut(Repost)) -> Option<Repost> {
        if above.is_none() {
            self.few.iter().copied().for_each(&mut each);
        }
        let from = above.map_or(Bound::Unbounded, Bound::Excluded);
        let (mut passed, mut last) = (0, None);
        for (key, run) in self.runs.range((from, Bound::Unbounded)) {
            if passed >= max {
                return last;
            }
            run.iter().for_each(&mut each);
            passed += run.len();
            last = Some(*key);
        }
        None
    }

    /// Appends the reposts of one source to `into`, in no particular order.
    pub(super) fn copy_of(&self, source: SourceSlot, into: &mut Vec<Repost>) {
        into.extend(self.few.iter().filter(|repost| repost.source == source));
        let highest = Repost { source, at: Position::MAX, author: SourceSlot::NONE };
        for (from, run) in self.runs.range(..=highest).rev() {
            run.copy_of(source, into);
            if from.source < source {
                break;
            }
        }
    }

    /// Returns the bytes on the heap, without the overhead of the allocator.
    pub(super) fn heap_bytes(&self) -> usize {
        // A tree node has space for 11 entries. In a tree of several nodes, those split at random hold about 8.
        const NODE_ROOM: usize = 11;
        const NODE_ENTRIES: usize = 8;
        let runs = self.runs.len();
        let nodes = if runs <= NODE_ROOM { runs.min(1) } else { runs.div_ceil(NODE_ENTRIES) };
        let node = NODE_ROOM * (size_of::<Repost>() + size_of::<Run>()) + 16;
        let beside = |late: &Vec<Repost>| late.capacity() * size_of::<Repost>();
        let of_runs = self.runs.values().map(|run| run.packed.heap_bytes() + beside(&run.late)).sum::<usize>();
        beside(&self.few) + of_runs + nodes * node
    }

    fn contains(&self, repost: Repost) -> bool {
        match self.runs.range(..=repost).next_back() {
            Some((_, run)) => run.late.contains(&repost) || run.packed.search(run.base, repost).is_ok(),
            None => self.few.contains(&repost),
        }
    }
}

impl Run {
    /// Packs sorted reposts; there must be at least one.
    fn of(reposts: &[Repost]) -> Self {
        let base = reposts[0];
        Self { base, packed: Packed::of(base, reposts), late: Vec::new() }
    }

    fn is_empty(&self) -> bool {
        self.packed.is_empty() && self.late.is_empty()
    }

    fn len(&self) -> usize {
        self.packed.len() + self.late.len()
    }

    fn iter(&self) -> impl Iterator<Item = Repost> {
        self.late.iter().copied().chain(self.packed.keys(self.base))
    }

    fn copy_of(&self, source: SourceSlot, into: &mut Vec<Repost>) {
        into.extend(self.late.iter().filter(|repost| repost.source == source));
        let begin = self.packed.partition_point(self.base, |repost: Repost| repost.source < source);
        let rest = self.packed.range(self.base, begin..self.packed.len());
        into.extend(rest.take_while(|repost: &Repost| repost.source == source));
    }

    fn remove(&mut self, repost: Repost) -> bool {
        if take(&mut self.late, repost) {
            return true;
        }
        let Ok(place) = self.packed.search(self.base, repost) else { return false };
        self.packed.remove(place);
        self.packed.shrink();
        true
    }

    /// Packs the unsorted reposts. If they are too many for one run, returns the upper ones as a new run.
    fn settle(&mut self) -> Option<Self> {
        let mut late = std::mem::take(&mut self.late);
        late.sort_unstable();
        let (base, count) = (self.base, self.packed.len() + late.len());
        let is_above = self.packed.last(base).is_none_or(|last: Repost| last < late[0]);
        match (is_above, count <= PACKED_MAX) {
            // Ascending insertions, as in a restore, produce full runs.
            (true, false) => return Some(Self::of(&late)),
            (true, true) if !self.packed.is_empty() => {
                self.packed.extend(base, &late);
                return None;
            }
            _ => {}
        }
        late.reserve_exact(count - late.len());
        late.extend(self.packed.keys::<Repost>(base));
        // These are two ascending runs, which a stable sort merges.
        late.sort();
        let (lower, upper) = late.split_at(if count <= PACKED_MAX { count } else { count / 2 });
        *self = Self::of(lower);
        (!upper.is_empty()).then(|| Self::of(upper))
    }
}

/// Removes a repost from an unsorted list. Returns false if it was not there.
fn take(list: &mut Vec<Repost>, repost: Repost) -> bool {
    let place = list.iter().position(|other| *other == repost);
    place.map(|place| list.swap_remove(place)).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::position::at;
    use crate::feed::runs::packed::ROWS_WRITTEN;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn repost(source: u32, time: i64) -> Repost {
        Repost { source: SourceSlot(source), at: at(time, (time << 12).cast_unsigned()), author: SourceSlot(source) }
    }

    fn check_shape(set: &BySource) {
        assert!(set.runs.keys().next().is_none_or(|from| *from == LOWEST) && set.few.len() < LATE_MAX);
        assert!(set.few.is_empty() || set.runs.is_empty());
        let mut ends = set.runs.keys().skip(1);
        for (from, run) in &set.runs {
            let end = ends.next();
            assert!(run.iter().all(|repost| *from <= repost && end.is_none_or(|end| repost < *end)));
            assert!(run.packed.len() <= PACKED_MAX && run.late.len() < LATE_MAX);
            assert!(*from == LOWEST || !run.is_empty());
        }
    }

    proptest! {
        #[test]
        fn reposts_by_source_agree_with_a_set(
            ops in prop::collection::vec((0..20u32, 0..200i64, 0..4u8), 0..1_500),
            sources in 1..20u32,
        ) {
            let (mut set, mut model) = (BySource::default(), BTreeSet::new());
            for (nth, (source, time, op)) in ops.into_iter().enumerate() {
                let repost = match op {
                    // Sources in any order and ascending times, as reposts are published.
                    0 | 1 => repost(source % sources, nth as i64),
                    _ => repost(source % sources, time),
                };
                match op {
                    3 => prop_assert_eq!(set.remove(repost), model.remove(&repost)),
                    _ => prop_assert_eq!(set.insert(repost), model.insert(repost)),
                }
            }
            check_shape(&set);
            prop_assert_eq!(set.len(), model.len());
            prop_assert_eq!(&set.iter().collect::<BTreeSet<_>>(), &model);
            prop_assert_eq!(set.iter().count(), model.len());
            for source in (0..=sources).map(SourceSlot) {
                let mut found = Vec::new();
                set.copy_of(source, &mut found);
                found.sort_unstable();
                prop_assert!(found.iter().eq(model.iter().filter(|repost| repost.source == source)));
            }
            model.iter().for_each(|repost| assert!(set.remove(*repost)));
            check_shape(&set);
            prop_assert!(set.len() == 0 && set.iter().next().is_none());
        }
    }

    #[test]
    fn inserts_in_any_order_of_sources_write_few_rows() {
        for sources in [500, 1 << 30] {
            let (mut set, mut random) = (BySource::default(), fastrand::Rng::with_seed(7));
            ROWS_WRITTEN.set(0);
            (0..50_000).for_each(|time| assert!(set.insert(repost(random.u32(0..sources), time))));
            let written = ROWS_WRITTEN.get();
            assert!(written <= 5 * 50_000, "{written} rows were written for 50,000 reposts by {sources} sources");
        }
    }

    #[test]
    fn ascending_reposts_fill_their_runs() {
        let mut set = BySource::default();
        (0..20 * PACKED_MAX as u32).for_each(|source| assert!(set.insert(repost(source, 7))));
        assert!(set.runs.values().all(|run| run.packed.len() == PACKED_MAX));
    }

    #[test]
    fn a_repost_uses_few_bytes() {
        let bytes = |id: &mut dyn FnMut(i64) -> u64| {
            let (mut set, mut random) = (BySource::default(), fastrand::Rng::with_seed(7));
            for time in (0..50_000).map(|nth| 1_763_700_000_000_000 + nth * 50_000) {
                let source = SourceSlot(random.u32(0..50_000_000));
                assert!(set.insert(Repost { source, at: at(time, id(time)), author: source }));
            }
            set.heap_bytes() / 50_000
        };
        let (minted, any) = (bytes(&mut |time| (time << 12).cast_unsigned()), bytes(&mut |_| fastrand::u64(..)));
        assert!(minted <= 16 && any <= 24, "{minted} bytes each, and {any} with any ids");
    }
}
