//! An archive that fails by a plan, for tests.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::feed::outbox::OutboxQuery;
use crate::feed::position::Position;
use crate::id::{PostId, SourceId};
use crate::storage::archive::{
    Archive, ArchiveError, ArchiveSnapshot, ArchivedRecord, Batch, EachOutbox, LocalArchive, RemoteArchive,
    RemoteFigures, Rewrite, Wanted,
};
use crate::storage::identity::Identity;
use crate::storage::sequence::Sequence;

/// The faults to inject. Operations of each kind are counted from 1.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// The writes that fail without leaving any data.
    pub fail_writes: Range<u64>,
    /// Sources with a damaged page: adding or removing entries of these sources fails.
    pub damaged: Vec<SourceId>,
    /// The persist operations that fail.
    pub fail_persists: Range<u64>,
    /// The rewrites that fail.
    pub fail_rewrites: Range<u64>,
    /// The lookups of posts that fail.
    pub fail_posts: Range<u64>,
    /// A post that is reported as missing, without an error.
    pub lost_post: Option<PostId>,
    /// A post whose look-ups find damage.
    pub damaged_post: Option<PostId>,
    /// True if posts may be missing because they have expired.
    pub expires: bool,
    /// The reads of outboxes that fail.
    pub fail_copies: Range<u64>,
    /// The listings of ids that fail.
    pub fail_ids: Range<u64>,
    /// True if the archive has no list of ids.
    pub lists_no_ids: bool,
    /// True while the disk is full: persisting waits until a new plan sets this to false.
    pub is_full: bool,
    /// True while writes wait, until a new plan sets this to false.
    pub holds_writes: bool,
    /// Duration of every look-up of a post and every read of an outbox.
    pub read_takes: Duration,
    /// True if failing operations report an unavailable store, so that the error is temporary. Otherwise they report a disk failure.
    pub is_temporary: bool,
    /// True if failing writes are written nevertheless: only the answer is lost.
    pub loses_answers: bool,
}

/// The number of operations of each kind.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    /// Writes that were started.
    pub writes: u64,
    /// Persist operations that were started.
    pub persists: u64,
    /// Rewrites that were started.
    pub rewrites: u64,
    /// Lookups of posts.
    pub posts: u64,
    /// Reads of outboxes.
    pub copies: u64,
    /// Listings of ids.
    pub ids: u64,
    /// Listings of all outboxes.
    pub listings: u64,
    /// Attempts to write data that a full disk refused.
    pub catch_ups: u64,
    /// Reads that were announced.
    pub prefetched: u64,
    /// The last event of all batches that were written.
    pub as_of: Sequence,
}

/// An archive with injected faults.
#[derive(Default)]
pub struct FaultyArchive<A> {
    archive: A,
    state: Mutex<(Plan, Counts)>,
    is_remote: bool,
    /// The requested invalidations: a post, or none for everything.
    forgotten: Mutex<Vec<Option<PostId>>>,
}

impl<A: Archive> FaultyArchive<A> {
    /// Wraps `archive` so that it fails by `plan`.
    pub fn new(archive: A, plan: Plan) -> Self {
        Self { archive, state: Mutex::new((plan, Counts::default())), is_remote: false, forgotten: Mutex::default() }
    }

    /// As [`Self::new`], but like a store across a network, which does not count outboxes.
    pub fn remote(archive: A, plan: Plan) -> Self {
        Self { is_remote: true, ..Self::new(archive, plan) }
    }

    /// Returns the invalidations that were requested since the last call: a post, or none for everything.
    pub fn forgotten(&self) -> Vec<Option<PostId>> {
        std::mem::take(&mut self.forgotten.lock())
    }

    /// Replaces the plan, and restarts all counts from 1.
    pub fn set_plan(&self, plan: Plan) {
        *self.state.lock() = (plan, Counts::default());
    }

    /// The number of operations of each kind since the plan was set.
    pub fn counts(&self) -> Counts {
        self.state.lock().1
    }

    /// The archive that this one wraps.
    pub fn inner(&self) -> &A {
        &self.archive
    }

