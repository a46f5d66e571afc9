//! The archive of a cluster: one for all nodes, and a function of their log.
//!
//! Responsible for:
//! - the list of changed posts that the archive does not have yet, in the order of the log, on every node;
//! - the progress of the archive, and rounds of tiering that wait for it.
//!
//! # Design
//!
//! The sequencer's node copies every post, edit and deletion behind the log, even if the post stays in memory. Each batch contains
//! everything up to the record that it names (`as_of`). Then the node stores the *progress* of the archive in it: the last record up to
//! which the archive has all effects. So the content of the archive depends on the log alone, not on the memory of the node that writes
//! it.
//!
//! *Leaving memory.* A round of tiering on any node names the last record that it contains. Its write waits until the progress has
//! reached that record. Then the archive has all of the round, and the posts leave memory. If the progress stops, the store counts as
//! unavailable: nothing leaves memory, and the node retries the round.
//!
//! *Takeover.* Every node has applied the same records, and lists the posts that changed after the progress. So the next sequencer
//! continues there. A post that it writes a second time is the same, or has a newer change, which follows in the log. Late writes of a
//! deposed sequencer name an older record. The store orders writes by the records that they name, and retains the larger progress.
//!
//! *Start.* A snapshot is finished only when the progress has reached its end. So the archive has all of the snapshot from which a node
//! starts, and the replay lists the later changes. Otherwise the list is incomplete: the archive is new to the cluster, or the log began
//! with a state. Then the copier writes all posts and tombstones in memory, since nothing after the progress has left the memory of any
//! node.
//!
//! *Routes* differ between nodes, since each node decides by the costs of its own readers. In the archive, every entry has the route
//! pull. So a reader on any node who pulls a source gets all of its archived posts. The posts that this node pushed are also in the
//! reader's inbox, or below its floor, where whole outboxes are merged.
//!
//! *Damage.* If the archive cannot write an outbox because it is damaged there, the progress continues without it, so that other sources
//! are archived. The source is *held back*: the archive stores this before it stores a progress that leaves out an entry of the source.
//! Every node reads it after the progress (`held_back`). Rounds of tiering do not remove these entries from memory.
//!
//! *Edits and deletions of posts that only the archive has* are also applied by nodes that did not judge them, and so have not read the
//! post. These nodes retain the edits until the archive has them, and apply them to posts that they read from it. Deletions leave a
//! tombstone in memory. While the archive accepts no writes, the sequencer accepts at most [`PENDING_EDITS_BYTES_MAX`] of edits. It
//! counts the edits of all posts that the archive may have, because another node may not have them in memory.

mod held_back;
mod pending_edits;
mod tests;

pub use pending_edits::PendingEdit;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::clock::UnixMicros;
use crate::feed::outbox::OutboxQuery;
use crate::feed::position::Position;
use crate::feed::post::Body;
use crate::id::{PostId, SourceId};
use crate::limits::PENDING_EDITS_BYTES_MAX;
use crate::storage::archive::{
    Archive, ArchiveError, ArchivedRecord, Batch, EachOutbox, LargestIds, RemoteArchive, RemoteFigures, Rewrite, Wanted,
};
use crate::storage::identity::Identity;
use crate::storage::sequence::Sequence;
use pending_edits::PendingEdits;

/// Limits of the data that a node retains of records until the archive has them.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Maximum number of listed changes. If there are more, the copier writes all of memory instead.
    changes_max: usize,
    /// Maximum bytes of edits, see [`PENDING_EDITS_BYTES_MAX`].
    edits_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        // These changes take 64 MB.
        Self { changes_max: 4 << 20, edits_bytes_max: PENDING_EDITS_BYTES_MAX }
    }
}

/// Maximum time for which a round waits without progress of the archive.
const PATIENCE: Duration = Duration::from_secs(2);

/// The next work of the copier.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Due {
    /// All posts that changed up to the record, and maybe some that changed later. May be empty.
    Changed(Vec<PostId>, Sequence),
    /// All posts and tombstones in memory, since the list of changes is incomplete.
    Everything(Sequence),
}

#[derive(Default)]
struct State {
    /// The posts that changed after `progress`, each with a record at or after that of its change, ascending.
    changes: VecDeque<(Sequence, PostId)>,
    /// Every change after this record is listed.
    listed_after: Sequence,
    /// Changes up to this record are no longer listed. So an older version of any post may be cached.
    unlisted_until: Option<Sequence>,
    /// The last record that was applied.
    applied: Sequence,
    /// The archive has everything up to here.
    progress: Sequence,
    edits: PendingEdits,
    /// The sources that are held back, as stored when the progress was read or written. None after a failure to store them.
    held_back: Option<BTreeSet<SourceId>>,
    /// The number of threads that wait for progress.
    waiting: usize,
    /// True while a copier advances or follows the progress.
    is_followed: bool,
    is_ending: bool,
}

