//! An engine that is a node of a cluster.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tracing::info;

use crate::clock::Clock;
use crate::cluster::journal::{ClusterJournal, JoinError, NodeOptions};
use crate::cluster::placement::{Place, Placement};
use crate::cluster::start_points::StartPoints;
use crate::cluster::state::ClusterState;
use crate::config::EngineConfig;
use crate::engine::changes::ChangeLog;
use crate::engine::start::{EngineParts, start, tiering_limits};
use crate::engine::{Engine, Inner};
use crate::feed::followers::Sharding;
use crate::id::SourceSlot;
use crate::recovery::node::{NoPeers, NodeRecovery, RecoveredNode, SnapshotPeers};
use crate::recovery::{RecoveryProgress, RecoveryReport};
use crate::runtime::background::snapshotter::SnapshotOptions;
use crate::runtime::message::Command;
use crate::state::digest::Digest;
use crate::state::world::World;
use crate::storage::archive::{RemoteArchive, ReplicatedArchive};
use crate::storage::error::StorageError;
use crate::storage::files::Files;
use crate::storage::lock::DirectoryLock;
use crate::storage::log::SharedLog;
use crate::storage::log::patient::PatientLog;
use crate::storage::sequence::Sequence;

/// Number of times that a digest is computed again because events were applied meanwhile.
const DIGEST_TRIES: usize = 3;

/// Maximum time that a starting node waits for a log that does not answer.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// The place of a node's snapshots.
pub struct NodeStorage {
    /// The files of the data directory.
    pub files: Arc<dyn Files>,
    /// The lock of this directory.
    pub lock: Option<Arc<DirectoryLock>>,
    /// The options for taking snapshots. Snapshots of a node never contain inboxes, since it may own other readers at
    /// the next start.
    pub snapshots: SnapshotOptions,
}

/// The parts from which a node is started.
pub struct Joining<'a> {
    /// The settings of the engine.
    pub config: EngineConfig,
    /// The log of the cluster.
    pub log: &'a dyn SharedLog,
    /// The options of the node.
    pub options: NodeOptions,
    /// The cluster state that other threads see. It shows the cluster once the node has caught up.
    pub view: Arc<ClusterState>,
    /// The place of its snapshots. Without it, the node reads the whole log at each start.
    pub storage: Option<NodeStorage>,
    /// The archive that all nodes share, if the cluster was bootstrapped with one. Otherwise all posts stay in memory.
    pub archive: Option<Arc<dyn RemoteArchive>>,
    /// Access to the snapshots of other nodes.
    pub peers: &'a dyn SnapshotPeers,
    /// The clock of the engine.
    pub clock: Arc<dyn Clock>,
    /// Receives the progress of the recovery.
    pub progress: &'a RecoveryProgress,
}

impl Engine {
    /// Returns the digest of the state and the last event in it, or None if events were applied during all attempts.
    /// Nodes of a cluster with the same last event have the same digest. Visits the whole state, so it blocks the
    /// calling thread.
    pub fn digest(&self, placement: &dyn Placement) -> Option<(Sequence, Digest)> {
        (0..DIGEST_TRIES).find_map(|_| {
            let before = placement.settled()?;
            let world = &self.inner.shared.world;
            let digest = if world.archive().is_some() { world.digest_without_posts() } else { world.digest() };
            (placement.settled() == Some(before)).then_some((before, digest))
        })
    }

