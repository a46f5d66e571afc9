//! The state of an outbox for writes, and the creation of its buckets.
//!
//! Layouts change by compare-and-set. A writer of a route first stores its layout again with a new version, and reads the rest of the
//! route only then. From then on, all layout changes fail that earlier writers have sent or will send, so that they hide no rows. Such a
//! writer gets an error, and reads the layout again. Counts of rows are estimates. They decide only under such a version, and when to
//! count again.

use std::collections::BTreeMap;
use std::time::Instant;

use futures_util::future::{try_join, try_join_all};
use rustc_hash::{FxHashMap, FxHashSet};

use super::connection::Core;
use super::layout::{Bucket, BucketId, EMPTY, Layout};
use super::read::{index, position, route_to_row, row};
use tidewire::feed::outbox::Route;
use tidewire::feed::position::Position;
use tidewire::id::SourceId;
use tidewire::storage::archive::ArchiveError;

/// Rows that are written to a partition together.
const ROWS_TOGETHER: usize = 64;

/// A row of a bucket: its position, its write time, and its time to live in seconds, or 0.
type Row = (Position, i64, i32);

/// Both routes of an outbox.
pub(super) type OutboxState = [RouteState; 2];

/// A bucket that no layout contains any more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Replaced {
    pub(super) at: Instant,
    pub(super) source: SourceId,
    pub(super) route: Route,
    pub(super) bucket: BucketId,
    /// The latest write time in the bucket when it was replaced. The deletion has this time. If the source is erased and its name used
    /// again meanwhile, the bucket may be in use again, and its new rows have later times.
    pub(super) time: i64,
}

/// A route of an outbox.
#[derive(Clone, Debug, Default)]
pub(super) struct RouteState {
    layout: Layout,
    /// None if the layout is not stored. Then it is the initial layout of every outbox.
    version: Option<i64>,
    /// True once this process has given the layout a version of its own.
    is_own: bool,
    /// No entry is above this position. None if there is no entry.
    newest: Option<Position>,
    /// The known numbers of rows, by bucket.
    rows: FxHashMap<BucketId, Rows>,
    /// The buckets that were changed since [`RouteState::begin`].
    changed: FxHashSet<BucketId>,
    /// True if the layout was changed since then.
    is_layout_changed: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Rows {
    rows: usize,
    removed: u32,
    /// True if existing rows may have been counted twice.
    is_estimate: bool,
}

impl Rows {
    fn counted(rows: usize) -> Self {
        Self { rows, ..Self::default() }
    }
}

/// Reads the state of an outbox, and fences earlier writers from the layouts of the routes whose entries `are_added`. Everything counts
/// as changed, since a failure before this read may have changed anything.
pub(super) async fn load(core: &Core, source: &SourceId, are_added: [bool; 2]) -> Result<OutboxState, ArchiveError> {
    // This read first completes a change that another process has begun, so that none of its changes comes later.
    let found = core.read(&core.statements.settled_layouts, (source.as_str(),)).await?;
    let [pushed, pulled] = core.layouts_of(source, found)?;
    let pushed = load_route(core, source, Route::Push, pushed, are_added[index(Route::Push)]);
    let pulled = load_route(core, source, Route::Pull, pulled, are_added[index(Route::Pull)]);
    let (pushed, pulled) = try_join(pushed, pulled).await?;
    Ok([pushed, pulled])
}

async fn load_route(
    core: &Core,
    source: &SourceId,
    route: Route,
    (layout, version): (Layout, Option<i64>),
    is_own: bool,
) -> Result<RouteState, ArchiveError> {
    let mut state = RouteState { layout, version, ..RouteState::default() };
    if is_own {
        state.store(core, source, route).await?;
    }
    let Bucket { begins, id } = state.layout.newest();
    let rows = if id == EMPTY { Vec::new() } else { rows(core, source, route, id).await? };
    let below = (begins > Position::MIN).then(|| Position::of_rank(begins.rank() - 1));
    state.newest = rows.iter().map(|(position, ..)| *position).max().or(below);
    state.rows.insert(id, Rows::counted(rows.len()));
    state.changed = state.layout.ids().collect();
    state.is_layout_changed = true;
    Ok(state)
}

/// Returns all rows of a bucket.
async fn rows(core: &Core, source: &SourceId, route: Route, bucket: BucketId) -> Result<Vec<Row>, ArchiveError> {
    let mut all = Vec::new();
    let values = (source.as_str(), route_to_row(route), bucket);
    let add = |page: Vec<(i64, i64, Option<i64>, Option<i32>)>| {
        let rows = page
            .into_iter()
            .map(|(published_at, id, time, ttl)| (position((published_at, id)), time.unwrap_or(0), ttl.unwrap_or(0)));
        all.extend(rows);
        Ok(())
    };
    core.each_page(&core.statements.bucket, values, add).await?;
    Ok(all)
}

/// Returns a random id for a new bucket.
fn new_id() -> BucketId {
    fastrand::i64(1..)
}

impl RouteState {
    /// Returns the bucket that may contain a position, if there is one.
    pub(super) fn bucket_that_may_have(&self, position: Position) -> Option<BucketId> {
        let bucket = self.layout.of(position).id;
        (self.newest >= Some(position) && bucket != EMPTY).then_some(bucket)
    }

