//! The connection of one node to the store that all nodes share. It may be cut off or slow. It caches reads until they are invalidated.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use tidewire::feed::outbox::OutboxQuery;
use tidewire::feed::position::Position;
use tidewire::id::{PostId, SourceId};
use tidewire::storage::archive::{
    Archive, ArchiveError, ArchivedRecord, Batch, EachOutbox, RemoteArchive, RemoteFigures, Rewrite, Wanted,
};
use tidewire::storage::identity::Identity;
use tidewire::storage::sequence::Sequence;

/// How the store answers one node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Answers {
    #[default]
    Always,
    /// All reads and writes fail.
    Never,
    /// Writes wait, and run late.
    Late,
    /// Only rewrites wait.
    LateRewrites,
    /// Rewrites wait, and batches wait after a part of them is written.
    LateBoth,
    /// Batches wait after a part of them is written.
    LateBatches,
}

/// The cached reads of a node.
#[derive(Default)]
pub(super) struct Cached {
    posts: HashMap<PostId, Option<ArchivedRecord>>,
    /// The answers to the queries of each outbox.
    outboxes: HashMap<SourceId, Vec<(OutboxQuery, Vec<Position>)>>,
}

impl Cached {
    fn forget_batch(&mut self, batch: &Batch) {
        batch.posts.iter().for_each(|(id, _)| drop(self.posts.remove(id)));
        let placed = batch.placed.iter().map(|(source, ..)| source);
        let removed = batch.removed.iter().map(|(source, _)| source);
        placed.chain(removed).for_each(|source| drop(self.outboxes.remove(source)));
    }
}

/// The connection of one node to the store that all nodes share.
pub(super) struct StoreConnection {
    /// None if the store caches reads by itself.
    pub cached: Option<Mutex<Cached>>,
    pub store: Arc<dyn RemoteArchive>,
    pub identity: Arc<Mutex<Option<Identity>>>,
    pub answers: Mutex<Answers>,
    /// The source whose damaged outbox no node can write.
    pub damaged: Arc<Mutex<Option<SourceId>>>,
    pub changed: Condvar,
    /// The number of batches that are written at least in part. The next two fields count the rewrites that have begun, and those that
    /// are done.
    pub halves: AtomicU64,
    pub rewrites_begun: AtomicU64,
    pub rewrites: AtomicU64,
}

impl StoreConnection {
    pub(super) fn set(&self, answers: Answers) {
        *self.answers.lock().unwrap() = answers;
        self.changed.notify_all();
    }

    fn check(&self) -> Result<(), ArchiveError> {
        match *self.answers.lock().unwrap() {
            Answers::Never => Err(ArchiveError::Unavailable { place: self.place(), why: "it is cut off".to_owned() }),
            _ => Ok(()),
        }
    }

    fn check_write(&self) -> Result<(), ArchiveError> {
        let answers = self.answers.lock().unwrap();
        let is_late =
            |answers: &mut Answers| matches!(answers, Answers::Late | Answers::LateBoth | Answers::LateBatches);
        drop(self.changed.wait_while(answers, is_late).unwrap());
        self.check()
    }
}

impl Archive for StoreConnection {
    fn write(&self, batch: &Batch) -> Result<(), ArchiveError> {
        // A part of the batch is written before the rest, or alone.
        let half = |batch: &Batch| Batch {
            posts: batch.posts[..batch.posts.len() / 2].to_vec(),
            placed: batch.placed[batch.placed.len() / 2..].to_vec(),
            ..Batch { as_of: batch.as_of, ..Batch::default() }
        };
        self.check()?;
        if let Some(damaged) = &*self.damaged.lock().unwrap() {
            let mut sources = batch.placed.iter().map(|(source, ..)| source);
            if sources.any(|source| source == damaged) || batch.removed.iter().any(|(source, _)| source == damaged) {
                return Err(ArchiveError::Damaged { place: self.place(), what: format!("the buckets of {damaged}") });
            }
        }
        self.store.write(&half(batch))?;
        self.halves.fetch_add(1, Ordering::Relaxed);
        self.check_write()?;
        let written = self.store.write(batch);
        if let Some(cached) = &self.cached {
            cached.lock().unwrap().forget_batch(batch);
        }
        written
    }

