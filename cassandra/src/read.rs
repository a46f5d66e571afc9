//! Reads posts and outboxes, from the cache if possible.

use std::sync::Arc;
use std::time::Instant;

use futures_util::future::{join_all, try_join_all};

use super::cache::{Key, Run, Value};
use super::connection::Core;
use super::layout::{Bucket, Layout, id_of_row, id_to_row};
use tidewire::clock::UnixMicros;
use tidewire::feed::outbox::{OutboxQuery, Route};
use tidewire::feed::position::{Direction, Position, PositionRange};
use tidewire::id::{PostId, SourceId};
use tidewire::storage::archive::{ArchiveError, ArchivedRecord};

/// Minimum number of positions to read from a bucket: the next page then finds its positions in the cache.
const READ_AHEAD: usize = 128;

/// Maximum number of announced reads. The rest is read when it is requested.
const ANNOUNCED_MAX: usize = 1_024;

/// A read that was announced.
#[derive(Clone, Debug)]
pub(super) enum Announced {
    Outbox(SourceId, OutboxQuery),
    Post(PostId),
}

/// Returns the number of a route in the tables.
pub(super) fn route_to_row(route: Route) -> i8 {
    match route {
        Route::Push => 1,
        Route::Pull => 2,
    }
}

/// Returns the route with this number in the tables, if there is one.
pub(super) fn route_of_row(row: i8) -> Option<Route> {
    Route::ALL.into_iter().find(|route| route_to_row(*route) == row)
}

/// Returns the place of a route in a pair of layouts.
pub(super) fn index(route: Route) -> usize {
    match route {
        Route::Push => 0,
        Route::Pull => 1,
    }
}

/// Returns the position of a row.
pub(super) fn position((published_at, id): (i64, i64)) -> Position {
    Position { published_at: UnixMicros(published_at), id: PostId(id_of_row(id)) }
}

/// Returns the row of a position.
pub(super) fn row(position: Position) -> (i64, i64) {
    (position.published_at.0, id_to_row(position.id.0))
}

impl Core {
    /// Returns a post from the cache.
    pub(super) fn cached_post(&self, id: PostId) -> Option<Arc<ArchivedRecord>> {
        match self.cache.get(&Key::Post(id))? {
            Value::Post(kept) => Some(kept),
            _ => None,
        }
    }

    /// Returns the post or tombstone with an id.
    pub(super) async fn post(&self, id: PostId) -> Result<Option<ArchivedRecord>, ArchiveError> {
        let key = Key::Post(id);
        let since = self.cache.epoch(&key);
        let found = self.read(&self.statements.post, (id_to_row(id.0),)).await?;
        let Some((record, is_deleted)) = self.first_row(found)? else { return Ok(None) };
        let kept = self.record(id, record, is_deleted)?;
        self.cache.insert(key, Value::Post(Arc::new(kept.clone())), since);
        Ok(Some(kept))
    }

    /// Returns the content of a row of `posts`.
    pub(super) fn record(
        &self,
        id: PostId,
        record: Option<Vec<u8>>,
        is_deleted: Option<bool>,
    ) -> Result<ArchivedRecord, ArchiveError> {
        match (record, is_deleted) {
            (_, Some(true)) => Ok(ArchivedRecord::Deleted),
            (Some(bytes), Some(false)) => Ok(ArchivedRecord::Post(bytes)),
            _ => Err(self.damaged(format_args!("post {id} is neither post nor tombstone"))),
        }
    }

    /// Returns the answer to a read of an outbox if the cache has all of it.
    pub(super) fn cached_positions(&self, source: &SourceId, query: OutboxQuery) -> Option<Vec<Position>> {
        let Some(Value::Layouts(layouts)) = self.cache.get(&Key::Layouts(source.clone())) else { return None };
        let of_route = |route: &Route| {
            let mut found = Vec::new();
            for (bucket, span) in layouts[index(*route)].of_span(query.span, query.direction) {
                if found.len() >= query.max {
                    break;
                }
                found.extend(self.cached_run(
                    source,
                    *route,
                    bucket,
                    span,
                    query.direction,
                    query.max - found.len(),
                )?);
            }
            Some(found)
        };
        let found: Option<Vec<_>> = query.part.routes().iter().map(of_route).collect();
        Some(merged(found?, query))
    }