    /// Fences earlier writers from the layout, unless that is done. Then reads the rows again.
    async fn own(&mut self, core: &Core, source: &SourceId, route: Route) -> Result<(), ArchiveError> {
        if !self.is_own {
            let stored = (std::mem::take(&mut self.layout), self.version);
            *self = load_route(core, source, route, stored, true).await?;
        }
        Ok(())
    }

    /// Begins the changes of a batch.
    pub(super) fn begin(&mut self) {
        self.changed.clear();
        self.is_layout_changed = false;
    }

    /// Returns true if this batch has changed the layout.
    pub(super) fn is_layout_changed(&self) -> bool {
        self.is_layout_changed
    }

    /// Returns the buckets that this batch has changed.
    pub(super) fn changed(&self) -> impl Iterator<Item = BucketId> {
        self.changed.iter().copied()
    }

    /// Adds entries, which must ascend.
    pub(super) async fn place(
        &mut self,
        core: &Core,
        source: &SourceId,
        route: Route,
        positions: &[Position],
        time: i64,
        replaced: &mut Vec<Replaced>,
    ) -> Result<(), ArchiveError> {
        self.own(core, source, route).await?;
        let before = self.newest;
        self.doubt_newest(positions, core.buckets.rows);
        let late = positions.iter().filter(|position| before >= Some(**position));
        let late: FxHashSet<BucketId> = late.map(|position| self.layout.of(*position).id).collect();
        let uncounted = late.into_iter().chain([self.layout.newest().id]);
        self.count(core, source, route, uncounted).await?;
        let by_bucket = self.assign(positions, core.buckets.rows);
        if by_bucket.is_changed {
            self.store(core, source, route).await?;
        }
        let rows = by_bucket.positions.iter().map(|(bucket, positions)| {
            let rows: Vec<Row> = positions.iter().map(|position| (*position, time, core.ttl_seconds)).collect();
            async move { put_rows(core, source, route, *bucket, &rows).await }
        });
        let rows: Vec<_> = rows.collect();
        try_join_all(rows).await?;
        self.changed.extend(by_bucket.positions.keys().copied());
        for (bucket, positions) in by_bucket.positions {
            let is_over = self.rows.get(&bucket).is_some_and(|rows| rows.rows > 2 * core.buckets.rows);
            if let Some(within) = positions.first().filter(|_| is_over) {
                let rows_min = 2 * core.buckets.rows + 1;
                replaced.extend(self.rewrite(core, source, route, *within, rows_min, time).await?);
            }
        }
        Ok(())
    }

    /// Drops the count of the newest bucket if it may be too large, and would close the bucket.
    fn doubt_newest(&mut self, positions: &[Position], rows_max: usize) {
        let newest = self.layout.newest().id;
        let would_close = |rows: &Rows| rows.is_estimate && rows.rows + positions.len() > rows_max;
        let has_new = positions.iter().any(|position| self.newest < Some(*position));
        if has_new && self.rows.get(&newest).is_some_and(would_close) {
            self.rows.remove(&newest);
        }
    }

