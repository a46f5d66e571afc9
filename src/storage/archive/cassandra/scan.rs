//! Reads through all of an archive in Cassandra: for erasure, for lists of ids, and for a copy of it.
//!
//! Responsible for:
//! - going through tables page by page, so that no more than a page is in memory.
//!
//! Not responsible for:
//! - when a scan is worth its time (the callers).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::future::try_join_all;
use futures_util::stream::{StreamExt, TryStreamExt, iter};
use scylla::response::PagingState;

use super::connection::Core;
use super::layout::{BucketId, id_of_row};
use super::read::{index, position, route_to_row};
use super::write::{put_post, write_time};
use crate::feed::outbox::{ArchivedCounts, Route};
use crate::id::{PostId, SourceId};
use crate::storage::archive::{ArchiveError, ArchivedRecord, Fate};
use crate::storage::journal::Sequence;

/// Outboxes that are read side by side.
const SIDE_BY_SIDE: usize = 16;

/// A post or tombstone with its id.
pub(super) type Kept = (PostId, ArchivedRecord);

/// Returns a page of posts and tombstones, in no order, and where the next page begins if there is one.
pub(super) async fn posts(core: &Core, from: PagingState) -> Result<(Vec<Kept>, Option<PagingState>), ArchiveError> {
    let (page, next) = core.read_page(&core.statements.all_posts, (), from).await?;
    let page = page.into_rows_result().map_err(|cause| core.damaged(cause))?;
    let rows = page.rows::<(i64, Option<Vec<u8>>, Option<bool>)>().map_err(|cause| core.damaged(cause))?;
    let mut kept = Vec::new();
    for row in rows {
        let (id, record, is_deleted) = row.map_err(|cause| core.damaged(cause))?;
        let id = PostId(id_of_row(id));
        kept.push((id, core.record(id, record, is_deleted)?));
    }
    Ok((kept, next))
}

/// Returns at most `max` ids of posts and tombstones, ascending, starting with `from`.
pub(super) async fn ids_from(core: &Core, from: PostId, max: usize) -> Result<Vec<PostId>, ArchiveError> {
    let mut lowest = BTreeSet::new();
    let mut paging = Some(PagingState::start());
    while let Some(at) = paging {
        let (page, next) = core.read_page(&core.statements.all_ids, (), at).await?;
        let page = page.into_rows_result().map_err(|cause| core.damaged(cause))?;
        for row in page.rows::<(i64,)>().map_err(|cause| core.damaged(cause))? {
            let id = PostId(id_of_row(row.map_err(|cause| core.damaged(cause))?.0));
            if id >= from {
                lowest.insert(id);
            }
            if lowest.len() > max {
                lowest.pop_last();
            }
        }
        paging = next;
    }
    Ok(lowest.into_iter().collect())
}

/// Returns all buckets that have rows, by source.
pub(super) async fn buckets(core: &Core) -> Result<BTreeMap<SourceId, Vec<(Route, BucketId)>>, ArchiveError> {
    let mut by_source: BTreeMap<SourceId, Vec<_>> = BTreeMap::new();
    let mut paging = Some(PagingState::start());
    while let Some(at) = paging {
        let (page, next) = core.read_page(&core.statements.all_buckets, (), at).await?;
        let page = page.into_rows_result().map_err(|cause| core.damaged(cause))?;
        for row in page.rows::<(String, i8, BucketId)>().map_err(|cause| core.damaged(cause))? {
            let (source, route, bucket) = row.map_err(|cause| core.damaged(cause))?;
            let wrong = |why: String| core.damaged(format_args!("a bucket of \"{source}\": {why}"));
            let id = SourceId::new(&source).map_err(|cause| wrong(cause.to_string()))?;
            let route = [Route::Push, Route::Pull].into_iter().find(|known| route_to_row(*known) == route);
            let route = route.ok_or_else(|| wrong("there is no such route".to_owned()))?;
            by_source.entry(id).or_default().push((route, bucket));
        }
        paging = next;
    }
    Ok(by_source)
}

