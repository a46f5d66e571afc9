//! Recovery of a node of a cluster: the newest snapshot, of this node or of another one, then the records of the log after it.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::cluster::journal::{JoinError, NodeOptions};
use crate::cluster::log_checkpoint::{LogCheckpoint, first_after};
use crate::cluster::membership::{Membership, ReadError, RecordOutcome};
use crate::cluster::record::{ClusterId, FirstState};
use crate::recovery::fetch::Fetching;
use crate::recovery::replay::ReadEvents;
use crate::recovery::{Loaded, Recovered, Recovery, RecoveryProgress, end_replay, progress, replayed};
use crate::state::world::{StateMachine, World};
use crate::storage::archive::RemoteArchive;
use crate::storage::directory_identity::Identified;
use crate::storage::error::StorageError;
use crate::storage::files::Files;
use crate::storage::files::memory::MemoryFiles;
use crate::storage::identity::Identity;
use crate::storage::log::{LogError, LogRange, LogRecord, SharedLog};
use crate::storage::sequence::Sequence;
use crate::storage::{directory_identity, snapshot};
use crossbeam_channel::Sender;

pub use crate::recovery::fetch::{NoPeers, NoSnapshot, SnapshotPeers};

/// Maximum time that one read waits for records.
const READ_WAIT: Duration = Duration::from_millis(200);

/// Time without any record after which a log that has more records counts as unavailable.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// Maximum number of records that a node without a snapshot reads from the beginning of the log before it looks for a
/// snapshot of another node: reading them takes less time than finding one.
const WHOLE_LOG_MAX: Sequence = Sequence(10_000);

/// Maximum number of snapshots that are fetched or loaded until the log can be followed from one.
const ATTEMPTS_MAX: usize = 5;

/// The inputs of the recovery of a node.
pub struct NodeRecovery<'a> {
    /// The log of the cluster.
    pub log: &'a dyn SharedLog,
    /// The options of the node.
    pub options: &'a NodeOptions,
    /// Files of the data directory, if the node has one.
    pub files: Option<Arc<dyn Files>>,
    /// Access to the snapshots of other nodes.
    pub peers: &'a dyn SnapshotPeers,
    /// Creates an empty world. It is called once per attempt, since a failed attempt leaves a partly filled world.
    pub make_world: &'a (dyn Fn() -> (Arc<World>, StateMachine) + Sync),
    /// Receives the progress of the recovery.
    pub progress: &'a RecoveryProgress,
}

/// The state of a node that has caught up with the log.
pub struct RecoveredNode {
    /// The recovered state.
    pub state: Recovered,
    /// The checkpoint up to which the log was followed.
    pub followed: LogCheckpoint,
    /// The states from which the log can be read: its first record, if the log still has it and begins with an empty
    /// state, and the loaded snapshot.
    pub from: Vec<LogCheckpoint>,
    /// Files of the data directory, with the identity of the cluster.
    pub files: Option<Arc<dyn Files>>,
}

/// The first record that was ever written to a log.
struct Founding {
    /// The cluster after it.
    followed: LogCheckpoint,
    /// The state with which the log begins, or None if it begins with an empty state.
    state: Option<FirstState>,
}

/// A state from which the log can be followed.
struct Start {
    state: Recovered,
    followed: LogCheckpoint,
    /// The last record of the log at that moment.
    last: Sequence,
}

