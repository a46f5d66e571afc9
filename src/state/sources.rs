//! Sources: all data of one followable thing, found by its external id or its slot.
//!
//! Responsible for:
//! - assigning slots, once per id and permanently;
//! - the locks of a source's edges, outbox and preferences, and the values that are read without a lock;
//! - counting the bytes of sources and edges.

mod by_id;
pub mod erasures;

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, LazyLock};

use arc_swap::ArcSwapOption;
use once_cell::race::OnceBox;
use parking_lot::{MappedRwLockReadGuard, RwLock, RwLockReadGuard};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::clock::UnixMicros;
use crate::feed::followers::Followers;
use crate::feed::following::Following;
use crate::feed::heap::allocated;
use crate::feed::outbox::{Newest, Outbox, OutboxQuery, ReadGap};
use crate::feed::position::Position;
use crate::feed::preferences::Preferences;
use crate::id::{SourceId, SourceSlot};
use crate::state::activity::{Pages, Posts};
use crate::state::sources::by_id::ById;
use crate::state::sources::erasures::Erasures;
use crate::state::sources::keepers::Keepers;

/// Number of sources that are sampled to estimate the bytes of all of them.
const SOURCES_SAMPLE_MAX: usize = 512;

/// Maximum number of a reader's sources that are examined to compute its flow key for fair queueing. With the default settings these are
/// all of them.
const FLOW_KEY_SOURCES_MAX: usize = 5_000;

/// Number of newest posts of a source that readers pull without a lock: at most 512 bytes for each source that has posts to pull. A page of
/// 20 entries first requests at most 21 of each source.
const NEWEST_PULLED_MAX: usize = 32;

/// A user, tag, topic or account of another kind.
///
/// Most sources are users who follow a few others and never publish or set a preference. Each of them pays for the fields here, so all
/// other fields are in `More`.
#[derive(Debug)]
pub struct Source {
    /// Its number in this process.
    pub slot: SourceSlot,
    pub(super) celebrity: AtomicBool,
    /// The pages that it read since the start of the process.
    pages: Pages,
    /// Its external id.
    pub id: SourceId,
    pub(super) edges: RwLock<Edges>,
    more: OnceBox<More>,
    last_seen: AtomicI64,
    /// The result of [`Source::flow_key`] and the version of `following` it was computed from, or `NO_FLOW_KEY`.
    flow_key: AtomicU64,
}

/// Both sides of the edges of a source.
#[derive(Debug, Default)]
pub(super) struct Edges {
    pub(super) followers: Followers,
    pub(super) following: Arc<Following>,
}

impl Edges {
    /// Returns the edges to others, to be changed.
    pub(super) fn following_mut(&mut self) -> &mut Following {
        Arc::make_mut(&mut self.following)
    }

    fn bytes(&self) -> usize {
        self.followers.heap_bytes() + following_bytes(&self.following)
    }
}

/// The data of a source that has published, has set preferences, is blocked or is erased.
#[derive(Debug)]
struct More {
    outbox: RwLock<Outbox>,
    /// The newest of its posts that must be pulled. Read without a lock, because readers on all cores read those of one
    /// celebrity at the same time.
    newest: ArcSwapOption<Newest>,
    /// `None` if it has never set any preference.
    preferences: RwLock<Option<Arc<Preferences>>>,
    /// The number of sources that block it. For readers with zero, pages need not check the blocks of any author.
    blocked_by: AtomicU32,
    /// The sum of the hashes of the instants of these blocks, which identifies the set of blocks.
    blocked_since: AtomicU32,
    /// The posts that it published since the start of the process.
    posts: Posts,
    /// The instant at which its erasure began, or `NEVER`.
    erased_at: AtomicI64,
}

impl Default for More {
    fn default() -> Self {
        Self {
            outbox: RwLock::default(),
            newest: ArcSwapOption::empty(),
            preferences: RwLock::default(),
            blocked_by: AtomicU32::new(0),
            blocked_since: AtomicU32::new(0),
            posts: Posts::default(),
            erased_at: AtomicI64::new(NEVER),
        }
    }
}

/// The outbox of a source, locked for reading.
#[derive(Debug)]
pub enum OutboxGuard<'a> {
    /// The source has an outbox.
    Locked(RwLockReadGuard<'a, Outbox>),
    /// The source has no outbox.
    Empty(&'static Outbox),
}

impl Deref for OutboxGuard<'_> {
    type Target = Outbox;

    fn deref(&self) -> &Outbox {
        match self {
            Self::Locked(outbox) => outbox,
            Self::Empty(outbox) => outbox,
        }
    }
}

