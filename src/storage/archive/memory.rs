//! An archive in memory, for tests.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::Excluded;

use parking_lot::{Mutex, RwLock};

use crate::feed::outbox::{OutboxQuery, Part, Route};
use crate::feed::position::{Direction, Position};
use crate::id::{PostId, SourceId};
use crate::storage::archive::{
    Archive, ArchiveError, ArchivedCounts, ArchivedRecord, Batch, EachOutbox, Fate, LargestIds, RemoteArchive,
    RemoteFigures, Rewrite, Wanted,
};
use crate::storage::identity::Identity;
use crate::storage::sequence::Sequence;

/// An archive that is lost when its process ends. Its operations never fail.
#[derive(Debug, Default)]
pub struct MemoryArchive {
    contents: RwLock<Contents>,
    persisted: Mutex<Persisted>,
    ids: LargestIds,
    /// The identity of the owner. It is used only if writes are ordered, since only such an archive is shared.
    identity: Mutex<Option<Identity>>,
    held_back: Mutex<BTreeSet<SourceId>>,
}

#[derive(Clone, Debug, Default)]
struct Contents {
    /// Each post has its write time: twice the event, plus one for a rewrite.
    posts: BTreeMap<PostId, (u64, ArchivedRecord)>,
    outboxes: BTreeMap<SourceId, Outbox>,
    /// True if an older write does not replace newer data.
    is_ordered: bool,
    /// The largest event with which anything was written.
    written: Sequence,
}

/// The data that survives a crash.
#[derive(Debug, Default)]
struct Persisted {
    contents: Contents,
    /// The batches that were written since the last persist, in order.
    unpersisted: Vec<Batch>,
    through: Sequence,
}

#[derive(Clone, Debug, Default)]
struct Outbox {
    entries: BTreeMap<Position, (Sequence, Route)>,
    /// The events that removed entries, if writes are ordered.
    removed: BTreeMap<Position, Sequence>,
    archived_counts: ArchivedCounts,
}

impl MemoryArchive {
    /// Creates an archive that orders writes by the `as_of` of their batches, like a store that several machines share. It retains the
    /// newer data, and the largest event with which it was persisted.
    #[must_use]
    pub fn ordered() -> Self {
        let archive = Self::default();
        archive.contents.write().is_ordered = true;
        archive
    }

    /// Returns the archive that a start would find if the process crashed now.
    #[must_use]
    pub fn survived(&self) -> Self {
        let now = self.persisted.lock();
        let persisted = Persisted { contents: now.contents.clone(), unpersisted: Vec::new(), through: now.through };
        let ids = LargestIds::default();
        ids.note(now.contents.posts.keys().copied());
        let (contents, identity) = (RwLock::new(now.contents.clone()), Mutex::new(*self.identity.lock()));
        let held_back = Mutex::new(self.held_back.lock().clone());
        Self { contents, persisted: Mutex::new(persisted), ids, identity, held_back }
    }
}

impl Archive for MemoryArchive {
    fn identity(&self) -> Result<Option<Identity>, ArchiveError> {
        Ok(*self.identity.lock())
    }

    fn set_identity(&self, identity: Identity) -> Result<(), ArchiveError> {
        if self.contents.read().is_ordered {
            *self.identity.lock() = Some(identity);
        }
        Ok(())
    }

    fn write(&self, batch: &Batch) -> Result<(), ArchiveError> {
        self.persisted.lock().unpersisted.push(batch.clone());
        self.ids.note(batch.posts.iter().map(|(id, _)| *id));
        self.contents.write().write(batch);
        Ok(())
    }

    fn persist(&self, through: Sequence) -> Result<(), ArchiveError> {
        let persisted = &mut *self.persisted.lock();
        persisted.unpersisted.drain(..).for_each(|batch| persisted.contents.write(&batch));
        persisted.through = if self.contents.read().is_ordered { through.max(persisted.through) } else { through };
        Ok(())
    }

    fn rewrite(&self, rewrite: &Rewrite<'_>) -> Result<(), ArchiveError> {
        let persisted = &mut *self.persisted.lock();
        persisted.unpersisted.clear();
        let mut contents = self.contents.write();
        contents.rewrite(rewrite);
        persisted.contents = contents.clone();
        Ok(())
    }

    fn through(&self) -> Result<Sequence, ArchiveError> {
        Ok(self.persisted.lock().through)
    }

    fn post(&self, id: PostId) -> Result<Option<ArchivedRecord>, ArchiveError> {
        Ok(self.contents.read().posts.get(&id).map(|(_, record)| record.clone()))
    }

    fn positions(&self, source: &SourceId, query: OutboxQuery, into: &mut Vec<Position>) -> Result<(), ArchiveError> {
        let contents = self.contents.read();
        let Some(outbox) = contents.outboxes.get(source) else {
            return Ok(());
        };
        // `BTreeMap::range` panics if the range ends before it starts.
        if query.span.is_empty() {
            return Ok(());
        }
        let inside = outbox.entries.range((Excluded(query.span.above), Excluded(query.span.below)));
        let wanted = inside.filter(|(_, (_, route))| is_in(*route, query.part)).map(|(position, _)| *position);
        match query.direction {
            Direction::Older => into.extend(wanted.rev().take(query.max)),
            Direction::Newer => into.extend(wanted.take(query.max)),
        }
        Ok(())
    }