    fn fails(
        &self,
        action: &'static str,
        count: impl Fn(&mut Counts) -> &mut u64,
        planned: impl Fn(&Plan) -> &Range<u64>,
    ) -> Result<(), ArchiveError> {
        let (plan, counts) = &mut *self.state.lock();
        let count = count(counts);
        *count += 1;
        if !planned(plan).contains(count) {
            return Ok(());
        }
        let place = self.archive.place();
        if plan.is_temporary {
            return Err(ArchiveError::Unavailable { place, why: format!("it did not answer in time to {action} it") });
        }
        let source = std::io::Error::other("the disk failed").into();
        Err(ArchiveError::Failed { action, place, source })
    }

    fn read_slowly(&self) {
        let takes = self.state.lock().0.read_takes;
        if !takes.is_zero() {
            #[expect(clippy::disallowed_methods, reason = "a slow disk blocks its callers")]
            std::thread::sleep(takes);
        }
    }

    fn wait_while(&self, condition: impl Fn(&Plan) -> bool) {
        while condition(&self.state.lock().0) {
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }
}

impl<A: Archive> Archive for FaultyArchive<A> {
    fn write(&self, batch: &Batch) -> Result<(), ArchiveError> {
        {
            let counts = &mut self.state.lock().1;
            counts.as_of = counts.as_of.max(batch.as_of);
        }
        let fails = self.fails("write to", |counts| &mut counts.writes, |plan| &plan.fail_writes);
        let loses_answers = self.state.lock().0.loses_answers;
        self.wait_while(|plan| plan.holds_writes);
        if fails.is_err() && loses_answers {
            self.archive.write(batch)?;
        }
        fails?;
        let mut touched =
            batch.placed.iter().map(|(source, ..)| source).chain(batch.removed.iter().map(|(source, _)| source));
        let damaged = self.state.lock().0.damaged.clone();
        if touched.any(|source| damaged.contains(source)) {
            return Err(ArchiveError::Damaged { place: self.archive.place(), what: "a page".to_owned() });
        }
        self.archive.write(batch)
    }

    fn persist(&self, through: Sequence) -> Result<(), ArchiveError> {
        self.fails("persist", |counts| &mut counts.persists, |plan| &plan.fail_persists)?;
        self.wait_while(|plan| plan.is_full);
        self.archive.persist(through)
    }

    fn rewrite(&self, rewrite: &Rewrite<'_>) -> Result<(), ArchiveError> {
        self.fails("rewrite", |counts| &mut counts.rewrites, |plan| &plan.fail_rewrites)?;
        self.archive.rewrite(rewrite)
    }

    fn through(&self) -> Result<Sequence, ArchiveError> {
        self.archive.through()
    }

    fn post(&self, id: PostId) -> Result<Option<ArchivedRecord>, ArchiveError> {
        self.read_slowly();
        self.fails("read", |counts| &mut counts.posts, |plan| &plan.fail_posts)?;
        let (lost, damaged) = {
            let plan = &self.state.lock().0;
            (plan.lost_post, plan.damaged_post)
        };
        if damaged == Some(id) {
            return Err(ArchiveError::Damaged { place: self.archive.place(), what: format!("post {id}") });
        }
        if lost == Some(id) {
            return Ok(None);
        }
        self.archive.post(id)
    }

    fn positions(&self, source: &SourceId, query: OutboxQuery, into: &mut Vec<Position>) -> Result<(), ArchiveError> {
        self.read_slowly();
        self.fails("read", |counts| &mut counts.copies, |plan| &plan.fail_copies)?;
        self.archive.positions(source, query, into)
    }

    fn ids_from(&self, from: PostId, max: usize) -> Result<Option<Vec<PostId>>, ArchiveError> {
        self.fails("read", |counts| &mut counts.ids, |plan| &plan.fail_ids)?;
        if self.state.lock().0.lists_no_ids {
            return Ok(None);
        }
        self.archive.ids_from(from, max)
    }

    fn each_outbox(&self, each: EachOutbox<'_>) -> Result<(), ArchiveError> {
        self.state.lock().1.listings += 1;
        self.archive.each_outbox(each)
    }

