//! The archive of a cluster: one for all nodes, and a function of their log.
//!
//! Responsible for:
//! - which changes of posts the archive does not have yet, in the order of the log, on every node;
//! - how far the archive has come, and letting a round of tiering wait for that.
//!
//! # Design
//!
//! One node, the sequencer's, copies every post behind the log, and every edit and deletion, whether it leaves memory or not. Each batch
//! contains everything up to the record that it names (`as_of`). Then the *progress* of the archive is stored in it: the last record
//! up to which it has all effects. So the archive follows from the log alone, whatever the memory of the node that writes it has.
//!
//! *Leaving memory.* A round of tiering on any node names the last record that it contains. Writing it means to wait until the progress has
//! reached that record; then the archive has all of it, and it leaves memory. If the progress stands still, the store counts as unavailable:
//! nothing leaves memory, and the round is tried again.
//!
//! *Takeover.* Each node has applied the same records, and lists which posts changed after the progress. So the next sequencer goes on from
//! there. What it writes a second time is the same, or newer and follows in the log anyway. Whatever a deposed one still writes names an
//! older record: the store orders writes by the records that they name, and keeps the larger progress.
//!
//! *Start.* The end of a snapshot waits until the progress has reached it, so a node starts from a snapshot that the archive has, and the
//! replay lists what comes after. Otherwise the list is not complete: the archive is new to the cluster, or the log began with a state.
//! Nothing after the progress has left the memory of any node, so the copier then writes all posts and tombstones in memory.
//!
//! *Routes* differ between nodes, since each decides by the costs of its own readers. The archive has every entry as left to be pulled. So a
//! reader on any node who pulls a source gets all of its archived posts; those that were pushed on that node are in the reader's inbox as
//! well, or below its floor, where whole outboxes are merged.
//!
//! *Damage.* If what the archive has of an outbox cannot be written because it is damaged, the progress goes on without it, so that other sources
//! are archived. The source is *held back*: the archive stores that before it stores a progress that leaves an entry of the source out, and every node
//! reads it after the progress (`held_back`). Rounds of tiering do not take these entries from memory.
//!
//! *Edits and deletions of posts that only the archive has* are applied by nodes that did not judge them, and so did not look the post up.
//! Their edits are kept here until the archive has them, and are applied to what is read from it. Deletions leave a tombstone in memory.
//! While the archive takes nothing, the sequencer accepts no more of them than [`PENDING_EDITS_BYTES_MAX`]. So it counts the edits of all posts
//! that the archive may have: another node may not have them in memory.

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
    Archive, ArchiveError, ArchivedRecord, Batch, EachOutbox, LargestIds, RemoteFigures, Rewrite, Wanted,
};
use crate::storage::identity::Identity;
use crate::storage::sequence::Sequence;
use pending_edits::PendingEdits;

/// Limits of what is remembered of records until the archive has them.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Maximum number of changes that are listed. If there are more, all of memory is written instead.
    changes_max: usize,
    /// Maximum bytes of edits, see [`PENDING_EDITS_BYTES_MAX`].
    edits_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        // So many changes take 64 MB.
        Self { changes_max: 4 << 20, edits_bytes_max: PENDING_EDITS_BYTES_MAX }
    }
}

/// Time for which a round waits while the archive does not come further, before it is given up.
const PATIENCE: Duration = Duration::from_secs(2);

/// What the copier has to write next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Due {
    /// These posts: all that changed up to the record, and maybe some that changed later. May be empty.
    Changed(Vec<PostId>, Sequence),
    /// All posts and tombstones in memory, since it is not known what changed.
    Everything(Sequence),
}

#[derive(Default)]
struct State {
    /// The posts that changed after `progress`, each with a record at or after that of its change, ascending.
    changes: VecDeque<(Sequence, PostId)>,
    /// Every change after this record is listed.
    listed_after: Sequence,
    /// Changes up to this record are no longer listed, so that it is not known of which posts an older version may be kept in memory.
    unlisted_until: Option<Sequence>,
    /// The last record that was applied.
    applied: Sequence,
    /// The archive has everything up to here.
    progress: Sequence,
    edits: PendingEdits,
    /// The sources that are held back, as they were stored when the progress was read or made. None after storing them has failed.
    held_back: Option<BTreeSet<SourceId>>,
    /// The number of threads that wait for progress.
    waiting: usize,
    /// True while a copier makes or follows the progress.
    is_followed: bool,
    is_ending: bool,
}