static EMPTY_OUTBOX: LazyLock<Outbox> = LazyLock::new(Outbox::default);

const NEVER: i64 = i64::MIN;

thread_local! {
    /// The preferences of all sources that never set any. Each thread has its own: pages on all cores would contend for one reference
    /// count.
    static DEFAULT_PREFERENCES: Arc<Preferences> = Arc::default();
}

/// Means that there is no flow key. No slot is this large.
const NO_FLOW_KEY: u64 = u64::MAX;

/// Seed of the hash that distinguishes being blocked from blocking at the same instant: mutes and blocks use 0 and 1.
const BLOCKED_BY_SEED: u64 = 2;

impl Source {
    fn new(slot: SourceSlot, id: SourceId, following: Arc<Following>) -> Self {
        Self {
            slot,
            celebrity: AtomicBool::new(false),
            pages: Pages::default(),
            id,
            edges: RwLock::new(Edges { followers: Followers::default(), following }),
            more: OnceBox::new(),
            last_seen: AtomicI64::new(NEVER),
            flow_key: AtomicU64::new(NO_FLOW_KEY),
        }
    }

    /// Returns the data that only the state machine creates, and creates it if it is missing.
    fn more(&self) -> &More {
        self.more.get().unwrap_or_else(|| {
            let more = self.more.get_or_init(Box::default);
            fence(Ordering::SeqCst);
            more
        })
    }

    /// Returns that data if it exists, ordered after everything that this thread did before. A reader is marked active and then looks for
    /// posts. The state machine adds the first post, after which fan-out looks for active readers. One of the two must see the other. If
    /// there is an outbox, its lock guarantees this. If there is none, these two fences do, whatever lock the set of active readers has.
    fn more_by_now(&self) -> Option<&More> {
        self.more.get().or_else(|| {
            fence(Ordering::SeqCst);
            self.more.get()
        })
    }

    /// Returns the instant at which its erasure began, if it did. Its slot remains allocated, because slots are permanent; nothing else of
    /// it remains.
    pub fn erased_at(&self) -> Option<UnixMicros> {
        match self.more.get()?.erased_at.load(Ordering::Acquire) {
            NEVER => None,
            at => Some(UnixMicros(at)),
        }
    }

    fn set_erased(&self, at: UnixMicros) {
        // No real instant equals `NEVER`, but a file may contain any number.
        self.more().erased_at.store(at.0.max(NEVER + 1), Ordering::Release);
    }

    /// Returns true if it is being erased, or was erased.
    pub fn is_erased(&self) -> bool {
        self.erased_at().is_some()
    }

