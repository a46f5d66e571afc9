//! Reads rows: of one outbox, and the counts of all outboxes.
//!
//! Responsible for:
//! - merging both parts of an outbox into one order.
//!
//! Not responsible for:
//! - transactions and damaged pages.

use std::ops::Bound::Excluded;

use redb::{Error, ReadTransaction, ReadableTable, ReadableTableMetadata};

use super::layout::{self, OutboxKey};
use crate::feed::outbox::{OutboxQuery, Part, Route};
use crate::feed::position::{Direction, Position};
use crate::id::SourceId;
use crate::storage::archive::ArchivedCounts;
use crate::storage::identity::Identity;

/// Returns the requested positions of an outbox, nearest first.
pub(super) fn copy(snapshot: &ReadTransaction, source: &SourceId, ask: OutboxQuery) -> Result<Vec<Position>, Error> {
    let mut found = Vec::new();
    // The behaviour of redb for a range that ends before it starts is not documented.
    if ask.span.is_empty() {
        return Ok(found);
    }
    let outboxes = snapshot.open_table(layout::OUTBOXES)?;
    for route in routes(ask.part) {
        copy_route(&outboxes, source, *route, ask, &mut found)?;
    }
    if ask.part == Part::Whole {
        match ask.direction {
            Direction::Older => found.sort_unstable_by(|a, b| b.cmp(a)),
            Direction::Newer => found.sort_unstable(),
        }
        found.dedup();
        found.truncate(ask.max);
    }
    Ok(found)
}

/// Returns the identity of the data directory, which is stored as two numbers.
pub(super) fn identity(snapshot: &ReadTransaction) -> Result<Option<Identity>, Error> {
    let meta = snapshot.open_table(layout::META)?;
    let mut identity = 0;
    for half in layout::META_IDENTITY {
        let Some(number) = meta.get(half)? else { return Ok(None) };
        identity = identity << 64 | u128::from(number.value());
    }
    Ok(Some(Identity(identity.to_be_bytes())))
}

/// Returns the summary of every outbox.
pub(super) fn archived_counts(snapshot: &ReadTransaction) -> Result<Vec<(SourceId, ArchivedCounts)>, Error> {
    let archived_counts = snapshot.open_table(layout::OUTBOX_COUNTS)?;
    let rows = archived_counts.iter()?.map(|row| {
        let (source, archived_counts) = row?;
        Ok((layout::source(source.value())?, layout::archived_counts(archived_counts.value())?))
    });
    rows.collect()
}

/// Compares the number of outbox entries with the sum of the counts.
pub(super) fn check_counts(snapshot: &ReadTransaction) -> Result<(), Error> {
    let of_source = |counts: &ArchivedCounts| counts.pushed.posts + counts.pulled.posts;
    let counted: u64 = archived_counts(snapshot)?.iter().map(|(_, counts)| of_source(counts)).sum();
    let held = snapshot.open_table(layout::OUTBOXES)?.len()?;
    if held == counted {
        return Ok(());
    }
    let what =
        format!("its outboxes contain {held} entries, but {counted} are counted; tidewire archive verify lists them");
    Err(layout::damaged(what))
}

fn copy_route(
    outboxes: &impl ReadableTable<&'static [u8], ()>,
    source: &SourceId,
    route: Route,
    ask: OutboxQuery,
    into: &mut Vec<Position>,
) -> Result<(), Error> {
    let (mut above, mut below) = (OutboxKey::of(source), OutboxKey::of(source));
    let bounds = (Excluded(above.at(route, ask.span.above)), Excluded(below.at(route, ask.span.below)));
    let mut inside = outboxes.range::<&[u8]>(bounds)?;
    let next = || match ask.direction {
        Direction::Older => inside.next_back(),
        Direction::Newer => inside.next(),
    };
    for row in std::iter::from_fn(next).take(ask.max) {
        into.push(above.position_in(row?.0.value())?);
    }
    Ok(())
}

pub(super) fn routes(part: Part) -> &'static [Route] {
    match part {
        Part::Pushed => &[Route::Push],
        Part::Pulled => &[Route::Pull],
        Part::Whole => &[Route::Push, Route::Pull],
    }
}
