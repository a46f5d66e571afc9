//! The engine: all functions of Tidewire as one plain type. The server wraps it in HTTP; applications can embed it.
//!
//! Responsible for:
//! - stopping the threads (`engine::start` starts them);
//! - passing requests to the command processor and to user actors, and returning the answers, without waiting for a full queue.

mod change_consumers;
mod changes;
mod cluster;
mod edges;
mod fanouts;
mod figures;
mod live;
mod missed;
mod personal;
mod posts;
mod snapshots;
mod sources;
mod start;
mod users;
mod waking;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use actix::{Addr, System};
use crossbeam_channel::Sender;
use parking_lot::Mutex;
use tokio::sync::oneshot;

pub use crate::engine::change_consumers::{ChangeConsumer, ChangeConsumerError};
pub use crate::engine::changes::{Changes, ChangesError, StoredEvent};
pub use crate::engine::cluster::{Joining, NodeStorage};
pub use crate::engine::edges::Listed;
pub use crate::engine::fanouts::{FanoutProgress, FanoutState, PostFanout, PostSource, Reached, Reposter, Reposters};
pub use crate::engine::figures::{EngineFigures, QueueDepth};
pub use crate::engine::live::{Unauthenticated, Watcher};
pub use crate::engine::missed::{Candidate, Missed, PublishedPost};
pub use crate::engine::personal::Unread;
pub use crate::engine::posts::{PostIds, RepostPage};
pub use crate::engine::snapshots::BackupBase;
pub use crate::engine::sources::{FoundSources, RouteCost, SourceInfo, SourceKind, SourceSearch};
pub use crate::engine::start::{LockedDataDir, StorageConfig};
pub use crate::engine::users::{Account, AllUsers, Erasing, ErasuresUnderWay, KeptPosts};
use crate::error::Error;
use crate::feed::page::{Page, Range, Reach};
use crate::feed::resume::DeliveryWatermark;
use crate::id::SourceId;
use crate::limits::{
    ARCHIVE_QUEUE_MAX, FANOUT_DRAIN_MAX, PARTIAL_NAMES_MAX, READ_ATTEMPTS_MAX, READ_CRASHES_MAX, WAKE_QUEUE_MAX,
};
use crate::runtime::background::resolver::{Resolver, needs};
pub use crate::runtime::background::snapshotter::SnapshotOptions;
use crate::runtime::fanout::courier::Courier;
use crate::runtime::message::{CollectStatistics, Command, CompletedSnapshot, InboxTotals, Reply, WakingRequest};
use crate::runtime::processor::queue::{CommandSender, NotTaken};
use crate::runtime::reader::activator::Activator;
use crate::runtime::reader::direct;
use crate::runtime::reader::read_scheduler::ReadScheduler;
pub use crate::runtime::shared::Shared;
use crate::state::feed_filter::{Entry, Finder};
use crate::state::read_clock::ReadClock;
use crate::state::reader::{PageRequest, pulled_page};
use crate::state::resolved::Resolved;
use crate::state::sources::Source;
use crate::state::verify::Verdict;
use crate::state::viewer::Viewer;
use crate::state::world::World;
use crate::storage::disk_use::DiskUse;
use crate::storage::files::Files;
use crate::storage::journal::writer::JournalFigures;
use crate::storage::lock::DirectoryLock;

/// The part of a task's cooperative budget of 128 that a page built without waiting uses. So a task yields after eight
/// such pages, about 30 us.
const DIRECT_PAGE_BUDGET: usize = 16;

/// A running engine. Clones are handles to the same engine.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    commands: CommandSender,
    shards: Vec<ShardAddrs>,
    threads: Mutex<Option<Threads>>,
    snapshotter: Mutex<Option<SnapshotterHandle>>,
    eraser: Mutex<Option<users::EraserHandle>>,
    /// The thread that copies changes to the archive of a cluster, and the flag that ends it.
    archive_copier: Mutex<Option<(Arc<AtomicBool>, JoinHandle<()>)>>,
    /// True if the journal is the log of a cluster.
    follows_shared_log: bool,
    /// The log that changes are read from, if there is one.
    changes: Option<changes::ChangeLog>,
    /// Allows one collection at a time: besides its slices, a courier's mailbox has capacity for few messages.
    collect_statistics: tokio::sync::Mutex<()>,
}

/// The engine's handle of its snapshotter. The snapshotter ends when the handle is dropped.
struct SnapshotterHandle {
    requests: Sender<Reply<CompletedSnapshot>>,
    thread: JoinHandle<()>,
    figures: Arc<JournalFigures>,
    disk_use: DiskUse,
    files: Arc<dyn Files>,
    stopping: Arc<AtomicBool>,
    without_pauses: Arc<AtomicBool>,
}