    fn rewrite(&self, rewrite: &Rewrite<'_>) -> Result<(), ArchiveError> {
        let answers = self.answers.lock().unwrap();
        self.rewrites_begun.fetch_add(1, Ordering::Relaxed);
        let is_late =
            |answers: &mut Answers| matches!(answers, Answers::Late | Answers::LateRewrites | Answers::LateBoth);
        drop(self.changed.wait_while(answers, is_late).unwrap());
        self.check()?;
        let rewritten = self.store.rewrite(rewrite);
        self.invalidate_all();
        self.rewrites.fetch_add(1, Ordering::Relaxed);
        rewritten
    }

    fn persist(&self, through: Sequence) -> Result<(), ArchiveError> {
        self.check_write()?;
        self.store.persist(through)
    }

    fn through(&self) -> Result<Sequence, ArchiveError> {
        self.check()?;
        self.store.through()
    }

    fn post(&self, id: PostId) -> Result<Option<ArchivedRecord>, ArchiveError> {
        self.check()?;
        let Some(cached) = &self.cached else { return self.store.post(id) };
        let mut cached = cached.lock().unwrap();
        if let Some(known) = cached.posts.get(&id) {
            return Ok(known.clone());
        }
        let found = self.store.post(id)?;
        // A missing post may appear at any time, so it is not cached.
        if found.is_some() {
            cached.posts.insert(id, found.clone());
        }
        Ok(found)
    }

    fn positions(&self, source: &SourceId, query: OutboxQuery, into: &mut Vec<Position>) -> Result<(), ArchiveError> {
        self.check()?;
        let Some(cached) = &self.cached else { return self.store.positions(source, query, into) };
        let mut cached = cached.lock().unwrap();
        let of_source = cached.outboxes.entry(source.clone()).or_default();
        if let Some((_, known)) = of_source.iter().find(|(question, _)| *question == query) {
            into.extend(known);
            return Ok(());
        }
        let mut found = Vec::new();
        self.store.positions(source, query, &mut found)?;
        into.extend(&found);
        of_source.push((query, found));
        Ok(())
    }

    fn ids_from(&self, from: PostId, max: usize) -> Result<Option<Vec<PostId>>, ArchiveError> {
        self.store.ids_from(from, max)
    }

    fn each_outbox(&self, _: EachOutbox<'_>) -> Result<(), ArchiveError> {
        panic!("nothing is listed")
    }

    fn identity(&self) -> Result<Option<Identity>, ArchiveError> {
        Ok(*self.identity.lock().unwrap())
    }

    fn set_identity(&self, identity: Identity) -> Result<(), ArchiveError> {
        *self.identity.lock().unwrap() = Some(identity);
        Ok(())
    }

    fn close(&self) {}

    fn place(&self) -> String {
        "the shared store".to_owned()
    }

    fn may_have(&self, id: PostId) -> bool {
        self.store.may_have(id)
    }

    fn is_empty(&self) -> bool {
        self.store.is_empty()
    }

    fn stop_waiting(&self) {}

    fn remote(&self) -> Option<&dyn RemoteArchive> {
        Some(self)
    }
}

impl RemoteArchive for StoreConnection {
    fn expires(&self) -> bool {
        self.store.expires()
    }

    fn written(&self) -> Result<Sequence, ArchiveError> {
        self.check()?;
        self.store.written()
    }

    fn held_back(&self) -> Result<BTreeSet<SourceId>, ArchiveError> {
        self.check()?;
        self.store.held_back()
    }

    fn set_held_back(&self, sources: &BTreeSet<SourceId>) -> Result<(), ArchiveError> {
        self.check_write()?;
        self.store.set_held_back(sources)
    }

    fn refresh_ids(&self) -> Result<(), ArchiveError> {
        self.check()?;
        self.store.refresh_ids()
    }

    fn invalidate(&self, posts: &mut dyn Iterator<Item = PostId>, outboxes: &mut dyn Iterator<Item = &SourceId>) {
        let Some(cached) = &self.cached else { return self.store.invalidate(posts, outboxes) };
        let mut cached = cached.lock().unwrap();
        posts.for_each(|id| drop(cached.posts.remove(&id)));
        outboxes.for_each(|source| drop(cached.outboxes.remove(source)));
    }

    fn invalidate_all(&self) {
        match &self.cached {
            Some(cached) => *cached.lock().unwrap() = Cached::default(),
            None => self.store.invalidate_all(),
        }
    }

    fn prefetch(&self, _: &mut dyn Iterator<Item = Wanted<'_>>) {}

    fn list_sources(&self) -> Result<Vec<SourceId>, ArchiveError> {
        self.store.list_sources()
    }

    fn begin_copy(&self) -> Result<(), ArchiveError> {
        self.store.begin_copy()
    }

    fn figures(&self) -> RemoteFigures {
        self.store.figures()
    }
}