impl NodeRecovery<'_> {
    /// Runs the recovery.
    ///
    /// # Errors
    /// Fails if the log or the directory cannot be used, or the log lacks records that are needed.
    pub fn run(mut self) -> Result<RecoveredNode, JoinError> {
        let founding = self.founding()?;
        // Any other record may belong to a cluster that used a log of this name before.
        let of_directory = self.files.as_deref().map(directory_identity::cluster_of).transpose()?.flatten();
        let founded = founding.as_ref().map(|founding| founding.followed.membership.cluster());
        let cluster = founded.or(of_directory.map(ClusterId));
        if let Some(cluster) = cluster {
            self.identify(cluster)?;
        }
        let Start { mut state, followed, last } = self.newest_state(founding.as_ref(), cluster)?;
        // A log that begins with a state does not have the events before it.
        let founded = founding.filter(|founding| founding.state.is_none()).map(|founding| founding.followed);
        let loaded = founded.as_ref().is_none_or(|founded| *founded != followed).then(|| followed.clone());
        let from = founded.into_iter().chain(loaded).collect();
        let followed = self.replay(&mut state, followed, last)?;
        Ok(RecoveredNode { state, followed, from, files: self.files })
    }

    /// Returns the first record that was ever written to the log, if the log still has it.
    fn founding(&self) -> Result<Option<Founding>, JoinError> {
        let LogRange { first, last } = self.log.range()?;
        if last == Sequence(0) {
            return Err(JoinError::Empty(self.log.place()));
        }
        if first > Sequence(1) {
            return Ok(None);
        }
        match first_after(self.log, Sequence(0)) {
            Ok(Some(record)) if record.sequence == Sequence(1) => {
                let followed = LogCheckpoint::founded(&record).map_err(|cause| self.bad(&record, cause))?;
                let state = LogCheckpoint::first_state(&record).map_err(|cause| self.bad(&record, cause))?;
                Ok(Some(Founding { followed, state }))
            }
            // The record was deleted meanwhile.
            Ok(_) | Err(LogError::Deleted { .. }) => Ok(None),
            Err(cause) => Err(cause.into()),
        }
    }

    /// Marks the directory as one of this cluster.
    fn identify(&mut self, cluster: ClusterId) -> Result<(), JoinError> {
        if let Some(files) = self.files.take() {
            let identity = directory_identity::establish_of_cluster(&*files, cluster.0)?;
            self.files = Some(Arc::new(Identified::new(files, identity)));
        }
        Ok(())
    }

    /// Returns the newest state, stored or fetched, from which the log can be followed.
    fn newest_state(
        &mut self,
        founding: Option<&Founding>,
        mut cluster: Option<ClusterId>,
    ) -> Result<Start, JoinError> {
        let mut no_newer = None;
        // Old records may be deleted while a snapshot is fetched or loaded, and a snapshot may be damaged.
        for _ in 0..ATTEMPTS_MAX {
            let range = self.log.range()?;
            let founding = founding.filter(|_| range.first == Sequence(1));
            let newest = self.newest_snapshot()?;
            let from_nothing = founding.is_some_and(|founding| founding.state.is_none());
            let can_follow = newest.map_or(from_nothing, |newest| newest.next() >= range.first);
            let is_long = newest.is_none() && range.last > WHOLE_LOG_MAX && no_newer.is_none();
            if can_follow && !(is_long && self.files.is_some()) {
                if let Some(start) = self.load(founding)? {
                    return Ok(start);
                }
                continue;
            }
            match self.fetch(cluster) {
                Ok(fetched) => {
                    self.identify(fetched)?;
                    cluster = Some(fetched);
                }
                Err(cause) if can_follow => no_newer = Some(cause),
                Err(cause) => return Err(self.no_start(founding, range.first, newest, cause)),
            }
        }
        let cause = format!("{ATTEMPTS_MAX} snapshots were damaged, or became too old before they were loaded");
        let founding = founding.filter(|_| self.log.range().is_ok_and(|range| range.first == Sequence(1)));
        Err(self.no_start(founding, self.log.range()?.first, self.newest_snapshot()?, cause))
    }

    /// Returns the sequence of the newest snapshot in the directory.
    fn newest_snapshot(&self) -> Result<Option<Sequence>, JoinError> {
        let snapshots = self.files.as_deref().map(snapshot::snapshots).transpose()?.unwrap_or_default();
        Ok(snapshots.first().map(|(_, sequence)| *sequence))
    }

    /// Loads the newest undamaged snapshot, or the first record of the log. Returns None if the log cannot be followed
    /// from there.
    fn load(&self, founding: Option<&Founding>) -> Result<Option<Start>, JoinError> {
        self.progress.enter(progress::LOADING);
        let empty = MemoryFiles::default();
        let files = self.files.as_deref().unwrap_or(&empty);
        let recovery = Recovery { files, make_world: self.make_world, repair: false, progress: self.progress };
        let mut skipped = Vec::new();
        let Loaded { mut state, sequence, through, place, .. } = recovery.newest_snapshot(&mut skipped)?;
        recovery.set_aside(&mut state.report, skipped);
        let LogRange { first, last } = self.log.range()?;
        let through = through.max(sequence);
        if last < through {
            return Err(JoinError::Shorter { log: self.log.place(), last, snapshot: place, through });
        }
        let first_state = founding.and_then(|founding| founding.state.as_ref());
        if let Some(first_state) = first_state.filter(|_| sequence == Sequence(1)) {
            self.check_first(&state.world, first_state, &place)?;
        }
        let of_nothing = founding.filter(|founding| founding.state.is_none() && sequence == Sequence(0));
        let followed = state.followed.take().or_else(|| of_nothing.map(|founding| founding.followed.clone()));
        let Some(followed) = followed.filter(|followed| followed.sequence.next() >= first) else { return Ok(None) };
        match followed.check_in(self.log) {
            // Its last record was deleted meanwhile.
            Err(LogError::Deleted { .. }) => return Ok(None),
            checked => checked?,
        }
        Ok(Some(Start { state, followed, last }))
    }

    /// Checks that the snapshot at the first record is the state with which the log begins.
    fn check_first(&self, world: &World, expected: &FirstState, snapshot: &str) -> Result<(), JoinError> {
        let (found, expected) = (world.digest().to_string(), expected.digest.clone());
        match found == expected {
            true => Ok(()),
            false => Err(JoinError::OtherFirstState {
                snapshot: snapshot.to_owned(),
                found,
                log: self.log.place(),
                expected,
            }),
        }
    }

    /// Stores the newest snapshot of another node, or of the backup store, and returns its cluster.
    fn fetch(&self, cluster: Option<ClusterId>) -> Result<ClusterId, String> {
        let no_directory = || "without a data directory (--data-dir) it cannot store the snapshot of another node";
        let files = self.files.as_deref().ok_or_else(no_directory)?;
        let Self { log, options, peers, progress, .. } = self;
        Fetching { log: *log, options, peers: *peers, files, cluster, progress }.run()
    }

    fn replay(&self, state: &mut Recovered, from: LogCheckpoint, last: Sequence) -> Result<LogCheckpoint, JoinError> {
        self.progress.enter(progress::READING_LOG);
        if let Some(archive) = state.world.replicated_archive() {
            admit_archive(archive, &from.membership, self.log)?;
            archive.begin(from.sequence).map_err(StorageError::from)?;
        }
        state.machine.update_celebrities();
        state.machine.set_replaying(true);
        let (followed, bytes, events) = replayed(state, self.progress, |events| self.read(from, last, &events))?;
        end_replay(state);
        (state.report.events, state.report.journal_bytes) = (events, bytes);
        Ok(followed)
    }

    /// Reads the log up to `last`, and sends the events that take effect. Returns also the bytes and the number of
    /// events.
    fn read(
        &self,
        mut followed: LogCheckpoint,
        last: Sequence,
        events: &Sender<ReadEvents>,
    ) -> Result<(LogCheckpoint, u64, u64), JoinError> {
        let mut reader = self.log.reader(followed.sequence)?;
        let (mut heard, mut bytes, mut count) = (Instant::now(), 0, 0);
        while followed.sequence < last {
            let records = match reader.read(READ_WAIT) {
                Ok(records) if !records.is_empty() => records,
                Ok(_) | Err(LogError::Unavailable(_)) if heard.elapsed() < SILENCE_MAX => {
                    thread::park_timeout(READ_WAIT / 10);
                    continue;
                }
                Ok(_) => {
                    let (place, next) = (self.log.place(), followed.sequence.next());
                    return Err(LogError::Unavailable(format!("{place} has not returned record {next}")).into());
                }
                Err(cause) => return Err(cause.into()),
            };
            heard = Instant::now();
            let mut batch = Vec::with_capacity(records.len());
            for record in &records {
                let (_, counted) = followed.read(record).map_err(|cause| self.bad(record, cause))?;
                bytes += record.bytes.len() as u64;
                if let RecordOutcome::Event(event) = counted {
                    batch.push(event);
                }
            }
            count += batch.len() as u64;
            // This fails only if the replay has ended.
            let _ = events.send(ReadEvents { events: batch, through: followed.sequence });
        }
        Ok((followed, bytes, count))
    }

    fn bad(&self, record: &LogRecord, cause: ReadError) -> JoinError {
        JoinError::Record { place: self.log.place(), sequence: record.sequence, cause }
    }

    fn no_start(
        &self,
        founding: Option<&Founding>,
        first: Sequence,
        newest: Option<Sequence>,
        no_newer: String,
    ) -> JoinError {
        let directory = self.files.as_ref().map_or_else(String::new, |files| format!(" in {}", files.place("")));
        let has = match newest {
            Some(newest) => format!("the newest snapshot{directory} ends at record {newest}"),
            None => format!("this node has no snapshot{directory}"),
        };
        let log = self.log.place();
        match founding.and_then(|founding| founding.state.as_ref()) {
            Some(state) => JoinError::NoFirstState { log, state: state.clone(), has, no_newer },
            None => JoinError::Deleted { log, first, has, no_newer },
        }
    }
}

