//! An archive in Apache Cassandra, or in a database that speaks its protocol.
//!
//! Responsible for:
//! - the contract of [`Archive`] across a network: late or repeated writes replace nothing newer, and every call ends in time.

mod cache;
mod connect;
mod connection;
mod datacentre;
mod datacentre_tests;
mod erasure_tests;
mod errors;
mod fault_tests;
mod layout;
mod meta;
mod options;
mod outbox;
mod read;
mod rows;
mod scan;
mod schema;
mod tests;
mod write;

pub use options::{
    CassandraOptions, CassandraUrl, Login, READ_TIME_MAX, Replication, ReplicationError, TlsOptions, UrlError,
};

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use scylla::response::PagingState;
use tokio::sync::Mutex;

use cache::Key;
use connect::{CONNECT_TIME_MAX, WRITE_TIME_MAX, connect};
use connection::{Calls, Core};
use layout::BucketLimits;
use meta::{StoredIds, StoredSources};
use read::{Announced, late_key};
use schema::{FORMAT, Statements};
use tidewire::feed::outbox::OutboxQuery;
use tidewire::feed::position::Position;
use tidewire::id::{PostId, SourceId};
use tidewire::storage::archive::{
    Archive, ArchiveError, ArchivedRecord, Batch, EachOutbox, LargestIds, RemoteArchive, RemoteFigures, Rewrite, Wanted,
};
use tidewire::storage::identity::Identity;
use tidewire::storage::sequence::Sequence;
use write::Writer;

/// An archive in Cassandra.
pub struct CassandraArchive {
    calls: Calls,
    core: Arc<Core>,
    writing: Arc<Mutex<Writing>>,
    held_back: Arc<Mutex<StoredSources>>,
    ids: Arc<LargestIds>,
    /// The event with which the archive was persisted last.
    persisted: AtomicU64,
    /// True if the archive may contain data that expires.
    expires: bool,
    /// True if another machine may have written after this one. Then the cached states of outboxes are outdated.
    is_outdated: Arc<AtomicBool>,
}

/// The state that each write passes to the next one.
struct Writing {
    writer: Writer,
    ids: StoredIds,
}

impl CassandraArchive {
    /// Opens the archive in a keyspace that [`CassandraArchive::create`] has prepared.
    ///
    /// # Errors
    /// Fails if no node can be reached, the keyspace or a table is missing or unknown to this version, or rows are damaged.
    pub fn open(options: &CassandraOptions) -> Result<Self, ArchiveError> {
        Self::open_with(options, BucketLimits::default())
    }

    /// As [`Self::open`], with buckets so small that a few entries create, split and rewrite them. For tests.
    ///
    /// # Errors
    /// Fails for the same reasons.
    #[doc(hidden)]
    pub fn open_with_tiny_buckets(options: &CassandraOptions) -> Result<Self, ArchiveError> {
        Self::open_with(options, BucketLimits { rows: 2, removed: 2 })
    }

    fn open_with(options: &CassandraOptions, buckets: BucketLimits) -> Result<Self, ArchiveError> {
        let calls = Calls::new(&options.url)?;
        let (of_task, place, counters) = (options.clone(), options.url.to_string(), Arc::clone(&calls.counters));
        let opened = calls.run("open", CONNECT_TIME_MAX, async move {
            let connection = connect(&of_task, None).await?;
            schema::check(&connection.session, &of_task.url).await?;
            let statements = Statements::prepare(&connection, &of_task).await;
            let statements = statements.map_err(|cause| errors::prepare_error("open", &place, &cause))?;
            let core = Core::new(connection.session, statements, &of_task, buckets, counters);
            match core.format().await? {
                Some(FORMAT) => {}
                Some(found) if found > FORMAT => {
                    return Err(ArchiveError::NewerFormat { place, found, known: FORMAT });
                }
                Some(found) => return Err(core.damaged(format_args!("it has format {found}"))),
                None => return Err(schema::unprepared(&of_task.url, "the table meta has no format")),
            }
            core.check_datacentre(&of_task).await?;
            let ids = StoredIds::load(&core).await?;
            let (through, expires) = (core.through().await?, core.note_expiry().await?);
            Ok((core, ids, through, expires))
        });
        let (core, stored, through, expires) = opened.inspect_err(|_| calls.close())?;
        let ids = Arc::clone(&stored.ids);
        let writing = Arc::new(Mutex::new(Writing { writer: Writer::default(), ids: stored }));
        Ok(Self {
            calls,
            core: Arc::new(core),
            writing,
            held_back: Arc::default(),
            ids,
            persisted: AtomicU64::new(through.0),
            expires,
            is_outdated: Arc::default(),
        })
    }