/// The archive of a cluster, as one node sees it.
pub struct ReplicatedArchive {
    archive: Arc<dyn Archive>,
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
    pub fn new(archive: Arc<dyn Archive>) -> Result<Self, ArchiveError> {
        Self::with_limits(archive, Limits::default())
    }

    fn with_limits(archive: Arc<dyn Archive>, limits: Limits) -> Result<Self, ArchiveError> {
        let progress = archive.through()?;
        let state = Mutex::new(State { progress, held_back: Some(archive.held_back()?), ..State::default() });
        let (ids, progressed, writing) = (LargestIds::default(), Condvar::new(), Mutex::new(()));
        Ok(Self { archive, ids, limits, state, progressed, writing })
    }

    /// Begins with a state after this record: what changed up to it is not listed.
    ///
    /// # Errors
    /// Fails if the archive cannot be read.
    pub fn begin(&self, after: Sequence) -> Result<(), ArchiveError> {
        self.archive.learn_ids()?;
        self.refresh()?;
        let mut state = self.state.lock();
        state.changes.clear();
        state.edits.clear();
        (state.listed_after, state.applied) = (after, after);
        state.unlisted_until = Some(after);
        self.archive.forget_all();
        Ok(())
    }

    /// Notes that a post has changed by the record `at`, or by an earlier one. The change is applied already: from here on the copier may read
    /// the post.
    pub fn note_change(&self, at: Sequence, id: PostId) {
        let mut state = self.state.lock();
        if at <= state.progress {
            // Another node has copied it already, maybe after this one has read it. The edit applies until what was read is forgotten.
            self.archive.forget(&mut std::iter::once(id), &mut std::iter::empty());
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

    /// Keeps an edit of a post that memory does not have, unless the archive surely lacks it, too.
    pub fn keep_edit(&self, id: PostId, body: Option<&Body>, hidden: Option<bool>, at: UnixMicros) {
        if !self.may_have(id) {
            return;
        }
        self.state.lock().edits.keep(id, body, hidden, at);
    }

    /// Counts an edit of a post that is in memory here, and that only the archive may have elsewhere.
    pub fn count_edit(&self, id: PostId, body: Option<&Body>) {
        if self.may_have(id) {
            self.state.lock().edits.count(id, body);
        }
    }

    /// Checks that nodes without the post in memory can keep one more edit, beside those that are applied.
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
        // One that takes the place of another is accepted, if it is not longer.
        if after <= before.max(bytes_max) {
            return Ok(());
        }
        let why = format!("it does not have edits of {before} bytes yet, and at most {bytes_max} may wait for it");
        Err(ArchiveError::Unavailable { place: self.archive.place(), why })
    }

    /// Returns the edits of a post that the archive may not have.
    pub fn edit(&self, id: PostId) -> Option<PendingEdit> {
        self.state.lock().edits.get(id).cloned()
    }

    /// Returns the posts with such edits.
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

    /// Returns the number of records that this node has applied, and of which the archive does not have the effects yet, as far as this node
    /// knows. A record need not change anything there.
    pub fn lag(&self) -> u64 {
        let state = self.state.lock();
        state.applied.0.saturating_sub(state.progress.0)
    }

    /// Returns the number of changes that the archive does not have yet, as far as they are listed.
    pub fn behind(&self) -> usize {
        self.state.lock().changes.len()
    }

    /// Returns what to write next, about `max` changes. None if the archive has everything.
    pub fn due(&self, max: usize) -> Option<Due> {
        let state = self.state.lock();
        if state.progress >= state.applied {
            return None;
        }
        if state.progress < state.listed_after {
            return Some(Due::Everything(state.applied));
        }
        // Changes of one record, and those of a batch that was replayed, stay together.
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

    /// Keeps other writes of this node away, while this one is made.
    pub fn writing(&self) -> MutexGuard<'_, ()> {
        self.writing.lock()
    }

    /// Forgets all that this node has read of the archive and kept.
    pub fn forget_everything(&self) {
        self.archive.forget_all();
    }

    /// The archive that all nodes share.
    pub fn shared(&self) -> &Arc<dyn Archive> {
        &self.archive
    }

    /// Stores that the archive has everything up to a record.
    ///
    /// # Errors
    /// Fails if the archive cannot be written.
    pub fn advance(&self, through: Sequence) -> Result<(), ArchiveError> {
        self.archive.persist(through)?;
        self.set_progress(through);
        Ok(())
    }

    /// Reads how far another node has come.
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
        // Before the edits that are kept here no longer apply to what is read.
        self.archive.forget(&mut state.changes.drain(..passed).map(|(_, id)| id), &mut std::iter::empty());
        if let Some(until) = state.unlisted_until {
            self.archive.forget_all();
            state.unlisted_until = Some(until).filter(|until| *until > through);
        }
        let edited = state.edits.up_to(through);
        self.archive.forget(&mut edited.iter().copied(), &mut std::iter::empty());
        edited.into_iter().for_each(|id| state.edits.remove(id));
        drop(state);
        self.progressed.notify_all();
    }

