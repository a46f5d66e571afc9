//! A cache of reads from Cassandra, with a byte limit.

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use parking_lot::Mutex;

use super::layout::{BucketId, Layout};
use tidewire::feed::position::{Direction, Position, PositionRange};
use tidewire::id::{PostId, SourceId};
use tidewire::storage::archive::ArchivedRecord;

/// Number of change counters. Several keys share one, so a change may also prevent the caching of a few other reads.
const EPOCHS: usize = 1_024;

/// Number of counters of changes by other machines. A change invalidates all keys that share its counter.
const REMOTE_EPOCHS: usize = 65_536;

/// Maximum age of a cached layout. Another machine may replace a bucket, and deletes it only after a longer time.
const LAYOUTS_FOR: Duration = Duration::from_secs(60);

/// Estimated memory of an entry besides its content.
const ENTRY_BYTES: usize = 120;

/// Time for which a late read fails without another attempt, because the callers that announced it ask for it now.
const LATE_FOR: Duration = Duration::from_millis(500);

/// Maximum number of recorded late reads.
const LATE_MAX: usize = 4_096;

/// The key of a cached value.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Key {
    Post(PostId),
    /// The layouts of a source, of both routes.
    Layouts(SourceId),
    /// A run of positions: of a source, a route and a bucket.
    Run(SourceId, i8, BucketId),
}

/// A value in the cache.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Post(Arc<ArchivedRecord>),
    Layouts(Arc<[Layout; 2]>),
    Run(Arc<Run>),
}

/// All positions of a bucket between two bounds, both exclusive.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Run {
    pub(super) span: PositionRange,
    /// The existing positions, ascending.
    pub(super) positions: Vec<Position>,
}

impl Run {
    /// Returns at most `max` positions inside a span, nearest first, if the run has all of them.
    pub(super) fn answer(&self, span: PositionRange, direction: Direction, max: usize) -> Option<Vec<Position>> {
        let from = self.positions.partition_point(|position| *position <= span.above);
        let to = self.positions.partition_point(|position| *position < span.below).max(from);
        let inside = &self.positions[from..to];
        let (covers_near, covers_far) = match direction {
            Direction::Older => (span.below <= self.span.below, span.above >= self.span.above),
            Direction::Newer => (span.above >= self.span.above, span.below <= self.span.below),
        };
        let covers = covers_near && (covers_far || inside.len() >= max);
        covers.then(|| match direction {
            Direction::Older => inside.iter().rev().take(max).copied().collect(),
            Direction::Newer => inside.iter().take(max).copied().collect(),
        })
    }

    /// Merges both runs if there are no unknown positions between them. Otherwise returns the other run.
    fn joined(&self, other: Self) -> Self {
        let (low, high) = if self.span.above <= other.span.above { (self, &other) } else { (&other, self) };
        if high.span.above >= low.span.below {
            return other;
        }
        let from = high.positions.partition_point(|position| *position < low.span.below);
        let mut positions = low.positions.clone();
        positions.extend(&high.positions[from..]);
        let span = PositionRange { above: low.span.above, below: low.span.below.max(high.span.below) };
        Self { span, positions }
    }
}

impl Value {
    fn bytes(&self) -> usize {
        ENTRY_BYTES
            + match self {
                Self::Post(kept) => match &**kept {
                    ArchivedRecord::Post(bytes) => bytes.len(),
                    ArchivedRecord::Deleted => 0,
                },
                Self::Layouts(layouts) => layouts.iter().map(Layout::bytes).sum(),
                Self::Run(run) => run.positions.capacity() * size_of::<Position>(),
            }
    }
}

/// Figures of the cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct CacheFigures {
    /// Reads that were answered from memory.
    pub(super) hits: u64,
    /// Reads that were not answered from memory.
    pub(super) misses: u64,
    /// Bytes in memory, estimated.
    pub(super) bytes: u64,
}