    /// Starts an engine that joins the cluster of `log`, with all state in memory. Blocks until it has applied the
    /// records that were in the log; it is ready once it has applied the rest (`ClusterState::is_ready`).
    ///
    /// # Errors
    /// Fails if the log cannot be used, is not the log of a cluster, or has lost its beginning.
    pub fn join(
        config: EngineConfig,
        log: &dyn SharedLog,
        options: NodeOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<(Self, Arc<ClusterState>), JoinError> {
        let view = Arc::new(ClusterState::new(options.name.clone(), Arc::clone(&clock), options.session));
        let progress = &RecoveryProgress::default();
        let joined = Arc::clone(&view);
        let (storage, archive, peers) = (None, None, &NoPeers);
        let joining = Joining { config, log, options, view, storage, archive, peers, clock, progress };
        joining.run().map(|(engine, _)| (engine, joined))
    }

    /// Ends the live connections of readers that other nodes own, or all of them if this node does not know the owners.
    /// The clients reconnect and read again, so they miss nothing.
    pub fn end_live_elsewhere(&self, view: &ClusterState) {
        let shared = self.shared();
        let (membership, is_leased) = (view.membership(), view.is_leased());
        let is_here = |reader: SourceSlot| {
            is_leased
                && membership.owner_of(&shared.world.sources.at(reader).id).is_some_and(|owner| view.is_me(&owner.run))
        };
        shared.watchers.close_where(|reader| !is_here(reader));
    }

    /// Leaves the cluster: this engine judges no more commands, and other nodes take over. It continues to follow the
    /// log. Blocks while the queue of commands is full.
    pub fn leave(&self) {
        // This fails only if the command processor has ended, which writes the same record.
        let _ = self.inner.commands.send(Command::Leave);
    }
}

impl Joining<'_> {
    /// Starts the engine from the newest snapshot of its directory or of another node, or from an empty state, and
    /// applies the records of the log after that. Blocks until it has applied the records that were in the log; it is
    /// ready once it has applied the rest (`ClusterState::is_ready`). Commands are refused while another node is the
    /// sequencer.
    ///
    /// # Errors
    /// Fails if the log cannot be used or is not the log of a cluster; if the directory belongs to another cluster or
    /// to a server on one machine; if the archive belongs to another cluster; or if the log no longer has the records
    /// after the newest snapshot.
    pub fn run(self) -> Result<(Engine, RecoveryReport), JoinError> {
        let Self { config, log, options, view, storage, archive, peers, clock, progress } = self;
        let began = Instant::now();
        let log = &PatientLog::new(log, ANSWER_MAX);
        let archive = archive.map(ReplicatedArchive::new).transpose().map_err(StorageError::from)?;
        let archive = archive.map(Arc::new);
        let make_world = || {
            let (policy, sharding) = (config.celebrity, Sharding::new(config.shards.get()));
            match archive.clone() {
                Some(archive) => World::create_replicated(policy, sharding, archive, tiering_limits(&config)),
                None => World::create(policy, sharding),
            }
        };
        let (files, lock, snapshots) = match storage {
            Some(NodeStorage { files, lock, snapshots }) => (Some(files), lock, Some(snapshots)),
            None => (None, None, None),
        };
        let recovery = NodeRecovery { log, options: &options, files, peers, make_world: &make_world, progress };
        let RecoveredNode { state, followed, from, files } = recovery.run()?;
        if archive.is_none() && followed.membership.has_archive() {
            return Err(JoinError::NoArchive { cluster: followed.membership.cluster() });
        }
        let is_writer = {
            let view = Arc::clone(&view);
            Box::new(move || view.is_ready() && view.sequencer() == Place::Here)
        };
        let changes = Some(ChangeLog::Shared(log.to_read(), Arc::new(StartPoints::new(from))));
        let journal = ClusterJournal::open(log, followed, options, view, Arc::clone(&clock))?;
        let figures = journal.figures();
        let (world, writer, last) = (state.world, state.machine, state.last_instant);
        world.delivery.recovered(last.instant);
        let (config, last_instant) = (Arc::new(config), Some(last));
        let (engine, _) = start(EngineParts {
            last_instant,
            lock: lock.clone(),
            changes,
            ..EngineParts::new(config, clock, world, writer, journal)
        });
        engine.start_archive_copier(is_writer);
        let report = state.report;
        if let (Some(files), Some(snapshots)) = (files, snapshots) {
            let snapshots = SnapshotOptions { inboxes: false, ..snapshots };
            engine.start_snapshotter(files, snapshots, figures, report.journal_bytes, lock);
        }
        engine.start_eraser(engine.snapshot_requests(), true);
        let from =
            report.snapshot.map_or("no snapshot".to_owned(), |sequence| format!("the snapshot at record {sequence}"));
        info!("caught up with the log from {from} and {} events after it in {:.1?}", report.events, began.elapsed());
        progress.finish();
        Ok((engine, report))
    }
}

impl Inner {
    /// Stops the archive copier, and returns its thread.
    pub(super) fn stop_copier(&self) -> Option<JoinHandle<()>> {
        let (stopping, thread) = self.archive_copier.lock().take()?;
        stopping.store(true, Ordering::Relaxed);
        thread.thread().unpark();
        Some(thread)
    }
}
