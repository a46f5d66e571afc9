//! Erasures that are under way.
//!
//! Responsible for:
//! - knowing which users are being erased, since when, and how far that is;
//! - finding such a user by the id that snapshots, the journal and the archive still have.
//!
//! Not responsible for:
//! - what an erasure changes (`state::world::erased`), carrying it out (`runtime::background::eraser`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard, RwLock};
use rustc_hash::FxHashMap;

use crate::clock::UnixMicros;
use crate::id::SourceId;
use crate::state::sources::Source;

/// The erasure of one user.
#[derive(Debug)]
pub struct Erasure {
    /// When it began, which is its name.
    pub at: UnixMicros,
    /// What the user was.
    pub source: Arc<Source>,
    /// The user's id; unknown after a start from a snapshot that was taken when nothing but older files had it.
    pub user: Option<SourceId>,
    is_scrubbed: AtomicBool,
}

impl Erasure {
    /// Whether nothing has the user's id any more but older snapshots and segments, and this process.
    pub fn is_scrubbed(&self) -> bool {
        self.is_scrubbed.load(Ordering::Acquire)
    }
}

/// All erasures that are under way.
#[derive(Debug, Default)]
pub struct Erasures {
    count: AtomicUsize,
    were_any: AtomicBool,
    under_way: RwLock<UnderWay>,
    /// Held while a snapshot is taken, and while an erasure is noted as scrubbed. So no snapshot begins before an erasure and sees it without
    /// the id by which the events in between are replayed.
    snapshots: Mutex<()>,
}

#[derive(Debug, Default)]
struct UnderWay {
    by_instant: BTreeMap<UnixMicros, Arc<Erasure>>,
    by_user: FxHashMap<SourceId, Arc<Erasure>>,
}

impl Erasures {
    /// Whether there are any. Cheap, and true from before anybody finds a user erased.
    pub fn any(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    /// Whether anybody was ever erased, as far as is known. True from before anybody is found so.
    pub(super) fn were_any(&self) -> bool {
        self.were_any.load(Ordering::Acquire)
    }

    pub(super) fn note_any(&self) {
        self.were_any.store(true, Ordering::Release);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All of them, the oldest first.
    pub fn all(&self) -> Vec<Arc<Erasure>> {
        self.under_way.read().by_instant.values().cloned().collect()
    }

    /// When the oldest began.
    pub fn oldest(&self) -> Option<UnixMicros> {
        self.under_way.read().by_instant.keys().next().copied()
    }

    /// The one that began at an instant.
    pub fn at(&self, at: UnixMicros) -> Option<Arc<Erasure>> {
        self.under_way.read().by_instant.get(&at).cloned()
    }

    /// Whether a user is being erased.
    pub fn is_of(&self, user: &SourceId) -> bool {
        self.any() && self.under_way.read().by_user.contains_key(user)
    }

    /// Whether any is scrubbed: a snapshot that is taken now makes all that is older superfluous.
    pub fn any_scrubbed(&self) -> bool {
        self.any() && self.under_way.read().by_instant.values().any(|erasure| erasure.is_scrubbed())
    }

    /// Keeps erasures from being noted as scrubbed, or snapshots from being taken. Waits, maybe for as long as a snapshot takes.
    pub fn hold_snapshots(&self) -> MutexGuard<'_, ()> {
        self.snapshots.lock()
    }

    pub(super) fn source_of(&self, user: &SourceId) -> Option<Arc<Source>> {
        if !self.any() {
            return None;
        }
        self.under_way.read().by_user.get(user).map(|erasure| Arc::clone(&erasure.source))
    }

    pub(super) fn begin(&self, at: UnixMicros, source: Arc<Source>, user: Option<SourceId>) {
        let mut under_way = self.under_way.write();
        if under_way.by_instant.contains_key(&at) {
            return;
        }
        // Before anything is found in it.
        self.note_any();
        self.count.fetch_add(1, Ordering::Release);
        let is_scrubbed = AtomicBool::new(user.is_none());
        let erasure = Arc::new(Erasure { at, source, user, is_scrubbed });
        erasure.user.iter().for_each(|user| drop(under_way.by_user.insert(user.clone(), Arc::clone(&erasure))));
        under_way.by_instant.insert(at, erasure);
    }

    pub(super) fn scrub(&self, at: UnixMicros) {
        if let Some(erasure) = self.at(at) {
            erasure.is_scrubbed.store(true, Ordering::Release);
        }
    }

    pub(super) fn end(&self, at: UnixMicros) {
        let mut under_way = self.under_way.write();
        if let Some(ended) = under_way.by_instant.remove(&at) {
            ended.user.iter().for_each(|user| drop(under_way.by_user.remove(user)));
            self.count.fetch_sub(1, Ordering::Release);
        }
    }
}