#[derive(Clone)]
struct ShardAddrs {
    courier: Addr<Courier>,
    activator: Addr<Activator>,
    read_scheduler: Arc<ReadScheduler>,
}

struct Threads {
    system: System,
    system_thread: JoinHandle<()>,
    processor_thread: JoinHandle<()>,
    archive_thread: Option<JoinHandle<()>>,
    /// Released after all threads have ended and the archive is closed.
    _lock: Option<Arc<DirectoryLock>>,
}

/// One page of a feed.
#[derive(Clone, Debug)]
pub struct FeedPage {
    /// The entries and cursors.
    pub page: Page<Entry>,
    /// The sources that could not be read in time. If there are many, only the first of those in `page`.
    pub partial: Vec<SourceId>,
}

impl Engine {
    /// Returns a page of a reader's feed. Wakes the reader if it is asleep.
    ///
    /// # Errors
    /// Fails if a queue is full, the read gets no permit in time, or the reader's actor crashes.
    pub async fn feed(&self, reader: &SourceId, request: PageRequest) -> Result<FeedPage, Error> {
        let began = Instant::now();
        let page = match self.direct_page(reader, request).await {
            Ok(page) => page,
            Err(source) => self.page_by_actor(&source, request).await?,
        };
        self.inner.shared.counters.page_latency.record(began.elapsed());
        Ok(page)
    }

    /// Returns the same page as [`Engine::feed`], or None if the reader has to be woken first, which costs far more than a
    /// page of an awake reader.
    ///
    /// # Errors
    /// Fails for the same reasons as [`Engine::feed`].
    pub async fn feed_if_awake(&self, reader: &SourceId, request: PageRequest) -> Result<Option<FeedPage>, Error> {
        let (shared, began) = (&self.inner.shared, Instant::now());
        let page = match self.direct_page(reader, request).await {
            Ok(page) => page,
            Err(source) if shared.directory.is_active(source.slot) => self.page_by_actor(&source, request).await?,
            Err(_) => return Ok(None),
        };
        shared.counters.page_latency.record(began.elapsed());
        Ok(Some(page))
    }

    /// Returns the same page as [`Engine::feed`], for which [`Engine::feed_if_awake`] has returned none.
    ///
    /// # Errors
    /// Fails for the same reasons as [`Engine::feed`].
    pub async fn feed_waking(&self, reader: &SourceId, request: PageRequest) -> Result<FeedPage, Error> {
        let (shared, began) = (&self.inner.shared, Instant::now());
        let Some(source) = shared.world.sources.get(reader) else { return Ok(self.empty_page(request)) };
        let page = self.page_by_actor(&source, request).await?;
        shared.counters.page_latency.record(began.elapsed());
        Ok(page)
    }

    /// Builds a page on this thread. If the reader's actor has to build it, returns the reader.
    async fn direct_page(&self, reader: &SourceId, request: PageRequest) -> Result<FeedPage, Arc<Source>> {
        let world = &self.inner.shared.world;
        let Some(source) = world.sources.get(reader) else { return Ok(self.empty_page(request)) };
        let has_feed = source.id.is_user() && (source.following().reach_len() > 0 || !source.outbox().is_empty());
        // The actor of a watched reader has to see every page; otherwise the events it sends may contradict the page.
        if !has_feed && !self.inner.shared.watchers.is_watched(source.slot) {
            return Ok(self.empty_page(request));
        }
        let page = direct::read(&self.inner.shared, &source, request).ok_or(source)?;
        // A task that reads page after page must let other tasks run now and then, as if it waited for an actor.
        for _ in 0..DIRECT_PAGE_BUDGET {
            tokio::task::coop::consume_budget().await;
        }
        Ok(self.with_names(page))
    }

    async fn page_by_actor(&self, source: &Arc<Source>, request: PageRequest) -> Result<FeedPage, Error> {
        let send = |scheduler: &Arc<ReadScheduler>, reply| {
            scheduler.read(source, request, reply);
            Ok(())
        };
        self.ask_actor(source, send).await.map(|page| self.with_names(page))
    }

