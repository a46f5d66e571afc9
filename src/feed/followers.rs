//! The follow graph from the side of the sources: the followers of each source.
//!
//! Responsible for:
//! - the followers of one source ([`Followers`]): by age for listings, and by slot and shard for fan-out.
//!
//! Not responsible for:
//! - the sources that a reader follows (`feed::following`), keeping both sides of an edge consistent (`state::world`).

use roaring::RoaringBitmap;

use crate::clock::UnixMicros;
use crate::feed::position::Direction;
use crate::feed::runs::SortedRuns;
use crate::feed::runs::packed::{Key, unzigzag, zigzag};
use crate::id::SourceSlot;

/// Up to this many followers, a sorted vector is smaller than one bitmap per shard.
const SMALL_FOLLOWERS_MAX: usize = 64;

/// The assignment of sources to shards: round-robin by slot, so that the slots of one shard are dense again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sharding {
    shards: u32,
}

impl Sharding {
    /// Distributes sources over `shards` shards, at least one.
    pub fn new(shards: usize) -> Self {
        Self { shards: u32::try_from(shards.max(1)).unwrap_or(u32::MAX) }
    }

    /// Returns the number of shards.
    pub fn shards(self) -> usize {
        self.shards as usize
    }

    /// Returns the shard of a source.
    pub fn shard_of(self, source: SourceSlot) -> usize {
        (source.0 % self.shards) as usize
    }

    /// Returns the number of a source within its shard.
    pub fn local(self, source: SourceSlot) -> u32 {
        source.0 / self.shards
    }

    /// Returns the source with the number `local` in `shard`.
    pub fn source(self, shard: usize, local: u32) -> SourceSlot {
        SourceSlot(local * self.shards + shard as u32)
    }
}

/// The followers of one source.
#[derive(Clone, Debug, Default)]
pub struct Followers {
    /// The visible followers, by the instant at which the edge was created.
    by_age: SortedRuns<(UnixMicros, SourceSlot)>,
    recipients: Recipients,
}

/// Packs the time, and the difference of the slot.
impl Key for (UnixMicros, SourceSlot) {
    type Numbers = [u64; 2];

    fn count_from(self, base: Self, _: u8) -> [u64; 2] {
        let time = self.0.0.wrapping_sub(base.0.0).cast_unsigned();
        [time, zigzag(u64::from(self.1.0).wrapping_sub(u64::from(base.1.0)))]
    }

    fn count_to(base: Self, [time, slot]: [u64; 2], _: u8) -> Self {
        let slot = u64::from(base.1.0).wrapping_add(unzigzag(slot));
        (UnixMicros(base.0.0.wrapping_add(time.cast_signed())), SourceSlot(slot as u32))
    }
}

/// All followers that receive a post, hidden ones included, in slot order.
#[derive(Clone, Debug)]
enum Recipients {
    Few(Vec<SourceSlot>),
    /// One bitmap for each shard, of the numbers within the shard.
    Many(Vec<RoaringBitmap>),
}

impl Default for Recipients {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

/// The place at which a slice of followers ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SliceEnd {
    /// All followers of the shard were scanned.
    Done,
    /// Continue with the follower of this number within the shard.
    Resume(u32),
}

impl Followers {
    /// Adds a follower. Returns false if it was there.
    pub fn insert(&mut self, follower: SourceSlot, since: UnixMicros, hidden: bool, sharding: Sharding) -> bool {
        if !self.recipients.insert(follower, sharding) {
            return false;
        }
        if !hidden {
            self.by_age.insert((since, follower));
        }
        true
    }

    /// Removes a follower. `since` is the creation instant of its edge. Returns false if it was not there.
    pub fn remove(&mut self, follower: SourceSlot, since: UnixMicros, sharding: Sharding) -> bool {
        self.by_age.remove(&(since, follower));
        self.recipients.remove(follower, sharding)
    }

    /// Returns the number of followers that receive a post, hidden ones included.
    pub fn len(&self) -> u64 {
        match &self.recipients {
            Recipients::Few(slots) => slots.len() as u64,
            Recipients::Many(shards) => shards.iter().map(RoaringBitmap::len).sum(),
        }
    }

    /// Returns true if there are no followers.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of visible followers.
    pub fn visible_len(&self) -> usize {
        self.by_age.len()
    }

    /// Returns at most `max` visible followers whose edge was created before `before`, newest first.
    pub fn newest_before(&self, before: UnixMicros, max: usize) -> Vec<(UnixMicros, SourceSlot)> {
        let mut newest = Vec::with_capacity(max.min(self.by_age.len()));
        let bounds = ((UnixMicros(i64::MIN), SourceSlot(0)), (before, SourceSlot(0)));
        self.by_age.copy_between(bounds.0, bounds.1, Direction::Older, max, &mut newest);
        newest
    }