    fn cached_run(
        &self,
        source: &SourceId,
        route: Route,
        bucket: Bucket,
        span: PositionRange,
        direction: Direction,
        max: usize,
    ) -> Option<Vec<Position>> {
        match self.cache.get(&Key::Run(source.clone(), route_to_row(route), bucket.id))? {
            Value::Run(run) => run.answer(span, direction, max),
            _ => None,
        }
    }

    /// Returns the requested positions of an outbox, nearest first.
    pub(super) async fn positions(&self, source: &SourceId, query: OutboxQuery) -> Result<Vec<Position>, ArchiveError> {
        if query.span.is_empty() || query.max == 0 {
            return Ok(Vec::new());
        }
        let layouts = self.layouts(source).await?;
        let of_route = |route: &'static Route| self.positions_of_route(source, *route, &layouts[index(*route)], query);
        let found = try_join_all(query.part.routes().iter().map(of_route)).await?;
        Ok(merged(found, query))
    }

    async fn positions_of_route(
        &self,
        source: &SourceId,
        route: Route,
        layout: &Layout,
        query: OutboxQuery,
    ) -> Result<Vec<Position>, ArchiveError> {
        let mut found = Vec::new();
        for (bucket, span) in layout.of_span(query.span, query.direction) {
            let max = query.max - found.len();
            if max == 0 {
                break;
            }
            match self.cached_run(source, route, bucket, span, query.direction, max) {
                Some(more) => found.extend(more),
                None => {
                    let more = self.run(source, route, bucket, span, query.direction, max.max(READ_AHEAD)).await?;
                    found.extend(more.into_iter().take(max));
                }
            }
        }
        Ok(found)
    }

    /// Reads at most `max` positions of a bucket, nearest first.
    async fn run(
        &self,
        source: &SourceId,
        route: Route,
        bucket: Bucket,
        span: PositionRange,
        direction: Direction,
        max: usize,
    ) -> Result<Vec<Position>, ArchiveError> {
        let key = Key::Run(source.clone(), route_to_row(route), bucket.id);
        let since = self.cache.epoch(&key);
        let statement = match direction {
            Direction::Older => &self.statements.older,
            Direction::Newer => &self.statements.newer,
        };
        let (above, below) = (row(span.above), row(span.below));
        let limit = i32::try_from(max).unwrap_or(i32::MAX);
        let of_bucket = (source.as_str(), route_to_row(route), bucket.id);
        let values = (of_bucket.0, of_bucket.1, of_bucket.2, above.0, above.1, below.0, below.1, limit);
        let found = self.read(statement, values).await?;
        let found: Vec<Position> = self.rows(found)?.into_iter().map(position).collect();
        self.cache.insert(key, Value::Run(Arc::new(run_of(&found, span, direction, max))), since);
        Ok(found)
    }

    /// Returns the layouts of both routes of a source.
    async fn layouts(&self, source: &SourceId) -> Result<Arc<[Layout; 2]>, ArchiveError> {
        let key = Key::Layouts(source.clone());
        if let Some(Value::Layouts(layouts)) = self.cache.get(&key) {
            return Ok(layouts);
        }
        let since = self.cache.epoch(&key);
        let found = self.read(&self.statements.layouts, (source.as_str(),)).await?;
        let layouts = Arc::new(self.layouts_of(source, found)?.map(|(layout, _)| layout));
        self.cache.insert(key, Value::Layouts(Arc::clone(&layouts)), since);
        Ok(layouts)
    }