    /// Locks its outbox for reading. The guard must be short-lived: publishing waits for it.
    pub fn outbox(&self) -> OutboxGuard<'_> {
        match self.more_by_now() {
            Some(more) => OutboxGuard::Locked(more.outbox.read()),
            None => OutboxGuard::Empty(&EMPTY_OUTBOX),
        }
    }

    /// Appends to `into` the requested posts of its outbox that are in memory.
    ///
    /// # Errors
    /// Fails if some of the requested posts may not be in memory.
    pub fn pull(&self, ask: OutboxQuery, into: &mut Vec<Position>) -> Result<(), ReadGap> {
        let Some(more) = self.more_by_now() else { return Ok(()) };
        if more.newest.load().as_ref().is_some_and(|newest| newest.pull(ask, into)) {
            return Ok(());
        }
        more.outbox.read().pull(ask, into)
    }

    /// Changes its outbox. Only the state machine calls it.
    pub(super) fn change_outbox<T>(&self, change: impl FnOnce(&mut Outbox) -> T) -> T {
        let more = self.more();
        let mut outbox = more.outbox.write();
        let before = outbox.pulled_count();
        let changed = change(&mut outbox);
        if outbox.pulled_count() != before {
            more.newest.store(outbox.newest_pulled(NEWEST_PULLED_MAX).map(Arc::new));
        }
        changed
    }

    /// Locks its followers for reading. The guard must be short-lived: new follows wait for it.
    pub fn followers(&self) -> MappedRwLockReadGuard<'_, Followers> {
        RwLockReadGuard::map(self.edges.read(), |edges| &edges.followers)
    }

    /// Returns the sources that it follows now. Later edits do not change the returned value.
    pub fn following(&self) -> Arc<Following> {
        Arc::clone(&self.edges.read().following)
    }

    /// Returns its preferences as of now, or the default ones.
    pub fn preferences(&self) -> Arc<Preferences> {
        self.own_preferences().unwrap_or_else(|| DEFAULT_PREFERENCES.with(Arc::clone))
    }

    /// Returns its preferences, if it has ever set any.
    pub fn own_preferences(&self) -> Option<Arc<Preferences>> {
        self.more.get()?.preferences.read().clone()
    }

    /// Returns the lock of its preferences. Only the state machine changes them.
    pub(super) fn preferences_lock(&self) -> &RwLock<Option<Arc<Preferences>>> {
        &self.more().preferences
    }

    /// Returns true if any source blocks it.
    pub fn is_blocked(&self) -> bool {
        self.more.get().is_some_and(|more| more.blocked_by.load(Ordering::Relaxed) > 0)
    }

    /// Returns true if it blocks another source.
    pub fn blocks(&self, other: SourceSlot) -> bool {
        let blocks = |more: &More| {
            more.preferences.read().as_ref().is_some_and(|preferences| preferences.blocks.contains(other))
        };
        self.more.get().is_some_and(blocks)
    }

    /// Returns true if either source blocks the other.
    pub fn has_block(&self, other: &Source) -> bool {
        self.blocks(other.slot) || other.blocks(self.slot)
    }

    /// Returns a fingerprint of the rules, mutes and blocks that decide which posts it sees, its own and those of others. The value is the
    /// same after a restart.
    pub fn shown_by(&self) -> u32 {
        let Some(more) = self.more.get() else { return 0 };
        let own = more.preferences.read().as_ref().map_or(0, |preferences| preferences.fingerprint());
        own.wrapping_add(more.blocked_since.load(Ordering::Relaxed))
    }

    /// Notes that another source blocks it since an instant, or no longer blocks it. Only the state machine calls it.
    pub(super) fn note_blocked(&self, since: UnixMicros, is_on: bool) {
        let mark = xxh3_64_with_seed(&since.0.to_le_bytes(), BLOCKED_BY_SEED) as u32;
        // Not a read-modify-write operation, because there is one writer.
        let more = self.more();
        let (by, marks) = (more.blocked_by.load(Ordering::Relaxed), more.blocked_since.load(Ordering::Relaxed));
        let (by, marks) = if is_on { (by + 1, marks.wrapping_add(mark)) } else { (by - 1, marks.wrapping_sub(mark)) };
        more.blocked_since.store(marks, Ordering::Relaxed);
        more.blocked_by.store(by, Ordering::Release);
    }

    /// Returns true if its posts are pulled.
    pub fn is_celebrity(&self) -> bool {
        self.celebrity.load(Ordering::Acquire)
    }

    /// Returns the instant at which it last read its feed.
    pub fn last_seen(&self) -> Option<UnixMicros> {
        match self.last_seen.load(Ordering::Relaxed) {
            NEVER => None,
            at => Some(UnixMicros(at)),
        }
    }

    /// Notes that it reads its feed.
    pub fn seen(&self, at: UnixMicros) {
        self.pages.decay(UnixMicros(self.last_seen.load(Ordering::Relaxed)), at);
        self.last_seen.store(at.0, Ordering::Relaxed);
    }

    /// Counts a page of its feed. [`Source::seen`] is called before.
    pub fn note_page(&self) {
        self.pages.note();
    }

    /// Returns the decaying count of the pages that it read since the start of the process.
    pub fn pages(&self, now: UnixMicros) -> f32 {
        self.pages.at(UnixMicros(self.last_seen.load(Ordering::Relaxed)), now)
    }

    /// Counts a post. Only the state machine calls it.
    pub(super) fn note_post(&self, now: UnixMicros) {
        self.more().posts.note(now);
    }

    /// Returns the decaying count of the posts that it published since the start of the process.
    pub fn posts(&self, now: UnixMicros) -> f32 {
        self.more.get().map_or(0.0, |more| more.posts.at(now))
    }

    /// Returns its flow key for fair queueing: the source with the most followers among those that it follows, as of the last change of its
    /// edges. When many readers arrive at once, it is likely to arrive together with the followers of that source.
    pub fn flow_key(&self, sources: &Sources) -> SourceSlot {
        let following = self.following();
        let known = self.flow_key.load(Ordering::Relaxed);
        if known != NO_FLOW_KEY && (known >> u32::BITS) as u32 == following.version() {
            return SourceSlot(known as u32);
        }
        let step = following.reach_len().div_ceil(FLOW_KEY_SOURCES_MAX).max(1);
        let flow_key = following.sources().step_by(step).max_by_key(|source| sources.at(*source).followers().len());
        let flow_key = flow_key.unwrap_or(self.slot);
        self.flow_key.store(u64::from(following.version()) << u32::BITS | u64::from(flow_key.0), Ordering::Relaxed);
        flow_key
    }

    /// Returns its bytes, with its edges.
    pub fn bytes(&self) -> usize {
        let preferences = self.more.get().map_or(0, |more| preferences_bytes(more.preferences.read().as_deref()));
        SOURCE_BYTES + id_bytes(&self.id) + self.edges.read().bytes() + preferences + self.more_bytes()
    }

    fn more_bytes(&self) -> usize {
        let Some(more) = self.more.get() else { return 0 };
        let newest = more.newest.load().as_ref().map_or(0, |newest| newest.bytes());
        allocated(size_of::<More>()) + more.outbox.read().heap_bytes() + newest
    }
}

