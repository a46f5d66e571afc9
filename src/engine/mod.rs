//! The engine: everything Tidewire does, as one plain type. HTTP merely wraps it; embed it to do without.
//!
//! Responsible for:
//! - stopping the threads (`engine::start` starts them);
//! - carrying requests to the scribe and to user actors, and answers back, without ever waiting for room in a queue.
//!
//! Not responsible for:
//! - any wire format (`api`), settings files (`cli`).

mod edges;
mod erase;
mod live;
mod personal;
mod snapshots;
mod start;
mod users;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use actix::dev::SendError;
use actix::{Addr, System};
use crossbeam_channel::Sender;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::clock::UnixMicros;
pub use crate::engine::edges::Listed;
pub use crate::engine::erase::{Erasing, ErasuresUnderWay};
pub use crate::engine::live::{Unauthenticated, Watcher};
pub use crate::engine::personal::Unread;
pub use crate::engine::start::{Claimed, StorageConfig};
use crate::error::Error;
use crate::feed::page::{Page, Range, Reach};
use crate::feed::post::{Body, Draft, Post};
use crate::feed::resume::Settled;
use crate::id::{PostId, SourceId};
use crate::limits::{
    ARCHIVE_QUEUE_MAX, FANOUT_DRAIN_MAX, FANOUT_JOBS_MAX, FANOUT_QUEUE_MAX, PARTIAL_NAMES_MAX, READ_ATTEMPTS_MAX,
    READ_CRASHES_MAX, READS_WAITING_PER_SHARD_MAX, SCRIBE_QUEUE_BYTES_MAX, SCRIBE_QUEUE_MAX, SNAPSHOT_REQUESTS_MAX,
    USER_MAILBOX_MAX, WAKE_QUEUE_MAX,
};
use crate::runtime::background::archiver::archive_failed;
use crate::runtime::background::resolver::{Resolver, needs};
pub use crate::runtime::background::snapshotter::SnapshotOptions;
use crate::runtime::fanout::courier::Courier;
use crate::runtime::message::{CollectStatistics, Command, InboxTotals, Published, Reply, SnapshotTaken, Verify};
use crate::runtime::reader::activator::Activator;
use crate::runtime::reader::read_scheduler::ReadScheduler;
pub use crate::runtime::shared::Shared;
use crate::runtime::writer::queue::{CommandSender, NotTaken};
use crate::state::posts::Stored;
use crate::state::reader::{PageRequest, ReadClock, pulled_page};
use crate::state::resolved::Resolved;
use crate::state::sources::Source;
use crate::state::verify::Verdict;
use crate::state::view::{Entry, Finder};
use crate::state::viewer::Viewer;
use crate::state::world::World;
use crate::storage::journal::writer::JournalFigures;
use crate::storage::lock::DirectoryLock;

/// A running engine. Clones are handles to the same one.
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
    eraser: Mutex<Option<erase::EraserHandle>>,
    /// One at a time: a courier's mailbox has room for the slices it has credit for, and for little else.
    collect_statistics: tokio::sync::Mutex<()>,
}

/// The engine's hold on its snapshotter, which ends when it is let go.
struct SnapshotterHandle {
    requests: Sender<Reply<SnapshotTaken>>,
    thread: JoinHandle<()>,
    figures: Arc<JournalFigures>,
    stopping: Arc<AtomicBool>,
    hurries: Arc<AtomicBool>,
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
    scribe_thread: JoinHandle<()>,
    archive_thread: Option<JoinHandle<()>>,
    /// Given up when they have ended, and the archive is closed.
    _lock: Option<Arc<DirectoryLock>>,
}

/// A page of a feed.
#[derive(Clone, Debug)]
pub struct FeedPage {
    /// Entries and cursors.
    pub page: Page<Entry>,
    /// The sources that could not be read in time: the first of those that `page` has, if they are many.
    pub partial: Vec<SourceId>,
}

/// What is known of a source.
#[derive(Clone, Debug)]
pub struct SourceInfo {
    /// Its id.
    pub id: SourceId,
    /// Followers that show.
    pub followers: usize,
    /// Followed sources that show.
    pub following: usize,
    /// Posts in its outbox.
    pub posts: usize,
    /// Whether its posts are pulled.
    pub celebrity: bool,
    /// Whether it is awake.
    pub active: bool,
    /// When it last read its feed.
    pub last_seen: Option<UnixMicros>,
}

/// A queue, as an operator sees it.
#[derive(Clone, Copy, Debug)]
pub struct QueueDepth {
    /// Its name.
    pub name: &'static str,
    /// How much is in it.
    pub depth: usize,
    /// How much may be.
    pub limit: usize,
}

