//! Writing a batch around sources whose outboxes are damaged in the archive.

use std::collections::{BTreeMap, BTreeSet};

use crate::id::SourceId;
use crate::storage::archive::{Archive, ArchiveError, Batch};
use crate::storage::sequence::Sequence;

/// Writes a batch without the entries of sources that are `held_back`, or whose outboxes turn out to be damaged. Adds
/// to `left_out` the sources whose entries were left out.
pub(super) fn write_around(
    archive: &dyn Archive,
    mut batch: Batch,
    held_back: &BTreeSet<SourceId>,
    left_out: &mut BTreeSet<SourceId>,
) -> Result<(), ArchiveError> {
    left_out
        .extend(batch.placed.iter().map(|(source, ..)| source).filter(|source| held_back.contains(*source)).cloned());
    batch.placed.retain(|(source, ..)| !held_back.contains(source));
    // Pages skip entries of deleted posts, so the tombstone is enough.
    batch.removed.retain(|(source, _)| !held_back.contains(source));
    match archive.write(&batch) {
        Err(ArchiveError::Damaged { .. }) => write_in_parts(archive, batch, left_out),
        done => done,
    }
}

/// Writes the posts, then bisects the sources to find those whose entries cannot be written.
fn write_in_parts(archive: &dyn Archive, batch: Batch, left_out: &mut BTreeSet<SourceId>) -> Result<(), ArchiveError> {
    let Batch { as_of, posts, placed, removed } = batch;
    // If this fails, the damage is not in an outbox.
    archive.write(&Batch { as_of, posts, ..Batch::default() })?;
    let mut by_source: BTreeMap<SourceId, Batch> = BTreeMap::new();
    for entry in placed {
        by_source.entry(entry.0.clone()).or_default().placed.push(entry);
    }
    for entry in removed {
        by_source.entry(entry.0.clone()).or_default().removed.push(entry);
    }
    let mut todo: Vec<Vec<(SourceId, Batch)>> = vec![by_source.into_iter().collect()];
    while let Some(mut sources) = todo.pop() {
        match archive.write(&together(&sources, as_of)) {
            Ok(()) => {}
            Err(ArchiveError::Damaged { .. }) if sources.len() > 1 => {
                let rest = sources.split_off(sources.len() / 2);
                todo.extend([rest, sources]);
            }
            Err(ArchiveError::Damaged { .. }) => left_out.extend(sources.into_iter().map(|(source, _)| source)),
            Err(cause) => return Err(cause),
        }
    }
    Ok(())
}

fn together(sources: &[(SourceId, Batch)], as_of: Sequence) -> Batch {
    let mut all = Batch { as_of, ..Batch::default() };
    for (_, batch) in sources {
        all.placed.extend(batch.placed.iter().cloned());
        all.removed.extend(batch.removed.iter().cloned());
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::outbox::{OutboxQuery, Part, Route};
    use crate::feed::position::{Direction, PositionRange, at};
    use crate::id::PostId;
    use crate::storage::archive::faulty::{FaultyArchive, Plan};
    use crate::storage::archive::{ArchivedRecord, MemoryArchive};

    fn source(nth: usize) -> SourceId {
        SourceId::new(&format!("user-{nth}")).unwrap()
    }

    #[test]
    fn a_copy_omits_only_entries_of_damaged_and_held_back_sources() {
        let damaged = vec![source(3), source(4), source(9)];
        let archive = FaultyArchive::new(MemoryArchive::ordered(), Plan { damaged, ..Plan::default() });
        let posts = (0..20).map(|id| (PostId(id), ArchivedRecord::Deleted)).collect();
        let placed = (0..20).map(|nth| (source(nth), at(nth as i64, 1), Route::Pull)).collect();
        let removed = vec![(source(3), at(0, 0)), (source(5), at(0, 0))];
        let batch = Batch { posts, placed, removed, ..Batch::default() };
        let (held_back, mut left_out) = (BTreeSet::from([source(4), source(7), source(30)]), BTreeSet::new());
        write_around(&archive, batch, &held_back, &mut left_out).unwrap();
        assert_eq!(left_out, [3, 4, 7, 9].map(source).into());
        let all = OutboxQuery { part: Part::Whole, span: PositionRange::ALL, direction: Direction::Newer, max: 9 };
        for nth in 0..20 {
            let mut entries = Vec::new();
            archive.positions(&source(nth), all, &mut entries).unwrap();
            assert_eq!(entries.is_empty(), left_out.contains(&source(nth)), "{nth}");
            assert!(archive.post(PostId(nth as u64)).unwrap().is_some(), "{nth}");
        }
    }

    #[test]
    fn a_store_that_refuses_posts_is_an_error() {
        let plan = Plan { fail_writes: 2..3, damaged: vec![source(1)], ..Plan::default() };
        let archive = FaultyArchive::new(MemoryArchive::ordered(), plan);
        let batch = Batch { placed: vec![(source(1), at(1, 1), Route::Pull)], ..Batch::default() };
        let mut left_out = BTreeSet::new();
        assert!(write_around(&archive, batch, &BTreeSet::new(), &mut left_out).is_err());
        assert_eq!(left_out, BTreeSet::new());
    }
}
