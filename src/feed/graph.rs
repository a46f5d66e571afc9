//! The follow graph, one source at a time: whom it follows, and who follows it.
//!
//! Responsible for:
//! - the edges of one follower ([`Following`]), with a version that tells a cache when to look again;
//! - the followers of one source ([`Followers`]), in age order for people and in slot order, by shard, for fan-out.
//!
//! Not responsible for:
//! - finding a source, keeping both sides of an edge in step (`state::world`), limits (`actor::scribe`).

use roaring::RoaringBitmap;

use crate::clock::UnixMicros;
use crate::feed::position::Direction;
use crate::feed::runs::SortedRuns;
use crate::id::SourceSlot;

/// Below this many followers a sorted vector is smaller than bitmaps per shard.
const SMALL_FOLLOWERS_MAX: usize = 64;

/// One followed source, as its follower keeps it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Edge {
    /// The followed source.
    pub source: SourceSlot,
    /// A virtual follow: it works, but shows in no list and no count.
    pub hidden: bool,
    /// When it was made. No two edges are made at the same instant, and a later one never has an earlier instant.
    pub since: UnixMicros,
}

/// Whom one reader follows.
#[derive(Clone, Debug)]
pub struct Following {
    /// Sorted by source.
    edges: Vec<Edge>,
    hidden: usize,
    version: u64,
    last_made: UnixMicros,
}

impl Default for Following {
    fn default() -> Self {
        Self { edges: Vec::new(), hidden: 0, version: 0, last_made: UnixMicros(i64::MIN) }
    }
}

impl Following {
    /// Adds an edge; false if there is one, which then stays as it is.
    pub fn insert(&mut self, source: SourceSlot, since: UnixMicros, hidden: bool) -> bool {
        let Err(at) = self.find(source) else { return false };
        self.version += 1;
        self.last_made = self.last_made.max(since);
        self.edges.insert(at, Edge { source, hidden, since });
        self.hidden += usize::from(hidden);
        true
    }

    /// Takes an edge out and returns it.
    pub fn remove(&mut self, source: SourceSlot) -> Option<Edge> {
        let at = self.find(source).ok()?;
        self.version += 1;
        let edge = self.edges.remove(at);
        self.hidden -= usize::from(edge.hidden);
        Some(edge)
    }

    /// The edge to `source`.
    pub fn get(&self, source: SourceSlot) -> Option<&Edge> {
        self.find(source).ok().map(|at| &self.edges[at])
    }

    /// Whether there is an edge to `source`, hidden or not.
    pub fn contains(&self, source: SourceSlot) -> bool {
        self.find(source).is_ok()
    }

    /// The edges that were kept somewhere, sorted by source.
    pub fn restored(edges: Vec<Edge>) -> Self {
        let last_made = edges.iter().map(|edge| edge.since).max().unwrap_or(UnixMicros(i64::MIN));
        Self { hidden: edges.iter().filter(|edge| edge.hidden).count(), version: 1, last_made, edges }
    }

    /// All edges, by source.
    pub fn edges(&self) -> &[Edge] {
        &self.edges
    }

    /// All followed sources, hidden ones too, by slot.
    pub fn sources(&self) -> impl Iterator<Item = SourceSlot> + Clone {
        self.edges.iter().map(|edge| edge.source)
    }

    /// The sources whose edges were made after `since`.
    pub fn made_after(&self, since: UnixMicros) -> impl Iterator<Item = SourceSlot> {
        self.edges.iter().filter(move |edge| edge.since > since).map(|edge| edge.source)
    }

    /// When the last edge was made, whether it is still there or not.
    pub fn last_made(&self) -> UnixMicros {
        self.last_made
    }

    /// Grows with every change.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// How many edges there are, hidden ones too.
    pub fn len(&self) -> usize {
        self.edges.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.edges.is_empty()
    }

    /// How many edges show.
    pub fn visible_len(&self) -> usize {
        self.edges.len() - self.hidden
    }

    /// At most `max` edges that show and were made before `before`, newest first.
    pub fn newest_before(&self, before: UnixMicros, max: usize) -> Vec<Edge> {
        let mut edges: Vec<Edge> =
            self.edges.iter().filter(|edge| !edge.hidden && edge.since < before).copied().collect();
        edges.sort_unstable_by_key(|edge| std::cmp::Reverse(edge.since));
        edges.truncate(max);
        edges
    }

    /// Bytes on the heap, without the allocator's own.
    pub fn heap_bytes(&self) -> usize {
        self.edges.capacity() * size_of::<Edge>()
    }

    fn find(&self, source: SourceSlot) -> Result<usize, usize> {
        self.edges.binary_search_by_key(&source, |edge| edge.source)
    }
}

/// How sources are dealt out to shards: round-robin by slot, so that the slots of one shard are dense again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sharding {
    shards: u32,
}

impl Sharding {
    /// Deals sources out to `shards` shards, at least one.
    pub fn new(shards: usize) -> Self {
        Self { shards: u32::try_from(shards.max(1)).unwrap_or(u32::MAX) }
    }

    /// How many shards there are.
    pub fn shards(self) -> usize {
        self.shards as usize
    }

    /// The shard of a source.
    pub fn shard_of(self, source: SourceSlot) -> usize {
        (source.0 % self.shards) as usize
    }

