//! Sources: all data of one followable thing, found by its external id or its slot.
//!
//! Responsible for:
//! - assigning slots, once per id and permanently;
//! - the locks of a source's outbox, followers and followed sources, and the values that are read without a lock.
//!
//! Not responsible for:
//! - keeping several sources consistent with each other (`state::world`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};

use arc_swap::ArcSwapOption;
use dashmap::DashMap;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::clock::UnixMicros;
use crate::feed::followers::Followers;
use crate::feed::following::Following;
use crate::feed::outbox::{Newest, Outbox, OutboxQuery, ReadGap};
use crate::feed::position::Position;
use crate::feed::preferences::Preferences;
use crate::id::{SourceId, SourceSlot};
use crate::state::erasures::Erasures;

/// Number of sources that are sampled to estimate the bytes of all of them.
const SOURCES_SAMPLE_MAX: usize = 512;

/// Maximum number of a reader's sources that are examined to compute its flow key for fair queueing. With the default settings these are
/// all of them.
const FLOW_KEY_SOURCES_MAX: usize = 5_000;

/// Number of newest posts of a source that readers pull without a lock: at most 512 bytes for each source that has posts to pull. A page of
/// 20 entries first requests at most 21 of each source.
const NEWEST_PULLED_MAX: usize = 32;

/// A user, tag, topic or account of another kind.
#[derive(Debug)]
pub struct Source {
    /// Its number in this process.
    pub slot: SourceSlot,
    /// Its external id.
    pub id: SourceId,
    outbox: RwLock<Outbox>,
    /// The newest of its posts that must be pulled. Read without a lock, because readers on all cores read those of one
    /// celebrity at the same time.
    newest: ArcSwapOption<Newest>,
    pub(super) followers: RwLock<Followers>,
    pub(super) following: RwLock<Arc<Following>>,
    /// `None` for the majority, who have never set any preference.
    pub(super) preferences: RwLock<Option<Arc<Preferences>>>,
    /// The number of sources that block it. For readers with zero, pages need not check the blocks of any author.
    blocked_by: AtomicU32,
    /// The sum of the hashes of the instants of these blocks, which identifies the set of blocks.
    blocked_since: AtomicU32,
    pub(super) celebrity: AtomicBool,
    /// The result of [`Source::crowd`], and the version of `following` it was computed from.
    flow_key: Mutex<Option<(u64, SourceSlot)>>,
    last_seen: AtomicI64,
    /// When its erasure began, or `NEVER`.
    erased_at: AtomicI64,
}

const NEVER: i64 = i64::MIN;

thread_local! {
    /// The preferences of all who never set any. Each thread has its own: pages on all cores would contend for one reference count.
    static DEFAULT_PREFERENCES: Arc<Preferences> = Arc::default();
}

/// Seed of the hash that distinguishes being blocked from blocking at the same instant: mutes and blocks use 0 and 1.
const BLOCKED_BY_SEED: u64 = 2;

impl Source {
    fn new(slot: SourceSlot, id: SourceId) -> Self {
        Self {
            slot,
            id,
            outbox: RwLock::default(),
            newest: ArcSwapOption::empty(),
            followers: RwLock::default(),
            following: RwLock::default(),
            preferences: RwLock::default(),
            blocked_by: AtomicU32::new(0),
            blocked_since: AtomicU32::new(0),
            celebrity: AtomicBool::new(false),
            flow_key: Mutex::default(),
            last_seen: AtomicI64::new(NEVER),
            erased_at: AtomicI64::new(NEVER),
        }
    }

    /// When its erasure began, if it did. Its slot remains allocated, because slots are permanent; nothing else of it
    /// remains.
    pub fn erased_at(&self) -> Option<UnixMicros> {
        match self.erased_at.load(Ordering::Acquire) {
            NEVER => None,
            at => Some(UnixMicros(at)),
        }
    }

    fn set_erased(&self, at: UnixMicros) {
        // No real instant equals `NEVER`, but a file may contain any number.
        self.erased_at.store(at.0.max(NEVER + 1), Ordering::Release);
    }

    /// Returns true if it is being erased, or was erased.
    pub fn is_erased(&self) -> bool {
        self.erased_at().is_some()
    }

