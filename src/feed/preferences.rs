//! Preferences: the decisions of one reader about the feed, in addition to the followed sources.

use std::collections::BTreeMap;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::clock::UnixMicros;
use crate::feed::following::Following;
use crate::feed::position::Position;
use crate::feed::resume::{DeliveryWatermark, Resume};
use crate::feed::rules::Rules;
use crate::id::{ListName, SourceSlot};

/// The preferences of one reader.
#[derive(Clone, Debug, Default)]
pub struct Preferences {
    /// Rules for the posts that reach the reader.
    pub rules: Rules,
    /// Muted sources, whose posts are not shown.
    pub mutes: Silenced,
    /// Blocked sources: their posts are not shown, and there are no follow edges in either direction.
    pub blocks: Silenced,
    /// The position up to which the reader has read.
    pub marker: Option<Marker>,
    /// Named feeds of chosen sources.
    pub lists: BTreeMap<ListName, Arc<Following>>,
    /// The fingerprint as of the last [`Preferences::note_change`].
    pub fingerprint: u32,
}

/// The read marker of a reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Marker {
    /// The position of the last entry that was read.
    pub at: Position,
    /// The delivery watermark at that time: a post that arrives later is unread, wherever its position is. `None` in markers of earlier
    /// versions, below which everything counts as read.
    pub seen: Option<DeliveryWatermark>,
}

impl Marker {
    /// Returns the marker as the resume token of a client that has the entries that were read.
    pub fn resume(self) -> Resume {
        let (below, ahead_us) = self.seen.map_or((None, 0), |seen| (Some(seen.through), seen.ahead_us));
        Resume { below, ahead_us, ..Resume::at(self.at) }
    }
}

/// A set of sources, each with the instant at which it was added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Silenced {
    /// The entries, sorted by source.
    sources: Vec<(SourceSlot, UnixMicros)>,
}

impl Silenced {
    /// Adds a source. Returns false, and changes nothing, if it was there.
    pub fn insert(&mut self, source: SourceSlot, since: UnixMicros) -> bool {
        let Err(at) = self.find(source) else { return false };
        self.sources.insert(at, (source, since));
        true
    }

    /// Removes a source, and returns the instant at which it had been added.
    pub fn remove(&mut self, source: SourceSlot) -> Option<UnixMicros> {
        let at = self.find(source).ok()?;
        Some(self.sources.remove(at).1)
    }

    /// Returns true if a source is in the set.
    pub fn contains(&self, source: SourceSlot) -> bool {
        !self.sources.is_empty() && self.find(source).is_ok()
    }

    /// Returns all sources with the instants at which they were added, sorted by source.
    pub fn iter(&self) -> impl Iterator<Item = (SourceSlot, UnixMicros)> {
        self.sources.iter().copied()
    }

    /// Returns at most `max` sources that were added before `before`, newest first.
    pub fn newest_before(&self, before: UnixMicros, max: usize) -> Vec<(SourceSlot, UnixMicros)> {
        let mut newest: Vec<_> = self.iter().filter(|(_, since)| *since < before).collect();
        newest.sort_unstable_by_key(|(_, since)| std::cmp::Reverse(*since));
        newest.truncate(max);
        newest
    }

    /// Returns the number of sources.
    pub fn len(&self) -> usize {
        self.sources.len()
    }

    /// Returns true if the set is empty.
    pub fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    fn find(&self, source: SourceSlot) -> Result<usize, usize> {
        self.sources.binary_search_by_key(&source, |entry| entry.0)
    }
}

impl Preferences {
    /// Returns true if a source is muted or blocked.
    pub fn silences(&self, source: SourceSlot) -> bool {
        self.mutes.contains(source) || self.blocks.contains(source)
    }

    /// Returns a number that changes with the rules, mutes and blocks, and that survives a restart.
    pub fn fingerprint(&self) -> u32 {
        self.fingerprint
    }

    /// Computes the fingerprint again after a change.
    pub fn note_change(&mut self) {
        // Not `notify`, which does not change the feed.
        let shown = Rules { notify: false, ..self.rules };
        let Rules { show_own, replies, reposts, per_source_max, .. } = shown;
        let per_source_max = per_source_max.map_or(0, |max| max.get() as u64);
        let rules = [u8::from(show_own), replies as u8, u8::from(reposts)];
        // The fingerprint of default preferences is zero.
        let mut sum = if shown == Rules::default() { 0 } else { xxh3_64_with_seed(&rules, per_source_max) };
        for (seed, silenced) in [&self.mutes, &self.blocks].into_iter().enumerate() {
            // Hashes the instants, not the slots, which do not survive a restart. No two sources are muted or blocked at the same instant,
            // and the sum does not depend on the order.
            let each = silenced.iter().map(|(_, since)| xxh3_64_with_seed(&since.0.to_le_bytes(), seed as u64));
            sum = each.fold(sum, u64::wrapping_add);
        }
        self.fingerprint = sum as u32;
    }

    /// Returns the bytes on the heap, without the overhead of the allocator.
    pub fn heap_bytes(&self) -> usize {
        let silenced = (self.mutes.sources.capacity() + self.blocks.sources.capacity()) * size_of::<(u32, i64)>();
        let list = |(name, members): (&ListName, &Arc<Following>)| {
            name.as_str().len() + size_of::<Following>() + members.heap_bytes()
        };
        silenced + self.lists.iter().map(list).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silenced_sources_are_listed_newest_first() {
        let mut silenced = Silenced::default();
        for (slot, since) in [(5, 1), (3, 2), (9, 3)] {
            assert!(silenced.insert(SourceSlot(slot), UnixMicros(since)));
        }
        assert!(!silenced.insert(SourceSlot(5), UnixMicros(9)));
        let listed = |before, max| -> Vec<u32> {
            silenced.newest_before(UnixMicros(before), max).iter().map(|(source, _)| source.0).collect()
        };
        assert_eq!((listed(9, 9), listed(3, 1)), (vec![9, 3, 5], vec![3]));
        assert!(silenced.contains(SourceSlot(3)) && !silenced.contains(SourceSlot(4)));
        let removed = [3, 4].map(|slot| silenced.remove(SourceSlot(slot)));
        assert_eq!((removed, silenced.len()), ([Some(UnixMicros(2)), None], 2));
    }
}
