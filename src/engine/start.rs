//! Starting an engine: its threads and actors, on an empty state or on a recovered one.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use actix::{Actor, Addr, Arbiter, System};
use parking_lot::Mutex;
use tracing::{error, info, warn};

use crate::clock::{Clock, SystemClock, Timestamp};
use crate::config::EngineConfig;
use crate::engine::changes::ChangeLog;
use crate::engine::{Engine, Inner, NodeStorage, ShardAddrs, Shared, Threads};
use crate::feed::followers::Sharding;
use crate::limits::{
    ARCHIVE_CACHE_BYTES, COMMAND_QUEUE_BYTES_MAX, COMMAND_QUEUE_MAX, SNAPSHOT_REQUESTS_MAX, WAKE_QUEUE_MAX,
};
use crate::recovery::progress::WAKING;
use crate::recovery::{Recovered, Recovery, RecoveryProgress, RecoveryReport};
use crate::runtime::abort_on_exit::AbortOnExit;
use crate::runtime::background::archive_copier::ArchiveCopier;
use crate::runtime::background::archiver::{self, ArchiveReaders};
use crate::runtime::background::resolver::Resolver;
use crate::runtime::background::snapshotter::{SnapshotOptions, Snapshotter};
use crate::runtime::change_consumers::ChangeConsumers;
use crate::runtime::core::Core;
use crate::runtime::fanout::courier::Courier;
use crate::runtime::fanout::{self, FanoutQueue, FanoutSupervisor, RegisterCouriers};
use crate::runtime::hybrid_logical_clock::HybridLogicalClock;
use crate::runtime::processor::{CommandProcessor, queue};
use crate::runtime::reader::activator::Activator;
use crate::runtime::reader::read_scheduler::ReadScheduler;
use crate::runtime::reader::user::inbox_store::InboxStore;
use crate::state::unwritten::TieringLimits;
use crate::state::world::{StateMachine, World};
use crate::storage::archive::{self, Archive, LocalArchive, ReadOnlyArchive, RedbArchive};
use crate::storage::directory_identity;
use crate::storage::directory_identity::Identified;
use crate::storage::disk_use::DiskUse;
use crate::storage::error::StorageError;
use crate::storage::files::{Files, disk::DiskFiles, guard};
use crate::storage::identity::Identity;
use crate::storage::journal::writer::{JournalFigures, JournalOptions, SegmentJournal};
use crate::storage::journal::{Journal, MemoryJournal};
use crate::storage::lock::DirectoryLock;
use crate::storage::log::segments::SegmentLog;

/// The place and the options of an engine's persistent state.
#[derive(Clone, Debug)]
pub struct StorageConfig {
    /// The data directory. Default `./snapshots`.
    pub directory: PathBuf,
    /// The options for writing the journal.
    pub journal: JournalOptions,
    /// The options for taking snapshots.
    pub snapshots: SnapshotOptions,
    /// Starts even if acknowledged events are lost. Default: no.
    pub repair: bool,
}

impl Default for StorageConfig {
    fn default() -> Self {
        Self {
            directory: PathBuf::from("snapshots"),
            journal: JournalOptions::default(),
            snapshots: SnapshotOptions::default(),
            repair: false,
        }
    }
}

/// A data directory that this process has locked.
pub struct LockedDataDir {
    files: DiskFiles,
    lock: Arc<DirectoryLock>,
}

impl StorageConfig {
    /// Creates the directory if it does not exist, and takes its lock.
    ///
    /// # Errors
    /// Fails if the directory cannot be used, or another process has locked it.
    pub fn claim(&self) -> Result<LockedDataDir, StorageError> {
        let place = self.directory.display().to_string();
        let files = DiskFiles::open(&self.directory).map_err(StorageError::io("use the data directory", &*place))?;
        let lock = Arc::new(DirectoryLock::take(&self.directory)?);
        let warnings = guard::tighten(&self.directory).map_err(StorageError::io("use the data directory", place))?;
        warnings.iter().for_each(|warning| warn!("{warning}"));
        Ok(LockedDataDir { files, lock })
    }
}