    /// Chooses the buckets of new entries, and begins new buckets for them.
    fn assign(&mut self, positions: &[Position], rows_max: usize) -> Assigned {
        let mut assigned = Assigned::default();
        for position in positions {
            let is_new = self.newest < Some(*position);
            let newest = self.layout.newest();
            let is_full = self.rows.get(&newest.id).is_some_and(|rows| rows.rows >= rows_max);
            let mut bucket = self.layout.of(*position).id;
            if is_new && is_full {
                bucket = new_id();
                self.layout.close_newest(*position, bucket);
                assigned.is_changed = true;
            } else if bucket == EMPTY {
                bucket = new_id();
                let begins = *position;
                self.layout.replace(begins, &[Bucket { begins, id: bucket }]);
                assigned.is_changed = true;
            }
            let rows = self.rows.entry(bucket).or_default();
            rows.rows += 1;
            rows.is_estimate |= !is_new;
            self.newest = self.newest.max(Some(*position));
            assigned.positions.entry(bucket).or_default().push(*position);
        }
        assigned
    }

    /// Removes existing entries.
    pub(super) async fn remove(
        &mut self,
        core: &Core,
        source: &SourceId,
        route: Route,
        positions: &[Position],
        time: i64,
        replaced: &mut Vec<Replaced>,
    ) -> Result<(), ArchiveError> {
        self.own(core, source, route).await?;
        let mut full = BTreeMap::new();
        let deletions = positions.iter().map(|position| {
            let (published_at, id) = row(*position);
            let bucket = self.layout.of(*position).id;
            let rows = self.rows.entry(bucket).or_default();
            rows.removed += 1;
            if rows.removed >= core.buckets.removed {
                full.insert(bucket, *position);
            }
            self.changed.insert(bucket);
            core.write(
                &core.statements.delete_entry,
                (time, source.as_str(), route_to_row(route), bucket, published_at, id),
            )
        });
        let deletions: Vec<_> = deletions.collect();
        try_join_all(deletions).await?;
        for within in full.into_values() {
            replaced.extend(self.rewrite(core, source, route, within, 0, time).await?);
        }
        Ok(())
    }

    /// Counts the rows of buckets without a known count.
    async fn count(
        &mut self,
        core: &Core,
        source: &SourceId,
        route: Route,
        buckets: impl Iterator<Item = BucketId>,
    ) -> Result<(), ArchiveError> {
        let unknown = buckets.filter(|bucket| *bucket != EMPTY && !self.rows.contains_key(bucket));
        let counts = unknown.map(|bucket| async move {
            let rows = rows(core, source, route, bucket).await?.len();
            Ok::<_, ArchiveError>((bucket, Rows::counted(rows)))
        });
        let counts: Vec<_> = counts.collect();
        self.rows.extend(try_join_all(counts).await?);
        Ok(())
    }

    /// Writes the rows of a bucket into new ones, each with its previous write time, so that late writes change nothing. Then the new
    /// buckets replace the old one. Returns the old bucket, or none if it has fewer than `rows_min` rows and stays. `time` is that of the
    /// batch.
    async fn rewrite(
        &mut self,
        core: &Core,
        source: &SourceId,
        route: Route,
        within: Position,
        rows_min: usize,
        time: i64,
    ) -> Result<Option<Replaced>, ArchiveError> {
        let old = self.layout.of(within).id;
        if old == EMPTY {
            return Ok(None);
        }
        let mut rows = rows(core, source, route, old).await?;
        if rows.len() < rows_min {
            self.rows.insert(old, Rows::counted(rows.len()));
            return Ok(None);
        }
        rows.sort_unstable();
        let pieces: Vec<(Bucket, &[Row])> =
            rows.chunks(core.buckets.rows).map(|rows| (Bucket { begins: rows[0].0, id: new_id() }, rows)).collect();
        let writes = pieces.iter().map(|(bucket, rows)| put_rows(core, source, route, bucket.id, rows));
        let writes: Vec<_> = writes.collect();
        try_join_all(writes).await?;
        let buckets: Vec<Bucket> = pieces.iter().map(|(bucket, _)| *bucket).collect();
        self.layout.replace(within, &buckets);
        self.store(core, source, route).await?;
        self.rows.remove(&old);
        self.rows.extend(pieces.iter().map(|(bucket, rows)| (bucket.id, Rows::counted(rows.len()))));
        let time = rows.iter().map(|(_, written, _)| *written).fold(time, i64::max);
        Ok(Some(Replaced { at: Instant::now(), source: source.clone(), route, bucket: old, time }))
    }

