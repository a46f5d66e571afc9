//! The settings, the data and the figures of an engine, which its threads and actors share.

use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use parking_lot::Mutex;

use crate::clock::{Clock, UnixMicros};
use crate::config::EngineConfig;
use crate::error::Error;
use crate::feed::page::{Page, Reach};
use crate::limits::ARCHIVE_QUEUE_MAX;
use crate::live::watchers::Watchers;
use crate::runtime::background::archiver::ArchiveReaders;
use crate::runtime::change_consumers::ChangeConsumers;
use crate::runtime::change_readers::ChangeReaders;
use crate::runtime::counters::Counters;
use crate::runtime::fanout::latency::FanoutLatency;
use crate::runtime::fanout::open_fanouts::OpenFanouts;
use crate::runtime::fanout::records::FanoutRecords;
use crate::runtime::hybrid_logical_clock::ClockReport;
use crate::runtime::message::{Reply, SnapshotTaken};
use crate::state::feed_filter::Entry;
use crate::state::read_clock::ReadClock;
use crate::state::world::World;
use crate::storage::retained::Retention;
use crate::storage::sequence::Sequence;

/// The state that all actors and threads of an engine share, besides its awake readers.
pub struct Core {
    /// The settings of the engine.
    pub config: Arc<EngineConfig>,
    /// Posts, outboxes and the follow graph.
    pub world: Arc<World>,
    /// The engine's counters since its start.
    pub counters: Counters,
    /// The source of the current time.
    pub clock: Arc<dyn Clock>,
    /// The observed jumps of this clock.
    pub clock_report: Arc<ClockReport>,
    /// The threads that may wait for the archive, and that build slow pages.
    pub(crate) archive_readers: ArchiveReaders,
    /// The snapshots that are stored, newest first.
    pub snapshots: Mutex<Vec<SnapshotTaken>>,
    /// The last event that a backup has, or the largest number if there are no backups. The snapshotter keeps the
    /// journal after it.
    pub(crate) backed_up: AtomicU64,
    /// The event up to which the eraser wants a backup before it removes the journal.
    pub(crate) backup_wanted: AtomicU64,
    /// The readers of changes, for whom an erasure keeps the journal for a while.
    pub(crate) change_readers: Arc<ChangeReaders>,
    /// The consumers of changes that are registered by name.
    pub(crate) change_consumers: ChangeConsumers,
    /// Posts that are queued for fan-out and not yet delivered to all inboxes.
    pub open_fanouts: OpenFanouts,
    /// How the most recent posts were delivered.
    pub fanout_records: FanoutRecords,
    /// The readers that live connections watch.
    pub watchers: Watchers,
    /// The recent latencies of fan-out, by audience.
    pub fanout_latency: Mutex<FanoutLatency>,
    /// The instant at which the counters started.
    pub started: Instant,
}

impl Core {
    /// Creates the state of an engine without actors.
    pub(crate) fn new(
        config: Arc<EngineConfig>,
        world: Arc<World>,
        clock: Arc<dyn Clock>,
        archive_readers: ArchiveReaders,
        change_consumers: ChangeConsumers,
    ) -> Self {
        let (sharding, started) = (world.sharding, Instant::now());
        Self {
            config,
            world,
            counters: Counters::default(),
            archive_readers,
            clock_report: Arc::default(),
            open_fanouts: OpenFanouts::default(),
            fanout_records: FanoutRecords::default(),
            watchers: Watchers::new(sharding),
            fanout_latency: Mutex::new(FanoutLatency::new(started)),
            started,
            snapshots: Mutex::default(),
            backed_up: AtomicU64::new(u64::MAX),
            backup_wanted: AtomicU64::default(),
            change_readers: ChangeReaders::new(Arc::clone(&clock)),
            clock,
            change_consumers,
        }
    }