/// A cache with a byte limit.
pub(super) struct Cache {
    bytes_max: usize,
    contents: Mutex<Contents>,
    /// Counters of changes. The hash of a key selects one of them.
    epochs: Box<[AtomicU64]>,
    /// Counters of changes by other machines. The id of a post or the source of an outbox selects one of them.
    remote_epochs: Box<[AtomicU32]>,
    hits: AtomicU64,
    misses: AtomicU64,
    late: Mutex<VecDeque<(Key, Instant)>>,
}

/// Two generations. A read moves a value into the young one. When the young generation has half of the bytes, it replaces the old one. So
/// nothing has to be ordered by age.
#[derive(Default)]
struct Contents {
    young: Generation,
    old: Generation,
}

#[derive(Default)]
struct Generation {
    values: HashMap<Key, Kept, FixedState>,
    bytes: usize,
}

#[derive(Clone)]
struct Kept {
    value: Value,
    read_at: Instant,
    remote: u32,
}

impl Generation {
    fn insert(&mut self, key: Key, kept: Kept) {
        self.bytes += kept.value.bytes();
        if let Some(before) = self.values.insert(key, kept) {
            self.bytes -= before.value.bytes();
        }
    }

    fn remove(&mut self, key: &Key) -> Option<Kept> {
        let kept = self.values.remove(key)?;
        self.bytes -= kept.value.bytes();
        Some(kept)
    }
}

/// The moment before a read. A value that has changed since then is not cached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Epoch {
    own: u64,
    remote: u32,
}