impl Engine {
    /// Publishes a post; with `wait`, answers only once it is in the inbox of every active follower.
    ///
    /// # Errors
    /// When the post is refused, or a queue is full; nothing was done then.
    pub async fn publish(&self, draft: Draft, wait: bool) -> Result<Published, Error> {
        // In an overload most are refused: before they take any of the scribe's time.
        if let Some(refusal) = self.inner.shared.refusal_if_behind(0) {
            return Err(refusal);
        }
        let (draft, began) = (Box::new(draft), Instant::now());
        let published = self.command(|reply| Command::Publish { draft, wait, reply }).await?;
        self.inner.shared.counters.publish_latency.record(began.elapsed());
        Ok(published)
    }

    /// Changes a post. Its place in feeds stays.
    ///
    /// # Errors
    /// When there is no such post.
    pub async fn edit(&self, id: PostId, body: Option<Body>, hidden: Option<bool>) -> Result<Arc<Post>, Error> {
        self.command(|reply| Command::Edit { id, body, hidden, reply }).await
    }

    /// Deletes a post for good. Deleting what is not there is fine.
    ///
    /// # Errors
    /// When a queue is full.
    pub async fn delete(&self, id: PostId) -> Result<(), Error> {
        self.command(|reply| Command::Delete { id, reply }).await
    }

    /// The post with this id.
    ///
    /// # Errors
    /// When there is none, or it was deleted.
    pub async fn post(&self, id: PostId) -> Result<Arc<Post>, Error> {
        let shared = &self.inner.shared;
        let stored = match shared.world.posts.stored(id) {
            None if shared.world.has_archived() => {
                let (reply, answer) = oneshot::channel();
                self.ask_archive(move |world| {
                    let _ = reply.send(world.find(id).map_err(|cause| archive_failed(&cause)));
                })?;
                answer.await.unwrap_or(Err(Error::ShuttingDown))?
            }
            stored => stored,
        };
        let is_there = |post: &Arc<Post>| !shared.world.sources.is_erased(post.author().slot);
        stored.and_then(Stored::live).filter(is_there).ok_or(Error::UnknownPost(id))
    }

    fn ask_archive(&self, job: impl FnOnce(&World) + Send + 'static) -> Result<(), Error> {
        let shared = &self.inner.shared;
        let taken = shared.archive_readers.ask(job);
        if taken { Ok(()) } else { Err(shared.overloaded("archive", ARCHIVE_QUEUE_MAX)) }
    }

    /// A page of a reader's feed. Wakes the reader if it sleeps.
    ///
    /// # Errors
    /// When a queue is full, the reader's turn does not come in time, or its actor crashes.
    pub async fn feed(&self, reader: &SourceId, request: PageRequest) -> Result<FeedPage, Error> {
        let began = Instant::now();
        let page = self.page(reader, request).await?;
        self.inner.shared.counters.page_latency.record(began.elapsed());
        Ok(page)
    }

    async fn page(&self, reader: &SourceId, request: PageRequest) -> Result<FeedPage, Error> {
        let world = &self.inner.shared.world;
        let Some(source) = world.sources.get(reader) else { return Ok(self.nothing(request)) };
        let has_feed = source.id.is_user() && (source.following().reach_len() > 0 || !source.outbox().is_empty());
        // The actor of a watched reader has to know of every page, or what it tells may not agree with that.
        if !has_feed && !self.inner.shared.watchers.is_watched(source.slot) {
            return Ok(self.nothing(request));
        }
        let directory = &self.inner.shared.directory;
        let mut crashes_before = None;
        for _ in 0..READ_ATTEMPTS_MAX {
            let (reply, answer) = oneshot::channel();
            self.read_scheduler(&source).read(&source, request, reply);
            if let Ok(answer) = answer.await {
                return answer.map(|page| self.named(page));
            }
            // Without an answer the actor went away under the question. It fell asleep just then, which is no failure, or
            // it crashed, maybe by this very question.
            let crashes = directory.crashes(source.slot);
            if crashes >= *crashes_before.get_or_insert(crashes) + READ_CRASHES_MAX {
                return Err(Error::ReaderCrashed(reader.clone()));
            }
        }
        Err(self.inner.shared.overloaded("wake_up", WAKE_QUEUE_MAX))
    }

    /// The page of a feed in which nothing can be. Whoever has a token keeps it.
    fn nothing(&self, request: PageRequest) -> FeedPage {
        let resume = match request.range {
            Range::Resume(token) => Some(token),
            _ => None,
        };
        self.named(Page { newest: resume.map(|token| token.position), resume, ..Page::empty() })
    }