/// The archive of a cluster, as one node sees it.
pub struct ReplicatedArchive {
    archive: Arc<dyn RemoteArchive>,
    /// The ids that have left the memory of this node.
    ids: LargestIds,
    limits: Limits,
    state: Mutex<State>,
    progressed: Condvar,
    /// Held while this node writes to the archive.
    writing: Mutex<()>,
}

impl ReplicatedArchive {
    /// Wraps the archive that all nodes share.
    ///
    /// # Errors
    /// Fails if the archive cannot be read.
    pub fn new(archive: Arc<dyn RemoteArchive>) -> Result<Self, ArchiveError> {
        Self::with_limits(archive, Limits::default())
    }

    fn with_limits(archive: Arc<dyn RemoteArchive>, limits: Limits) -> Result<Self, ArchiveError> {
        let progress = archive.through()?;
        let state = Mutex::new(State { progress, held_back: Some(archive.held_back()?), ..State::default() });
        let (ids, progressed, writing) = (LargestIds::default(), Condvar::new(), Mutex::new(()));
        Ok(Self { archive, ids, limits, state, progressed, writing })
    }

    /// Begins with a state that contains the records up to this one. Their changes are not listed.
    ///
    /// # Errors
    /// Fails if the archive cannot be read.
    pub fn begin(&self, after: Sequence) -> Result<(), ArchiveError> {
        self.archive.refresh_ids()?;
        self.refresh()?;
        let mut state = self.state.lock();
        state.changes.clear();
        state.edits.clear();
        (state.listed_after, state.applied) = (after, after);
        state.unlisted_until = Some(after);
        self.archive.invalidate_all();
        Ok(())
    }

    /// Notes that the record `at`, or an earlier one, has changed a post. The change must be applied already: from now on the copier may
    /// read the post.
    pub fn note_change(&self, at: Sequence, id: PostId) {
        let mut state = self.state.lock();
        if at <= state.progress {
            // Another node has copied the change, maybe after this node read the post. The edit must apply until the cached read is
            // invalidated.
            self.archive.invalidate(&mut std::iter::once(id), &mut std::iter::empty());
            state.edits.remove(id);
            return;
        }
        state.edits.set_record(id, at);
        state.changes.push_back((at, id));
        if state.changes.len() > self.limits.changes_max {
            state.changes.clear();
            state.listed_after = at;
            state.unlisted_until = Some(at);
        }
    }

    /// Retains an edit of a post that is not in memory, unless the archive certainly lacks the post, too.
    pub fn keep_edit(&self, id: PostId, body: Option<&Body>, hidden: Option<bool>, at: UnixMicros) {
        if !self.may_have(id) {
            return;
        }
        self.state.lock().edits.keep(id, body, hidden, at);
    }

    /// Counts an edit of a post that is in memory here, and that other nodes may have only in the archive.
    pub fn count_edit(&self, id: PostId, body: Option<&Body>) {
        if self.may_have(id) {
            self.state.lock().edits.count(id, body);
        }
    }

    /// Checks that nodes without the post in memory can retain one more edit, besides those already applied.
    ///
    /// # Errors
    /// Fails if too many bytes wait for the archive. The error is temporary.
    pub fn check_edit(&self, id: PostId, body: Option<&Body>) -> Result<(), ArchiveError> {
        if !self.may_have(id) {
            return Ok(());
        }
        let state = self.state.lock();
        let (before, after, bytes_max) =
            (state.edits.bytes(), state.edits.bytes_with(id, body), self.limits.edits_bytes_max);
        // An edit that replaces another is accepted if it is not longer.
        if after <= before.max(bytes_max) {
            return Ok(());
        }
        let why = format!("it lacks edits of {before} bytes, and at most {bytes_max} may wait for it");
        Err(ArchiveError::Unavailable { place: self.archive.place(), why })
    }

    /// Returns the edits of a post that the archive may not have yet.
    pub fn edit(&self, id: PostId) -> Option<PendingEdit> {
        self.state.lock().edits.get(id).cloned()
    }

    /// Returns the posts whose edits are retained here.
    pub fn edited(&self) -> Vec<PostId> {
        self.state.lock().edits.kept().collect()
    }