    /// Says that from here on a copier makes or follows the progress, so that rounds wait for it.
    pub fn set_followed(&self) {
        self.state.lock().is_followed = true;
    }

    /// Waits until the archive has everything up to a record, as long as it comes further. Before there is a copier, it looks once.
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
                let why = format!("it has come to record {}, and record {through} is needed", state.progress);
                Err(ArchiveError::Unavailable { place: self.archive.place(), why })
            }
        }
    }
}

impl Archive for ReplicatedArchive {
    fn is_remote(&self) -> bool {
        self.archive.is_remote()
    }

    fn expires(&self) -> bool {
        self.archive.expires()
    }

    fn replicated_archive(&self) -> Option<&ReplicatedArchive> {
        Some(self)
    }

    /// What this node has counted is what has left its memory.
    fn counts_outboxes(&self) -> bool {
        false
    }

    /// Waits until the archive has the batch.
    fn write(&self, batch: &Batch) -> Result<(), ArchiveError> {
        self.wait_for(batch.as_of)?;
        self.refuse_held_back(batch)?;
        let mut outboxes =
            batch.placed.iter().map(|(source, ..)| source).chain(batch.removed.iter().map(|(source, _)| source));
        self.archive.forget(&mut batch.posts.iter().map(|(id, _)| *id), &mut outboxes);
        // Before it leaves memory, which makes it visible in the archive.
        self.ids.note(batch.posts.iter().map(|(id, _)| *id));
        Ok(())
    }

    /// A batch that is being written may have been made before the users were erased, and is waited for. Those that are made from here on
    /// name none of them. They may be written while the rewrite reads all of the archive, and so may the rest of one that has failed: they name
    /// records after the progress, and the rewrite counts as older.
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

    fn forget(&self, posts: &mut dyn Iterator<Item = PostId>, outboxes: &mut dyn Iterator<Item = &SourceId>) {
        self.archive.forget(posts, outboxes);
    }

    fn forget_all(&self) {
        self.archive.forget_all();
    }

    fn written(&self) -> Result<Sequence, ArchiveError> {
        self.archive.written()
    }

    fn post(&self, id: PostId) -> Result<Option<ArchivedRecord>, ArchiveError> {
        self.archive.post(id)
    }

    fn positions(&self, source: &SourceId, query: OutboxQuery, into: &mut Vec<Position>) -> Result<(), ArchiveError> {
        self.archive.positions(source, query, into)
    }

    fn prefetch(&self, wanted: &mut dyn Iterator<Item = Wanted<'_>>) {
        self.archive.prefetch(wanted);
    }

    fn ids_from(&self, from: PostId, max: usize) -> Result<Option<Vec<PostId>>, ArchiveError> {
        self.archive.ids_from(from, max)
    }

    fn each_outbox(&self, each: EachOutbox<'_>) -> Result<(), ArchiveError> {
        self.archive.each_outbox(each)
    }

    fn sources(&self) -> Result<Vec<SourceId>, ArchiveError> {
        self.archive.sources()
    }

    fn identity(&self) -> Result<Option<Identity>, ArchiveError> {
        self.archive.identity()
    }

    fn figures(&self) -> Option<RemoteFigures> {
        self.archive.figures()
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
}
