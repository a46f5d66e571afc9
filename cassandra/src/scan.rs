//! Scans of a whole archive in Cassandra, for an erasure and for a copy of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::future::try_join_all;
use futures_util::stream::{StreamExt, TryStreamExt, iter};
use scylla::response::PagingState;

use super::connection::Core;
use super::layout::{BucketId, id_of_row};
use super::read::{index, position, route_of_row, route_to_row};
use super::write::{put_post, write_time};
use tidewire::feed::outbox::{ArchivedCounts, Route};
use tidewire::id::{PostId, SourceId};
use tidewire::storage::archive::{ArchiveError, ArchivedRecord, Fate};
use tidewire::storage::sequence::Sequence;

/// Number of outboxes that are read concurrently.
const SIDE_BY_SIDE: usize = 16;

/// A post or tombstone with its id.
pub(super) type Kept = (PostId, ArchivedRecord);

/// Returns a page of posts and tombstones, in no order, and the start of the next page if there is one.
pub(super) async fn posts(core: &Core, from: PagingState) -> Result<(Vec<Kept>, Option<PagingState>), ArchiveError> {
    let (page, next) = core.read_page(&core.statements.all_posts, (), from).await?;
    let rows = core.rows::<(i64, Option<Vec<u8>>, Option<bool>)>(page)?;
    let kept = rows.into_iter().map(|(id, record, is_deleted)| {
        let id = PostId(id_of_row(id));
        Ok((id, core.record(id, record, is_deleted)?))
    });
    Ok((kept.collect::<Result<_, ArchiveError>>()?, next))
}

/// Passes every bucket that has rows to `each`, in no order.
async fn each_bucket(core: &Core, mut each: impl FnMut(SourceId, Route, BucketId)) -> Result<(), ArchiveError> {
    let pass_on = |page: Vec<(String, i8, BucketId)>| {
        for (source, route, bucket) in page {
            let wrong = |why: String| core.damaged(format_args!("a bucket of \"{source}\": {why}"));
            let id = SourceId::new(&source).map_err(|cause| wrong(cause.to_string()))?;
            let route = route_of_row(route).ok_or_else(|| wrong("there is no such route".to_owned()))?;
            each(id, route, bucket);
        }
        Ok(())
    };
    core.each_page(&core.statements.all_buckets, (), pass_on).await
}

/// Returns all buckets of these sources that have rows, including those that no layout names. Retains nothing of other sources, however
/// large the archive is.
pub(super) async fn buckets_of(
    core: &Core,
    sources: &[SourceId],
) -> Result<BTreeMap<SourceId, Vec<(Route, BucketId)>>, ArchiveError> {
    let mut by_source: BTreeMap<SourceId, Vec<_>> = sources.iter().cloned().map(|id| (id, Vec::new())).collect();
    each_bucket(core, |source, route, bucket| {
        if let Some(of_source) = by_source.get_mut(&source) {
            of_source.push((route, bucket));
        }
    })
    .await?;
    Ok(by_source)
}

/// Returns the sources with rows, including those in buckets that no layout names.
pub(super) async fn sources(core: &Core) -> Result<BTreeSet<SourceId>, ArchiveError> {
    let mut sources = BTreeSet::new();
    each_bucket(core, |source, _, _| {
        sources.insert(source);
    })
    .await?;
    Ok(sources)
}

/// Counts the entries of all outboxes.
pub(super) async fn archived_counts(core: &Arc<Core>) -> Result<Vec<(SourceId, ArchivedCounts)>, ArchiveError> {
    let counts = sources(core).await?.into_iter().map(|source| {
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
    for route in Route::ALL {
        for bucket in layouts[index(route)].0.ids() {
            let count = |page: Vec<(i64, i64, Option<i64>, Option<i32>)>| {
                let of_route = counts.of_route_mut(route);
                page.into_iter().for_each(|(published_at, id, ..)| of_route.add(position((published_at, id))));
                Ok(())
            };
            let values = (source.as_str(), route_to_row(route), bucket);
            core.each_page(&core.statements.bucket, values, count).await?;
        }
    }
    Ok((source, counts))
}

/// Removes sources with all their entries, given with their buckets. Fails if another process changes the outbox of a source meanwhile,
/// since its new layout may name a bucket that is not removed here. Then it can be retried.
pub(super) async fn erase_outboxes(
    core: &Core,
    buckets: &BTreeMap<SourceId, Vec<(Route, BucketId)>>,
    as_of: Sequence,
) -> Result<(), ArchiveError> {
    let time = write_time(as_of) + 1;
    for (source, of_source) in buckets {
        let found = core.read(&core.statements.settled_layouts, (source.as_str(),)).await?;
        let layouts = core.layouts_of(source, found)?;
        let deletions = of_source.iter().map(|(route, bucket)| {
            core.write(&core.statements.drop_bucket, (time, source.as_str(), route_to_row(*route), *bucket))
        });
        try_join_all(deletions).await?;
        for route in Route::ALL {
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

/// Applies a rewrite to the posts of a page.
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