    /// Notes that all records up to this one are applied, and their changes noted.
    pub fn note_applied(&self, through: Sequence) {
        self.state.lock().applied = through;
    }

    /// The last record whose effects the archive has, as far as this node knows.
    pub fn progress(&self) -> Sequence {
        self.state.lock().progress
    }

    /// Returns the number of applied records whose effects the archive does not have yet, as far as this node knows. A record need not
    /// change the archive.
    pub fn lag(&self) -> u64 {
        let state = self.state.lock();
        state.applied.0.saturating_sub(state.progress.0)
    }

    /// Returns the number of listed changes that the archive does not have yet.
    pub fn behind(&self) -> usize {
        self.state.lock().changes.len()
    }

    /// Returns the next work of the copier, about `max` changes. None if the archive has everything.
    pub fn due(&self, max: usize) -> Option<Due> {
        let state = self.state.lock();
        if state.progress >= state.applied {
            return None;
        }
        if state.progress < state.listed_after {
            return Some(Due::Everything(state.applied));
        }
        // The changes of one record stay together, as do those of a replayed batch.
        let through = state.changes.get(max.max(1) - 1).map_or(state.applied, |(at, _)| *at);
        let through = through.min(state.applied);
        let mut ids: Vec<PostId> =
            state.changes.iter().take_while(|(at, _)| *at <= through).map(|(_, id)| *id).collect();
        drop(state);
        ids.sort_unstable();
        ids.dedup();
        Some(Due::Changed(ids, through))
    }

    /// Returns true if a round waits for progress.
    pub fn is_awaited(&self) -> bool {
        self.state.lock().waiting > 0
    }

    /// Locks out other writes of this node while the guard exists.
    pub fn writing(&self) -> MutexGuard<'_, ()> {
        self.writing.lock()
    }

    /// Invalidates everything that this node has read from the archive and cached.
    pub fn forget_everything(&self) {
        self.archive.invalidate_all();
    }

    /// The archive that all nodes share.
    pub fn shared(&self) -> &Arc<dyn RemoteArchive> {
        &self.archive
    }

    /// Stores the progress: the archive has everything up to this record.
    ///
    /// # Errors
    /// Fails if the archive cannot be written.
    pub fn advance(&self, through: Sequence) -> Result<(), ArchiveError> {
        self.archive.persist(through)?;
        self.set_progress(through);
        Ok(())
    }

    /// Reads the progress that another node has stored.
    ///
    /// # Errors
    /// Fails if the archive cannot be read.
    pub fn refresh(&self) -> Result<(), ArchiveError> {
        let through = self.archive.through()?;
        let knows_held_back = self.state.lock().held_back.is_some();
        if through > self.progress() || !knows_held_back {
            self.learn_held_back()?;
        }
        self.set_progress(through);
        Ok(())
    }

    fn set_progress(&self, through: Sequence) {
        let mut state = self.state.lock();
        if through <= state.progress {
            return;
        }
        state.progress = through;
        let passed = state.changes.partition_point(|(at, _)| *at <= through);
        // Invalidated before the retained edits are removed: without them, the cached reads are outdated.
        self.archive.invalidate(&mut state.changes.drain(..passed).map(|(_, id)| id), &mut std::iter::empty());
        if let Some(until) = state.unlisted_until {
            self.archive.invalidate_all();
            state.unlisted_until = Some(until).filter(|until| *until > through);
        }
        let edited = state.edits.up_to(through);
        self.archive.invalidate(&mut edited.iter().copied(), &mut std::iter::empty());
        edited.into_iter().for_each(|id| state.edits.remove(id));
        drop(state);
        self.progressed.notify_all();
    }

    /// Marks that from now on a copier advances or follows the progress, so that rounds wait for it.
    pub fn set_followed(&self) {
        self.state.lock().is_followed = true;
    }

    /// Waits until the progress has reached a record, as long as it advances. Without a copier, checks only once.
    fn wait_for(&self, through: Sequence) -> Result<(), ArchiveError> {
        let mut state = self.state.lock();
        if !state.is_followed && state.progress < through {
            drop(state);
            self.refresh()?;
            state = self.state.lock();
        }
        let patience = if state.is_followed { PATIENCE } else { Duration::ZERO };
        let mut until = Instant::now() + patience;
        state.waiting += 1;
        while state.progress < through && !state.is_ending {
            let before = state.progress;
            if self.progressed.wait_until(&mut state, until).timed_out() {
                break;
            }
            if state.progress > before {
                until = Instant::now() + patience;
            }
        }
        state.waiting -= 1;
        match state.progress >= through {
            true => Ok(()),
            false => {
                let why = format!("it has reached record {}, and record {through} is needed", state.progress);
                Err(ArchiveError::Unavailable { place: self.archive.place(), why })
            }
        }
    }
}