    /// Locks its outbox for reading. The guard must be short-lived: publishing waits for it.
    pub fn outbox(&self) -> RwLockReadGuard<'_, Outbox> {
        self.outbox.read()
    }

    /// Appends to `into` the requested posts of its outbox that are in memory.
    ///
    /// # Errors
    /// Fails if some of the requested posts may not be in memory.
    pub fn pull(&self, ask: OutboxQuery, into: &mut Vec<Position>) -> Result<(), ReadGap> {
        if self.newest.load().as_ref().is_some_and(|newest| newest.pull(ask, into)) {
            return Ok(());
        }
        self.outbox().pull(ask, into)
    }

    /// Changes its outbox. Only the writer calls it.
    pub(super) fn change_outbox<T>(&self, change: impl FnOnce(&mut Outbox) -> T) -> T {
        let mut outbox = self.outbox.write();
        let before = outbox.pulled_count();
        let changed = change(&mut outbox);
        if outbox.pulled_count() != before {
            self.newest.store(outbox.newest_pulled(NEWEST_PULLED_MAX).map(Arc::new));
        }
        changed
    }

    /// Locks its followers for reading. The guard must be short-lived: new follows wait for it.
    pub fn followers(&self) -> RwLockReadGuard<'_, Followers> {
        self.followers.read()
    }

    /// Returns the sources that it follows now. Later edits do not change the returned value.
    pub fn following(&self) -> Arc<Following> {
        Arc::clone(&self.following.read())
    }

    /// Returns its preferences as of now, or the default ones.
    pub fn preferences(&self) -> Arc<Preferences> {
        self.preferences.read().clone().unwrap_or_else(|| DEFAULT_PREFERENCES.with(Arc::clone))
    }

    /// Returns its preferences, if it has ever set any.
    pub fn own_preferences(&self) -> Option<Arc<Preferences>> {
        self.preferences.read().clone()
    }

    /// Returns true if any source blocks it.
    pub fn is_blocked(&self) -> bool {
        self.blocked_by.load(Ordering::Relaxed) > 0
    }

    /// Returns true if it blocks another source.
    pub fn blocks(&self, other: SourceSlot) -> bool {
        self.preferences.read().as_ref().is_some_and(|preferences| preferences.blocks.contains(other))
    }

    /// Returns a fingerprint of the rules, mutes and blocks that decide what it is shown, its own and those of others.
    /// The value is the same after a restart.
    pub fn shown_by(&self) -> u32 {
        let own = self.preferences.read().as_ref().map_or(0, |preferences| preferences.fingerprint());
        own.wrapping_add(self.blocked_since.load(Ordering::Relaxed))
    }

    /// Notes that another source blocks it since an instant, or no longer blocks it. Only the writer calls it.
    pub(super) fn note_blocked(&self, since: UnixMicros, is_on: bool) {
        let mark = xxh3_64_with_seed(&since.0.to_le_bytes(), BLOCKED_BY_SEED) as u32;
        // Not a read-modify-write operation, because there is one writer.
        let (by, marks) = (self.blocked_by.load(Ordering::Relaxed), self.blocked_since.load(Ordering::Relaxed));
        let (by, marks) = if is_on { (by + 1, marks.wrapping_add(mark)) } else { (by - 1, marks.wrapping_sub(mark)) };
        self.blocked_since.store(marks, Ordering::Relaxed);
        self.blocked_by.store(by, Ordering::Release);
    }

    /// Returns true if its posts are pulled.
    pub fn is_celebrity(&self) -> bool {
        self.celebrity.load(Ordering::Relaxed)
    }

    /// Returns when it last read its feed.
    pub fn last_seen(&self) -> Option<UnixMicros> {
        match self.last_seen.load(Ordering::Relaxed) {
            NEVER => None,
            at => Some(UnixMicros(at)),
        }
    }

    /// Notes that it reads its feed.
    pub fn seen(&self, at: UnixMicros) {
        self.last_seen.store(at.0, Ordering::Relaxed);
    }

    /// Returns its flow key for fair queueing: the source with the most followers among those that it follows, as of
    /// when its edges last changed. When many readers arrive at once, it is likely to arrive together with the
    /// followers of that source.
    pub fn flow_key(&self, sources: &Sources) -> SourceSlot {
        let following = self.following();
        let mut known = self.flow_key.lock();
        if let Some((version, flow_key)) = *known
            && version == following.version()
        {
            return flow_key;
        }
        let step = following.reach_len().div_ceil(FLOW_KEY_SOURCES_MAX).max(1);
        let flow_key = following.sources().step_by(step).max_by_key(|source| sources.at(*source).followers().len());
        let flow_key = flow_key.unwrap_or(self.slot);
        *known = Some((following.version(), flow_key));
        flow_key
    }

    /// Bytes it takes, without the allocator's own.
    pub fn bytes(&self) -> usize {
        self.own_bytes() + self.edges_bytes()
    }

    /// Bytes it takes regardless of how many edges it has.
    fn own_bytes(&self) -> usize {
        let id = self.id.as_str().len() + 2 * size_of::<usize>();
        let preferences =
            self.own_preferences().map_or(0, |preferences| size_of::<Preferences>() + preferences.heap_bytes());
        let newest = self.newest.load().as_ref().map_or(0, |newest| newest.bytes());
        size_of::<Self>() + size_of::<Following>() + id + self.outbox().heap_bytes() + newest + preferences
    }

    fn edges_bytes(&self) -> usize {
        self.followers().heap_bytes() + self.following.read().heap_bytes()
    }

    /// The number of edges that begin or end at it.
    fn ends(&self) -> usize {
        self.following.read().len() + self.followers().len() as usize
    }
}