    /// The number of a source within its shard.
    pub fn local(self, source: SourceSlot) -> u32 {
        source.0 / self.shards
    }

    /// The source that has number `local` in `shard`.
    pub fn source(self, shard: usize, local: u32) -> SourceSlot {
        SourceSlot(local * self.shards + shard as u32)
    }
}

/// Who follows one source.
#[derive(Clone, Debug, Default)]
pub struct Followers {
    /// Those whose edge shows, by the instant it was made.
    by_age: SortedRuns<(UnixMicros, SourceSlot)>,
    recipients: Recipients,
}

/// Everyone a post goes to, in slot order.
#[derive(Clone, Debug)]
enum Recipients {
    Few(Vec<SourceSlot>),
    /// By shard: the numbers within the shard.
    Many(Vec<RoaringBitmap>),
}

impl Default for Recipients {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

/// Where a slice of followers ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SliceEnd {
    /// All followers of the shard were looked at.
    Done,
    /// Go on with the follower of this number within the shard.
    Resume(u32),
}

impl Followers {
    /// Adds a follower; false if it was there.
    pub fn insert(&mut self, follower: SourceSlot, since: UnixMicros, hidden: bool, sharding: Sharding) -> bool {
        if !self.recipients.insert(follower, sharding) {
            return false;
        }
        if !hidden {
            self.by_age.insert((since, follower));
        }
        true
    }

    /// Takes a follower out, by the edge it had.
    pub fn remove(&mut self, follower: SourceSlot, since: UnixMicros, sharding: Sharding) -> bool {
        self.by_age.remove(&(since, follower));
        self.recipients.remove(follower, sharding)
    }

    /// How many followers a post goes to, hidden ones too.
    pub fn len(&self) -> u64 {
        match &self.recipients {
            Recipients::Few(slots) => slots.len() as u64,
            Recipients::Many(shards) => shards.iter().map(RoaringBitmap::len).sum(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many followers show.
    pub fn visible_len(&self) -> usize {
        self.by_age.len()
    }

    /// At most `max` followers that show and whose edge was made before `before`, newest first.
    pub fn newest_before(&self, before: UnixMicros, max: usize) -> Vec<(UnixMicros, SourceSlot)> {
        let mut newest = Vec::with_capacity(max.min(self.by_age.len()));
        let bounds = ((UnixMicros(i64::MIN), SourceSlot(0)), (before, SourceSlot(0)));
        self.by_age.copy_between(bounds.0, bounds.1, Direction::Older, max, &mut newest);
        newest
    }

    /// Appends to `into` the numbers within `shard` of followers that are `active`, in ascending order from number `from` on:
    /// at most `max` of them, after at most `scan_max` looked at.
    ///
    /// A follower list may change between two slices: whoever follows throughout is met exactly once.
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

    /// Whether a post has anyone to go to in `shard`.
    pub fn reaches(&self, shard: usize, sharding: Sharding) -> bool {
        match &self.recipients {
            Recipients::Few(slots) => slots.iter().any(|slot| sharding.shard_of(*slot) == shard),
            Recipients::Many(shards) => shards.get(shard).is_some_and(|all| !all.is_empty()),
        }
    }

    /// Bytes on the heap, without the allocator's own.
    pub fn heap_bytes(&self) -> usize {
        let recipients = match &self.recipients {
            Recipients::Few(slots) => slots.capacity() * size_of::<SourceSlot>(),
            Recipients::Many(shards) => shards.iter().map(|all| all.serialized_size() + size_of_val(all)).sum(),
        };
        self.by_age.heap_bytes() + recipients
    }
}

/// Which followers a slice of a fan-out asks for.
#[derive(Clone, Copy, Debug)]
pub struct Slice<'a> {
    /// How sources are dealt out.
    pub sharding: Sharding,
    /// The shard asked for.
    pub shard: usize,
    /// The first number within the shard to look at.
    pub from: u32,
    /// The numbers within the shard whose readers have a live actor.
    pub active: &'a RoaringBitmap,
    /// Recipients at most.
    pub max: usize,
    /// Followers looked at, at most.
    pub scan_max: usize,
}

/// Walks two sorted sets by leaps: the work follows the smaller one.
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

    /// All slices of all shards, as slots.
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
            let all = kept.union(&extra).copied().collect();
            let mut many = followers_of(&all, sharding);
            for slot in &extra {
                prop_assert!(many.remove(SourceSlot(*slot), UnixMicros(i64::from(*slot)), sharding));
            }
            let few = followers_of(&kept, sharding);
            prop_assert_eq!((many.len(), many.visible_len()), (few.len(), few.visible_len()));
            let everyone = UnixMicros(i64::MAX);
            prop_assert_eq!(many.newest_before(everyone, 500), few.newest_before(everyone, 500));
        }
    }

    #[test]
    fn hidden_edges_work_but_do_not_show() {
        let mut following = Following::default();
        following.insert(SourceSlot(5), UnixMicros(1), true);
        following.insert(SourceSlot(3), UnixMicros(2), false);
        assert!(following.contains(SourceSlot(5)));
        assert_eq!((following.len(), following.visible_len()), (2, 1));
        let shown = following.newest_before(UnixMicros(9), 9);
        assert!(shown.iter().map(|edge| edge.source).eq([SourceSlot(3)]));
    }

    #[test]
    fn an_edge_made_again_is_a_new_one() {
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
}
