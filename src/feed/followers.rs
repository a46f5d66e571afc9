//! The follow graph from the side of the sources: the followers of each source.
//!
//! Responsible for:
//! - the followers of one source ([`Followers`]): by age for listings, and by slot and shard for fan-out.
//!
//! Not responsible for:
//! - the sources that a reader follows (`feed::following`), keeping both sides of an edge consistent (`state::world`).

mod age_runs;
mod slot_set;

use roaring::RoaringBitmap;

use crate::clock::UnixMicros;
use crate::feed::followers::age_runs::AgeRuns;
use crate::feed::followers::slot_set::{Cursor, RUN_MAX, Run, SlotSet, insert_at, remove_at, run_bytes};
use crate::feed::heap::allocated;
use crate::id::SourceSlot;

/// Up to this many followers are one run, which is listed as a whole.
const FEW_MAX: usize = RUN_MAX;

/// With fewer followers than this, a source that had many has few again.
const MANY_MIN: usize = FEW_MAX / 2;

/// The assignment of sources to shards: round-robin by slot, so that the slots of one shard are dense again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sharding {
    shards: u32,
    /// The numbers of places of each shard.
    places: u32,
}

impl Sharding {
    /// Distributes sources over `shards` shards, at least one.
    pub fn new(shards: usize) -> Self {
        let shards = u32::try_from(shards.max(1)).unwrap_or(u32::MAX);
        Self { shards, places: u32::MAX / shards }
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

    /// Returns the place of a source in the order of shards, and of numbers within each.
    fn place(self, source: SourceSlot) -> u32 {
        self.first_place(self.shard_of(source)) + self.local(source)
    }

    fn first_place(self, shard: usize) -> u32 {
        shard as u32 * self.places
    }

    fn source_at(self, place: u32) -> SourceSlot {
        self.source((place / self.places) as usize, place % self.places)
    }
}

/// The followers of one source. The followers' side has the instants of the edges, and which of them are hidden.
#[derive(Clone, Debug, Default)]
pub struct Followers(Form);

#[derive(Clone, Debug)]
enum Form {
    /// At most `FEW_MAX`.
    Few(Few),
    /// More than that, or not much fewer after some left.
    Many(Box<Many>),
}

#[derive(Clone, Debug)]
struct Many {
    /// The places of all followers, hidden ones included.
    places: SlotSet,
    /// The visible followers.
    by_age: AgeRuns,
}

/// The number of hidden followers, then the sorted places of all; nothing if there are none. The number is in here because most sources
/// have few followers or none, and one more field would cost each of them 16 bytes.
#[derive(Clone, Debug, Default)]
struct Few(Run);

impl Few {
    fn of(hidden: usize, places: impl Iterator<Item = u32>) -> Self {
        Self(std::iter::once(hidden as u32).chain(places).collect())
    }

    fn hidden(&self) -> usize {
        self.0.first().map_or(0, |hidden| *hidden as usize)
    }

    fn places(&self) -> &[u32] {
        self.0.get(1..).unwrap_or_default()
    }

    /// Adds a place. Returns false if it was there.
    fn insert(&mut self, place: u32, hidden: bool) -> bool {
        let Err(at) = self.places().binary_search(&place) else { return false };
        if self.0.is_empty() {
            self.0 = Box::new([0]);
        }
        insert_at(&mut self.0, at + 1, place);
        self.0[0] += u32::from(hidden);
        true
    }

