//! What all actors of an engine share.

use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use crate::clock::{Clock, UnixMicros};
use crate::config::EngineConfig;
use crate::error::Error;
use crate::feed::page::{Page, Reach};
use crate::limits::ARCHIVE_QUEUE_MAX;
use crate::live::watchers::Watchers;
use crate::runtime::background::archiver::ArchiveReaders;
use crate::runtime::counters::Counters;
use crate::runtime::fanout::latency::FanoutLatency;
use crate::runtime::fanout::open_fanouts::OpenFanouts;
use crate::runtime::message::{Reply, SnapshotTaken};
use crate::runtime::monotonic_clock::ClockReport;
use crate::runtime::reader::directory::Directory;
use crate::state::reader::ReadClock;
use crate::state::view::Entry;
use crate::state::world::World;

/// What all actors share.
pub struct Shared {
    /// The settings.
    pub config: Arc<EngineConfig>,
    /// Posts, outboxes, graph.
    pub world: Arc<World>,
    /// Who is awake.
    pub directory: Directory,
    /// What happened so far.
    pub counters: Counters,
    /// Where "now" comes from.
    pub clock: Arc<dyn Clock>,
    /// Whether it has jumped.
    pub clock_report: Arc<ClockReport>,
    /// The threads that may wait for the archive, and build pages that take long.
    pub(crate) archive_readers: ArchiveReaders,
    /// The snapshots that are kept, newest first.
    pub snapshots: Mutex<Vec<SnapshotTaken>>,
    /// Posts handed to the fan-out supervisor and not yet delivered everywhere.
    pub open_fanouts: OpenFanouts,
    /// Who is watched live.
    pub watchers: Watchers,
    /// How long those took that were delivered of late.
    pub fanout_latency: Mutex<FanoutLatency>,
    /// Since when counters count.
    pub started: Instant,
}

impl Shared {
    /// How a read that starts now looks at time.
    pub(crate) fn read_clock(&self, now: UnixMicros) -> ReadClock<'_> {
        ReadClock { clock: &*self.clock, deadline: now.saturating_add(self.config.pull_budget) }
    }

    /// Has `build` make a page on a thread that may wait for a disk, and that nobody else waits for. `begun` is how far it came elsewhere.
    pub(crate) fn read_cold(
        self: &Arc<Self>,
        reply: Reply<Page<Entry>>,
        begun: Page<Entry>,
        build: impl FnOnce(&World, ReadClock<'_>) -> Page<Entry> + Send + 'static,
    ) {
        let shared = Arc::clone(self);
        let deadline = self.clock.now().saturating_add(self.config.archive_budget);
        let time = if begun.needs_archive { self.config.archive_budget } else { self.config.pull_budget };
        // Shared by the job and the refusal: one of them takes it.
        let reply = Arc::new(Mutex::new(Some((reply, begun))));
        let waiting = Arc::clone(&reply);
        let job = move |world: &World| {
            let Some((reply, begun)) = waiting.lock().take() else { return };
            // In an overload most who asked for what is done last have gone, or would not wait any longer.
            if reply.is_closed() {
                return;
            }
            let now = shared.clock.now();
            let built = if now > deadline {
                shared.as_begun(begun)
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
            let _ = reply.send(self.as_begun(begun));
        }
    }

    /// A page that nobody can build further now: as far as it came, if it shows from where to go on.
    fn as_begun(&self, begun: Page<Entry>) -> Result<Page<Entry>, Error> {
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
        // A crash costs the page that was being built, and no thread.
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
        let is_partial = !page.partial.is_empty() || !page.unreadable.is_empty();
        self.counters.partial_pages.add(u64::from(is_partial));
    }

    /// The refusal of a post because fan-out is too far behind, counted. `before` are deliveries that come on top.
    pub(crate) fn refusal_if_behind(&self, before: usize) -> Option<Error> {
        let limit = self.config.fanout_backlog_max();
        let is_behind = self.open_fanouts.deliveries().saturating_add(before) >= limit;
        is_behind.then(|| self.overloaded("fanout_deliveries", limit))
    }

    /// The refusal of a full queue, counted.
    pub(crate) fn overloaded(&self, queue: &'static str, limit: usize) -> Error {
        self.counters.shed.count(queue);
        Error::Overloaded { queue, limit }
    }
}