    /// Appends to `into` the numbers within the shard of the active followers, in ascending order from number `from` on: at most `max` of
    /// them, after at most `scan_max` were scanned.
    ///
    /// The followers may change between two slices: a follower that follows throughout is returned exactly once.
    pub fn slice(&self, of: Slice<'_>, into: &mut Vec<u32>) -> SliceEnd {
        match &self.recipients {
            Recipients::Few(slots) => {
                let shard = slots.iter().filter(|slot| of.sharding.shard_of(**slot) == of.shard);
                let locals = shard.map(|slot| of.sharding.local(*slot)).skip_while(|local| *local < of.from);
                into.extend(locals.filter(|local| of.active.contains(*local)));
                SliceEnd::Done
            }
            Recipients::Many(shards) => shards.get(of.shard).map_or(SliceEnd::Done, |all| intersect(all, of, into)),
        }
    }

    /// Returns true if a post has any recipient in `shard`.
    pub fn reaches(&self, shard: usize, sharding: Sharding) -> bool {
        match &self.recipients {
            Recipients::Few(slots) => slots.iter().any(|slot| sharding.shard_of(*slot) == shard),
            Recipients::Many(shards) => shards.get(shard).is_some_and(|all| !all.is_empty()),
        }
    }

    /// Returns the bytes on the heap, without the overhead of the allocator.
    pub fn heap_bytes(&self) -> usize {
        let recipients = match &self.recipients {
            Recipients::Few(slots) => slots.capacity() * size_of::<SourceSlot>(),
            Recipients::Many(shards) => shards.iter().map(|all| bitmap_bytes(all) + size_of_val(all)).sum(),
        };
        self.by_age.heap_bytes() + recipients
    }
}

/// Bytes of a bitmap for each of its containers, which hold the numbers of one range of 65,536: measured with `roaring` 0.12 on 64 bits.
const CONTAINER_BYTES: usize = 40;

/// Bytes of a container that holds more than 4,096 numbers: one bit for each number of its range.
const BITSET_BYTES: usize = 65_536 / 8;

/// Returns the bytes of a bitmap on the heap, without the overhead of the allocator. Its serialized size is no estimate: a follower that is
/// alone in its range takes ten bytes there, and sixty here.
fn bitmap_bytes(bitmap: &RoaringBitmap) -> usize {
    let statistics = bitmap.statistics();
    let containers = match statistics.n_containers as usize {
        0 => 0,
        // The containers are in a vector whose capacity doubles.
        some => some.next_power_of_two().max(4),
    };
    // The statistics count four bytes of capacity for each number of an array; it takes two.
    let arrays = statistics.n_bytes_array_containers as usize / 2;
    let bitsets = statistics.n_bitset_containers as usize * BITSET_BYTES;
    containers * CONTAINER_BYTES + arrays + bitsets + statistics.n_bytes_run_containers as usize
}

/// The followers that a slice of a fan-out requests.
#[derive(Clone, Copy, Debug)]
pub struct Slice<'a> {
    /// The assignment of sources to shards.
    pub sharding: Sharding,
    /// The requested shard.
    pub shard: usize,
    /// The first number within the shard to scan.
    pub from: u32,
    /// The numbers within the shard of the readers that have an actor.
    pub active: &'a RoaringBitmap,
    /// Maximum number of recipients.
    pub max: usize,
    /// Maximum number of followers that are scanned.
    pub scan_max: usize,
}

/// Intersects two sorted sets by galloping: the work is proportional to the smaller one.
fn intersect(followers: &RoaringBitmap, of: Slice<'_>, into: &mut Vec<u32>) -> SliceEnd {
    let full = into.len() + of.max;
    let mut followers = followers.range(of.from..);
    let mut active = of.active.range(of.from..);
    let (mut follower, mut reader) = (followers.next(), active.next());
    for _ in 0..of.scan_max {
        let (Some(f), Some(r)) = (follower, reader) else { return SliceEnd::Done };
        if into.len() == full {
            return SliceEnd::Resume(f);
        }
        match f.cmp(&r) {
            std::cmp::Ordering::Equal => {
                into.push(f);
                (follower, reader) = (followers.next(), active.next());
            }
            std::cmp::Ordering::Less => {
                followers.advance_to(r);
                follower = followers.next();
            }
            std::cmp::Ordering::Greater => {
                active.advance_to(f);
                reader = active.next();
            }
        }
    }
    follower.map_or(SliceEnd::Done, SliceEnd::Resume)
}

impl Recipients {
    fn insert(&mut self, follower: SourceSlot, sharding: Sharding) -> bool {
        match self {
            Self::Few(slots) => {
                let Err(at) = slots.binary_search(&follower) else { return false };
                slots.insert(at, follower);
                if slots.len() > SMALL_FOLLOWERS_MAX {
                    *self = Self::split(slots, sharding);
                }
                true
            }
            Self::Many(shards) => shards[sharding.shard_of(follower)].insert(sharding.local(follower)),
        }
    }