impl LockedDataDir {
    /// Refuses a directory with files of another directory, or one of a cluster node. A start does that too; this is
    /// for programs that must know it before they serve requests. It reads only the beginnings of files, and the
    /// archive in the directory if there is one.
    ///
    /// # Errors
    /// The error names the files and the directories to which they belong.
    pub fn refuse_foreign(&self) -> Result<(), StorageError> {
        directory_identity::refuse_of_cluster(&self.files)?;
        let archive = self.files.place(archive::FILE);
        match archive::identity_in(Path::new(&archive))? {
            Some(of_archive) => directory_identity::compare(&self.files, archive, of_archive),
            None => Ok(()),
        }
    }

    /// Makes it the data directory of a cluster node.
    pub fn for_node(self, snapshots: SnapshotOptions) -> NodeStorage {
        NodeStorage { files: Arc::new(self.files), lock: Some(self.lock), snapshots }
    }
}

/// The parts from which an engine is started.
pub(super) struct EngineParts<J> {
    pub(super) config: Arc<EngineConfig>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) world: Arc<World>,
    pub(super) machine: StateMachine,
    pub(super) journal: J,
    pub(super) last_instant: Option<Timestamp>,
    pub(super) lock: Option<Arc<DirectoryLock>>,
    pub(super) changes: Option<ChangeLog>,
    pub(super) change_consumers: ChangeConsumers,
}

impl<J> EngineParts<J> {
    /// Returns the parts of an engine that has no data directory, and whose journal cannot be read.
    pub(super) fn new(
        config: Arc<EngineConfig>,
        clock: Arc<dyn Clock>,
        world: Arc<World>,
        machine: StateMachine,
        journal: J,
    ) -> Self {
        let (last_instant, lock, changes) = (None, None, None);
        let change_consumers = ChangeConsumers::default();
        Self { config, clock, world, machine, journal, last_instant, lock, changes, change_consumers }
    }
}

impl Engine {
    /// Starts an engine on the system clock that stores everything in memory only.
    pub fn start(config: EngineConfig) -> Self {
        Self::start_with(config, MemoryJournal::default(), Arc::new(SystemClock))
    }

    /// Starts an engine on an empty state, with the given journal and clock.
    pub fn start_with<J: Journal>(config: EngineConfig, journal: J, clock: Arc<dyn Clock>) -> Self {
        let (world, machine) = World::create(config.celebrity, Sharding::new(config.shards.get()));
        let config = Arc::new(config);
        let (engine, _) = start(EngineParts::new(config, clock, world, machine, journal));
        engine.start_eraser(None, false);
        engine
    }

    /// Opens a durable engine on a data directory, which is created if it does not exist, with the default
    /// [`StorageConfig`]: every write is synced before it is answered. Blocks the thread until the state is recovered.
    /// [`Engine::open`] accepts all settings and reports the recovery.
    ///
    /// # Errors
    /// Fails if another process uses the directory, or if its files are damaged: the error names the problem, the place
    /// and the remedy.
    pub fn open_directory(config: EngineConfig, directory: impl Into<PathBuf>) -> Result<Self, StorageError> {
        let storage = StorageConfig { directory: directory.into(), ..StorageConfig::default() };
        Self::open(config, &storage, Arc::new(SystemClock), &RecoveryProgress::default()).map(|(engine, _)| engine)
    }

    /// Starts an engine on the contents of a data directory, and stores all changes there.
    ///
    /// # Errors
    /// The error names the problem, the place and the remedy.
    pub fn open(
        config: EngineConfig,
        storage: &StorageConfig,
        clock: Arc<dyn Clock>,
        progress: &RecoveryProgress,
    ) -> Result<(Self, RecoveryReport), StorageError> {
        Self::open_claimed(config, storage, storage.claim()?, clock, progress)
    }

    /// Starts an engine on a directory that was claimed before, with these settings.
    ///
    /// # Errors
    /// Fails for the same reasons as [`Engine::open`].
    pub fn open_claimed(
        config: EngineConfig,
        storage: &StorageConfig,
        LockedDataDir { files, lock }: LockedDataDir,
        clock: Arc<dyn Clock>,
        progress: &RecoveryProgress,
    ) -> Result<(Self, RecoveryReport), StorageError> {
        directory_identity::refuse_of_cluster(&files)?;
        let opened = Self::archive_in(storage, &files).and_then(|archive| {
            Self::open_on(config, Arc::new(files), Some(&archive), Some(lock), storage, clock, progress)
        });
        opened.map_err(StorageError::of_own_archive)
    }