    /// Returns the layouts of both routes with their versions. A layout that is not stored has none.
    pub(super) fn layouts_of(
        &self,
        source: &SourceId,
        found: scylla::response::query_result::QueryResult,
    ) -> Result<[(Layout, Option<i64>); 2], ArchiveError> {
        let mut layouts = <[(Layout, Option<i64>); 2]>::default();
        for (route, layout, version) in self.rows::<(i8, Option<Vec<u8>>, Option<i64>)>(found)? {
            let wrong = |why: &str| self.damaged(format_args!("the buckets of {source}: {why}"));
            let layout = Layout::decode(&layout.unwrap_or_default()).map_err(|why| wrong(&why))?;
            let version = version.ok_or_else(|| wrong("a layout has no version"))?;
            let route = route_of_row(route).ok_or_else(|| wrong("there is no such route"))?;
            layouts[index(route)] = (layout, Some(version));
        }
        Ok(layouts)
    }

    /// Runs announced reads concurrently. Notes the late ones, so that the calls that follow do not wait again.
    pub(super) async fn prefetch(self: Arc<Self>, wanted: Vec<Announced>) {
        let reads = wanted.into_iter().take(ANNOUNCED_MAX).map(|wanted| {
            let core = Arc::clone(&self);
            async move {
                let read = async {
                    match &wanted {
                        Announced::Outbox(source, query) => core.positions(source, *query).await.map(drop),
                        Announced::Post(id) => core.post(*id).await.map(drop),
                    }
                };
                let is_late = match tokio::time::timeout(core.read_time_max, read).await {
                    Ok(Ok(())) => false,
                    // The call that follows reports a permanent error.
                    Ok(Err(cause)) => cause.is_temporary(),
                    Err(_) => true,
                };
                if is_late {
                    core.cache.note_late(late_key(&wanted), Instant::now());
                }
            }
        });
        join_all(reads).await;
    }
}

/// Returns the key of a late read. All reads of one outbox are late together.
pub(super) fn late_key(wanted: &Announced) -> Key {
    match wanted {
        Announced::Outbox(source, _) => Key::Layouts(source.clone()),
        Announced::Post(id) => Key::Post(*id),
    }
}

/// Returns the run that is known after a read of positions of a bucket.
fn run_of(found: &[Position], span: PositionRange, direction: Direction, max: usize) -> Run {
    let mut positions = found.to_vec();
    let end = found.last().filter(|_| found.len() >= max).copied();
    let span = match direction {
        Direction::Older => {
            positions.reverse();
            let above = end.map_or(span.above, |end| Position::of_rank(end.rank() - 1));
            PositionRange { above, ..span }
        }
        Direction::Newer => PositionRange { below: end.map_or(span.below, Position::next_up), ..span },
    };
    Run { span, positions }
}

/// Merges the positions of several routes into one order, without duplicates.
fn merged(mut routes: Vec<Vec<Position>>, query: OutboxQuery) -> Vec<Position> {
    let mut found = routes.pop().unwrap_or_default();
    if !routes.is_empty() {
        found.extend(routes.into_iter().flatten());
        match query.direction {
            Direction::Older => found.sort_unstable_by(|a, b| b.cmp(a)),
            Direction::Newer => found.sort_unstable(),
        }
        found.dedup();
    }
    found.truncate(query.max);
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidewire::feed::position::at;

    #[test]
    fn a_cached_run_ends_where_its_read_ended() {
        let span = PositionRange { above: at(0, 0), below: at(9, 0) };
        let (older, newer) = ([at(8, 0), at(5, 0)], [at(3, 0), at(5, 0)]);
        for (found, direction, max, above, below) in [
            (older, Direction::Older, 3, at(0, 0), at(9, 0)),
            (older, Direction::Older, 2, at(4, u64::MAX), at(9, 0)),
            (newer, Direction::Newer, 3, at(0, 0), at(9, 0)),
            (newer, Direction::Newer, 2, at(0, 0), at(5, 1)),
        ] {
            let run = run_of(&found, span, direction, max);
            assert_eq!(run.span, PositionRange { above, below });
            assert_eq!(run.answer(run.span, direction, 9), Some(found.to_vec()));
        }
    }
}