/// Checks that an archive belongs to the cluster and to this log. Makes an archive without an owner the archive of the
/// cluster.
///
/// # Errors
/// Fails if the cluster was bootstrapped without an archive; if this archive belongs to another cluster; or if it has
/// writes of records that the log does not have.
fn admit_archive(archive: &dyn RemoteArchive, membership: &Membership, log: &dyn SharedLog) -> Result<(), JoinError> {
    let (place, cluster) = (archive.place(), membership.cluster());
    if !membership.has_archive() {
        return Err(JoinError::NewArchive { place, cluster });
    }
    claim(archive, cluster)?;
    // The archive is read before the log: other nodes write meanwhile, but never records that the log does not have.
    let written = archive.written().map_err(StorageError::from)?.max(archive.through().map_err(StorageError::from)?);
    let last = log.range()?.last;
    match written > last {
        true => Err(JoinError::BehindArchive { log: log.place(), last, archive: place, written }),
        false => Ok(()),
    }
}

/// Two clusters may claim the archive at the same time; the first one gets it.
fn claim(archive: &dyn RemoteArchive, cluster: ClusterId) -> Result<(), JoinError> {
    let ours = Identity::of_cluster(cluster.0);
    if archive.identity().map_err(StorageError::from)?.is_none() {
        archive.set_identity(ours).map_err(StorageError::from)?;
    }
    match archive.identity().map_err(StorageError::from)? {
        Some(found) if found == ours => Ok(()),
        found => {
            let found = found.map_or("nobody".to_owned(), |found| found.to_string());
            Err(JoinError::OtherArchive { place: archive.place(), found, cluster })
        }
    }
}