impl Cache {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            contents: Mutex::default(),
            epochs: (0..EPOCHS).map(|_| AtomicU64::new(0)).collect(),
            remote_epochs: (0..REMOTE_EPOCHS).map(|_| AtomicU32::new(0)).collect(),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            late: Mutex::default(),
        }
    }

    fn epoch_of(&self, key: &Key) -> &AtomicU64 {
        &self.epochs[FixedState::default().hash_one(key) as usize % EPOCHS]
    }

    /// Returns the moment before a read of this key begins.
    pub(super) fn epoch(&self, key: &Key) -> Epoch {
        let remote = self.remote_epoch_of(key).load(Ordering::Acquire);
        Epoch { own: self.epoch_of(key).load(Ordering::Acquire), remote }
    }

    fn remote_epoch_of(&self, key: &Key) -> &AtomicU32 {
        let hash = match key {
            Key::Post(id) => FixedState::default().hash_one(id),
            Key::Layouts(source) | Key::Run(source, ..) => FixedState::default().hash_one(source),
        };
        &self.remote_epochs[hash as usize % REMOTE_EPOCHS]
    }

    /// Invalidates a post, or all of an outbox, because another machine may have changed it.
    pub(super) fn forget_remote(&self, key: &Key) {
        self.remote_epoch_of(key).fetch_add(1, Ordering::AcqRel);
    }

    /// Returns true if another machine may have changed a cached value.
    fn is_outdated(&self, key: &Key, kept: &Kept) -> bool {
        let is_layout = matches!(key, Key::Layouts(_));
        kept.remote != self.epoch(key).remote || (is_layout && kept.read_at.elapsed() >= LAYOUTS_FOR)
    }

    pub(super) fn get(&self, key: &Key) -> Option<Value> {
        let contents = &mut *self.contents.lock();
        let is_young = contents.young.values.contains_key(key);
        let kept = if is_young { contents.young.values.get(key)?.clone() } else { contents.old.remove(key)? };
        if self.is_outdated(key, &kept) {
            contents.young.remove(key);
            return None;
        }
        if !is_young {
            self.insert_young(contents, key.clone(), kept.clone());
        }
        Some(kept.value)
    }

    /// Caches a value that was read after `since`, unless it was changed meanwhile. A run is joined with the cached one.
    pub(super) fn insert(&self, key: Key, value: Value, since: Epoch) {
        let contents = &mut *self.contents.lock();
        if self.epoch(&key) != since {
            return;
        }
        let before = contents.old.remove(&key).or_else(|| contents.young.values.get(&key).cloned());
        let before = before.filter(|kept| !self.is_outdated(&key, kept)).map(|kept| kept.value);
        let value = match (before, value) {
            (Some(Value::Run(known)), Value::Run(run)) => Value::Run(Arc::new(known.joined(Arc::unwrap_or_clone(run)))),
            (_, value) => value,
        };
        self.insert_young(contents, key, Kept { value, read_at: Instant::now(), remote: since.remote });
    }

    fn insert_young(&self, contents: &mut Contents, key: Key, kept: Kept) {
        if kept.value.bytes() > self.bytes_max / 2 {
            contents.young.remove(&key);
            return;
        }
        contents.young.insert(key, kept);
        if contents.young.bytes > self.bytes_max / 2 {
            contents.old = std::mem::take(&mut contents.young);
        }
    }

    /// Invalidates a changed value, and all reads of it that are in progress.
    pub(super) fn forget(&self, key: &Key) {
        let contents = &mut *self.contents.lock();
        self.epoch_of(key).fetch_add(1, Ordering::AcqRel);
        contents.young.remove(key);
        contents.old.remove(key);
    }

    /// Invalidates all cached values.
    pub(super) fn clear(&self) {
        let contents = &mut *self.contents.lock();
        for epoch in &self.epochs {
            epoch.fetch_add(1, Ordering::AcqRel);
        }
        *contents = Contents::default();
    }

    pub(super) fn count(&self, is_hit: bool) {
        let counter = if is_hit { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn figures(&self) -> CacheFigures {
        let contents = self.contents.lock();
        CacheFigures {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            bytes: (contents.young.bytes + contents.old.bytes) as u64,
        }
    }

    /// Notes that an announced read did not complete in time.
    pub(super) fn note_late(&self, key: Key, now: Instant) {
        let mut late = self.late.lock();
        if late.len() >= LATE_MAX {
            late.pop_front();
        }
        late.push_back((key, now + LATE_FOR));
    }

    /// Returns true if this read was announced recently and did not complete in time.
    pub(super) fn is_late(&self, key: &Key, now: Instant) -> bool {
        let mut late = self.late.lock();
        while late.front().is_some_and(|(_, until)| *until <= now) {
            late.pop_front();
        }
        late.iter().any(|(other, _)| other == key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidewire::feed::position::at;

    fn post(bytes: usize) -> Value {
        Value::Post(Arc::new(ArchivedRecord::Post(vec![7; bytes])))
    }

    fn key(id: u64) -> Key {
        Key::Post(PostId(id))
    }

    fn run(above: i64, below: i64, times: &[i64]) -> Run {
        let positions = times.iter().map(|time| at(*time, 0)).collect();
        Run { span: PositionRange { above: at(above, 0), below: at(below, 0) }, positions }
    }

    #[test]
    fn recently_read_values_stay_cached_within_the_limit() {
        let cache = Cache::new(100 * (ENTRY_BYTES + 100));
        let often = cache.epoch(&key(0));
        cache.insert(key(0), post(100), often);
        for id in 1..1_000 {
            cache.insert(key(id), post(100), cache.epoch(&key(id)));
            assert!(cache.get(&key(0)).is_some(), "{id}");
            assert!(cache.figures().bytes as usize <= 100 * (ENTRY_BYTES + 100));
        }
        assert!(cache.get(&key(999)).is_some() && cache.get(&key(1)).is_none());
        // A value larger than half of the cache is not cached.
        cache.insert(key(5_000), post(60 * (ENTRY_BYTES + 100)), cache.epoch(&key(5_000)));
        assert!(cache.get(&key(5_000)).is_none() && cache.get(&key(999)).is_some());
        cache.clear();
        assert!(cache.get(&key(0)).is_none());
        assert_eq!(cache.figures().bytes, 0);
    }

    #[test]
    fn a_value_read_before_a_change_is_not_cached() {
        let cache = Cache::new(1 << 20);
        let before = cache.epoch(&key(1));
        cache.forget(&key(1));
        cache.insert(key(1), post(1), before);
        assert!(cache.get(&key(1)).is_none());
        let before = cache.epoch(&key(1));
        cache.clear();
        cache.insert(key(1), post(1), before);
        assert!(cache.get(&key(1)).is_none());
        cache.insert(key(1), post(1), cache.epoch(&key(1)));
        assert!(cache.get(&key(1)).is_some());
    }

    #[test]
    fn a_change_on_another_machine_invalidates_cached_values() {
        let cache = Cache::new(1 << 20);
        let ann = tidewire::storage::archive::samples::source("ann");
        let of_ann = Key::Run(ann.clone(), 1, 7);
        let before = cache.epoch(&of_ann);
        cache.insert(of_ann.clone(), Value::Run(Arc::new(run(0, 9, &[1]))), before);
        cache.insert(key(1), post(1), cache.epoch(&key(1)));
        // The source identifies all values of an outbox.
        cache.forget_remote(&Key::Layouts(ann));
        assert!(cache.get(&of_ann).is_none() && cache.get(&key(1)).is_some());
        // A value that was read before the change is not cached after it.
        cache.insert(of_ann.clone(), Value::Run(Arc::new(run(0, 9, &[1]))), before);
        assert!(cache.get(&of_ann).is_none());
        cache.forget_remote(&key(1));
        assert!(cache.get(&key(1)).is_none());
    }

    #[test]
    fn a_run_answers_only_queries_that_it_covers_completely() {
        let run = run(10, 20, &[11, 13, 15, 17]);
        let span = |above, below| PositionRange { above: at(above, 0), below: at(below, 0) };
        for (asked, direction, max, expected) in [
            (span(10, 20), Direction::Older, 9, Some(vec![17, 15, 13, 11])),
            (span(12, 16), Direction::Newer, 9, Some(vec![13, 15])),
            (span(0, 20), Direction::Older, 4, Some(vec![17, 15, 13, 11])),
            (span(0, 20), Direction::Older, 5, None),
            (span(0, 21), Direction::Older, 1, None),
            (span(10, 99), Direction::Newer, 4, Some(vec![11, 13, 15, 17])),
            (span(10, 99), Direction::Newer, 5, None),
            (span(9, 15), Direction::Newer, 1, None),
            (span(30, 40), Direction::Newer, 1, None),
            (span(15, 12), Direction::Newer, 1, Some(vec![])),
        ] {
            let expected = expected.map(|times| times.into_iter().map(|time| at(time, 0)).collect::<Vec<_>>());
            assert_eq!(run.answer(asked, direction, max), expected, "{asked:?} {direction:?} {max}");
        }
    }

    #[test]
    fn overlapping_runs_are_joined() {
        let known = run(10, 20, &[11, 15, 19]);
        for (other, expected) in [
            (run(15, 30, &[19, 25]), run(10, 30, &[11, 15, 19, 25])),
            (run(0, 11, &[5]), run(0, 20, &[5, 11, 15, 19])),
            (run(12, 18, &[15]), known.clone()),
            (run(5, 40, &[7, 11, 15, 19, 33]), run(5, 40, &[7, 11, 15, 19, 33])),
            // Neither run contains the position 20 itself.
            (run(20, 30, &[25]), run(20, 30, &[25])),
        ] {
            assert_eq!(known.joined(other.clone()), expected, "{other:?}");
        }
    }

    #[test]
    fn a_late_read_is_marked_as_late_for_a_moment() {
        let (cache, now) = (Cache::new(1 << 20), Instant::now());
        cache.note_late(key(1), now);
        assert!(cache.is_late(&key(1), now) && !cache.is_late(&key(2), now));
        assert!(!cache.is_late(&key(1), now + LATE_FOR));
    }
}
