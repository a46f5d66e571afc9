//! The readers who request notifications of posts that they miss, by the rule `notify`.

use parking_lot::RwLock;
use roaring::RoaringBitmap;

use crate::feed::followers::{Sharding, Slice, SliceEnd};
use crate::id::SourceSlot;
use crate::state::sources::Source;

/// Maximum number of readers that are compared with the followers of a source while these are locked.
const READERS_COMPARED_MAX: usize = 1_024;

/// Maximum number of followers that are scanned at once: a fraction of a millisecond's work.
const FOLLOWERS_SCANNED_MAX: usize = 4 * READERS_COMPARED_MAX;

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

    /// Returns true if a reader is in the set.
    pub fn contains(&self, reader: SourceSlot) -> bool {
        self.by_shard[self.sharding.shard_of(reader)].read().contains(self.sharding.local(reader))
    }

    /// Appends all of these readers.
    pub fn all(&self, into: &mut Vec<SourceSlot>) {
        for (shard, readers) in self.by_shard.iter().enumerate() {
            into.extend(readers.read().iter().map(|local| self.sharding.source(shard, local)));
        }
    }

    /// Appends the followers of a source who are in the set, hidden ones included. They may change meanwhile: a reader who is in the set and
    /// follows throughout is appended exactly once.
    pub fn followers_of(&self, source: &Source, into: &mut Vec<SourceSlot>) {
        for shard in 0..self.by_shard.len() {
            let mut next = Some(0);
            while let Some(from) = next {
                next = self.some_followers_of(source, shard, from, into);
            }
        }
    }

    /// Appends a part of these followers: the readers of a shard from the number `from` on. Returns the number from which to continue, if
    /// there are more. The followers are locked only for the time of one part, because the command processor waits for the lock.
    fn some_followers_of(&self, source: &Source, shard: usize, from: u32, into: &mut Vec<SourceSlot>) -> Option<u32> {
        let (sharding, max) = (self.sharding, READERS_COMPARED_MAX);
        // Skips the readers before the next follower.
        let from = source.followers().first_from(from, shard, sharding)?;
        // A copy, since the set must not be locked while the followers are.
        let readers: RoaringBitmap = self.by_shard[shard].read().range(from..).take(max).collect();
        let last = readers.max()?;
        let mut locals = Vec::new();
        let slice = Slice { sharding, shard, from, active: &readers, max, scan_max: FOLLOWERS_SCANNED_MAX };
        let end = source.followers().slice(slice, &mut locals);
        into.extend(locals.iter().map(|local| sharding.source(shard, *local)));
        match end {
            SliceEnd::Resume(from) => Some(from),
            SliceEnd::Done => last.checked_add(1),
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
    fn only_followers_with_notifications_are_found_in_every_shard() {
        let (world, mut writer) = World::create(CelebrityPolicy::PushAll, Sharding::new(3));
        let id = |nth: usize| SourceId::new(&format!("r{nth}")).unwrap();
        let bob = SourceId::new("bob").unwrap();
        for nth in 0..200 {
            let edges = vec![NewEdge::new(id(nth), bob.clone())];
            writer.apply(&Event::Followed { edges, since: UnixMicros(nth as i64) });
            let rules = |notify| Rules { notify, ..Rules::default() };
            for notify in [nth % 7 == 0, nth % 5 == 0] {
                writer.apply(&Event::RulesChanged { reader: id(nth), rules: rules(notify) });
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
    #[test]
    fn followers_are_found_in_bounded_parts_during_follows_and_unfollows() {
        let sharding = Sharding::new(2);
        let (world, mut writer) = World::create(CelebrityPolicy::PushAll, sharding);
        let id = |nth: usize| SourceId::new(&format!("r{nth}")).unwrap();
        let bob = SourceId::new("bob").unwrap();
        let (count, since) = (4 * READERS_COMPARED_MAX, UnixMicros(1));
        let edges = (0..count).map(|nth| NewEdge::new(id(nth), bob.clone())).collect();
        writer.apply(&Event::Followed { edges, since });
        for nth in 0..count {
            writer.apply(&Event::RulesChanged { reader: id(nth), rules: Rules { notify: true, ..Rules::default() } });
        }
        let (source, mut found, mut parts, mut gone) = (world.sources.get(&bob).unwrap(), Vec::new(), 0, Vec::new());
        for shard in 0..2 {
            let mut next = Some(0);
            while let Some(from) = next {
                let before = found.len();
                next = world.notified.some_followers_of(&source, shard, from, &mut found);
                assert!(found.len() - before <= READERS_COMPARED_MAX);
                parts += 1;
                // A follower that no part has returned yet unfollows. No lock blocks the state machine between two parts.
                let left = (0..count).map(id).filter(|id| !gone.contains(id));
                let slot = |id: &SourceId| world.sources.get(id).unwrap().slot;
                if let Some(left) = left.rev().find(|id| !found.contains(&slot(id))) {
                    writer.apply(&Event::Unfollowed { follower: left.clone(), source: bob.clone(), keep_until: None });
                    gone.push(left);
                }
            }
        }
        assert!(parts >= 4 && !gone.is_empty(), "{parts} parts, {gone:?}");
        let mut expected: Vec<SourceSlot> =
            (0..count).map(id).filter(|id| !gone.contains(id)).map(|id| world.sources.get(&id).unwrap().slot).collect();
        found.sort();
        expected.sort();
        assert_eq!(found, expected);
    }
}