impl Archive for ReplicatedArchive {
    /// Waits until the archive has the batch.
    fn write(&self, batch: &Batch) -> Result<(), ArchiveError> {
        self.wait_for(batch.as_of)?;
        self.refuse_held_back(batch)?;
        let mut outboxes =
            batch.placed.iter().map(|(source, ..)| source).chain(batch.removed.iter().map(|(source, _)| source));
        self.archive.invalidate(&mut batch.posts.iter().map(|(id, _)| *id), &mut outboxes);
        // The ids are noted before the batch leaves memory, which makes it visible in the archive.
        self.ids.note(batch.posts.iter().map(|(id, _)| *id));
        Ok(())
    }

    /// Waits for a batch that is being written, since it may be older than the erasure. Later batches name none of the erased users. They
    /// may be written while the rewrite reads the archive, and so may the rest of a failed batch: they name records after the progress,
    /// and the rewrite counts as older.
    fn rewrite(&self, rewrite: &Rewrite<'_>) -> Result<(), ArchiveError> {
        let as_of = {
            let _writing = self.writing();
            self.progress().max(rewrite.as_of)
        };
        self.archive.rewrite(&Rewrite { as_of, ..*rewrite })
    }

    /// Waits until the archive has everything up to a record.
    fn persist(&self, through: Sequence) -> Result<(), ArchiveError> {
        self.wait_for(through)
    }

    fn through(&self) -> Result<Sequence, ArchiveError> {
        self.archive.through()
    }

    fn post(&self, id: PostId) -> Result<Option<ArchivedRecord>, ArchiveError> {
        self.archive.post(id)
    }

    fn positions(&self, source: &SourceId, query: OutboxQuery, into: &mut Vec<Position>) -> Result<(), ArchiveError> {
        self.archive.positions(source, query, into)
    }

    fn ids_from(&self, from: PostId, max: usize) -> Result<Option<Vec<PostId>>, ArchiveError> {
        self.archive.ids_from(from, max)
    }

    fn each_outbox(&self, each: EachOutbox<'_>) -> Result<(), ArchiveError> {
        self.archive.each_outbox(each)
    }

    fn identity(&self) -> Result<Option<Identity>, ArchiveError> {
        self.archive.identity()
    }

    fn set_identity(&self, identity: Identity) -> Result<(), ArchiveError> {
        self.archive.set_identity(identity)
    }

    fn stop_waiting(&self) {
        self.state.lock().is_ending = true;
        self.progressed.notify_all();
        self.archive.stop_waiting();
    }

    fn close(&self) {
        self.archive.close();
    }

    fn place(&self) -> String {
        self.archive.place()
    }

    fn may_have(&self, id: PostId) -> bool {
        self.ids.may_have(id) || self.archive.may_have(id)
    }

    fn is_empty(&self) -> bool {
        self.ids.is_empty() && self.archive.is_empty()
    }

    fn remote(&self) -> Option<&dyn RemoteArchive> {
        Some(self)
    }
}

impl RemoteArchive for ReplicatedArchive {
    fn expires(&self) -> bool {
        self.archive.expires()
    }

    fn written(&self) -> Result<Sequence, ArchiveError> {
        self.archive.written()
    }

    fn held_back(&self) -> Result<BTreeSet<SourceId>, ArchiveError> {
        self.known_held_back()
    }

    fn set_held_back(&self, sources: &BTreeSet<SourceId>) -> Result<(), ArchiveError> {
        self.hold_back(sources)
    }

    fn refresh_ids(&self) -> Result<(), ArchiveError> {
        self.archive.refresh_ids()
    }

    fn invalidate(&self, posts: &mut dyn Iterator<Item = PostId>, outboxes: &mut dyn Iterator<Item = &SourceId>) {
        self.archive.invalidate(posts, outboxes);
    }

    fn invalidate_all(&self) {
        self.archive.invalidate_all();
    }

    fn prefetch(&self, wanted: &mut dyn Iterator<Item = Wanted<'_>>) {
        self.archive.prefetch(wanted);
    }

    fn list_sources(&self) -> Result<Vec<SourceId>, ArchiveError> {
        self.archive.list_sources()
    }

    fn begin_copy(&self) -> Result<(), ArchiveError> {
        self.archive.begin_copy()
    }

    fn figures(&self) -> RemoteFigures {
        self.archive.figures()
    }
}
