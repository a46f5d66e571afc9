//! An archive in memory, for tests and for engines without a directory.
//!
//! Responsible for:
//! - the contract of [`Archive`], up to the end of the process.
//!
//! Not responsible for:
//! - durability, and saving any memory.

use std::collections::BTreeMap;
use std::ops::Bound::Excluded;

use parking_lot::RwLock;

use crate::feed::outbox::{Part, Route};
use crate::feed::position::{Direction, Position, Span};
use crate::id::{PostId, SourceId};
use crate::storage::archive::{Archive, ArchiveError, Batch, Kept, Shelf};

/// An archive that ends with its process. No operation of it fails.
#[derive(Debug, Default)]
pub struct MemoryArchive {
    rooms: RwLock<Rooms>,
}

#[derive(Debug, Default)]
struct Rooms {
    posts: BTreeMap<PostId, Kept>,
    outboxes: BTreeMap<SourceId, Outbox>,
}

#[derive(Debug, Default)]
struct Outbox {
    entries: BTreeMap<Position, Route>,
    shelf: Shelf,
}

impl Archive for MemoryArchive {
    fn write(&self, batch: &Batch) -> Result<(), ArchiveError> {
        let mut rooms = self.rooms.write();
        rooms.posts.extend(batch.posts.iter().cloned());
        for (source, position, route) in &batch.placed {
            rooms.outboxes.entry(source.clone()).or_default().place(*position, *route);
        }
        for (source, position) in &batch.removed {
            if let Some(outbox) = rooms.outboxes.get_mut(source) {
                outbox.remove(*position);
            }
        }
        Ok(())
    }

    fn persist(&self) -> Result<(), ArchiveError> {
        Ok(())
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

    fn shelves(&self) -> Result<Vec<(SourceId, Shelf)>, ArchiveError> {
        let rooms = self.rooms.read();
        Ok(rooms.outboxes.iter().map(|(source, outbox)| (source.clone(), outbox.shelf)).collect())
    }

    fn close(&self) {}

    fn place(&self) -> std::path::PathBuf {
        "memory".into()
    }

    fn is_empty(&self) -> bool {
        self.rooms.read().posts.is_empty()
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
