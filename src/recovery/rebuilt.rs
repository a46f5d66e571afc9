//! States without their logs: of a cluster at one record, from a backup or from the snapshot of a node; and those with which the log of a
//! new cluster begins.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Timestamp, UnixMicros};
use crate::cluster::journal::{JoinError, NodeOptions, first_record};
use crate::cluster::log_checkpoint::LogCheckpoint;
use crate::cluster::record::{ClusterId, Content, FirstState};
use crate::recovery::node::{NoPeers, NodeRecovery, RecoveredNode};
use crate::recovery::{Loaded, Recovered, Recovery, RecoveryProgress, end_replay, write_world};
use crate::state::records::RecordTraversal;
use crate::state::world::{StateMachine, World};
use crate::storage::directory_identity;
use crate::storage::directory_identity::Identified;
use crate::storage::error::StorageError;
use crate::storage::files::Files;
use crate::storage::identity::Identity;
use crate::storage::log::LogRecord;
use crate::storage::log::copied::CopiedLog;
use crate::storage::sequence::Sequence;
use crate::storage::snapshot::{Section, SnapshotHeader, SnapshotReader, SnapshotWriter};

/// The state of a cluster after a record of its log.
pub struct Rebuilt {
    /// The recovered state.
    pub state: Recovered,
    /// The checkpoint of the log at that record.
    pub followed: LogCheckpoint,
}

/// The reason why a snapshot is not the state of a cluster at one record.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotRebuilt {
    /// The directory has no snapshot of a node.
    #[error("{0} has no snapshot of a node of a cluster")]
    NoSnapshot(String),
    /// The snapshot relies on the archive of its cluster. The text names the place.
    #[error(
        "{0} lacks old posts, which are in the archive of its cluster: copy that one into its directory first (tidewire archive copy)"
    )]
    LacksOldPosts(String),
    /// The archive beside the snapshot lacks effects of its records.
    #[error(
        "the archive {archive} ends at record {has}, and the snapshot {place} at {needs}: repeat `tidewire archive copy`, or restore the \
         state after record {has} at most (tidewire restore --to-sequence)"
    )]
    OlderArchive {
        /// Path of the snapshot.
        place: String,
        /// Place of the archive.
        archive: String,
        /// The last record whose effects the archive has.
        has: Sequence,
        /// The record of the snapshot.
        needs: Sequence,
    },
    /// The newest snapshot is damaged. The text names the place.
    #[error("{0}; use another copy, or remove the snapshot to use the previous one")]
    Damaged(String),
    /// The snapshot was taken while records were applied.
    #[error(
        "{place} has some effects of the records {from} to {through}, which are only in the log: use a directory that `tidewire restore` \
         created, or a snapshot that a node took after the log was lost"
    )]
    NeedsRecords {
        /// Path of the snapshot.
        place: String,
        /// The first record that is needed.
        from: Sequence,
        /// The last one.
        through: Sequence,
    },
    /// The directory cannot be read.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// Reads the checkpoint of the log from a snapshot of a node.
///
/// # Errors
/// Fails if the snapshot cannot be read, or is not of a node.
pub fn followed_in(files: &dyn Files, snapshot: &str) -> Result<LogCheckpoint, StorageError> {
    let mut reader = SnapshotReader::open(files, snapshot)?;
    let block = reader.next_block()?.filter(|block| block.section == Section::Cluster);
    let records = block.map_or_else(|| Ok(Vec::new()), |block| block.decode()).map_err(|reason| reader.bad(reason))?;
    records.into_iter().next().ok_or_else(|| reader.bad("it is not a snapshot of a node of a cluster".to_owned()))
}

/// Creates an empty world.
pub type MakeWorld<'a> = &'a (dyn Fn() -> (Arc<World>, StateMachine) + Sync);

impl Rebuilt {
    /// Rebuilds the state from the newest snapshot of a directory and the copied records beside it.
    ///
    /// # Errors
    /// Fails if the snapshot or a record is damaged, or the records do not follow the snapshot.
    pub fn from_copies(files: Arc<dyn Files>, make_world: MakeWorld<'_>) -> Result<Self, JoinError> {
        let log = CopiedLog::open(Arc::clone(&files))?;
        let name = "restore".parse().expect("a valid name");
        let options = &NodeOptions { name, address: String::new(), session: Duration::ZERO };
        let (files, peers, progress) = (Some(files), &NoPeers, &RecoveryProgress::default());
        let recovery = NodeRecovery { log: &log, options, files, peers, make_world, progress };
        let RecoveredNode { state, followed, .. } = recovery.run()?;
        Ok(Self { state, followed })
    }