    /// Stores the layout, unless another process has changed it. Afterwards this process owns it.
    async fn store(&mut self, core: &Core, source: &SourceId, route: Route) -> Result<(), ArchiveError> {
        let layout = self.layout.encode();
        let (source_text, route) = (source.as_str(), route_to_row(route));
        // A layout that is created again after an erasure must not reuse an earlier version.
        let version = self.version.map_or_else(|| fastrand::i64(1..i64::MAX / 2), |version| version.wrapping_add(1));
        let statements = &core.statements;
        let done = match self.version {
            None => core.write(&statements.create_layout, (source_text, route, layout, version)).await?,
            Some(before) => {
                core.write(&statements.change_layout, (layout, version, source_text, route, before)).await?
            }
        };
        if !core.is_applied(done)? {
            let why = format!("another process has changed the outbox of {source}");
            return Err(ArchiveError::Unavailable { place: core.place.clone(), why });
        }
        (self.version, self.is_own) = (Some(version), true);
        self.is_layout_changed = true;
        Ok(())
    }
}

/// New entries by bucket.
#[derive(Default)]
struct Assigned {
    positions: BTreeMap<BucketId, Vec<Position>>,
    /// True if the layout was changed for them.
    is_changed: bool,
}

async fn put_rows(
    core: &Core,
    source: &SourceId,
    route: Route,
    bucket: BucketId,
    rows: &[Row],
) -> Result<(), ArchiveError> {
    let batches = rows.chunks(ROWS_TOGETHER).map(|rows| {
        let values = rows.iter().map(|(position, time, ttl)| {
            let (published_at, id) = row(*position);
            (source.as_str(), route_to_row(route), bucket, published_at, id, *time, *ttl)
        });
        core.write_rows(&core.statements.put_entry, values.collect::<Vec<_>>())
    });
    let batches: Vec<_> = batches.collect();
    try_join_all(batches).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidewire::feed::position::at;

    fn positions(times: impl Iterator<Item = i64>) -> Vec<Position> {
        times.map(|time| at(time, 0)).collect()
    }

    const ROWS: usize = 64;

    #[test]
    fn a_full_bucket_is_closed_above_its_newest_row() {
        let mut state = RouteState::default();
        let rows = ROWS as i64;
        let first = state.assign(&positions(0..rows), ROWS);
        assert!(!first.is_changed && first.positions.len() == 1);
        // Late entries go into the bucket of their neighbours, even if it is full.
        let mut more = positions([5, 7].into_iter());
        more.extend(positions(rows..2 * rows + 1));
        let then = state.assign(&more, ROWS);
        assert!(then.is_changed);
        let sizes: Vec<usize> = [0, rows, 2 * rows]
            .map(|time| state.layout.of(at(time, 0)).id)
            .map(|bucket| then.positions[&bucket].len())
            .to_vec();
        assert_eq!(sizes, [2, ROWS, 1]);
        assert_eq!(state.newest, Some(at(2 * rows, 0)));
    }

    #[test]
    fn a_repeated_batch_is_assigned_to_the_same_buckets() {
        let mut state = RouteState::default();
        let rows = ROWS as i64;
        state.assign(&positions(0..rows), ROWS);
        let once = state.assign(&positions(rows..rows + 100), ROWS);
        let again = state.assign(&positions(rows..rows + 100), ROWS);
        assert!(once.is_changed && !again.is_changed);
        assert_eq!(once.positions, again.positions);
    }
}