    /// Returns the answer of a reader's actor. Calls `send` again if the actor ended before it handled the request: it
    /// fell asleep at that moment, which is not a failure, or it crashed, possibly because of this request.
    async fn ask_actor<T>(
        &self,
        source: &Arc<Source>,
        send: impl Fn(&Arc<ReadScheduler>, Reply<T>) -> Result<(), Error>,
    ) -> Result<T, Error> {
        let shared = &self.inner.shared;
        let mut crashes_before = None;
        for _ in 0..READ_ATTEMPTS_MAX {
            let (reply, answer) = oneshot::channel();
            send(self.read_scheduler(source), reply)?;
            if let Ok(answer) = answer.await {
                return answer;
            }
            let crashes = shared.directory.crashes(source.slot);
            if crashes >= *crashes_before.get_or_insert(crashes) + READ_CRASHES_MAX {
                return Err(Error::ReaderCrashed(source.id.clone()));
            }
        }
        Err(shared.overloaded("wake_up", WAKE_QUEUE_MAX))
    }

    /// Returns the page of a feed that cannot have entries. The page has the token of the request.
    fn empty_page(&self, request: PageRequest) -> FeedPage {
        let resume = match request.range {
            Range::Resume(token) => Some(token),
            _ => None,
        };
        self.with_names(Page { newest: resume.map(|token| token.position), resume, ..Page::empty() })
    }

    /// Compares a reader's inbox with a newly built one. With `rebuild`, the new one replaces it. Wakes the reader if
    /// it is asleep.
    ///
    /// # Errors
    /// Fails if the reader is unknown or is not a user, a queue is full, or the reader's actor crashes.
    pub async fn verify_feed(&self, reader: &SourceId, rebuild: bool) -> Result<Verdict, Error> {
        // Only users have a feed, so other sources are never woken.
        let source = self.inner.shared.world.sources.get(reader).filter(|source| source.id.is_user());
        let source = source.ok_or_else(|| Error::UnknownSource(reader.clone()))?;
        let verify = |scheduler: &Arc<ReadScheduler>, reply| {
            scheduler.ask(&source, WakingRequest::Verify { rebuild, reply }).map_err(|refused| refused.1)
        };
        self.ask_actor(&source, verify).await
    }

    /// Returns a page of a source's own posts, as every user sees it.
    ///
    /// # Errors
    /// Fails if it needs the archive, and the queue for the archive is full.
    pub async fn own_page(&self, source: &SourceId, request: PageRequest) -> Result<FeedPage, Error> {
        self.page_of_source(source, |source| Viewer::everybody(source.slot), request).await
    }

    /// Returns the same page as the owner of the source sees it: without reposts of authors that the owner blocks or
    /// that block the owner.
    ///
    /// # Errors
    /// Fails for the same reasons as [`Engine::own_page`].
    pub async fn own_page_for_owner(&self, source: &SourceId, request: PageRequest) -> Result<FeedPage, Error> {
        self.page_of_source(source, Viewer::own_page, request).await
    }

    async fn page_of_source(
        &self,
        source: &SourceId,
        viewer: impl FnOnce(&Source) -> Viewer,
        request: PageRequest,
    ) -> Result<FeedPage, Error> {
        let world = &self.inner.shared.world;
        let Some(source) = world.sources.get(source) else { return Ok(self.empty_page(request)) };
        let settled = world.delivery.applied();
        self.pulled_page(viewer(&source), settled, request).await
    }

