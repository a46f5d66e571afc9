//! Writes batches: posts first, then the outboxes, each source by itself.
//!
//! A batch is not atomic: readers may see a part of it, and a failure leaves a part of it. Writing it again completes it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::{join_all, try_join_all};
use futures_util::stream::{StreamExt, iter};
use rustc_hash::FxHashMap;

use super::cache::Key;
use super::connection::Core;
use super::layout::id_to_row;
use super::outbox::{OutboxState, Replaced, RouteState};
use super::read::{index, route_to_row, row};
use tidewire::feed::outbox::Route;
use tidewire::feed::position::Position;
use tidewire::id::{PostId, SourceId};
use tidewire::storage::archive::{ArchiveError, ArchivedRecord, Batch};
use tidewire::storage::sequence::Sequence;

/// Number of sources and posts that are written concurrently. Their statements have a limit of their own.
const SIDE_BY_SIDE: usize = 64;

/// Maximum number of sources with a cached state, in each of two generations.
const KNOWN_MAX: usize = 50_000;

/// Time after which a bucket that was replaced is deleted. Readers that still had the old layout have finished by then.
pub(super) const REPLACED_FOR: Duration = Duration::from_secs(120);

/// Seconds that a post outlives its entries if archived data expires. So an entry never names a missing post.
const TTL_MARGIN_SECONDS: i32 = 3_600;

/// The write time before that of the first copy of another archive. Copies have ascending times, all of them before the first event.
const BEFORE_COPIES: i64 = -(1 << 40);

/// The state of the one thread that writes.
#[derive(Default)]
pub(super) struct Writer {
    young: FxHashMap<SourceId, OutboxState>,
    old: FxHashMap<SourceId, OutboxState>,
    /// Buckets that were replaced, oldest first.
    replaced: Vec<Replaced>,
    /// The largest event that `note` has stored.
    noted: Option<Sequence>,
    /// The write time of data without an event, which is copied from another archive.
    copy_time: i64,
    /// True after a batch that failed or was cancelled: then the stored state is unknown.
    is_uncertain: bool,
}

/// The changes of one outbox.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Changes {
    /// Entries to add, each with the first route that the batch has for it.
    pub(super) placed: BTreeMap<Position, Route>,
    pub(super) removed: BTreeSet<Position>,
}

/// Returns the write time of data that an event caused. Later events have later times, with room for a rewrite between two of them.
pub(super) fn write_time(as_of: Sequence) -> i64 {
    let as_of = i64::try_from(as_of.0).unwrap_or(i64::MAX).min(i64::MAX / 2 - 1);
    2 * as_of
}

/// Returns the changes of a batch by source.
pub(super) fn by_source(batch: &Batch) -> BTreeMap<SourceId, Changes> {
    let mut changes: BTreeMap<SourceId, Changes> = BTreeMap::new();
    for (source, position, route) in &batch.placed {
        changes.entry(source.clone()).or_default().placed.entry(*position).or_insert(*route);
    }
    for (source, position) in &batch.removed {
        let changes = changes.entry(source.clone()).or_default();
        changes.placed.remove(position);
        changes.removed.insert(*position);
    }
    changes
}

impl Writer {
    /// Stores that data may have been written with an event. After a start at an earlier event, that data would replace new writes.
    pub(super) async fn note(&mut self, core: &Core, as_of: Sequence) -> Result<(), ArchiveError> {
        if self.noted < Some(as_of) {
            core.put_written(as_of).await?;
            self.noted = Some(as_of);
        }
        Ok(())
    }

    /// Begins the copy with this number. Its writes replace those of copies with smaller numbers.
    pub(super) fn begin_copy(&mut self, number: u64) {
        self.copy_time = BEFORE_COPIES.saturating_add_unsigned(number).min(0);
    }

    fn take(&mut self, source: &SourceId) -> Option<OutboxState> {
        self.young.remove(source).or_else(|| self.old.remove(source))
    }

