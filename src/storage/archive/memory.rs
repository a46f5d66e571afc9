//! An archive in memory, for tests and for engines without a directory.
//!
//! Responsible for:
//! - the contract of [`Archive`], up to the end of the process.
//!
//! Not responsible for:
//! - durability, but for what a crash would leave ([`MemoryArchive::survived`]), and saving any memory.

use std::collections::BTreeMap;
use std::ops::Bound::Excluded;

use parking_lot::{Mutex, RwLock};

use crate::feed::outbox::{Part, Route};
use crate::feed::position::{Direction, Position, Span};
use crate::id::{PostId, SourceId};
use crate::storage::archive::{Archive, ArchiveError, Batch, Fate, Kept, Rewrite, Shelf};
use crate::storage::journal::Sequence;

/// An archive that ends with its process. No operation of it fails.
#[derive(Debug, Default)]
pub struct MemoryArchive {
    rooms: RwLock<Rooms>,
    persisted: Mutex<Persisted>,
}

#[derive(Clone, Debug, Default)]
struct Rooms {
    posts: BTreeMap<PostId, Kept>,
    outboxes: BTreeMap<SourceId, Outbox>,
}

/// What a crash leaves.
#[derive(Debug, Default)]
struct Persisted {
    rooms: Rooms,
    /// What was written since, in order.
    lacking: Vec<Batch>,
    through: Sequence,
}

#[derive(Clone, Debug, Default)]
struct Outbox {
    entries: BTreeMap<Position, Route>,
    shelf: Shelf,
}

impl MemoryArchive {
    /// What a start finds if the process ends now, without a word.
    #[must_use]
    pub fn survived(&self) -> Self {
        let now = self.persisted.lock();
        let persisted = Persisted { rooms: now.rooms.clone(), lacking: Vec::new(), through: now.through };
        Self { rooms: RwLock::new(now.rooms.clone()), persisted: Mutex::new(persisted) }
    }
}

impl Archive for MemoryArchive {
    fn write(&self, batch: &Batch) -> Result<(), ArchiveError> {
        self.persisted.lock().lacking.push(batch.clone());
        self.rooms.write().write(batch);
        Ok(())
    }

    fn persist(&self, through: Sequence) -> Result<(), ArchiveError> {
        let persisted = &mut *self.persisted.lock();
        persisted.lacking.drain(..).for_each(|batch| persisted.rooms.write(&batch));
        persisted.through = through;
        Ok(())
    }

    fn rewrite(&self, rewrite: &Rewrite<'_>) -> Result<(), ArchiveError> {
        let persisted = &mut *self.persisted.lock();
        persisted.lacking.clear();
        let mut rooms = self.rooms.write();
        rooms.rewrite(rewrite);
        persisted.rooms = rooms.clone();
        Ok(())
    }

    fn through(&self) -> Result<Sequence, ArchiveError> {
        Ok(self.persisted.lock().through)
    }

    fn post(&self, id: PostId) -> Result<Option<Kept>, ArchiveError> {
        Ok(self.rooms.read().posts.get(&id).cloned())
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
        let rooms = self.rooms.read();
        let Some(outbox) = rooms.outboxes.get(source) else {
            return Ok(());
        };
        // A tree panics when asked for a range that ends before it starts.
        if span.is_empty() {
            return Ok(());
        }
        let inside = outbox.entries.range((Excluded(span.above), Excluded(span.below)));
        let wanted = inside.filter(|(_, route)| is_in(**route, part)).map(|(position, _)| *position);
        match direction {
            Direction::Older => into.extend(wanted.rev().take(max)),
            Direction::Newer => into.extend(wanted.take(max)),
        }
        Ok(())
    }

    fn ids_from(&self, from: PostId, max: usize) -> Result<Vec<PostId>, ArchiveError> {
        Ok(self.rooms.read().posts.range(from..).take(max).map(|(id, _)| *id).collect())
    }

    fn shelves(&self) -> Result<Vec<(SourceId, Shelf)>, ArchiveError> {
        let rooms = self.rooms.read();
        Ok(rooms.outboxes.iter().map(|(source, outbox)| (source.clone(), outbox.shelf)).collect())
    }

    fn close(&self) {}

    fn place(&self) -> std::path::PathBuf {
        "memory".into()
    }

    fn largest_id(&self) -> Option<PostId> {
        self.rooms.read().posts.last_key_value().map(|(id, _)| *id)
    }
}

impl Rooms {
    fn write(&mut self, batch: &Batch) {
        self.posts.extend(batch.posts.iter().cloned());
        for (source, position, route) in &batch.placed {
            self.outboxes.entry(source.clone()).or_default().place(*position, *route);
        }
        for (source, position) in &batch.removed {
            if let Some(outbox) = self.outboxes.get_mut(source) {
                outbox.remove(*position);
            }
        }
    }
}

impl Rooms {
    fn rewrite(&mut self, rewrite: &Rewrite<'_>) {
        self.outboxes.retain(|source, _| !rewrite.without.contains(source));
        for kept in self.posts.values_mut() {
            let Kept::Post(bytes) = kept else { continue };
            match (rewrite.fate)(bytes) {
                Fate::Keep => {}
                Fate::Replace(other) => *bytes = other,
                Fate::Tombstone => *kept = Kept::Deleted,
            }
        }
    }
}

impl Outbox {
    fn place(&mut self, position: Position, route: Route) {
        self.entries.entry(position).or_insert_with(|| {
            self.shelf.stock_mut(route).add(position);
            route
        });
    }

    fn remove(&mut self, position: Position) {
        if let Some(route) = self.entries.remove(&position) {
            self.shelf.stock_mut(route).posts -= 1;
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