    fn ids_from(&self, from: PostId, max: usize) -> Result<Option<Vec<PostId>>, ArchiveError> {
        Ok(Some(self.contents.read().posts.range(from..).take(max).map(|(id, _)| *id).collect()))
    }

    fn each_outbox(&self, each: EachOutbox<'_>) -> Result<(), ArchiveError> {
        // A copy, since `each` may read other parts of the archive.
        let contents = self.contents.read();
        let outboxes = contents.outboxes.iter();
        let counts: Vec<_> = outboxes.map(|(source, outbox)| (source.clone(), outbox.archived_counts)).collect();
        drop(contents);
        counts.into_iter().try_for_each(|(source, counts)| each(source, counts))
    }

    fn close(&self) {}

    fn place(&self) -> String {
        "memory".into()
    }

    fn may_have(&self, id: PostId) -> bool {
        self.ids.may_have(id)
    }

    fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    fn stop_waiting(&self) {}

    fn remote(&self) -> Option<&dyn RemoteArchive> {
        self.contents.read().is_ordered.then_some(self)
    }
}

impl RemoteArchive for MemoryArchive {
    fn expires(&self) -> bool {
        false
    }

    fn written(&self) -> Result<Sequence, ArchiveError> {
        let contents = self.contents.read();
        Ok(if contents.is_ordered { contents.written } else { Sequence(0) })
    }

    fn held_back(&self) -> Result<BTreeSet<SourceId>, ArchiveError> {
        Ok(self.held_back.lock().clone())
    }

    fn set_held_back(&self, sources: &BTreeSet<SourceId>) -> Result<(), ArchiveError> {
        self.held_back.lock().clone_from(sources);
        Ok(())
    }

    fn refresh_ids(&self) -> Result<(), ArchiveError> {
        Ok(())
    }

    fn invalidate(&self, _: &mut dyn Iterator<Item = PostId>, _: &mut dyn Iterator<Item = &SourceId>) {}

    fn invalidate_all(&self) {}

    fn prefetch(&self, _: &mut dyn Iterator<Item = Wanted<'_>>) {}

    fn list_sources(&self) -> Result<Vec<SourceId>, ArchiveError> {
        Ok(self.contents.read().outboxes.keys().cloned().collect())
    }

    fn begin_copy(&self) -> Result<(), ArchiveError> {
        Ok(())
    }

    fn figures(&self) -> RemoteFigures {
        RemoteFigures::default()
    }
}

impl Contents {
    fn write(&mut self, batch: &Batch) {
        let (as_of, is_ordered) = (batch.as_of, self.is_ordered);
        self.written = self.written.max(as_of);
        let time = as_of.0.saturating_mul(2);
        for (id, record) in &batch.posts {
            if !is_ordered || self.posts.get(id).is_none_or(|(kept, _)| *kept <= time) {
                self.posts.insert(*id, (time, record.clone()));
            }
        }
        for (source, position, route) in &batch.placed {
            let outbox = self.outboxes.entry(source.clone()).or_default();
            if !is_ordered || outbox.removed.get(position).is_none_or(|removed| *removed < as_of) {
                outbox.place(*position, *route, as_of);
            }
        }
        for (source, position) in &batch.removed {
            let outbox = match is_ordered {
                true => Some(self.outboxes.entry(source.clone()).or_default()),
                false => self.outboxes.get_mut(source),
            };
            let Some(outbox) = outbox else { continue };
            if is_ordered {
                let removed = outbox.removed.entry(*position).or_default();
                *removed = as_of.max(*removed);
                if outbox.entries.get(position).is_some_and(|(placed, _)| *placed > as_of) {
                    continue;
                }
            }
            outbox.remove(*position);
        }
    }
}

impl Contents {
    fn rewrite(&mut self, rewrite: &Rewrite<'_>) {
        self.outboxes.retain(|source, _| !rewrite.without.contains(source));
        let time = rewrite.as_of.0.saturating_mul(2).saturating_add(1);
        for (written, kept) in self.posts.values_mut() {
            let ArchivedRecord::Post(bytes) = kept else { continue };
            let fate = (rewrite.fate)(bytes);
            if self.is_ordered && (*written > time || fate == Fate::Keep) {
                continue;
            }
            *written = time.max(*written);
            match fate {
                Fate::Keep => {}
                Fate::Replace(other) => *bytes = other,
                Fate::Tombstone => *kept = ArchivedRecord::Deleted,
            }
        }
    }
}

impl Outbox {
    fn place(&mut self, position: Position, route: Route, as_of: Sequence) {
        let entry = self.entries.entry(position).or_insert_with(|| {
            self.archived_counts.of_route_mut(route).add(position);
            (as_of, route)
        });
        entry.0 = as_of.max(entry.0);
    }

    fn remove(&mut self, position: Position) {
        if let Some((_, route)) = self.entries.remove(&position) {
            self.archived_counts.of_route_mut(route).posts -= 1;
        }
    }
}

fn is_in(route: Route, part: Part) -> bool {
    match part {
        Part::Pushed => route == Route::Push,
        Part::Pulled => route == Route::Pull,
        Part::Whole => true,
    }
}