    /// Creates the missing keyspace and tables, and leaves existing ones unchanged. Retries each step for 15 seconds while a node does
    /// not know yet what another node has created, or cannot answer.
    ///
    /// # Errors
    /// Fails if no node can be reached, or the user may not create them.
    pub fn create(options: &CassandraOptions, replication: &Replication) -> Result<(), ArchiveError> {
        let calls = Calls::new(&options.url)?;
        let (options, replication, counters) = (options.clone(), replication.clone(), Arc::clone(&calls.counters));
        let created = calls.run_scan("create", async move {
            let connection = connect(&options, Some(&replication)).await?;
            let coordinator = schema::coordinator(&connection);
            let (session, url) = (&connection.session, &options.url);
            schema::until_known(|| schema::create(session, &coordinator, url, &replication)).await?;
            datacentre::check(session, &options).await?;
            let (place, connected, of_all) = (url.to_string(), &connection, &options);
            let prepare = async || {
                let prepared = Statements::prepare(connected, of_all).await;
                prepared.map_err(|cause| errors::prepare_error("create", &place, &cause))
            };
            let statements = schema::until_known(prepare).await?;
            let core = Core::new(connection.session, statements, &options, BucketLimits::default(), counters);
            schema::until_known(|| core.put_datacentre(&options)).await?;
            schema::until_known(|| core.create_format(FORMAT)).await
        });
        calls.close();
        created
    }

    /// Calls `each` with pages of posts and tombstones, in no order, until there are no more or `each` returns false.
    ///
    /// # Errors
    /// Fails if the archive could not be read.
    pub fn each_page(&self, each: &mut dyn FnMut(Vec<(PostId, ArchivedRecord)>) -> bool) -> Result<(), ArchiveError> {
        let mut paging = Some(PagingState::start());
        while let Some(at) = paging {
            let core = Arc::clone(&self.core);
            let read = async move { scan::posts(&core, at).await };
            let (page, next) = self.calls.run("read", WRITE_TIME_MAX, read)?;
            if !each(page) {
                break;
            }
            paging = next;
        }
        Ok(())
    }

    fn late(&self) -> ArchiveError {
        let why = "a prefetched read did not arrive in time".to_owned();
        ArchiveError::Unavailable { place: self.place(), why }
    }
}

impl fmt::Debug for CassandraArchive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CassandraArchive").field("place", &self.core.place).finish_non_exhaustive()
    }
}

impl Drop for CassandraArchive {
    fn drop(&mut self) {
        self.close();
    }
}

impl Archive for CassandraArchive {
    fn write(&self, batch: &Batch) -> Result<(), ArchiveError> {
        let (core, writing, batch) = (Arc::clone(&self.core), Arc::clone(&self.writing), batch.clone());
        let is_outdated = Arc::clone(&self.is_outdated);
        self.calls.run_batch("write to", async move {
            let Writing { writer, ids } = &mut *writing.lock().await;
            if is_outdated.swap(false, Ordering::AcqRel) {
                writer.forget();
            }
            let new: Vec<PostId> = batch.posts.iter().map(|(id, _)| *id).collect();
            ids.note(&core, &new).await?;
            writer.write(&core, &batch).await
        })
    }

