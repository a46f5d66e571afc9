//! Reads rows: of one outbox, and the counts of all outboxes.

use std::ops::Bound::{Excluded, Unbounded};

use redb::{Error, ReadTransaction, ReadableTable, ReadableTableMetadata};

use super::layout::{self, OutboxKey};
use crate::feed::outbox::{OutboxQuery, Part, Route};
use crate::feed::position::{Direction, Position};
use crate::id::SourceId;
use crate::storage::archive::ArchivedCounts;
use crate::storage::identity::Identity;

/// Outboxes whose counts are read together. Tests have few outboxes.
pub(super) const OUTBOXES_TOGETHER: usize = if cfg!(test) { 3 } else { 4_096 };

/// Number of such reads that are done ahead of the use of what they found.
pub(super) const OUTBOX_READS_AHEAD: usize = 4;

/// Returns the requested positions of an outbox, nearest first.
pub(super) fn positions(
    outboxes: &impl ReadableTable<&'static [u8], ()>,
    source: &SourceId,
    query: OutboxQuery,
) -> Result<Vec<Position>, Error> {
    let mut found = Vec::new();
    // The behaviour of redb for a range that ends before it starts is not documented.
    if query.span.is_empty() {
        return Ok(found);
    }
    for route in query.part.routes() {
        add_route(outboxes, source, *route, query, &mut found)?;
    }
    if query.part == Part::Whole {
        match query.direction {
            Direction::Older => found.sort_unstable_by(|a, b| b.cmp(a)),
            Direction::Newer => found.sort_unstable(),
        }
        found.dedup();
        found.truncate(query.max);
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

/// Returns the summaries of at most `max` outboxes: of the first ones by source id, or of those after a source.
pub(super) fn outboxes_after(
    snapshot: &ReadTransaction,
    after: Option<&SourceId>,
    max: usize,
) -> Result<Vec<(SourceId, ArchivedCounts)>, Error> {
    let from = after.map_or(Unbounded, |after| Excluded(after.as_str().as_bytes()));
    let archived_counts = snapshot.open_table(layout::OUTBOX_COUNTS)?;
    let rows = archived_counts.range::<&[u8]>((from, Unbounded))?.take(max).map(|row| {
        let (source, archived_counts) = row?;
        Ok((layout::source(source.value())?, layout::archived_counts(archived_counts.value())?))
    });
    rows.collect()
}

/// Compares the number of outbox entries with the sum of the counts.
pub(super) fn check_counts(snapshot: &ReadTransaction) -> Result<(), Error> {
    let mut counted = 0;
    for row in snapshot.open_table(layout::OUTBOX_COUNTS)?.iter()? {
        let ArchivedCounts { pushed, pulled } = layout::archived_counts(row?.1.value())?;
        counted += pushed.posts + pulled.posts;
    }
    let held = snapshot.open_table(layout::OUTBOXES)?.len()?;
    if held == counted {
        return Ok(());
    }
    let what =
        format!("its outboxes contain {held} entries, but {counted} are counted; tidewire archive verify lists them");
    Err(layout::damaged(what))
}

fn add_route(
    outboxes: &impl ReadableTable<&'static [u8], ()>,
    source: &SourceId,
    route: Route,
    query: OutboxQuery,
    into: &mut Vec<Position>,
) -> Result<(), Error> {
    let (mut above, mut below) = (OutboxKey::of(source), OutboxKey::of(source));
    let bounds = (Excluded(above.at(route, query.span.above)), Excluded(below.at(route, query.span.below)));
    let mut inside = outboxes.range::<&[u8]>(bounds)?;
    let next = || match query.direction {
        Direction::Older => inside.next_back(),
        Direction::Newer => inside.next(),
    };
    for row in std::iter::from_fn(next).take(query.max) {
        into.push(above.position_in(row?.0.value())?);
    }
    Ok(())
}