    /// Returns a page of a feed that has no inbox, built from outboxes.
    async fn pulled_page(
        &self,
        viewer: Viewer,
        settled: DeliveryWatermark,
        request: PageRequest,
    ) -> Result<FeedPage, Error> {
        let shared = &self.inner.shared;
        let now = shared.clock.now();
        let page = pulled_page(&viewer, settled, Finder::Memory(&shared.world), request, shared.read_clock(now));
        if !page.needs_archive && page.reach == Reach::Full {
            shared.count_page(&page);
            return Ok(self.with_names(page));
        }
        let (reply, answer) = oneshot::channel();
        let build = move |world: &World, clock: ReadClock<'_>| {
            pulled_page(&viewer, settled, Finder::Archive(world), request, clock)
        };
        shared.core.read_cold(reply, page, build);
        answer.await.unwrap_or(Err(Error::ShuttingDown)).map(|page| self.with_names(page))
    }

    /// Returns true if a reader's inbox is in memory, so that a page takes only microseconds.
    pub fn is_awake(&self, reader: &SourceId) -> bool {
        let shared = &self.inner.shared;
        shared.world.sources.get(reader).is_some_and(|reader| shared.directory.is_active(reader.slot))
    }

    /// Returns the state that all actors share: settings, world, counters.
    pub fn shared(&self) -> &Shared {
        &self.inner.shared
    }

    /// Counts the contents of all inboxes. Iterates over every inbox, shard by shard.
    pub async fn inbox_totals(&self) -> InboxTotals {
        let _one_at_a_time = self.inner.collect_statistics.lock().await;
        let mut totals = InboxTotals::default();
        for shard in &self.inner.shards {
            let (reply, answer) = oneshot::channel();
            if shard.courier.send(CollectStatistics(reply)).await.is_ok()
                && let Ok(of_shard) = answer.await
            {
                totals.inboxes += of_shard.inboxes;
                totals.entries += of_shard.entries;
                totals.bytes += of_shard.bytes;
            }
        }
        totals
    }

    /// Accepts no more writes, finishes the accepted ones, and ends all threads. Blocks until they have ended, even
    /// if another caller ends them. Aborts a snapshot in progress, and starts none.
    pub fn shutdown(&self) {
        // The lock is held until the end, so that a concurrent caller waits for the shutdown.
        let mut running = self.inner.threads.lock();
        let Some(threads) = running.take() else { return };
        self.stop_live();
        self.inner.stop_waiting();
        let snapshotter = self.inner.snapshotter.lock().take();
        // This precedes the end of the eraser, which may be waiting for a snapshot.
        snapshotter.iter().for_each(|snapshotter| snapshotter.stopping.store(true, Ordering::Relaxed));
        self.inner.stop_eraser();
        if let Some(SnapshotterHandle { requests, thread, .. }) = snapshotter {
            drop(requests);
            let _ = thread.join();
        }
        // This fails only if the command processor has already ended.
        let _ = self.inner.commands.send(Command::Stop);
        let _ = threads.processor_thread.join();
        self.finish_fanouts();
        if let Some(archiver) = threads.archive_thread {
            let _ = archiver.join();
        }
        self.inner.stop_copier().into_iter().for_each(|copier| drop(copier.join()));
        if let Some(archive) = self.inner.shared.world.archive() {
            archive.close();
        }
        threads.system.stop();
        let _ = threads.system_thread.join();
    }

    /// Waits for a limited time until all published posts are delivered, since callers may wait for their delivery.
    fn finish_fanouts(&self) {
        let began = Instant::now();
        while !self.inner.shared.open_fanouts.is_empty() && began.elapsed() < FANOUT_DRAIN_MAX {
            thread::park_timeout(Duration::from_millis(1));
        }
    }

    async fn command<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T, Error> {
        let (reply, answer) = oneshot::channel();
        self.queue(command(reply))?;
        answer.await.unwrap_or(Err(Error::ShuttingDown))
    }

    /// Queues a command after looking up the records that it needs from the archive. No thread waits here.
    ///
    /// # Errors
    /// Fails at once if the queue has no capacity now. If it has none after a lookup, the command's answer reports
    /// that.
    fn queue(&self, command: Command) -> Result<(), Error> {
        let (shared, resolved) = (&self.inner.shared, Resolved::default());
        let needs = needs(&command, &shared.world, &resolved);
        if !needs.is_empty() {
            Resolver::new(Arc::clone(shared), self.inner.commands.clone()).resolve(command, resolved, 0, needs);
            return Ok(());
        }
        self.inner.commands.try_send(command).map_err(|cause| match cause {
            NotTaken::Full { queue, limit } => shared.overloaded(queue, limit),
            NotTaken::Closed => Error::ShuttingDown,
        })
    }

    fn ask_archive(&self, job: impl FnOnce(&World) + Send + 'static) -> Result<(), Error> {
        let shared = &self.inner.shared;
        let taken = shared.archive_readers.ask(job);
        if taken { Ok(()) } else { Err(shared.overloaded("archive", ARCHIVE_QUEUE_MAX)) }
    }

    /// Returns the read scheduler of a reader's shard.
    pub(crate) fn read_scheduler(&self, reader: &Source) -> &Arc<ReadScheduler> {
        &self.inner.shards[self.inner.shared.world.sharding.shard_of(reader.slot)].read_scheduler
    }

    fn with_names(&self, page: Page<Entry>) -> FeedPage {
        let sources = &self.inner.shared.world.sources;
        let named = page.partial.iter().take(PARTIAL_NAMES_MAX);
        let partial = named.map(|slot| sources.at(*slot).id.clone()).collect();
        FeedPage { page, partial }
    }
}

impl Inner {
    /// Stops all waits for free space on a full disk.
    fn stop_waiting(&self) {
        if let Some(archive) = self.shared.world.archive() {
            archive.stop_waiting();
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.stop_waiting();
        self.stop_copier();
        self.shared.watchers.stop();
        // The last handle is dropped. The threads end on their own, since no caller is left to join them.
        if let Some(threads) = self.threads.get_mut().take() {
            let _ = self.commands.try_send(Command::Stop);
            threads.system.stop();
        }
    }
}