    fn put(&mut self, source: SourceId, state: OutboxState) {
        if self.young.len() >= KNOWN_MAX {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(source, state);
    }

    /// Drops the cached states of all outboxes. They are read again when they are needed.
    pub(super) fn forget(&mut self) {
        self.young.clear();
        self.old.clear();
    }

    /// Writes a batch.
    pub(super) async fn write(&mut self, core: &Arc<Core>, batch: &Batch) -> Result<(), ArchiveError> {
        // The flag remains set if this future is dropped.
        if std::mem::replace(&mut self.is_uncertain, true) {
            self.forget();
        }
        let done = self.write_all(core, batch).await;
        self.is_uncertain = done.is_err();
        done
    }

    async fn write_all(&mut self, core: &Arc<Core>, batch: &Batch) -> Result<(), ArchiveError> {
        self.note(core, batch.as_of).await?;
        let time = if batch.as_of == Sequence(0) { self.copy_time } else { write_time(batch.as_of) };
        put_posts(core, &batch.posts, time).await?;
        let changes = by_source(batch);
        let work: Vec<_> = changes.into_iter().map(|(source, changes)| (self.take(&source), source, changes)).collect();
        let mut done = iter(work.into_iter().map(|(state, source, changes)| {
            let core = Arc::clone(core);
            async move {
                let outcome = write_outbox(&core, &source, state, changes, time).await;
                forget_cached(&core, &source, outcome.as_ref().ok());
                (source, outcome)
            }
        }))
        .buffer_unordered(SIDE_BY_SIDE);
        let mut failure = None;
        while let Some((source, outcome)) = done.next().await {
            match outcome {
                Ok((state, replaced)) => {
                    self.put(source, state);
                    self.replaced.extend(replaced);
                }
                // The other sources would fail in the same way, after the same time.
                Err(cause) if cause.is_temporary() => return Err(cause),
                Err(cause) => failure = Some(cause),
            }
        }
        failure.map_or(Ok(()), Err)
    }

    /// Deletes buckets that were replaced some time ago.
    pub(super) async fn delete_replaced(&mut self, core: &Core, now: Instant) -> Result<(), ArchiveError> {
        let is_due = |replaced: &Replaced| now.saturating_duration_since(replaced.at) >= REPLACED_FOR;
        let due: Vec<_> = self.replaced.iter().filter(|replaced| is_due(replaced)).collect();
        let deletions = due.iter().map(|Replaced { source, route, bucket, time, .. }| {
            core.write(&core.statements.drop_bucket, (*time, source.as_str(), route_to_row(*route), *bucket))
        });
        let deletions: Vec<_> = deletions.collect();
        let deleted = join_all(deletions).await;
        deleted.into_iter().collect::<Result<Vec<_>, _>>()?;
        self.replaced.retain(|replaced| !is_due(replaced));
        Ok(())
    }
}

/// Writes posts. Of several with the same id the last one counts.
async fn put_posts(core: &Core, posts: &[(PostId, ArchivedRecord)], time: i64) -> Result<(), ArchiveError> {
    let last: BTreeMap<PostId, &ArchivedRecord> = posts.iter().map(|(id, kept)| (*id, kept)).collect();
    let mut writes = Vec::with_capacity(last.len());
    for (id, kept) in last {
        writes.push(put_post(core, id, kept, time));
    }
    let mut writes = iter(writes).buffer_unordered(SIDE_BY_SIDE);
    let mut failure = None;
    while let Some(done) = writes.next().await {
        match done {
            Ok(()) => {}
            Err(cause) if cause.is_temporary() => return Err(cause),
            Err(cause) => failure = Some(cause),
        }
    }
    failure.map_or(Ok(()), Err)
}

/// Writes a post or a tombstone.
pub(super) async fn put_post(core: &Core, id: PostId, kept: &ArchivedRecord, time: i64) -> Result<(), ArchiveError> {
    let (record, is_deleted) = match kept {
        ArchivedRecord::Post(bytes) => (Some(bytes.as_slice()), false),
        ArchivedRecord::Deleted => (None, true),
    };
    // A tombstone does not expire: its id must not be used again.
    let ttl = if is_deleted || core.ttl_seconds == 0 { 0 } else { core.ttl_seconds.saturating_add(TTL_MARGIN_SECONDS) };
    let row = (id_to_row(id.0), record, is_deleted, time, ttl);
    let done = core.write(&core.statements.put_post, row).await;
    core.cache.forget(&Key::Post(id));
    done.map(drop)
}

/// Writes the changes of an outbox. Returns its state afterwards, and the buckets that were replaced.
async fn write_outbox(
    core: &Core,
    source: &SourceId,
    state: Option<OutboxState>,
    changes: Changes,
    time: i64,
) -> Result<(OutboxState, Vec<Replaced>), ArchiveError> {
    let mut state = match state {
        Some(mut state) => {
            state.iter_mut().for_each(RouteState::begin);
            state
        }
        None => {
            let are_added = Route::ALL.map(|route| changes.placed.values().any(|of| *of == route));
            super::outbox::load(core, source, are_added).await?
        }
    };
    let mut replaced = Vec::new();
    let mut by_route: [Vec<Position>; 2] = Default::default();
    let placed = without_those_of_the_other_route(core, source, &state, changes.placed).await?;
    for (position, route) in placed {
        by_route[index(route)].push(position);
    }
    for (route, positions) in Route::ALL.into_iter().zip(by_route) {
        if !positions.is_empty() {
            state[index(route)].place(core, source, route, &positions, time, &mut replaced).await?;
        }
    }
    for route in Route::ALL {
        let removed = there(core, source, route, &state[index(route)], &changes.removed).await?;
        if !removed.is_empty() {
            state[index(route)].remove(core, source, route, &removed, time, &mut replaced).await?;
        }
    }
    Ok((state, replaced))
}

/// Returns the new entries without those that the outbox already has by the other route. Few sources change their route, so nearly all
/// entries are above everything of the other route.
async fn without_those_of_the_other_route(
    core: &Core,
    source: &SourceId,
    state: &OutboxState,
    placed: BTreeMap<Position, Route>,
) -> Result<Vec<(Position, Route)>, ArchiveError> {
    let checks = placed.into_iter().map(|(position, route)| async move {
        let other = if route == Route::Push { Route::Pull } else { Route::Push };
        let is_other = has(core, source, other, &state[index(other)], position).await?;
        Ok((!is_other).then_some((position, route)))
    });
    let checks: Vec<_> = checks.collect();
    let kept = try_join_all(checks).await?;
    Ok(kept.into_iter().flatten().collect())
}

/// Returns the positions that exist in a route.
async fn there(
    core: &Core,
    source: &SourceId,
    route: Route,
    state: &RouteState,
    positions: &BTreeSet<Position>,
) -> Result<Vec<Position>, ArchiveError> {
    let checks = positions.iter().map(|position| async move {
        let is_there = has(core, source, route, state, *position).await?;
        Ok(is_there.then_some(*position))
    });
    let checks: Vec<_> = checks.collect();
    let there: Vec<Option<Position>> = try_join_all(checks).await?;
    Ok(there.into_iter().flatten().collect())
}

/// Returns true if a route has an entry.
async fn has(
    core: &Core,
    source: &SourceId,
    route: Route,
    state: &RouteState,
    position: Position,
) -> Result<bool, ArchiveError> {
    let Some(bucket) = state.bucket_that_may_have(position) else { return Ok(false) };
    let (published_at, id) = row(position);
    let values = (source.as_str(), route_to_row(route), bucket, published_at, id);
    let found = core.read(&core.statements.entry, values).await?;
    Ok(core.first_row::<(i64,)>(found)?.is_some())
}

/// Invalidates the cached reads of an outbox. Failed changes may have been made in part. But all of them stay in memory until they
/// succeed, so no reader misses entries that the cache does not know yet.
fn forget_cached(core: &Core, source: &SourceId, done: Option<&(OutboxState, Vec<Replaced>)>) {
    let Some((state, replaced)) = done else { return core.cache.forget(&Key::Layouts(source.clone())) };
    let forget = |route, bucket| core.cache.forget(&Key::Run(source.clone(), route_to_row(route), bucket));
    for route in Route::ALL {
        state[index(route)].changed().for_each(|bucket| forget(route, bucket));
    }
    replaced.iter().for_each(|replaced| forget(replaced.route, replaced.bucket));
    if state.iter().any(RouteState::is_layout_changed) {
        core.cache.forget(&Key::Layouts(source.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Route::{Pull, Push};
    use tidewire::feed::position::at;
    use tidewire::storage::archive::samples::source;

    #[test]
    fn the_changes_of_a_batch_are_reduced_to_their_net_effect_on_each_outbox() {
        let batch = Batch {
            placed: vec![
                (source("ann"), at(1, 1), Push),
                (source("ann"), at(1, 1), Pull),
                (source("ann"), at(2, 2), Pull),
                (source("bob"), at(3, 3), Push),
            ],
            removed: vec![(source("ann"), at(2, 2)), (source("cid"), at(4, 4))],
            ..Batch::default()
        };
        let changes = |placed: &[(Position, Route)], removed: &[Position]| Changes {
            placed: placed.iter().copied().collect(),
            removed: removed.iter().copied().collect(),
        };
        let expected = [
            (source("ann"), changes(&[(at(1, 1), Push)], &[at(2, 2)])),
            (source("bob"), changes(&[(at(3, 3), Push)], &[])),
            (source("cid"), changes(&[], &[at(4, 4)])),
        ];
        assert_eq!(by_source(&batch), BTreeMap::from(expected));
    }

    #[test]
    fn write_times_ascend_with_gaps_between_them() {
        assert_eq!([0, 1, 2].map(|event| write_time(Sequence(event))), [0, 2, 4]);
        assert!(write_time(Sequence(u64::MAX)).checked_add(1).is_some());
    }
}