    /// Loads the newest snapshot in the directory of a node. The snapshot must need no records of the log. The archive of the created world
    /// may have effects of later records: these posts, edits and deletions are then in the state. Such a state can be read by the ids of
    /// posts alone.
    ///
    /// # Errors
    /// Fails if the snapshot is damaged, or contains effects of records after its own, or if the archive lacks effects of records before it.
    pub fn from_snapshot(files: &dyn Files, make_world: MakeWorld<'_>) -> Result<Self, NotRebuilt> {
        let recovery = Recovery { files, make_world, repair: false, progress: &RecoveryProgress::default() };
        let mut skipped = Vec::new();
        let mut loaded = recovery.newest_snapshot(&mut skipped).map_err(|cause| match cause {
            StorageError::NoArchive { place } => NotRebuilt::LacksOldPosts(place),
            StorageError::BehindArchive { place, archive, has, needs } => {
                NotRebuilt::OlderArchive { place, archive, has, needs }
            }
            cause => NotRebuilt::Storage(cause),
        })?;
        if let Some(skipped) = skipped.pop() {
            return Err(NotRebuilt::Damaged(skipped.cause));
        }
        loaded.note_archived_counts().map_err(StorageError::from)?;
        let Loaded { mut state, sequence, through, place, .. } = loaded;
        let followed = state.followed.take().ok_or_else(|| NotRebuilt::NoSnapshot(files.place("")))?;
        if through > sequence {
            return Err(NotRebuilt::NeedsRecords { place, from: sequence.next(), through });
        }
        if let Some(archive) = state.world.archive().cloned() {
            // A snapshot whose posts are all in memory was not compared with it yet.
            let (has, needs) = (archive.through().map_err(StorageError::from)?, sequence);
            if has < needs {
                return Err(NotRebuilt::OlderArchive { place, archive: archive.place(), has, needs });
            }
            let latest = state.machine.take_newer_posts(&*archive).map_err(StorageError::from)?;
            if let Some(latest) = latest.filter(|latest| *latest > state.last_instant.instant) {
                state.last_instant.instant = latest;
                // It is not known which of the later posts arrived late, or were shown again.
                state.world.delivery.forget_before(latest);
            }
        }
        end_replay(&mut state);
        Ok(Self { state, followed })
    }

    /// Writes the state as a snapshot of a node that has followed the log up to its last record. Returns the size in
    /// bytes.
    ///
    /// # Errors
    /// Fails if the snapshot cannot be written.
    pub fn write(&self, files: Arc<dyn Files>, taken_at: UnixMicros) -> Result<u64, StorageError> {
        write_snapshot(&self.state.world, self.state.last_instant, files, &self.followed, taken_at)
    }
}

/// A state with which the log of a new cluster can begin. It must not rely on an archive.
pub struct InitialState {
    /// The state, with all posts in memory.
    pub world: Arc<World>,
    /// The last logical instant that was issued.
    pub last_instant: Timestamp,
    /// The cluster that the state is from, or none if it is from a server on one machine.
    pub cluster: Option<ClusterId>,
    /// The last record of that cluster's log, or the last event of that server, that is in the state.
    pub sequence: Sequence,
}

impl From<Rebuilt> for InitialState {
    fn from(Rebuilt { state, followed }: Rebuilt) -> Self {
        let Recovered { world, last_instant, .. } = state;
        Self { world, last_instant, cluster: Some(followed.membership.cluster()), sequence: followed.sequence }
    }
}

impl InitialState {
    /// Makes an empty directory the directory of a node of a new cluster whose log begins with this state. With
    /// `archive`, the nodes share an archive. Returns the first record of that log, which is not written yet.
    ///
    /// # Errors
    /// Fails if the snapshot cannot be written.
    pub fn found(
        &self,
        files: Arc<dyn Files>,
        cluster: ClusterId,
        partitions: u32,
        archive: bool,
        now: UnixMicros,
    ) -> Result<LogRecord, StorageError> {
        let state = self.first_state();
        let record = first_record(cluster, &Content::FoundedFrom { partitions, state, archive });
        let followed = LogCheckpoint::founded(&record).expect("it is a first record");
        directory_identity::establish_of_cluster(&*files, cluster.0)?;
        write_snapshot(&self.world, self.last_instant, files, &followed, now)?;
        Ok(record)
    }

    /// Returns the description of the state in the first record of the log.
    pub fn first_state(&self) -> FirstState {
        FirstState { cluster: self.cluster, sequence: self.sequence, digest: self.world.digest().to_string() }
    }
}

/// Writes a state as a snapshot of a node that has followed a log up to the record that `followed` names. Returns the
/// size in bytes.
fn write_snapshot(
    world: &World,
    last_instant: Timestamp,
    files: Arc<dyn Files>,
    followed: &LogCheckpoint,
    taken_at: UnixMicros,
) -> Result<u64, StorageError> {
    let files = Identified::new(files, Identity::of_cluster(followed.membership.cluster().0));
    let (header, archive) =
        (SnapshotHeader { sequence: followed.sequence, taken_at }, world.archive().map(|archive| &**archive));
    let mut writer = SnapshotWriter::begin_beside(&files, header, true, archive)?;
    writer.record(Section::Cluster, followed)?;
    write_world(RecordTraversal { world, sources: world.sources.len() }, &mut writer)?;
    writer.set_delivery(world.delivery.tokens_from(), world.delivery.revealed.all());
    // An archive in which there is nothing yet counts as missing, so the snapshot must not rely on it.
    writer.finish(followed.sequence, last_instant, world.has_archived_posts())
}