    /// Starts an engine on a directory that was claimed before, whose archive is elsewhere.
    ///
    /// # Errors
    /// Fails for the same reasons as [`Engine::open`], and if the directory has an archive with posts.
    pub fn open_claimed_with(
        config: EngineConfig,
        storage: &StorageConfig,
        LockedDataDir { files, lock }: LockedDataDir,
        archive: &Arc<dyn Archive>,
        clock: Arc<dyn Clock>,
        progress: &RecoveryProgress,
    ) -> Result<(Self, RecoveryReport), StorageError> {
        let path = storage.directory.join(archive::FILE);
        if path.exists() && ReadOnlyArchive::open(&path, ARCHIVE_CACHE_BYTES)?.totals()?.posts > 0 {
            return Err(StorageError::TwoArchives { file: path.display().to_string(), archive: archive.place() });
        }
        Self::open_on(config, Arc::new(files), Some(archive), Some(lock), storage, clock, progress)
    }

    /// Opens the archive in a data directory.
    fn archive_in(storage: &StorageConfig, files: &DiskFiles) -> Result<Arc<dyn Archive>, StorageError> {
        let path = storage.directory.join(archive::FILE);
        // The identity is checked before the archive is opened, since opening writes to it. A readable archive of another
        // directory is left unchanged.
        if let Some(of_archive) = archive::identity_in(&path)? {
            directory_identity::compare(files, path.display().to_string(), of_archive)?;
        }
        let archive = match storage.repair {
            true => RedbArchive::open_or_set_aside(&path, ARCHIVE_CACHE_BYTES)?,
            false => RedbArchive::open(&path, ARCHIVE_CACHE_BYTES)?,
        };
        Ok(Arc::new(archive))
    }

    /// Starts an engine on the given file system.
    ///
    /// # Errors
    /// Fails for the same reasons as [`Engine::open`].
    pub fn open_on(
        config: EngineConfig,
        files: Arc<dyn Files>,
        archive: Option<&Arc<dyn Archive>>,
        lock: Option<Arc<DirectoryLock>>,
        storage: &StorageConfig,
        clock: Arc<dyn Clock>,
        progress: &RecoveryProgress,
    ) -> Result<(Self, RecoveryReport), StorageError> {
        let began = Instant::now();
        directory_identity::refuse_of_cluster(&*files)?;
        let identity = establish(&*files, archive.map(|archive| &**archive))?;
        let files: Arc<dyn Files> = Arc::new(Identified::new(files, identity));
        let config = Arc::new(config);
        let limits = tiering_limits(&config);
        let make_world = || {
            let archive = archive.map(|archive| (Arc::clone(archive), limits));
            World::create_with(config.celebrity, Sharding::new(config.shards.get()), archive)
        };
        let recovery = Recovery { files: &*files, make_world: &make_world, repair: storage.repair, progress };
        let Recovered { world, machine, tail, last_instant, inboxes, under_way, report, .. } = recovery.run()?;
        if let Some(Err(cause)) = archive.and_then(|archive| archive.local()).map(LocalArchive::check) {
            world.read_failures.note(&cause);
        }
        let change_consumers = ChangeConsumers::open(Arc::clone(&files), tail.last)?;
        let journal = SegmentJournal::open(Arc::clone(&files), &tail, storage.journal, Arc::clone(&clock))?;
        let figures = journal.figures();
        world.delivery.recovered(last_instant.instant);
        let last_instant = Some(last_instant);
        let changes = Some(ChangeLog::Own(Box::new(SegmentLog::new(Arc::clone(&files), Arc::clone(&figures)))));
        let (engine, fanout) = start(EngineParts {
            last_instant,
            lock: lock.clone(),
            changes,
            change_consumers,
            ..EngineParts::new(config, clock, world, machine, journal)
        });
        progress.enter(WAKING);
        engine.restore_inboxes(&inboxes);
        engine.resume_fanouts(&fanout, under_way);
        engine.start_snapshotter(files, storage.snapshots, figures, report.journal_bytes, lock);
        engine.start_eraser(engine.snapshot_requests(), false);
        log_recovery(&report, began.elapsed());
        if !report.lost.is_empty() {
            engine.snapshot_now().map_err(|cause| StorageError::Repair(cause.to_string()))?;
        }
        progress.finish();
        Ok((engine, report))
    }