    /// Removes the erased data from the tables. The nodes retain superseded data in their files until they compact them.
    fn rewrite(&self, rewrite: &Rewrite<'_>) -> Result<(), ArchiveError> {
        let (core, writing, without) = (Arc::clone(&self.core), Arc::clone(&self.writing), rewrite.without.to_vec());
        let as_of = rewrite.as_of;
        self.calls.run_scan("rewrite", async move {
            // This takes long, and others write meanwhile, including the rest of a batch that this has read in part. So its writes count
            // as older than all incomplete batches. Nobody writes to the outboxes of the erased users.
            let buckets = scan::buckets_of(&core, &without).await?;
            let Writing { writer, .. } = &mut *writing.lock().await;
            writer.forget();
            writer.note(&core, as_of).await?;
            let erased = scan::erase_outboxes(&core, &buckets, as_of).await;
            core.cache.clear();
            erased
        })?;
        let mut outcome = Ok(());
        self.each_page(&mut |page| {
            let fates = page.into_iter().filter_map(|(id, kept)| match kept {
                ArchivedRecord::Post(bytes) => Some((id, (rewrite.fate)(&bytes))),
                ArchivedRecord::Deleted => None,
            });
            let (core, fates) = (Arc::clone(&self.core), fates.collect());
            let write = async move { scan::rewrite_posts(&core, fates, as_of).await };
            outcome = self.calls.check_open("rewrite").and_then(|()| self.calls.run_batch("rewrite", write));
            outcome.is_ok()
        })?;
        outcome
    }

    fn persist(&self, through: Sequence) -> Result<(), ArchiveError> {
        let (core, writing) = (Arc::clone(&self.core), Arc::clone(&self.writing));
        self.calls.run_batch("persist", async move {
            let Writing { writer, .. } = &mut *writing.lock().await;
            writer.delete_replaced(&core, Instant::now()).await?;
            core.put_through(through).await
        })?;
        self.persisted.fetch_max(through.0, Ordering::Relaxed);
        Ok(())
    }

    fn through(&self) -> Result<Sequence, ArchiveError> {
        let core = Arc::clone(&self.core);
        let through = self.calls.run("read", self.core.read_time_max, async move { core.through().await })?;
        // Set before `persisted`, which shows the progress of the other machine.
        if self.persisted.load(Ordering::Relaxed) < through.0 {
            self.is_outdated.store(true, Ordering::Release);
        }
        self.persisted.fetch_max(through.0, Ordering::Relaxed);
        Ok(through)
    }

    fn post(&self, id: PostId) -> Result<Option<ArchivedRecord>, ArchiveError> {
        let cached = self.core.cached_post(id);
        self.core.cache.count(cached.is_some());
        if let Some(kept) = cached {
            return Ok(Some((*kept).clone()));
        }
        if self.core.cache.is_late(&Key::Post(id), Instant::now()) {
            return Err(self.late());
        }
        let core = Arc::clone(&self.core);
        self.calls.run("read", self.core.read_time_max, async move { core.post(id).await })
    }

    fn positions(&self, source: &SourceId, query: OutboxQuery, into: &mut Vec<Position>) -> Result<(), ArchiveError> {
        let cached = self.core.cached_positions(source, query);
        self.core.cache.count(cached.is_some());
        let mut found = match cached {
            Some(found) => found,
            None if self.core.cache.is_late(&late_key(&Announced::Outbox(source.clone(), query)), Instant::now()) => {
                return Err(self.late());
            }
            None => {
                let (core, source) = (Arc::clone(&self.core), source.clone());
                self.calls.run("read", self.core.read_time_max, async move { core.positions(&source, query).await })?
            }
        };
        into.append(&mut found);
        Ok(())
    }

    fn ids_from(&self, from: PostId, max: usize) -> Result<Option<Vec<PostId>>, ArchiveError> {
        Ok(self.ids.ids_from(from, max))
    }

    fn each_outbox(&self, each: EachOutbox<'_>) -> Result<(), ArchiveError> {
        let core = Arc::clone(&self.core);
        let counts = self.calls.run_scan("count", async move { scan::archived_counts(&core).await })?;
        counts.into_iter().try_for_each(|(source, counts)| each(source, counts))
    }

    fn identity(&self) -> Result<Option<Identity>, ArchiveError> {
        let core = Arc::clone(&self.core);
        self.calls.run("read", WRITE_TIME_MAX, async move { core.identity().await })
    }

    fn set_identity(&self, identity: Identity) -> Result<(), ArchiveError> {
        let core = Arc::clone(&self.core);
        self.calls.run("write to", WRITE_TIME_MAX, async move { core.create_identity(identity).await })
    }

    fn stop_waiting(&self) {
        self.calls.stop_waiting();
    }

    fn close(&self) {
        self.calls.close();
    }

    fn place(&self) -> String {
        self.core.place.clone()
    }

