//! Choices: what one reader has decided about the feed, beside whom to follow.
//!
//! Responsible for:
//! - mutes, blocks, rules, lists and the read marker of one reader.
//!
//! Not responsible for:
//! - what they do to a page (`state::viewer`), limits (`actor::scribe`).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::clock::UnixMicros;
use crate::feed::following::Following;
use crate::feed::position::Position;
use crate::feed::rules::Rules;
use crate::id::{ListName, SourceSlot};

/// What one reader has decided.
#[derive(Clone, Debug, Default)]
pub struct Choices {
    /// What shows of what reaches the reader.
    pub rules: Rules,
    /// Sources of which nothing shows.
    pub mutes: Silenced,
    /// Sources of which nothing shows, and with which there are no edges either way.
    pub blocks: Silenced,
    /// How far the reader has read.
    pub marker: Option<Position>,
    /// Named feeds of chosen sources.
    pub lists: BTreeMap<ListName, Arc<Following>>,
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

    /// Takes a source out; false if it was not there.
    pub fn remove(&mut self, source: SourceSlot) -> bool {
        let Ok(at) = self.find(source) else { return false };
        self.sources.remove(at);
        true
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

impl Choices {
    /// Whether nothing of a source shows.
    pub fn silences(&self, source: SourceSlot) -> bool {
        self.mutes.contains(source) || self.blocks.contains(source)
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
        assert!(silenced.clone().remove(SourceSlot(3)) && !silenced.clone().remove(SourceSlot(4)));
    }
}
