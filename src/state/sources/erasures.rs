//! Erasures that are in progress.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard, RwLock};
use rustc_hash::FxHashMap;

use crate::clock::UnixMicros;
use crate::id::SourceId;
use crate::state::sources::Source;
use crate::storage::sequence::Sequence;

/// The erasure of one user.
#[derive(Debug)]
pub struct Erasure {
    /// The instant at which it began, which identifies the erasure.
    pub at: UnixMicros,
    /// The source that represented the user.
    pub source: Arc<Source>,
    /// The id of the user. `None` after a start from a snapshot that was taken when only older files still contained
    /// the id.
    pub user: Option<SourceId>,
    is_scrubbed: AtomicBool,
}

impl Erasure {
    /// Returns true if only older snapshots, older journal segments and this process still contain the id of the user.
    pub fn is_scrubbed(&self) -> bool {
        self.is_scrubbed.load(Ordering::Acquire)
    }
}

/// All erasures that are in progress.
#[derive(Debug, Default)]
pub struct Erasures {
    count: AtomicUsize,
    were_any: AtomicBool,
    under_way: RwLock<UnderWay>,
    /// Locked while a snapshot is taken, and while an erasure is marked as scrubbed. Otherwise a snapshot that begins
    /// before an erasure could store the erasure without the user's id, which is needed to replay the events between
    /// the two.
    snapshots: Mutex<()>,
    journal_from: Mutex<Option<Sequence>>,
}

#[derive(Debug, Default)]
struct UnderWay {
    by_instant: BTreeMap<UnixMicros, Arc<Erasure>>,
    by_user: FxHashMap<SourceId, Arc<Erasure>>,
}

impl Erasures {
    /// Returns true if any erasure is in progress. It is cheap, and true before any reader can see the user as erased.
    pub fn any(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    /// Returns true if any user is known to have been erased. It is true before any reader can see a user as erased.
    pub(in crate::state) fn were_any(&self) -> bool {
        self.were_any.load(Ordering::Acquire)
    }

    pub(in crate::state) fn note_any(&self) {
        self.were_any.store(true, Ordering::Release);
    }

    /// The number of erasures in progress.
    pub fn len(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Returns true if no erasure is in progress.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns all erasures in progress, oldest first.
    pub fn all(&self) -> Vec<Arc<Erasure>> {
        self.under_way.read().by_instant.values().cloned().collect()
    }

    /// Returns when the oldest erasure in progress began.
    pub fn oldest(&self) -> Option<UnixMicros> {
        self.under_way.read().by_instant.keys().next().copied()
    }

    /// Returns the erasure that began at an instant.
    pub fn at(&self, at: UnixMicros) -> Option<Arc<Erasure>> {
        self.under_way.read().by_instant.get(&at).cloned()
    }

    /// Returns true if a user is being erased.
    pub fn is_of(&self, user: &SourceId) -> bool {
        self.any() && self.under_way.read().by_user.contains_key(user)
    }

    /// Returns true if any erasure is scrubbed. After the end of this process, the users that older files name may then be unknown.
    pub fn any_scrubbed(&self) -> bool {
        self.any() && self.all().iter().any(|erasure| erasure.is_scrubbed())
    }

    /// Returns the first event of the journal that the next snapshot retains, if that snapshot is to remove everything older, earlier
    /// snapshots included. It is set once an erasure is scrubbed and no event from this one on names its user.
    pub fn journal_from(&self) -> Option<Sequence> {
        *self.journal_from.lock()
    }

    /// Sets the result of [`Erasures::journal_from`].
    pub fn set_journal_from(&self, from: Option<Sequence>) {
        *self.journal_from.lock() = from;
    }

    /// Prevents erasures from being marked as scrubbed, or snapshots from being taken, while the guard exists. Blocks,
    /// possibly for as long as a snapshot takes.
    pub fn hold_snapshots(&self) -> MutexGuard<'_, ()> {
        self.snapshots.lock()
    }

    /// Does the same as [`Self::hold_snapshots`], unless another thread does it now.
    pub fn try_hold_snapshots(&self) -> Option<MutexGuard<'_, ()>> {
        self.snapshots.try_lock()
    }

    pub(in crate::state) fn source_of(&self, user: &SourceId) -> Option<Arc<Source>> {
        if !self.any() {
            return None;
        }
        self.under_way.read().by_user.get(user).map(|erasure| Arc::clone(&erasure.source))
    }

    pub(in crate::state) fn begin(&self, at: UnixMicros, source: Arc<Source>, user: Option<SourceId>) {
        let mut under_way = self.under_way.write();
        if under_way.by_instant.contains_key(&at) {
            return;
        }
        // Set before the erasure can be found.
        self.note_any();
        self.count.fetch_add(1, Ordering::Release);
        let is_scrubbed = AtomicBool::new(user.is_none());
        let erasure = Arc::new(Erasure { at, source, user, is_scrubbed });
        erasure.user.iter().for_each(|user| drop(under_way.by_user.insert(user.clone(), Arc::clone(&erasure))));
        under_way.by_instant.insert(at, erasure);
    }

    pub(in crate::state) fn scrub(&self, at: UnixMicros) {
        if let Some(erasure) = self.at(at) {
            erasure.is_scrubbed.store(true, Ordering::Release);
        }
    }

    pub(in crate::state) fn end(&self, at: UnixMicros) {
        let mut under_way = self.under_way.write();
        if let Some(ended) = under_way.by_instant.remove(&at) {
            ended.user.iter().for_each(|user| drop(under_way.by_user.remove(user)));
            self.count.fetch_sub(1, Ordering::Release);
        }
    }
}