    /// Removes a place. Returns false if it was not there.
    fn remove(&mut self, place: u32, hidden: bool) -> bool {
        let Ok(at) = self.places().binary_search(&place) else { return false };
        remove_at(&mut self.0, at + 1);
        self.0[0] = self.0[0].saturating_sub(u32::from(hidden));
        if self.places().is_empty() {
            self.0 = Run::default();
        }
        true
    }
}

impl Default for Form {
    fn default() -> Self {
        Self::Few(Few::default())
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
    /// Adds a follower. Returns false if it was there. [`Followers::must_split`] is asked before.
    pub fn insert(&mut self, follower: SourceSlot, since: UnixMicros, hidden: bool, sharding: Sharding) -> bool {
        let place = sharding.place(follower);
        match &mut self.0 {
            Form::Few(few) => few.insert(place, hidden),
            Form::Many(many) => {
                let is_new = many.places.insert(place);
                if is_new && !hidden {
                    many.by_age.insert(since, follower);
                }
                is_new
            }
        }
    }

    /// Returns the followers whose edges must be looked up, for [`Followers::split`], before an edge of the instant `since` is added.
    pub fn must_split(&self, since: UnixMicros, sharding: Sharding) -> Option<Vec<SourceSlot>> {
        match &self.0 {
            Form::Few(few) => {
                let all = || few.places().iter().map(|place| sharding.source_at(*place)).collect();
                (few.places().len() >= FEW_MAX).then(all)
            }
            Form::Many(many) => many.by_age.full_run(since).map(|run| run.iter().copied().map(SourceSlot).collect()),
        }
    }

    /// Makes space for an edge of the instant `since`. `visible` are those that [`Followers::must_split`] returned and whose edges are
    /// visible, with the instants of these.
    pub fn split(&mut self, since: UnixMicros, visible: Vec<(UnixMicros, SourceSlot)>) {
        match &mut self.0 {
            Form::Few(few) => {
                let places = SlotSet::of(few.places().into());
                self.0 = Form::Many(Box::new(Many { places, by_age: AgeRuns::of(visible) }));
            }
            Form::Many(many) => many.by_age.split(since, visible),
        }
    }

    /// Removes a follower, with the creation instant of its edge and whether that was hidden. Returns false if it was not there.
    pub fn remove(&mut self, follower: SourceSlot, since: UnixMicros, hidden: bool, sharding: Sharding) -> bool {
        let place = sharding.place(follower);
        match &mut self.0 {
            Form::Few(few) => few.remove(place, hidden),
            Form::Many(many) => {
                let was_there = many.places.remove(place);
                if was_there && !hidden {
                    many.by_age.remove(since, follower);
                }
                if many.places.len() < MANY_MIN {
                    let hidden = many.places.len().saturating_sub(many.by_age.len());
                    self.0 = Form::Few(Few::of(hidden, many.places.iter()));
                }
                was_there
            }
        }
    }

    /// Returns the number of followers that receive a post, hidden ones included.
    pub fn len(&self) -> u64 {
        match &self.0 {
            Form::Few(few) => few.places().len() as u64,
            Form::Many(many) => many.places.len() as u64,
        }
    }

    /// Returns true if there are no followers.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of visible followers.
    pub fn visible_len(&self) -> usize {
        match &self.0 {
            Form::Few(few) => few.places().len().saturating_sub(few.hidden()),
            Form::Many(many) => many.by_age.len(),
        }
    }

    /// Returns an instant before `before`, and the followers whose visible edges are from there on and before `before`. They are in no
    /// order, and others may be among them. Returns none if no older edges are left.
    pub fn before(&self, before: UnixMicros, sharding: Sharding) -> Option<(UnixMicros, Vec<SourceSlot>)> {
        match &self.0 {
            Form::Few(few) => {
                let all = || few.places().iter().map(|place| sharding.source_at(*place)).collect();
                (before > UnixMicros(i64::MIN)).then(|| (UnixMicros(i64::MIN), all()))
            }
            Form::Many(many) => {
                let (from, slots) = many.by_age.before(before)?;
                Some((from, slots.iter().copied().map(SourceSlot).collect()))
            }
        }
    }

    /// Returns about `max` followers, hidden ones included, evenly spread over all: the same ones until the followers change.
    pub fn sample(&self, max: usize, sharding: Sharding) -> Vec<SourceSlot> {
        let step = (self.len() as usize).div_ceil(max).max(1);
        let places = match &self.0 {
            Form::Few(few) => few.places().iter().step_by(step).copied().collect(),
            Form::Many(many) => many.places.every(step),
        };
        places.into_iter().map(|place| sharding.source_at(place)).collect()
    }

    /// Appends to `into` the numbers within the shard of the active followers, in ascending order from number `from` on: at most `max` of
    /// them, after at most `scan_max` were scanned.
    ///
    /// The followers may change between two slices: a follower that follows throughout is returned exactly once.
    pub fn slice(&self, of: Slice<'_>, into: &mut Vec<u32>) -> SliceEnd {
        intersect(self.from(of.sharding.first_place(of.shard).saturating_add(of.from)), of, into)
    }

    /// Returns true if a post has any recipient in `shard`.
    pub fn reaches(&self, shard: usize, sharding: Sharding) -> bool {
        let first = sharding.first_place(shard);
        self.from(first).next().is_some_and(|place| place - first < sharding.places)
    }

    /// Returns the bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        match &self.0 {
            Form::Few(few) => run_bytes(&few.0),
            Form::Many(many) => allocated(size_of::<Many>()) + many.places.heap_bytes() + many.by_age.heap_bytes(),
        }
    }