/// Bytes of a source without edges: its own, its entry in a vector of `Arc`, each with a flag, and a slot in a table that is about half full.
const SOURCE_BYTES: usize = allocated(size_of::<Source>() + 2 * size_of::<usize>()) + 16 + 8;

fn id_bytes(id: &SourceId) -> usize {
    id.heap_bytes().map(allocated).iter().sum()
}

fn preferences_bytes(own: Option<&Preferences>) -> usize {
    own.map_or(0, |own| allocated(size_of::<Preferences>() + 2 * size_of::<usize>()) + own.heap_bytes())
}

/// Returns the bytes of the edges to others; 0 for sources that never followed, which share one value.
fn following_bytes(following: &Following) -> usize {
    let own = allocated(size_of::<Following>() + 2 * size_of::<usize>());
    if following.version() == 0 { 0 } else { own + following.heap_bytes() }
}

/// All sources, by external id and by slot.
#[derive(Debug, Default)]
pub struct Sources {
    by_id: ById,
    by_slot: boxcar::Vec<Arc<Source>>,
    erasures: Erasures,
    /// The edges of all sources that never followed.
    no_following: Arc<Following>,
    /// The bytes of all sources, edges and preferences.
    graph_bytes: AtomicUsize,
    keepers: Keepers,
}

impl Sources {
    /// Returns the erasures that are in progress.
    pub fn erasures(&self) -> &Erasures {
        &self.erasures
    }

    /// Returns true if the posts of a source must not be shown to anybody, because it is being erased or was erased. A page built meanwhile
    /// may find such a post even after the erasure has ended. Called for every post of a page.
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
        // Done first, so that no thread finds the source by its id or its posts without seeing that it is erased.
        self.erasures.begin(at, Arc::clone(source), Some(source.id.clone()));
        source.set_erased(at);
        self.by_id.remove(source.slot, &source.id);
    }

    /// Restores a source that is being erased or was erased: with its id, if stored data may still contain it, otherwise with a placeholder
    /// that no request can name.
    pub(super) fn restore_erased(&self, name: &SourceId, at: UnixMicros, user: Option<SourceId>, is_under_way: bool) {
        let id = user.as_ref().unwrap_or(name);
        self.erasures.note_any();
        let source = self.push(id);
        if is_under_way {
            self.erasures.begin(at, Arc::clone(source), user);
        }
        source.set_erased(at);
    }

    /// Returns the source with this id, if it is registered.
    pub fn get(&self, id: &SourceId) -> Option<Arc<Source>> {
        self.by_id.get(id, |slot| &self.at(slot).id).map(|slot| Arc::clone(self.at(slot)))
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

    /// Returns all sources, in the order of their slots.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Source>> {
        self.by_slot.iter().map(|(_, source)| source)
    }

    /// Returns the source with this id, and creates it if there is none. Only the state machine calls it. An event that names a user who is
    /// being erased is older than the erasure: it is replayed after a snapshot that was taken during the erasure.
    pub(super) fn intern(&self, id: &SourceId) -> Arc<Source> {
        if let Some(known) = self.known(id) {
            return known;
        }
        let source = Arc::clone(self.push(id));
        self.by_id.insert(source.slot, |slot| &self.at(slot).id);
        source
    }

    /// Adds a source that cannot be found by its id yet.
    fn push(&self, id: &SourceId) -> &Arc<Source> {
        let make = |slot| Arc::new(Source::new(SourceSlot(slot as u32), id.clone(), Arc::clone(&self.no_following)));
        let source = &self.by_slot[self.by_slot.push_with(make)];
        self.note_graph_bytes(0, SOURCE_BYTES + id_bytes(&source.id));
        source
    }
}

mod keepers;
mod memory;
mod tests;
