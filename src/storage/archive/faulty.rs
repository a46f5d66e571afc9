//! An archive that fails when it is told to.

use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use parking_lot::Mutex;

use crate::feed::outbox::Part;
use crate::feed::position::{Direction, Position, Span};
use crate::id::{PostId, SourceId};
use crate::storage::archive::{Archive, ArchiveError, Batch, Kept, Rewrite, Shelf};
use crate::storage::identity::Identity;
use crate::storage::journal::Sequence;

/// What goes wrong, and when. Operations are counted from 1 on.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// These writes fail, and leave nothing.
    pub fail_writes: Range<u64>,
    /// What places or removes entries of these sources meets a damaged page.
    pub damaged: Vec<SourceId>,
    /// These times nothing is persisted.
    pub fail_persists: Range<u64>,
    /// These times it is not rewritten.
    pub fail_rewrites: Range<u64>,
    /// These lookups of posts fail.
    pub fail_posts: Range<u64>,
    /// This post is not there, and nothing says so.
    pub lost_post: Option<PostId>,
    /// These reads of outboxes fail.
    pub fail_copies: Range<u64>,
    /// These listings of ids fail.
    pub fail_ids: Range<u64>,
    /// The disk is full: what is to be persisted waits until another plan says that it is not.
    pub is_full: bool,
    /// Every write takes so long.
    pub write_takes: Duration,
}

/// How often it was asked for what.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    /// Writes that were begun.
    pub writes: u64,
    /// Times it was to persist.
    pub persists: u64,
    /// Times it was to be rewritten.
    pub rewrites: u64,
    /// Lookups of posts.
    pub posts: u64,
    /// Reads of outboxes.
    pub copies: u64,
    /// Listings of ids.
    pub ids: u64,
}

/// An archive with faults.
#[derive(Default)]
pub struct FaultyArchive<A> {
    archive: A,
    state: Mutex<(Plan, Counts)>,
}

impl<A: Archive> FaultyArchive<A> {
    /// An archive that fails by `plan`.
    pub fn new(archive: A, plan: Plan) -> Self {
        Self { archive, state: Mutex::new((plan, Counts::default())) }
    }

    /// From now on it fails by `plan`, and counts from 1 again.
    pub fn set_plan(&self, plan: Plan) {
        *self.state.lock() = (plan, Counts::default());
    }

    /// How often it was asked for what since the plan was made.
    pub fn counts(&self) -> Counts {
        self.state.lock().1
    }

    /// What it stands in front of.
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
        let source = std::io::Error::other("the disk failed").into();
        Err(ArchiveError::Failed { action, path: self.archive.place(), source })
    }
}

impl<A: Archive> Archive for FaultyArchive<A> {
    fn write(&self, batch: &Batch) -> Result<(), ArchiveError> {
        let fails = self.fails("write to", |counts| &mut counts.writes, |plan| &plan.fail_writes);
        let takes = self.state.lock().0.write_takes;
        if !takes.is_zero() {
            #[expect(clippy::disallowed_methods, reason = "a slow disk holds up whoever waits for it")]
            std::thread::sleep(takes);
        }
        fails?;
        let mut touched =
            batch.placed.iter().map(|(source, ..)| source).chain(batch.removed.iter().map(|(source, _)| source));
        let damaged = self.state.lock().0.damaged.clone();
        if touched.any(|source| damaged.contains(source)) {
            return Err(ArchiveError::Damaged { path: self.archive.place(), what: "a page".to_owned() });
        }
        self.archive.write(batch)
    }

    fn persist(&self, through: Sequence) -> Result<(), ArchiveError> {
        self.fails("persist", |counts| &mut counts.persists, |plan| &plan.fail_persists)?;
        while self.state.lock().0.is_full {
            std::thread::park_timeout(Duration::from_millis(1));
        }
        self.archive.persist(through)
    }

    fn rewrite(&self, rewrite: &Rewrite<'_>) -> Result<(), ArchiveError> {
        self.fails("rewrite", |counts| &mut counts.rewrites, |plan| &plan.fail_rewrites)?;
        self.archive.rewrite(rewrite)
    }

    fn through(&self) -> Result<Sequence, ArchiveError> {
        self.archive.through()
    }

    fn post(&self, id: PostId) -> Result<Option<Kept>, ArchiveError> {
        self.fails("read", |counts| &mut counts.posts, |plan| &plan.fail_posts)?;
        if self.state.lock().0.lost_post == Some(id) {
            return Ok(None);
        }
        self.archive.post(id)
    }

    fn copy(
        &self,
        source: &SourceId,
        part: Part,
        span: Span,
        direction: Direction,
        max: usize,
        into: &mut Vec<Position>,
    ) -> Result<(), ArchiveError> {
        self.fails("read", |counts| &mut counts.copies, |plan| &plan.fail_copies)?;
        self.archive.copy(source, part, span, direction, max, into)
    }

    fn ids_from(&self, from: PostId, max: usize) -> Result<Vec<PostId>, ArchiveError> {
        self.fails("read", |counts| &mut counts.ids, |plan| &plan.fail_ids)?;
        self.archive.ids_from(from, max)
    }

    fn shelves(&self) -> Result<Vec<(SourceId, Shelf)>, ArchiveError> {
        self.archive.shelves()
    }

    fn identity(&self) -> Result<Option<Identity>, ArchiveError> {
        self.archive.identity()
    }

    fn set_identity(&self, identity: Identity) -> Result<(), ArchiveError> {
        self.archive.set_identity(identity)
    }

    fn check(&self) -> Result<(), ArchiveError> {
        self.archive.check()
    }

    fn catch_up(&self) -> Result<(), ArchiveError> {
        let (is_full, persists) = {
            let (plan, counts) = &*self.state.lock();
            (plan.is_full, counts.persists)
        };
        // Found out only by who writes.
        if !is_full || persists == 0 {
            return self.archive.catch_up();
        }
        let source = std::io::Error::from(std::io::ErrorKind::StorageFull).into();
        Err(ArchiveError::Failed { action: "write to", path: self.archive.place(), source })
    }

    fn stop_waiting(&self) {
        self.archive.stop_waiting();
    }

    fn close(&self) {
        self.archive.close();
    }

    fn place(&self) -> PathBuf {
        self.archive.place()
    }

    fn largest_id(&self) -> Option<PostId> {
        self.archive.largest_id()
    }
}