    fn identity(&self) -> Result<Option<Identity>, ArchiveError> {
        self.archive.identity()
    }

    fn set_identity(&self, identity: Identity) -> Result<(), ArchiveError> {
        self.archive.set_identity(identity)
    }

    fn stop_waiting(&self) {
        self.archive.stop_waiting();
    }

    fn close(&self) {
        self.archive.close();
    }

    fn place(&self) -> String {
        self.archive.place()
    }

    fn may_have(&self, id: PostId) -> bool {
        self.archive.may_have(id)
    }

    fn is_empty(&self) -> bool {
        self.archive.is_empty()
    }

    fn local(&self) -> Option<&dyn LocalArchive> {
        (!self.is_remote()).then_some(self)
    }

    fn remote(&self) -> Option<&dyn RemoteArchive> {
        (self.is_remote || self.archive.is_remote()).then_some(self)
    }
}

impl<A: Archive> LocalArchive for FaultyArchive<A> {
    fn snapshot(&self) -> Result<Option<Arc<dyn ArchiveSnapshot>>, ArchiveError> {
        self.archive.local().map_or(Ok(None), LocalArchive::snapshot)
    }

    fn check(&self) -> Result<(), ArchiveError> {
        self.archive.local().map_or(Ok(()), LocalArchive::check)
    }

    fn catch_up(&self) -> Result<(), ArchiveError> {
        let (is_full, persists) = {
            let (plan, counts) = &mut *self.state.lock();
            counts.catch_ups += 1;
            (plan.is_full, counts.persists)
        };
        // A full disk is detected only by a write.
        if !is_full || persists == 0 {
            return self.archive.local().map_or(Ok(()), LocalArchive::catch_up);
        }
        let source = std::io::Error::from(std::io::ErrorKind::StorageFull).into();
        Err(ArchiveError::Failed { action: "write to", place: self.archive.place(), source })
    }
}

/// What the wrapped archive does not do itself, because it is not across a network, has no effect.
impl<A: Archive> RemoteArchive for FaultyArchive<A> {
    fn expires(&self) -> bool {
        self.state.lock().0.expires || self.archive.remote().is_some_and(RemoteArchive::expires)
    }

    fn written(&self) -> Result<Sequence, ArchiveError> {
        self.archive.remote().map_or(Ok(Sequence(0)), RemoteArchive::written)
    }

    fn held_back(&self) -> Result<BTreeSet<SourceId>, ArchiveError> {
        self.archive.remote().map_or(Ok(BTreeSet::new()), RemoteArchive::held_back)
    }

    fn set_held_back(&self, sources: &BTreeSet<SourceId>) -> Result<(), ArchiveError> {
        self.archive.remote().map_or(Ok(()), |archive| archive.set_held_back(sources))
    }

    fn refresh_ids(&self) -> Result<(), ArchiveError> {
        self.archive.remote().map_or(Ok(()), RemoteArchive::refresh_ids)
    }

    fn invalidate(&self, posts: &mut dyn Iterator<Item = PostId>, outboxes: &mut dyn Iterator<Item = &SourceId>) {
        let posts: Vec<PostId> = posts.collect();
        self.forgotten.lock().extend(posts.iter().copied().map(Some));
        if let Some(archive) = self.archive.remote() {
            archive.invalidate(&mut posts.into_iter(), outboxes);
        }
    }

    fn invalidate_all(&self) {
        self.forgotten.lock().push(None);
        self.archive.remote().into_iter().for_each(RemoteArchive::invalidate_all);
    }

    fn prefetch(&self, wanted: &mut dyn Iterator<Item = Wanted<'_>>) {
        self.state.lock().1.prefetched += wanted.count() as u64;
    }

    fn list_sources(&self) -> Result<Vec<SourceId>, ArchiveError> {
        self.archive.sources()
    }

    fn begin_copy(&self) -> Result<(), ArchiveError> {
        self.archive.remote().map_or(Ok(()), RemoteArchive::begin_copy)
    }

    fn figures(&self) -> RemoteFigures {
        self.archive.remote().map(RemoteArchive::figures).unwrap_or_default()
    }
}