    /// Starts the thread that copies changes to the archive of a cluster, if there is one.
    pub(super) fn start_archive_copier(&self, is_writer: Box<dyn Fn() -> bool + Send>) {
        let world = Arc::clone(&self.shared().world);
        let Some(archive) = world.replicated_archive() else { return };
        archive.set_followed();
        let stopping = Arc::<AtomicBool>::default();
        let clock = Arc::clone(&self.shared().clock);
        let copier = ArchiveCopier { world: Arc::clone(&world), is_writer, clock, stopping: Arc::clone(&stopping) };
        *self.inner.archive_copier.lock() = Some((stopping, copier.start().expect(THREADS)));
    }

    /// Starts the snapshotter. With a journal of its own, the engine takes a snapshot when it stops.
    pub(super) fn start_snapshotter(
        &self,
        files: Arc<dyn Files>,
        options: SnapshotOptions,
        figures: Arc<JournalFigures>,
        replayed_bytes: u64,
        lock: Option<Arc<DirectoryLock>>,
    ) {
        let (stopping, without_pauses) = <(Arc<AtomicBool>, Arc<AtomicBool>)>::default();
        let (requests, receiver) = crossbeam_channel::bounded(SNAPSHOT_REQUESTS_MAX);
        let disk_use = DiskUse::default();
        let couriers = self.inner.shards.iter().map(|shard| shard.courier.clone()).collect();
        let start_points = match &self.inner.changes {
            Some(ChangeLog::Shared(_, points)) => Some(Arc::clone(points)),
            _ => None,
        };
        let snapshotter = Snapshotter {
            files: Arc::clone(&files),
            options,
            shared: Arc::clone(&self.inner.shared),
            commands: self.inner.commands.clone(),
            couriers,
            figures: Arc::clone(&figures),
            disk_use: disk_use.clone(),
            requests: receiver,
            start_points,
            replayed_bytes,
            stopping: Arc::clone(&stopping),
            without_pauses: Arc::clone(&without_pauses),
        };
        snapshotter.list();
        snapshotter.measure_disk();
        let thread = spawn("tidewire-snapshotter", move || {
            let _abort_on_exit = AbortOnExit("snapshotter");
            snapshotter.run();
            drop(lock);
        });
        *self.inner.snapshotter.lock() =
            Some(super::SnapshotterHandle { requests, thread, figures, disk_use, files, stopping, without_pauses });
    }
}

/// Returns the limits of the posts that stay in memory beside an archive.
pub(super) fn tiering_limits(config: &EngineConfig) -> TieringLimits {
    TieringLimits { outbox_posts: config.outbox_posts.get(), posts_bytes: config.store_bytes_max / 8 * 7 }
}

/// Establishes the identity of a data directory. Refuses an archive of another directory, and gives an archive
/// without identity this one.
fn establish(files: &dyn Files, archive: Option<&dyn Archive>) -> Result<Identity, StorageError> {
    let Some(archive) = archive else { return directory_identity::establish(files, None) };
    let found = archive.identity()?;
    let of_archive = found.map(|found| (archive.place(), found));
    let identity = directory_identity::establish(files, of_archive)?;
    if found.is_none() {
        archive.set_identity(identity)?;
    }
    Ok(identity)
}

/// The panic message if the system cannot start a thread.
pub(super) const THREADS: &str = "the machine lets the engine start its threads";

fn log_recovery(report: &RecoveryReport, took: Duration) {
    if let Some(torn) = &report.torn {
        warn!(
            "truncated {} after byte {}: removed {} bytes that may not have been synced, with {} complete events",
            torn.place, torn.good_bytes, torn.torn_bytes, torn.whole_behind
        );
    }
    for lost in &report.lost {
        let until = lost.until.map_or("the end".to_owned(), |until| (until.0 - 1).to_string());
        error!("lost events {} to {until} in {}: {}", lost.from, lost.place, lost.reason);
    }
    let from = report.snapshot.map_or("no snapshot".to_owned(), |sequence| format!("the snapshot at event {sequence}"));
    info!("recovered from {from} and {} journaled events in {took:.1?}", report.events);
}