    fn from(&self, place: u32) -> Cursor<'_> {
        match &self.0 {
            Form::Few(few) => Cursor::within(few.places(), place),
            Form::Many(many) => many.places.from(place),
        }
    }
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
fn intersect(mut followers: Cursor<'_>, of: Slice<'_>, into: &mut Vec<u32>) -> SliceEnd {
    let (full, first) = (into.len() + of.max, of.sharding.first_place(of.shard));
    let local = |place: Option<u32>| place.map(|place| place - first).filter(|local| *local < of.sharding.places);
    let mut active = of.active.range(of.from..);
    let (mut follower, mut reader) = (local(followers.next()), active.next());
    for _ in 0..of.scan_max {
        let (Some(f), Some(r)) = (follower, reader) else { return SliceEnd::Done };
        if into.len() == full {
            return SliceEnd::Resume(f);
        }
        match f.cmp(&r) {
            std::cmp::Ordering::Equal => {
                into.push(f);
                (follower, reader) = (local(followers.next()), active.next());
            }
            std::cmp::Ordering::Less => {
                followers.advance_to(first + r);
                follower = local(followers.next());
            }
            std::cmp::Ordering::Greater => {
                active.advance_to(f);
                reader = active.next();
            }
        }
    }
    follower.map_or(SliceEnd::Done, SliceEnd::Resume)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    /// Edges of one source by follower: the instant, and true if it is hidden. The followers' side of the world.
    type Edges = BTreeMap<SourceSlot, (i64, bool)>;

    fn insert(
        followers: &mut Followers,
        edges: &Edges,
        slot: u32,
        since: i64,
        hidden: bool,
        sharding: Sharding,
    ) -> bool {
        if let Some(run) = followers.must_split(UnixMicros(since), sharding) {
            let visible = run.iter().filter(|slot| !edges[slot].1).map(|slot| (UnixMicros(edges[slot].0), *slot));
            followers.split(UnixMicros(since), visible.collect());
        }
        followers.insert(SourceSlot(slot), UnixMicros(since), hidden, sharding)
    }

    fn followers_of(slots: &BTreeSet<u32>, sharding: Sharding) -> Followers {
        let (mut followers, mut edges) = (Followers::default(), Edges::new());
        for slot in slots {
            let (since, hidden) = (i64::from(*slot), slot % 7 == 0);
            assert!(insert(&mut followers, &edges, *slot, since, hidden, sharding));
            edges.insert(SourceSlot(*slot), (since, hidden));
        }
        followers
    }

    /// Returns all visible followers, youngest edge first.
    fn listed(followers: &Followers, edges: &Edges, sharding: Sharding) -> Vec<(i64, u32)> {
        let (mut listed, mut until) = (Vec::new(), UnixMicros(i64::MAX));
        while let Some((from, slots)) = followers.before(until, sharding) {
            let visible = slots.into_iter().filter(|slot| !edges[slot].1).map(|slot| (edges[&slot].0, slot.0));
            let mut visible: Vec<_> = visible.filter(|(since, _)| (from.0..until.0).contains(since)).collect();
            visible.sort_unstable_by(|a, b| b.cmp(a));
            listed.append(&mut visible);
            until = from;
        }
        listed
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

    #[test]
    fn a_follower_takes_four_bytes_for_its_place_and_four_for_its_age_however_scattered_it_is() {
        let sharding = Sharding::new(2);
        for (count, step, most) in [(200, 1, 4.5), (200, 131_072, 4.5), (6_000, 1, 8.5), (6_000, 100_003, 8.5)] {
            let slots: BTreeSet<u32> = (0..count).map(|nth| nth * step).collect();
            let each = followers_of(&slots, sharding).heap_bytes() as f64 / f64::from(count);
            assert!(each <= most, "{each:.1} bytes for each of {count} by {step}");
        }
    }

    #[derive(Clone, Debug)]
    enum Op {
        Follow(u32, bool),
        /// Follows by an edge that is older than others, as a restart does.
        FollowLate(u32, i64),
        FollowMany(u32, u32),
        Unfollow(u32),
        UnfollowMany(u32, u32),
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            4 => (0..2_000u32, any::<bool>()).prop_map(|(slot, hidden)| Op::Follow(slot, hidden)),
            4 => (0..2_000u32, 0..1_000_000i64).prop_map(|(slot, since)| Op::FollowLate(slot, since)),
            4 => (0..2_000u32, 0..500u32).prop_map(|(slot, count)| Op::FollowMany(slot, count)),
            4 => (0..2_000u32).prop_map(Op::Unfollow),
            2 => (0..2_000u32, 0..600u32).prop_map(|(slot, count)| Op::UnfollowMany(slot, count)),
        ]
    }

    #[test]
    fn followers_of_one_instant_stay_in_one_run() {
        let (sharding, mut followers, mut edges) = (Sharding::new(2), Followers::default(), Edges::new());
        for slot in 0..3_000 {
            assert!(insert(&mut followers, &edges, slot, 7, false, sharding));
            edges.insert(SourceSlot(slot), (7, false));
        }
        assert_eq!(listed(&followers, &edges, sharding).len(), 3_000);
    }

    #[test]
    fn a_sample_is_spread_over_all_followers_and_stays_the_same() {
        let sharding = Sharding::new(3);
        for (followers, max) in [(0, 64), (5, 64), (64, 64), (65, 64), (50, 8), (10_000, 64)] {
            let all = followers_of(&(0..followers).map(|nth| nth * 7).collect(), sharding);
            let mut sample = all.sample(max, sharding);
            assert_eq!(sample, all.sample(max, sharding));
            sample.sort_unstable();
            sample.dedup();
            let least = (followers as usize).min(max) / 2;
            assert!((least..=max + sharding.shards()).contains(&sample.len()), "{} of {followers}", sample.len());
            let is_follower = |slot: &SourceSlot| slot.0 % 7 == 0 && slot.0 < followers * 7;
            assert!(sample.iter().all(is_follower));
            let in_lower_half = sample.iter().filter(|slot| slot.0 < followers * 7 / 2).count();
            assert!(in_lower_half.abs_diff(sample.len() / 2) <= sharding.shards(), "{in_lower_half}");
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
        fn they_are_the_edges_that_were_made_and_not_removed(
            ops in prop::collection::vec(op(), 0..40),
            shards in 1..4usize,
        ) {
            let sharding = Sharding::new(shards);
            let (mut followers, mut edges, mut now) = (Followers::default(), Edges::new(), 1_000_000);
            for op in ops {
                let (slots, late, hidden) = match op {
                    Op::Follow(slot, hidden) => (slot..slot + 1, None, hidden),
                    Op::FollowLate(slot, since) => (slot..slot + 1, Some(since), false),
                    Op::FollowMany(slot, count) => (slot..slot + count, None, false),
                    Op::Unfollow(slot) => (slot..slot + 1, Some(-1), false),
                    Op::UnfollowMany(slot, count) => (slot..slot + count, Some(-1), false),
                };
                for slot in slots {
                    now += 1;
                    let (follower, since) = (SourceSlot(slot), late.unwrap_or(now));
                    if since < 0 {
                        let (since, hidden) = edges.get(&follower).copied().unwrap_or((0, false));
                        let removed = followers.remove(follower, UnixMicros(since), hidden, sharding);
                        prop_assert_eq!(removed, edges.remove(&follower).is_some());
                    } else if late.is_none() || edges.values().all(|edge| edge.0 != since) {
                        let is_new = insert(&mut followers, &edges, slot, since, hidden, sharding);
                        prop_assert_eq!(is_new, !edges.contains_key(&follower));
                        edges.entry(follower).or_insert((since, hidden));
                    }
                }
                let mut visible: Vec<(i64, u32)> =
                    edges.iter().filter(|edge| !edge.1.1).map(|(slot, edge)| (edge.0, slot.0)).collect();
                visible.sort_unstable_by(|a, b| b.cmp(a));
                prop_assert_eq!((followers.len(), followers.visible_len()), (edges.len() as u64, visible.len()));
                prop_assert_eq!(listed(&followers, &edges, sharding), visible);
                for shard in 0..shards {
                    let has_any = edges.keys().any(|slot| sharding.shard_of(*slot) == shard);
                    prop_assert_eq!(followers.reaches(shard, sharding), has_any);
                }
            }
            let everyone: Vec<RoaringBitmap> = (0..shards).map(|_| (0..4_000).collect()).collect();
            let all: Vec<u32> = edges.keys().map(|slot| slot.0).collect();
            prop_assert_eq!(sliced(&followers, &everyone, sharding, 70, 1_000), all);
        }
    }
}