    fn may_have(&self, id: PostId) -> bool {
        self.ids.may_have(id)
    }

    fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    fn remote(&self) -> Option<&dyn RemoteArchive> {
        Some(self)
    }
}

impl RemoteArchive for CassandraArchive {
    fn expires(&self) -> bool {
        self.expires
    }

    fn written(&self) -> Result<Sequence, ArchiveError> {
        let core = Arc::clone(&self.core);
        self.calls.run("read", self.core.read_time_max, async move {
            match core.written().await? {
                Some(written) => Ok(written),
                None => core.through().await,
            }
        })
    }

    fn held_back(&self) -> Result<BTreeSet<SourceId>, ArchiveError> {
        let (core, stored) = (Arc::clone(&self.core), Arc::clone(&self.held_back));
        self.calls.run("read", WRITE_TIME_MAX, async move { core.held_back(&mut *stored.lock().await).await })
    }

    fn set_held_back(&self, sources: &BTreeSet<SourceId>) -> Result<(), ArchiveError> {
        let (core, stored, sources) = (Arc::clone(&self.core), Arc::clone(&self.held_back), sources.clone());
        self.calls.run("write to", WRITE_TIME_MAX, async move {
            core.set_held_back(&mut *stored.lock().await, &sources).await
        })
    }

    fn refresh_ids(&self) -> Result<(), ArchiveError> {
        let (core, writing) = (Arc::clone(&self.core), Arc::clone(&self.writing));
        self.calls.run("read", WRITE_TIME_MAX, async move { writing.lock().await.ids.learn(&core).await })
    }

    fn invalidate(&self, posts: &mut dyn Iterator<Item = PostId>, outboxes: &mut dyn Iterator<Item = &SourceId>) {
        posts.for_each(|id| self.core.cache.forget_remote(&Key::Post(id)));
        outboxes.for_each(|source| self.core.cache.forget_remote(&Key::Layouts(source.clone())));
    }

    fn invalidate_all(&self) {
        self.is_outdated.store(true, Ordering::Release);
        self.core.cache.clear();
    }

    fn prefetch(&self, wanted: &mut dyn Iterator<Item = Wanted<'_>>) {
        let core = &self.core;
        let missing = wanted.filter_map(|wanted| match wanted {
            Wanted::Outbox(source, query) => {
                core.cached_positions(source, query).is_none().then(|| Announced::Outbox(source.clone(), query))
            }
            Wanted::Post(id) => core.cached_post(id).is_none().then_some(Announced::Post(id)),
        });
        let missing: Vec<Announced> = missing.collect();
        // An announcement does not speed up a single read.
        if missing.len() > 1 {
            let core = Arc::clone(core);
            // The following calls report a failure.
            let _ = self.calls.run("read", 2 * self.core.read_time_max, async move {
                core.prefetch(missing).await;
                Ok(())
            });
        }
    }

    fn list_sources(&self) -> Result<Vec<SourceId>, ArchiveError> {
        let core = Arc::clone(&self.core);
        let sources = self.calls.run_scan("list", async move { scan::sources(&core).await })?;
        Ok(sources.into_iter().collect())
    }

    fn begin_copy(&self) -> Result<(), ArchiveError> {
        let (core, writing) = (Arc::clone(&self.core), Arc::clone(&self.writing));
        self.calls.run("write to", WRITE_TIME_MAX, async move {
            let count = core.count_copy().await?;
            writing.lock().await.writer.begin_copy(count);
            Ok(())
        })
    }

    fn figures(&self) -> RemoteFigures {
        let (counters, cache) = (&self.core.counters, self.core.cache.figures());
        let driver = self.core.session.get_metrics();
        RemoteFigures {
            reads: counters.reads.load(Ordering::Relaxed),
            writes: counters.writes.load(Ordering::Relaxed),
            errors: counters.errors.load(Ordering::Relaxed),
            cache_hits: cache.hits,
            cache_misses: cache.misses,
            cache_bytes: cache.bytes,
            connections: driver.get_total_connections(),
            connection_timeouts: driver.get_connection_timeouts(),
            statement_timeouts: driver.get_request_timeouts(),
            retries: driver.get_retries_num(),
            through: Sequence(self.persisted.load(Ordering::Relaxed)),
        }
    }
}