/// Counts the entries of all outboxes.
pub(super) async fn archived_counts(core: &Arc<Core>) -> Result<Vec<(SourceId, ArchivedCounts)>, ArchiveError> {
    let sources: Vec<SourceId> = buckets(core).await?.into_keys().collect();
    let counts = sources.into_iter().map(|source| {
        let core = Arc::clone(core);
        async move { counts_of(&core, source).await }
    });
    let mut counts: Vec<_> = iter(counts).buffer_unordered(SIDE_BY_SIDE).try_collect().await?;
    counts.retain(|(_, counts): &(SourceId, ArchivedCounts)| counts.pushed.posts + counts.pulled.posts > 0);
    counts.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(counts)
}

async fn counts_of(core: &Core, source: SourceId) -> Result<(SourceId, ArchivedCounts), ArchiveError> {
    let found = core.read(&core.statements.layouts, (source.as_str(),)).await?;
    let layouts = core.layouts_of(&source, found)?;
    let mut counts = ArchivedCounts::default();
    for route in [Route::Push, Route::Pull] {
        for bucket in layouts[index(route)].0.ids() {
            let mut paging = Some(PagingState::start());
            while let Some(at) = paging {
                let values = (source.as_str(), route_to_row(route), bucket);
                let (page, next) = core.read_page(&core.statements.bucket, values, at).await?;
                let page = page.into_rows_result().map_err(|cause| core.damaged(cause))?;
                let rows = page.rows::<(i64, i64, Option<i64>, Option<i32>)>();
                for row in rows.map_err(|cause| core.damaged(cause))? {
                    let (published_at, id, ..) = row.map_err(|cause| core.damaged(cause))?;
                    counts.of_route_mut(route).add(position((published_at, id)));
                }
                paging = next;
            }
        }
    }
    Ok((source, counts))
}

/// Removes sources with all their entries. It fails, and can be tried again, if another process changes the outbox of one meanwhile: its new
/// layout may name a bucket that is not removed here.
pub(super) async fn erase_outboxes(
    core: &Core,
    buckets: &BTreeMap<SourceId, Vec<(Route, BucketId)>>,
    without: &[SourceId],
    as_of: Sequence,
) -> Result<(), ArchiveError> {
    let time = write_time(as_of) + 1;
    for source in without {
        let found = core.read(&core.statements.settled_layouts, (source.as_str(),)).await?;
        let layouts = core.layouts_of(source, found)?;
        let of_source = buckets.get(source).into_iter().flatten();
        let deletions = of_source.map(|(route, bucket)| {
            core.write(&core.statements.drop_bucket, (time, source.as_str(), route_to_row(*route), *bucket))
        });
        try_join_all(deletions).await?;
        for route in [Route::Push, Route::Pull] {
            let Some(version) = layouts[index(route)].1 else { continue };
            let of_route = (source.as_str(), route_to_row(route), version);
            let done = core.write(&core.statements.drop_layouts, of_route).await?;
            if !core.is_applied(done)? {
                let why = format!("another process has changed the outbox of {source}");
                return Err(ArchiveError::Unavailable { place: core.place.clone(), why });
            }
        }
    }
    Ok(())
}

/// Gives posts of a page the contents of a rewrite.
pub(super) async fn rewrite_posts(
    core: &Core,
    fates: Vec<(PostId, Fate)>,
    as_of: Sequence,
) -> Result<(), ArchiveError> {
    let time = write_time(as_of) + 1;
    let writes = fates.into_iter().map(|(id, fate)| async move {
        match fate {
            Fate::Keep => Ok(()),
            Fate::Replace(bytes) => put_post(core, id, &ArchivedRecord::Post(bytes), time).await,
            Fate::Tombstone => put_post(core, id, &ArchivedRecord::Deleted, time).await,
        }
    });
    try_join_all(writes).await.map(drop)
}
