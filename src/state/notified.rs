//! The readers who want to be told of posts that they miss, by the rule `notify`.
//!
//! Responsible for:
//! - finding those among the followers of a source, in time proportional to the smaller of both sets.
//!
//! Not responsible for:
//! - whether such a reader has missed a post (`engine::missed`).

use parking_lot::RwLock;
use roaring::RoaringBitmap;

use crate::feed::followers::{Sharding, Slice, SliceEnd};
use crate::id::SourceSlot;
use crate::state::sources::Source;

/// The set of these readers, by shard.
pub struct Notified {
    sharding: Sharding,
    by_shard: Box<[RwLock<RoaringBitmap>]>,
}

impl Notified {
    /// Creates the empty set.
    pub(super) fn new(sharding: Sharding) -> Self {
        Self { sharding, by_shard: (0..sharding.shards()).map(|_| RwLock::default()).collect() }
    }

    /// Adds a reader, or removes it.
    pub(super) fn set(&self, reader: SourceSlot, on: bool) {
        let shard = &self.by_shard[self.sharding.shard_of(reader)];
        let local = self.sharding.local(reader);
        // The rules of most readers change without this one.
        if shard.read().contains(local) == on {
            return;
        }
        let mut shard = shard.write();
        if on {
            shard.insert(local)
        } else {
            shard.remove(local)
        };
    }

    /// Returns the number of these readers.
    pub fn len(&self) -> u64 {
        self.by_shard.iter().map(|shard| shard.read().len()).sum()
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.by_shard.iter().all(|shard| shard.read().is_empty())
    }

    /// Appends the followers of a source who are in the set, hidden ones included.
    pub fn followers_of(&self, source: &Source, into: &mut Vec<SourceSlot>) {
        let (sharding, max) = (self.sharding, usize::MAX >> 1);
        let mut locals = Vec::new();
        for (shard, readers) in self.by_shard.iter().enumerate() {
            // A copy, since the set must not be locked while the followers are.
            let readers = readers.read().clone();
            if readers.is_empty() {
                continue;
            }
            locals.clear();
            let slice = Slice { sharding, shard, from: 0, active: &readers, max, scan_max: max };
            let end = source.followers().slice(slice, &mut locals);
            debug_assert!(matches!(end, SliceEnd::Done), "a slice without a limit has all");
            into.extend(locals.iter().map(|local| sharding.source(shard, *local)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::UnixMicros;
    use crate::feed::celebrity::CelebrityPolicy;
    use crate::feed::event::{Event, NewEdge};
    use crate::feed::rules::Rules;
    use crate::id::SourceId;
    use crate::state::world::World;

    #[test]
    fn only_followers_who_want_to_be_told_are_found_in_every_shard() {
        let (world, mut writer) = World::create(CelebrityPolicy::PushAll, Sharding::new(3));
        let id = |nth: usize| SourceId::new(&format!("r{nth}")).unwrap();
        let bob = SourceId::new("bob").unwrap();
        for nth in 0..200 {
            let edges = vec![NewEdge::new(id(nth), bob.clone())];
            writer.apply(&Event::Followed { edges, since: UnixMicros(nth as i64) });
            let rules = |notify| Rules { notify, ..Rules::default() };
            for notify in [nth % 7 == 0, nth % 5 == 0] {
                writer.apply(&Event::Ruled { reader: id(nth), rules: rules(notify) });
            }
        }
        let mut found = Vec::new();
        world.notified.followers_of(&world.sources.get(&bob).unwrap(), &mut found);
        let mut found: Vec<String> = found.iter().map(|slot| world.sources.at(*slot).id.to_string()).collect();
        let mut expected: Vec<String> = (0..200).step_by(5).map(|nth| id(nth).to_string()).collect();
        found.sort();
        expected.sort();
        assert_eq!(found, expected);
        assert_eq!(world.notified.len(), 40);
    }
}