    /// Compares a reader's inbox with one built anew, which takes its place with `rebuild`. Wakes the reader if it sleeps.
    ///
    /// # Errors
    /// When nothing ever named the reader or it is no user, or its mailbox is full.
    pub async fn verify_feed(&self, reader: &SourceId, rebuild: bool) -> Result<Verdict, Error> {
        let shared = &self.inner.shared;
        // Tags and topics have no feed, and nobody wakes for them.
        let source = shared.world.sources.get(reader).filter(|source| source.id.is_user());
        let source = source.ok_or_else(|| Error::UnknownSource(reader.clone()))?;
        for _ in 0..READ_ATTEMPTS_MAX {
            let (reply, answer) = oneshot::channel();
            match shared.directory.send(source.slot, Verify { rebuild, reply }) {
                Ok(()) => {
                    if let Ok(verdict) = answer.await {
                        return verdict;
                    }
                }
                Err(SendError::Full(_)) => return Err(shared.overloaded("user_mailbox", USER_MAILBOX_MAX)),
                Err(SendError::Closed(_)) => {
                    let (reply, answer) = oneshot::channel();
                    self.read_scheduler(&source).read(&source, PageRequest { range: Range::Newest, limit: 1 }, reply);
                    // However else it is answered, the reader was awake then.
                    match answer.await {
                        Ok(Err(Error::Overloaded { queue: "archive", .. })) => {}
                        Ok(Err(
                            cause @ (Error::Quarantined { .. } | Error::Overloaded { .. } | Error::ShuttingDown),
                        )) => {
                            return Err(cause);
                        }
                        _ => {}
                    }
                }
            }
        }
        Err(shared.overloaded("wake_up", WAKE_QUEUE_MAX))
    }

    /// A page of a source's own posts, as everybody sees it.
    ///
    /// # Errors
    /// When it needs the archive, and too much is waiting for that.
    pub async fn own_page(&self, source: &SourceId, request: PageRequest) -> Result<FeedPage, Error> {
        self.page_of_source(source, |source| Viewer::everybody(source.slot), request).await
    }

