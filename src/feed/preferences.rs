//! Preferences: what one reader has decided about the feed, beside whom to follow.
//!
//! Responsible for:
//! - mutes, blocks, rules, lists and the read marker of one reader.
//!
//! Not responsible for:
//! - what they do to a page (`state::viewer`), limits (`runtime::writer`).

use std::collections::BTreeMap;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::clock::UnixMicros;
use crate::feed::following::Following;
use crate::feed::position::Position;
use crate::feed::resume::{Resume, Settled};
use crate::feed::rules::Rules;
use crate::id::{ListName, SourceSlot};

/// What one reader has decided.
#[derive(Clone, Debug, Default)]
pub struct Preferences {
    /// What shows of what reaches the reader.
    pub rules: Rules,
    /// Sources of which nothing shows.
    pub mutes: Silenced,
    /// Sources of which nothing shows, and with which there are no edges either way.
    pub blocks: Silenced,
    /// How far the reader has read.
    pub marker: Option<Marker>,
    /// Named feeds of chosen sources.
    pub lists: BTreeMap<ListName, Arc<Following>>,
    /// As of the last [`Preferences::note_change`].
    pub fingerprint: u32,
}

/// How far a reader has read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Marker {
    /// The position of the last entry read.
    pub at: Position,
    /// Up to when posts had arrived by then: what arrives later is not read, wherever it stands. None in markers of earlier versions,
    /// below which everything counts as read.
    pub seen: Option<Settled>,
}

impl Marker {
    /// As a client that has what was read.
    pub fn resume(self) -> Resume {
        let (below, ahead_us) = self.seen.map_or((None, 0), |seen| (Some(seen.through), seen.ahead_us));
        Resume { below, ahead_us, ..Resume::at(self.at) }
    }
}

/// A set of sources, and since when each is in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Silenced {
    /// Sorted by source.
    sources: Vec<(SourceSlot, UnixMicros)>,
}

impl Silenced {
    /// Adds a source; false if it was there, and then stays as it is.
    pub fn insert(&mut self, source: SourceSlot, since: UnixMicros) -> bool {
        let Err(at) = self.find(source) else { return false };
        self.sources.insert(at, (source, since));
        true
    }

    /// Takes a source out, and returns since when it was there.
    pub fn remove(&mut self, source: SourceSlot) -> Option<UnixMicros> {
        let at = self.find(source).ok()?;
        Some(self.sources.remove(at).1)
    }

    /// Whether a source is in the set.
    pub fn contains(&self, source: SourceSlot) -> bool {
        !self.sources.is_empty() && self.find(source).is_ok()
    }

    /// All sources, with the instants they came in, by source.
    pub fn iter(&self) -> impl Iterator<Item = (SourceSlot, UnixMicros)> {
        self.sources.iter().copied()
    }

    /// At most `max` sources that came in before `before`, newest first.
    pub fn newest_before(&self, before: UnixMicros, max: usize) -> Vec<(SourceSlot, UnixMicros)> {
        let mut newest: Vec<_> = self.iter().filter(|(_, since)| *since < before).collect();
        newest.sort_unstable_by_key(|(_, since)| std::cmp::Reverse(*since));
        newest.truncate(max);
        newest
    }

    /// How many sources there are.
    pub fn len(&self) -> usize {
        self.sources.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    fn find(&self, source: SourceSlot) -> Result<usize, usize> {
        self.sources.binary_search_by_key(&source, |entry| entry.0)
    }
}

impl Preferences {
    /// Whether nothing of a source shows.
    pub fn silences(&self, source: SourceSlot) -> bool {
        self.mutes.contains(source) || self.blocks.contains(source)
    }

    /// Tells what is shown of a feed from what was shown by other rules, mutes and blocks: a number that survives a restart.
    pub fn fingerprint(&self) -> u32 {
        self.fingerprint
    }

    /// Takes the fingerprint anew.
    pub fn note_change(&mut self) {
        let Rules { show_own, replies, reposts, per_source_max } = self.rules;
        let per_source_max = per_source_max.map_or(0, |max| max.get() as u64);
        let rules = [u8::from(show_own), replies as u8, u8::from(reposts)];
        // Zero for whoever has decided nothing.
        let mut sum = if self.rules == Rules::default() { 0 } else { xxh3_64_with_seed(&rules, per_source_max) };
        for (seed, silenced) in [&self.mutes, &self.blocks].into_iter().enumerate() {
            // Instants, since no two sources are silenced at the same one, in any order: slots do not survive a restart.
            let each = silenced.iter().map(|(_, since)| xxh3_64_with_seed(&since.0.to_le_bytes(), seed as u64));
            sum = each.fold(sum, u64::wrapping_add);
        }
        self.fingerprint = sum as u32;
    }

    /// Bytes on the heap, without the allocator's own.
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
    fn what_was_silenced_last_is_listed_first() {
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