    /// Returns the retention of segments for consumers of changes, or None if segments are not retained. `oldest` is
    /// the first event of the oldest segment.
    pub(crate) fn changes_retention(&self, oldest: Sequence) -> Option<Retention> {
        let (time, bytes_max) = (self.config.changes_retention, self.config.changes_retention_bytes);
        let consumed = self.change_consumers.consumed(oldest);
        (!time.is_zero() || consumed.is_some()).then_some(Retention { time, bytes_max, consumed })
    }

    /// Returns the clock and the deadline for a read that starts at `now`.
    pub(crate) fn read_clock(&self, now: UnixMicros) -> ReadClock<'_> {
        ReadClock { clock: &*self.clock, deadline: now.saturating_add(self.config.pull_budget) }
    }

    /// Runs `build` on a thread that may wait for a disk, so that no other request is delayed. `begun` is the page as
    /// far as it could be built before.
    pub(crate) fn read_cold(
        self: &Arc<Self>,
        reply: Reply<Page<Entry>>,
        begun: Page<Entry>,
        build: impl FnOnce(&World, ReadClock<'_>) -> Page<Entry> + Send + 'static,
    ) {
        let shared = Arc::clone(self);
        let deadline = self.clock.now().saturating_add(self.config.archive_budget);
        let time = if begun.needs_archive { self.config.archive_budget } else { self.config.pull_budget };
        // The job and the refusal share the reply; only one of them uses it.
        let reply = Arc::new(Mutex::new(Some((reply, begun))));
        let waiting = Arc::clone(&reply);
        let job = move |world: &World| {
            let Some((reply, begun)) = waiting.lock().take() else { return };
            // In an overload, most callers whose jobs run last have disconnected or exceeded their time limit.
            if reply.is_closed() {
                return;
            }
            let now = shared.clock.now();
            let built = if now > deadline {
                shared.as_far_as_built(begun)
            } else {
                let counters = &shared.counters;
                let counter = if begun.needs_archive { &counters.cold_pages } else { &counters.long_pages };
                counter.add(1);
                shared.build_cold(world, deadline.min(now.saturating_add(time)), build)
            };
            let _ = reply.send(built);
        };
        if !self.archive_readers.ask(job)
            && let Some((reply, begun)) = reply.lock().take()
        {
            let _ = reply.send(self.as_far_as_built(begun));
        }
    }

    /// Returns a page as far as it was built if it has a cursor to continue from. Otherwise returns a refusal.
    fn as_far_as_built(&self, begun: Page<Entry>) -> Result<Page<Entry>, Error> {
        if begun.needs_archive || begun.reach == Reach::Nothing {
            return Err(self.overloaded("archive", ARCHIVE_QUEUE_MAX));
        }
        self.count_page(&begun);
        Ok(begun)
    }

    fn build_cold(
        &self,
        world: &World,
        deadline: UnixMicros,
        build: impl FnOnce(&World, ReadClock<'_>) -> Page<Entry>,
    ) -> Result<Page<Entry>, Error> {
        let clock = ReadClock { clock: &*self.clock, deadline };
        // A panic loses only the page that was being built; the thread continues.
        let built = panic::catch_unwind(AssertUnwindSafe(|| build(world, clock)));
        let page = built.map_err(|_| Error::ArchiveFailed("building a page from it crashed".to_owned()))?;
        if page.needs_archive {
            return Err(Error::ArchiveFailed("a post could not be read from it".to_owned()));
        }
        self.count_page(&page);
        Ok(page)
    }

    pub(crate) fn count_page(&self, page: &Page<Entry>) {
        self.counters.pages.add(1);
        if !page.partial.is_empty() || !page.unreadable.is_empty() {
            self.counters.partial_pages.add(1);
        }
    }

    /// Returns the refusal of a full queue, and counts it.
    pub(crate) fn overloaded(&self, queue: &'static str, limit: usize) -> Error {
        self.counters.shed.count(queue);
        Error::Overloaded { queue, limit }
    }
}