    /// The same as the source's owner sees it: without what they repeat of authors that they block or that block them.
    ///
    /// # Errors
    /// As [`Engine::own_page`].
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
        let Some(source) = world.sources.get(source) else { return Ok(self.nothing(request)) };
        let settled = world.arrivals.applied();
        self.pulled_page(viewer(&source), settled, request).await
    }

    /// A page of a feed that nothing is pushed to.
    async fn pulled_page(&self, viewer: Viewer, settled: Settled, request: PageRequest) -> Result<FeedPage, Error> {
        let shared = &self.inner.shared;
        let now = shared.clock.now();
        let page = pulled_page(&viewer, settled, Finder::Memory(&shared.world), request, shared.read_clock(now));
        if !page.needs_archive && page.reach == Reach::Full {
            shared.count_page(&page);
            return Ok(self.named(page));
        }
        let (reply, answer) = oneshot::channel();
        let build = move |world: &World, clock: ReadClock<'_>| {
            pulled_page(&viewer, settled, Finder::Archive(world), request, clock)
        };
        shared.read_cold(reply, page, build);
        answer.await.unwrap_or(Err(Error::ShuttingDown)).map(|page| self.named(page))
    }

    /// What is known of a source.
    ///
    /// # Errors
    /// When nothing ever named it.
    pub fn source(&self, id: &SourceId) -> Result<SourceInfo, Error> {
        let shared = &self.inner.shared;
        let source = shared.world.sources.get(id).ok_or_else(|| Error::UnknownSource(id.clone()))?;
        let (followers, posts) = (source.followers().visible_len(), source.outbox().len());
        Ok(SourceInfo {
            id: source.id.clone(),
            followers,
            following: source.following().visible_len(),
            posts,
            celebrity: shared.world.route(&source) == crate::feed::outbox::Route::Pull,
            active: shared.directory.is_active(source.slot),
            last_seen: source.last_seen(),
        })
    }

    /// Whether a reader's inbox is there, so that a page of it is a matter of microseconds.
    pub fn is_awake(&self, reader: &SourceId) -> bool {
        let shared = &self.inner.shared;
        shared.world.sources.get(reader).is_some_and(|reader| shared.directory.is_active(reader.slot))
    }

    /// What all actors share: settings, state, counters.
    pub fn shared(&self) -> &Shared {
        &self.inner.shared
    }

    /// The engine's queues.
    pub fn queues(&self) -> Vec<QueueDepth> {
        let shared = &self.inner.shared;
        vec![
            QueueDepth { name: "scribe", depth: self.inner.commands.len(), limit: SCRIBE_QUEUE_MAX },
            QueueDepth { name: "scribe_bytes", depth: self.inner.commands.bytes(), limit: SCRIBE_QUEUE_BYTES_MAX },
            QueueDepth {
                name: "read_turns",
                depth: self.inner.shards.iter().map(|shard| shard.read_scheduler.waiting()).sum(),
                limit: self.inner.shards.len() * READS_WAITING_PER_SHARD_MAX,
            },
            QueueDepth {
                name: "wake_up",
                depth: self.inner.shards.iter().map(|shard| shard.read_scheduler.waking()).sum(),
                limit: self.inner.shards.len() * WAKE_QUEUE_MAX,
            },
            QueueDepth { name: "archive", depth: shared.archive_readers.waiting(), limit: ARCHIVE_QUEUE_MAX },
            QueueDepth {
                name: "snapshot",
                depth: self.inner.snapshotter.lock().as_ref().map_or(0, |snapshotter| snapshotter.requests.len()),
                limit: SNAPSHOT_REQUESTS_MAX,
            },
            QueueDepth { name: "fanout", depth: shared.open_fanouts.len(), limit: FANOUT_QUEUE_MAX + FANOUT_JOBS_MAX },
            QueueDepth {
                name: "fanout_deliveries",
                depth: shared.open_fanouts.deliveries(),
                limit: shared.config.fanout_backlog_max(),
            },
        ]
    }

    /// Counts what all inboxes hold. Walks every inbox, shard by shard.
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

    /// Takes no more writes, finishes those that were taken, and ends all threads. Blocks until they have ended, also where somebody else ends
    /// them. Gives up a snapshot that is being taken, and begins none.
    pub fn shutdown(&self) {
        // Held to the end: whoever asks meanwhile waits for it.
        let mut running = self.inner.threads.lock();
        let Some(threads) = running.take() else { return };
        self.stop_live();
        self.inner.stop_waiting();
        let snapshotter = self.inner.snapshotter.lock().take();
        // Before the eraser ends, which may wait for a snapshot.
        snapshotter.iter().for_each(|snapshotter| snapshotter.stopping.store(true, Ordering::Relaxed));
        self.inner.stop_eraser();
        if let Some(SnapshotterHandle { requests, thread, .. }) = snapshotter {
            drop(requests);
            let _ = thread.join();
        }
        // Fails only if the scribe has ended.
        let _ = self.inner.commands.send(Command::Stop);
        let _ = threads.scribe_thread.join();
        self.finish_fanouts();
        if let Some(archiver) = threads.archive_thread {
            let _ = archiver.join();
        }
        if let Some(archive) = self.inner.shared.world.archive() {
            archive.close();
        }
        threads.system.stop();
        let _ = threads.system_thread.join();
    }

    /// Waits, for a while, until what was published is delivered: callers may wait for that.
    fn finish_fanouts(&self) {
        let began = Instant::now();
        while !self.inner.shared.open_fanouts.is_empty() && began.elapsed() < FANOUT_DRAIN_MAX {
            thread::park_timeout(Duration::from_millis(1));
        }
    }

    async fn command<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T, Error> {
        let (reply, answer) = oneshot::channel();
        let (command, resolved) = (command(reply), Resolved::default());
        let needs = needs(&command, &self.inner.shared.world, &resolved);
        if !needs.is_empty() {
            // No thread waits: the command is queued, or refused, once that is looked up.
            let resolver = Resolver::new(Arc::clone(&self.inner.shared), self.inner.commands.clone());
            resolver.resolve(command, resolved, 0, needs);
            return answer.await.unwrap_or(Err(Error::ShuttingDown));
        }
        match self.inner.commands.try_send(command) {
            Ok(()) => answer.await.unwrap_or(Err(Error::ShuttingDown)),
            Err(NotTaken::Full { queue, limit }) => Err(self.inner.shared.overloaded(queue, limit)),
            Err(NotTaken::Closed) => Err(Error::ShuttingDown),
        }
    }

    /// Where a reader is asked.
    pub(crate) fn read_scheduler(&self, reader: &Source) -> &Arc<ReadScheduler> {
        &self.inner.shards[self.inner.shared.world.sharding.shard_of(reader.slot)].read_scheduler
    }

    fn named(&self, page: Page<Entry>) -> FeedPage {
        let sources = &self.inner.shared.world.sources;
        let named = page.partial.iter().take(PARTIAL_NAMES_MAX);
        let partial = named.map(|slot| sources.at(*slot).id.clone()).collect();
        FeedPage { page, partial }
    }
}

impl Inner {
    /// Nobody waits for room on a full disk any more.
    fn stop_waiting(&self) {
        if let Some(archive) = self.shared.world.archive() {
            archive.stop_waiting();
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.stop_waiting();
        self.shared.watchers.stop();
        // The last handle is gone. Threads end by themselves; nobody is left to wait for them.
        if let Some(threads) = self.threads.get_mut().take() {
            let _ = self.commands.try_send(Command::Stop);
            threads.system.stop();
        }
    }
}
