//! Random batches and reads, compared with a naive model.
use std::collections::BTreeMap;

use proptest::prelude::*;

use super::of_route;
use Direction::{Newer, Older};
use Route::{Pull, Push};
use tidewire::feed::outbox::{Part, Route};
use tidewire::feed::position::{Direction, Position, PositionRange, at};
use tidewire::id::{PostId, SourceId};
use tidewire::storage::archive::samples::{copied, next_batch, source};
use tidewire::storage::archive::{Archive, ArchiveError, ArchivedCounts, ArchivedRecord, Batch};
use tidewire::storage::sequence::Sequence;

/// A naive model of an archive: lists of everything that was written.
#[derive(Default)]
struct Model {
    posts: BTreeMap<PostId, ArchivedRecord>,
    entries: Vec<(SourceId, Position, Route)>,
    ever: Vec<(SourceId, Position, Route)>,
}

impl Model {
    fn write(&mut self, batch: &Batch) {
        self.posts.extend(batch.posts.iter().cloned());
        for new in &batch.placed {
            if !self.entries.iter().any(|(source, position, _)| (source, position) == (&new.0, &new.1)) {
                self.entries.push(new.clone());
                self.ever.push(new.clone());
            }
        }
        self.entries.retain(|(source, position, _)| !batch.removed.contains(&(source.clone(), *position)));
    }

    fn copy(&self, id: &str, part: Part, span: PositionRange, way: Direction, max: usize) -> Vec<Position> {
        let inside = self.entries.iter().filter(|(source, position, route)| {
            let in_part = part == Part::Whole || (part == Part::Pushed) == (*route == Push);
            source.as_str() == id && *position > span.above && *position < span.below && in_part
        });
        let mut positions: Vec<_> = inside.map(|(_, position, _)| *position).collect();
        positions.sort();
        if way == Older {
            positions.reverse();
        }
        positions.truncate(max);
        positions
    }

    fn archived_counts(&self) -> Vec<(SourceId, ArchivedCounts)> {
        let mut sources: Vec<_> = self.ever.iter().map(|(source, ..)| source.clone()).collect();
        sources.sort();
        sources.dedup();
        let of = |source: &SourceId, route| {
            let here = |entry: &&(SourceId, Position, Route)| entry.0 == *source && entry.2 == route;
            let newest = self.ever.iter().filter(here).map(|(_, position, _)| *position).max();
            of_route(newest, self.entries.iter().filter(here).count() as u64)
        };
        let archived_counts = |source: &SourceId| ArchivedCounts { pushed: of(source, Push), pulled: of(source, Pull) };
        sources.into_iter().map(|source| (source.clone(), archived_counts(&source))).collect()
    }
}

const SOURCES: [&str; 3] = ["a", "b", "ab"];

#[derive(Clone, Copy, Debug)]
pub enum Then {
    GoOn,
    Persist,
    Reopen,
}

pub type Read = (&'static str, Part, PositionRange, Direction, usize);

fn positions() -> impl Strategy<Value = Position> {
    (-3..4i64, 0..3u64).prop_map(|(time, id)| at(time, id))
}

fn batches() -> impl Strategy<Value = Batch> {
    let source = || prop::sample::select(SOURCES.as_slice()).prop_map(source);
    let kept = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..4).prop_map(ArchivedRecord::Post),
        Just(ArchivedRecord::Deleted)
    ];
    let posts = prop::collection::vec(((0..6u64).prop_map(PostId), kept), 0..4);
    let route = prop::sample::select([Push, Pull].as_slice());
    let placed = prop::collection::vec((source(), positions(), route), 0..12);
    let removed = prop::collection::vec((source(), positions()), 0..6);
    (posts, placed, removed).prop_map(|(posts, placed, removed)| Batch { posts, placed, removed, ..Batch::default() })
}

pub fn steps() -> impl Strategy<Value = Vec<(Batch, Then, Vec<Read>)>> {
    let end = || prop_oneof![4 => positions(), 1 => Just(Position::MIN), 1 => Just(Position::MAX)];
    let read = (
        prop::sample::select(SOURCES.as_slice()),
        prop::sample::select([Part::Pushed, Part::Pulled, Part::Whole].as_slice()),
        (end(), end()).prop_map(|(above, below)| PositionRange { above, below }),
        prop::sample::select([Older, Newer].as_slice()),
        0..8usize,
    );
    let then = prop::sample::select([Then::GoOn, Then::GoOn, Then::Persist, Then::Reopen].as_slice());
    prop::collection::vec((batches(), then, prop::collection::vec(read, 1..8)), 1..8)
}

/// Applies steps to an archive and to the model, and compares all that can be read. `open` opens the archive. Its argument is the open
/// archive, if there is one.
pub fn agrees_with_the_model<A: Archive>(
    open: impl Fn(Option<A>) -> A,
    steps: Vec<(Batch, Then, Vec<Read>)>,
) -> Result<(), TestCaseError> {
    let failed = |error: ArchiveError| TestCaseError::fail(format!("{error:?}"));
    let (mut archive, mut model) = (open(None), Model::default());
    for (batch, then, reads) in steps {
        let batch = Batch { as_of: next_batch().as_of, ..batch };
        archive.write(&batch).map_err(failed)?;
        model.write(&batch);
        match then {
            Then::GoOn => {}
            Then::Persist => archive.persist(Sequence(1)).map_err(failed)?,
            Then::Reopen => archive = open(Some(archive)),
        }
        for (id, part, span, way, max) in reads {
            prop_assert_eq!(copied(&archive, id, part, span, way, max), model.copy(id, part, span, way, max));
        }
        for id in (0..6).map(PostId) {
            prop_assert_eq!(archive.post(id).map_err(failed)?, model.posts.get(&id).cloned());
        }
        if !archive.is_remote() {
            prop_assert_eq!(archive.archived_counts().map_err(failed)?, model.archived_counts());
        }
        prop_assert_eq!(archive.is_empty(), model.posts.is_empty());
        // There are fewer ids than the archive stores one by one.
        prop_assert!((0..8).map(PostId).all(|id| archive.may_have(id) == model.posts.contains_key(&id)));
        for (from, max) in [(0, 100), (3, 2), (7, 1), (u64::MAX, 9)] {
            let expected: Vec<PostId> = model.posts.range(PostId(from)..).map(|(id, _)| *id).take(max).collect();
            prop_assert_eq!(archive.ids_from(PostId(from), max)?, Some(expected));
        }
    }
    Ok(())
}