/// All sources, by external id and by slot.
#[derive(Debug, Default)]
pub struct Sources {
    by_id: DashMap<SourceId, Arc<Source>, foldhash::fast::RandomState>,
    by_slot: boxcar::Vec<Arc<Source>>,
    erasures: Erasures,
}

impl Sources {
    /// Returns the erasures that are in progress.
    pub fn erasures(&self) -> &Erasures {
        &self.erasures
    }

    /// Returns true if the posts of a source must not be shown to anybody, because it is being erased or was erased: a
    /// page built meanwhile may find such a post even after the erasure has ended. Called for every post of a page.
    pub fn is_erased(&self, source: SourceSlot) -> bool {
        self.erasures.were_any() && self.at(source).is_erased()
    }

    /// Returns the source that has this id, or that had it until its erasure began, while the erasure is in progress
    /// and stored data still contains the id.
    pub(super) fn known(&self, id: &SourceId) -> Option<Arc<Source>> {
        self.get(id).or_else(|| self.erasures.source_of(id))
    }

    /// Removes the id of a source permanently, because its erasure began at `at`.
    pub(super) fn begin_erasure(&self, source: &Arc<Source>, at: UnixMicros) {
        // Done first, so that nobody finds the source by its id or its posts without seeing that it is erased.
        self.erasures.begin(at, Arc::clone(source), Some(source.id.clone()));
        source.set_erased(at);
        self.by_id.remove(&source.id);
    }

    /// Restores a source that is being erased or was erased: with its id, if stored data may still contain it,
    /// otherwise with a placeholder that nobody can look up.
    pub(super) fn restore_erased(&self, name: &SourceId, at: UnixMicros, user: Option<SourceId>, is_under_way: bool) {
        let id = user.as_ref().unwrap_or(name);
        let slot = self.by_slot.push_with(|slot| Arc::new(Source::new(SourceSlot(slot as u32), id.clone())));
        self.erasures.note_any();
        let source = &self.by_slot[slot];
        if is_under_way {
            self.erasures.begin(at, Arc::clone(source), user);
        }
        source.set_erased(at);
    }

    /// Returns the source with this id, if anything ever named it.
    pub fn get(&self, id: &SourceId) -> Option<Arc<Source>> {
        self.by_id.get(id).map(|entry| Arc::clone(&entry))
    }

    /// Returns the source in this slot.
    ///
    /// # Panics
    /// Panics if no source has the slot. Slots are created only here and never removed.
    pub fn at(&self, slot: SourceSlot) -> &Arc<Source> {
        self.by_slot.get(slot.0 as usize).expect("slots are assigned with their source and never removed")
    }

    /// The number of sources.
    pub fn len(&self) -> usize {
        self.by_slot.count()
    }

