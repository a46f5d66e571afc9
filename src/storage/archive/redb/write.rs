//! Writes a batch: selects the rows to insert and to remove.

use redb::{Error, ReadableTable, Table, WriteTransaction};

use super::layout::{self, OutboxKey};
use crate::feed::outbox::Route;
use crate::feed::position::Position;
use crate::id::{PostId, SourceId};
use crate::storage::archive::{ArchivedCounts, ArchivedRecord, Batch};
use crate::storage::identity::Identity;

/// One change of an outbox entry: added with a route, or removed (none).
type Change<'a> = (&'a SourceId, Position, Option<Route>);

/// Writes a batch in an open transaction.
pub(super) fn batch(transaction: &WriteTransaction, batch: &Batch) -> Result<(), Error> {
    put_posts(transaction, &batch.posts)?;
    change_outboxes(transaction, &changes(batch))
}

/// Writes the identity of the data directory in an open transaction.
pub(super) fn identity(transaction: &WriteTransaction, identity: Identity) -> Result<(), Error> {
    let mut meta = transaction.open_table(layout::META)?;
    let identity = u128::from_be_bytes(identity.0);
    for (half, number) in layout::META_IDENTITY.into_iter().zip([(identity >> 64) as u64, identity as u64]) {
        meta.insert(half, number)?;
    }
    Ok(())
}

fn put_posts(transaction: &WriteTransaction, posts: &[(PostId, ArchivedRecord)]) -> Result<(), Error> {
    let mut table = transaction.open_table(layout::POSTS)?;
    // The sort is stable: of several posts with the same id, the last one is written last and is stored.
    let mut sorted: Vec<_> = posts.iter().collect();
    sorted.sort_by_key(|(id, _)| *id);
    for (id, kept) in sorted {
        match kept {
            ArchivedRecord::Deleted => drop(table.insert(id.0, [layout::TOMBSTONE].as_slice())?),
            ArchivedRecord::Post(bytes) => {
                let mut value = table.insert_reserve(id.0, 1 + bytes.len())?;
                value.as_mut()[0] = layout::POST;
                value.as_mut()[1..].copy_from_slice(bytes);
            }
        }
    }
    Ok(())
}

/// Returns the changes of a batch in the order of their keys. Changes of the same entry keep their order.
fn changes(batch: &Batch) -> Vec<Change<'_>> {
    let placed = batch.placed.iter().map(|(source, position, route)| (source, *position, Some(*route)));
    let removed = batch.removed.iter().map(|(source, position)| (source, *position, None));
    let mut changes: Vec<Change<'_>> = placed.chain(removed).collect();
    changes.sort_by(|a, b| place(a).cmp(&place(b)));
    changes
}

/// The sort key of a change. It sorts like the keys of `outboxes`, which start with the length of the id.
fn place<'a>(change: &Change<'a>) -> (usize, &'a SourceId, Position) {
    let &(source, position, _) = change;
    (source.as_str().len(), source, position)
}

fn change_outboxes(transaction: &WriteTransaction, changes: &[Change<'_>]) -> Result<(), Error> {
    let mut outboxes = transaction.open_table(layout::OUTBOXES)?;
    let mut archived_counts = transaction.open_table(layout::OUTBOX_COUNTS)?;
    for of_source in changes.chunk_by(|(a, ..), (b, ..)| a == b) {
        let Some((source, ..)) = of_source.first() else { continue };
        let id = source.as_str().as_bytes();
        let before = archived_counts
            .get(id)?
            .map(|archived_counts| layout::archived_counts(archived_counts.value()))
            .transpose()?
            .unwrap_or_default();
        let after = change_outbox(&mut outboxes, of_source, source, before)?;
        if after != before {
            archived_counts.insert(id, &layout::counts_bytes(&after))?;
        }
    }
    Ok(())
}

fn change_outbox(
    outboxes: &mut Table<'_, &[u8], ()>,
    changes: &[Change<'_>],
    source: &SourceId,
    mut archived_counts: ArchivedCounts,
) -> Result<ArchivedCounts, Error> {
    let mut key = OutboxKey::of(source);
    for &(_, position, change) in changes {
        match change {
            Some(route) => {
                let other = match route {
                    Route::Push => Route::Pull,
                    Route::Pull => Route::Push,
                };
                // The counts avoid most lookups: few sources change their route, and most posts arrive in order.
                let may_be_there = archived_counts.of_route(other).newest >= Some(position);
                if may_be_there && outboxes.get(key.at(other, position))?.is_some() {
                    continue;
                }
                if outboxes.insert(key.at(route, position), ())?.is_none() {
                    archived_counts.of_route_mut(route).add(position);
                }
            }
            None => {
                for route in Route::ALL {
                    if outboxes.remove(key.at(route, position))?.is_some() {
                        let count = archived_counts.of_route_mut(route);
                        let fewer = count.posts.checked_sub(1);
                        count.posts = fewer.ok_or_else(|| layout::damaged(format!("{source} has uncounted posts")))?;
                    }
                }
            }
        }
    }
    Ok(archived_counts)
}
