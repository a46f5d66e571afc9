//! The follow graph from the side of the sources: the followers of each source.
//!
//! Responsible for:
//! - the followers of one source ([`Followers`]): by age for listings, and by slot and shard for fan-out.

mod age_runs;
mod place_set;

use roaring::RoaringBitmap;

use crate::clock::UnixMicros;
use crate::feed::followers::age_runs::AgeRuns;
use crate::feed::followers::place_set::{Cursor, PlaceSet, RUN_MAX, Run, insert_at, remove_at, run_bytes};
use crate::feed::heap::allocated;
use crate::id::SourceSlot;

/// Up to this many followers are one run, which is listed as a whole.
const FEW_MAX: usize = RUN_MAX;

/// A source with fewer followers than this changes from `Many` back to `Few`.
const MANY_MIN: usize = FEW_MAX / 2;

/// The assignment of sources to shards: round-robin by slot, so that the slots of one shard are dense again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sharding {
    shards: u32,
    /// The number of places of each shard.
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

/// The followers of one source. The follower's side stores the instants of the edges, and which of them are hidden.
#[derive(Clone, Debug, Default)]
pub struct Followers(Form);

#[derive(Clone, Debug)]
enum Form {
    /// At most `FEW_MAX` followers.
    Few(Few),
    /// More than `FEW_MAX` followers, or not much fewer after some have left.
    Many(Box<Many>),
}

#[derive(Clone, Debug)]
struct Many {
    /// The places of all followers, hidden ones included.
    places: PlaceSet,
    /// The visible followers.
    by_age: AgeRuns,
}

/// The number of hidden followers, then the sorted places of all followers; empty if there are none. The number is stored in the run
/// because most sources have few followers or none, and a field of its own would cost each of them 16 bytes.
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
    /// Adds a follower. Returns false if it was there. The caller calls [`Followers::must_split`] before.
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
                let places = PlaceSet::of(few.places().into());
                self.0 = Form::Many(Box::new(Many { places, by_age: AgeRuns::of(visible) }));
            }
            Form::Many(many) => many.by_age.split(since, visible),
        }
    }

    /// Removes a follower, given the creation instant of its edge and true if the edge was hidden. Returns false if the follower was not
    /// there.
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

    /// Returns an instant before `before`, and the followers whose visible edges were created between the two. They are in no order, and
    /// may include other followers. Returns `None` if no older edges are left.
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

    /// Returns the number within `shard` of its first follower from the number `local` on.
    pub fn first_from(&self, local: u32, shard: usize, sharding: Sharding) -> Option<u32> {
        let first = sharding.first_place(shard);
        let place = self.from(first.saturating_add(local)).next();
        place.map(|place| place - first).filter(|local| *local < sharding.places)
    }

    /// Returns true if a post has any recipient in `shard`.
    pub fn reaches(&self, shard: usize, sharding: Sharding) -> bool {
        self.first_from(0, shard, sharding).is_some()
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

mod tests;