    fn remove(&mut self, follower: SourceSlot, sharding: Sharding) -> bool {
        match self {
            Self::Few(slots) => match slots.binary_search(&follower) {
                Ok(at) => {
                    slots.remove(at);
                    true
                }
                Err(_) => false,
            },
            Self::Many(shards) => shards[sharding.shard_of(follower)].remove(sharding.local(follower)),
        }
    }

    fn split(slots: &[SourceSlot], sharding: Sharding) -> Self {
        let mut shards = vec![RoaringBitmap::new(); sharding.shards()];
        for slot in slots {
            shards[sharding.shard_of(*slot)].insert(sharding.local(*slot));
        }
        Self::Many(shards)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn followers_of(slots: &BTreeSet<u32>, sharding: Sharding) -> Followers {
        let mut followers = Followers::default();
        for slot in slots {
            assert!(followers.insert(SourceSlot(*slot), UnixMicros(i64::from(*slot)), slot % 7 == 0, sharding));
        }
        followers
    }

    /// Returns all slices of all shards, as slots.
    fn sliced(
        followers: &Followers,
        active: &[RoaringBitmap],
        sharding: Sharding,
        max: usize,
        scan_max: usize,
    ) -> Vec<u32> {
        let mut found = Vec::new();
        for (shard, active) in active.iter().enumerate() {
            let mut from = 0;
            loop {
                let mut slice = Vec::new();
                let of = Slice { sharding, shard, from, active, max, scan_max };
                let end = followers.slice(of, &mut slice);
                found.extend(slice.into_iter().map(|local| sharding.source(shard, local).0));
                match end {
                    SliceEnd::Done => break,
                    SliceEnd::Resume(next) => from = next,
                }
            }
        }
        found.sort_unstable();
        found
    }

    /// Returns the bytes on the heap per follower of a source whose followers have numbers `step` apart.
    fn bytes_each(followers: u32, step: u32) -> f64 {
        let (mut all, sharding) = (Followers::default(), Sharding::new(2));
        (0..followers).for_each(|nth| assert!(all.insert(SourceSlot(nth * step), UnixMicros(0), true, sharding)));
        all.heap_bytes() as f64 / f64::from(followers)
    }

    /// The figures in brackets are measurements of the resident memory of thousands of such sources, with mimalloc.
    #[test]
    fn scattered_followers_count_with_the_memory_they_take_and_not_with_that_of_a_file() {
        // Each alone in its container (62.7), ten to a container (8.9), one bit of eight (0.67), every number (0.27).
        for (followers, step, measured) in
            [(400, 131_072, 62.7), (4_000, 13_106, 8.9), (60_000, 8, 0.67), (60_000, 1, 0.27)]
        {
            let estimated = bytes_each(followers, step);
            assert!(
                (0.75..=1.1).contains(&(estimated / measured)),
                "{estimated:.1} of {measured} for each of {followers} by {step}"
            );
        }
    }

    proptest! {
        #[test]
        fn slices_meet_every_active_follower_once(
            followers in prop::collection::btree_set(0..500u32, 0..300),
            active in prop::collection::btree_set(0..500u32, 0..300),
            shards in 1..5usize,
            max in 1..70usize,
            scan_max in 2..100usize,
        ) {
            let sharding = Sharding::new(shards);
            let mut by_shard = vec![RoaringBitmap::new(); shards];
            for slot in &active {
                by_shard[sharding.shard_of(SourceSlot(*slot))].insert(sharding.local(SourceSlot(*slot)));
            }
            let found = sliced(&followers_of(&followers, sharding), &by_shard, sharding, max, scan_max);
            prop_assert!(found.iter().eq(followers.intersection(&active)));
        }

        #[test]
        fn both_forms_of_a_follower_list_agree(
            kept in prop::collection::btree_set(0..200u32, 0..40),
            extra in prop::collection::btree_set(200..500u32, 70..100),
        ) {
            let sharding = Sharding::new(3);
            let all: BTreeSet<u32> = kept.union(&extra).copied().collect();
            let mut many = followers_of(&all, sharding);
            let visible = all.iter().rev().filter(|slot| *slot % 7 != 0);
            let listed = many.newest_before(UnixMicros(i64::MAX), 500);
            prop_assert!(listed.into_iter().eq(visible.map(|slot| (UnixMicros(i64::from(*slot)), SourceSlot(*slot)))));
            for slot in &extra {
                prop_assert!(many.remove(SourceSlot(*slot), UnixMicros(i64::from(*slot)), sharding));
            }
            let few = followers_of(&kept, sharding);
            prop_assert_eq!((many.len(), many.visible_len()), (few.len(), few.visible_len()));
            let everyone = UnixMicros(i64::MAX);
            prop_assert_eq!(many.newest_before(everyone, 500), few.newest_before(everyone, 500));
        }
    }
}