pub(super) fn start<J: Journal>(foundation: EngineParts<J>) -> (Engine, FanoutQueue) {
    let EngineParts { config, clock, world, machine, mut journal, last_instant, lock, changes, change_consumers } =
        foundation;
    let follows_shared_log = journal.shared().is_some();
    let archive = world.archive().cloned();
    let archive_readers = ArchiveReaders::start(&world).expect(THREADS);
    let shared = Arc::new(Shared::new(Core::new(config, world, Arc::clone(&clock), archive_readers, change_consumers)));
    let (system, system_thread) = start_system();
    // The actors are started on a separate thread, since starting sets that thread's actor system, and the caller may
    // have another one.
    let started = thread::scope(|scope| scope.spawn(|| start_actors(&system, &shared)).join());
    let (fanout, shards) = started.expect(THREADS);
    let (commands, receiver) = queue::queue(COMMAND_QUEUE_MAX, COMMAND_QUEUE_BYTES_MAX);
    let logical_clock = HybridLogicalClock::new(clock, Arc::clone(&shared.clock_report));
    let logical_clock = logical_clock.after(last_instant.unwrap_or(Timestamp::NONE));
    let archiver = archive
        .map(|archive| archiver::start_writer(Arc::clone(&shared.world), archive, commands.clone()).expect(THREADS));
    let (tasks, archive_thread) = archiver.unzip();
    let archive = tasks.map(|tasks| (tasks, Resolver::new(Arc::clone(&shared), commands.clone())));
    let processor =
        CommandProcessor::new(machine, journal, logical_clock, fanout.clone(), Arc::clone(&shared), receiver, archive);
    let processor_lock = lock.clone();
    let processor_thread = spawn("tidewire-writer", move || {
        processor.run();
        drop(processor_lock);
    });
    let threads = Threads { system, system_thread, processor_thread, archive_thread, _lock: lock };
    let threads = Mutex::new(Some(threads));
    let inner = Inner {
        shared,
        commands,
        shards,
        threads,
        snapshotter: Mutex::new(None),
        eraser: Mutex::new(None),
        archive_copier: Mutex::new(None),
        follows_shared_log,
        changes,
        collect_statistics: tokio::sync::Mutex::default(),
    };
    (Engine { inner: Arc::new(inner) }, fanout)
}

/// Starts the actor system on its own thread, so that the engine works under any async runtime, or without one.
fn start_system() -> (System, JoinHandle<()>) {
    let (sender, receiver) = std::sync::mpsc::channel();
    let thread = spawn("tidewire-system", move || {
        let runner = System::new();
        // This fails only if the starting thread has ended in the meantime.
        let _ = sender.send(System::current());
        if let Err(cause) = runner.run() {
            tracing::error!("the actor system ended: {cause}");
        }
    });
    (receiver.recv().expect("a new system sends its handle first"), thread)
}

fn start_actors(system: &System, shared: &Arc<Shared>) -> (FanoutQueue, Vec<ShardAddrs>) {
    System::set_current(system.clone());
    let shards = shared.config.shards.get();
    let (fanout, supervisor) = FanoutQueue::new(shared, |supervisor| {
        FanoutSupervisor::start_in_arbiter(&Arbiter::new().handle(), move |ctx| {
            ctx.set_mailbox_capacity(fanout::mailbox_max(shards));
            supervisor
        })
    });
    let started: Vec<ShardAddrs> = (0..shards).map(|shard| start_shard(shard, shared, &supervisor)).collect();
    let couriers = started.iter().map(|shard| shard.courier.clone()).collect();
    supervisor.try_send(RegisterCouriers(couriers)).expect("the mailbox of a new actor is empty");
    (fanout, started)
}

fn start_shard(shard: usize, shared: &Arc<Shared>, supervisor: &Addr<FanoutSupervisor>) -> ShardAddrs {
    let (sender, receiver) = std::sync::mpsc::channel();
    let (shared, supervisor) = (Arc::clone(shared), supervisor.clone());
    Arbiter::new().spawn_fn(move || {
        let inbox_store = Rc::new(RefCell::new(InboxStore::new(Arc::clone(&shared.inboxes[shard]))));
        let courier = Courier::create(|ctx| {
            ctx.set_mailbox_capacity(fanout::courier_mailbox_max());
            Courier::new(shard, Arc::clone(&shared), Rc::clone(&inbox_store), supervisor)
        });
        let activator = Activator::create(|ctx| {
            ctx.set_mailbox_capacity(WAKE_QUEUE_MAX);
            Activator::new(shard, Arc::clone(&shared), inbox_store)
        });
        let read_scheduler = Arc::new(ReadScheduler::new(shared, activator.clone()));
        actix::spawn(Arc::clone(&read_scheduler).grant_permits());
        let _ = sender.send(ShardAddrs { courier, activator, read_scheduler });
    });
    receiver.recv().expect("a new arbiter runs its first task")
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    thread::Builder::new().name(name.to_owned()).spawn(work).expect(THREADS)
}