    /// Returns true if there are no sources.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Estimates the bytes of all sources with `edges` edges between them, from the average bytes per source and per
    /// end of an edge in a sample.
    pub fn bytes(&self, edges: usize) -> usize {
        let step = self.len().div_ceil(SOURCES_SAMPLE_MAX).max(1);
        // A varying offset within each step, so that sources made in a regular pattern, such as users and their tags,
        // are all sampled.
        let within = |start: usize| start + start.wrapping_mul(0x9E37_79B9) / 64 % step;
        let sample = (0..self.len()).step_by(step).filter_map(|start| self.by_slot.get(within(start)));
        let (mut looked, mut own, mut of_edges, mut ends) = (0_usize, 0, 0, 0_usize);
        for source in sample {
            looked += 1;
            own += source.own_bytes();
            of_edges += source.edges_bytes();
            ends += source.ends();
        }
        let per = |bytes: usize, count: usize| if count == 0 { 0.0 } else { bytes as f64 / count as f64 };
        (per(own, looked) * self.len() as f64 + per(of_edges, ends) * 2.0 * edges as f64).round() as usize
    }

    /// Returns all sources, in the order of their slots.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Source>> {
        self.by_slot.iter().map(|(_, source)| source)
    }

    /// Returns the source with this id, and creates it if there is none. Only the writer calls it. An event that names
    /// a user who is being erased is older than the erasure: it is replayed after a snapshot that was taken during the
    /// erasure.
    pub(super) fn intern(&self, id: &SourceId) -> Arc<Source> {
        if let Some(known) = self.known(id) {
            return known;
        }
        let make = |slot: usize| Arc::new(Source::new(SourceSlot(slot as u32), id.clone()));
        let slot = self.by_slot.push_with(make);
        let source = Arc::clone(&self.by_slot[slot]);
        self.by_id.insert(id.clone(), Arc::clone(&source));
        source
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::followers::Sharding;

    #[test]
    fn a_crowd_is_whom_most_follow_until_the_reader_follows_others() {
        let (sources, sharding) = (Sources::default(), Sharding::new(2));
        let [ann, few, many, more] =
            ["ann", "few", "many", "more"].map(|id| sources.intern(&SourceId::new(id).unwrap()));
        assert_eq!(ann.flow_key(&sources), ann.slot, "of nobody's");
        let follow = |source: &Source, followers: std::ops::Range<u32>| {
            let mut of_source = source.followers.write();
            followers.for_each(|nth| assert!(of_source.insert(SourceSlot(nth), UnixMicros(0), false, sharding)));
        };
        follow(&few, 10..12);
        follow(&many, 10..100);
        for source in [&few, &many] {
            Arc::make_mut(&mut ann.following.write()).insert(source.slot, UnixMicros(0), false);
        }
        assert_eq!(ann.flow_key(&sources), many.slot);
        follow(&more, 10..200);
        Arc::make_mut(&mut ann.following.write()).insert(more.slot, UnixMicros(1), false);
        assert_eq!(ann.flow_key(&sources), more.slot);
        follow(&few, 100..500);
        assert_eq!(ann.flow_key(&sources), more.slot, "looked at only when it follows or leaves somebody");
    }

    #[test]
    fn a_sample_tells_what_all_take() {
        let (sources, sharding) = (Sources::default(), Sharding::new(2));
        let count = 3 * SOURCES_SAMPLE_MAX + 7;
        (0..count).for_each(|nth| drop(sources.intern(&SourceId::new(&format!("{nth:04}")).unwrap())));
        let alike = sources.at(SourceSlot(0)).bytes();
        assert_eq!(sources.bytes(0), alike * count);
        let mut edges = 0;
        for (follower, source) in (0..count).flat_map(|nth| (1..20).map(move |n| (nth, (nth * n + 1) % count))) {
            let (follower, source) = (sources.at(SourceSlot(follower as u32)), sources.at(SourceSlot(source as u32)));
            let since = UnixMicros(edges as i64);
            if Arc::make_mut(&mut follower.following.write()).insert(source.slot, since, false) {
                source.followers.write().insert(follower.slot, since, false, sharding);
                edges += 1;
            }
        }
        let (estimate, all) =
            (sources.bytes(edges) as f64, sources.iter().map(|source| source.bytes()).sum::<usize>() as f64);
        assert!((estimate / all - 1.0).abs() < 0.1, "{estimate} of {all}");
    }
}
