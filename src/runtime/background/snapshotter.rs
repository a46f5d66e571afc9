//! The snapshotter: takes snapshots in the background, and removes the files that they make superfluous.
//!
//! Responsible for:
//! - taking a snapshot on request, and when one is due (`due`);
//! - traversing the state while it changes, and collecting the inboxes of active readers from the shards;
//! - storing two snapshots, the journal back to the older one, and older segments as long as consumers of changes may need them (`prune`);
//! - measuring the data directory and the free space of its disk.

mod due;
mod prune;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use actix::Addr;
use actix::dev::SendError;
use crossbeam_channel::{Receiver, RecvTimeoutError};
use serde::Serialize;
use tokio::sync::oneshot::{self, error::TryRecvError};
use tracing::{info, warn};

use crate::cluster::start_points::StartPoints;
use crate::error::Error;
use crate::limits::SNAPSHOTS_KEPT;
use crate::recovery::rebuilt::followed_in;
use crate::recovery::{Records, write_world};
use crate::runtime::background::archiver::archive_failed;
use crate::runtime::background::snapshotter::due::Since;
use crate::runtime::fanout::courier::Courier;
use crate::runtime::message::{Command, CompletedSnapshot, CopyInboxes, Mark, Reply, SnapshotTaken};
use crate::runtime::processor::queue::CommandSender;
use crate::runtime::shared::Shared;
use crate::state::records::{InboxRecord, RecordTraversal, UnderWayRecord, pack_positions};
use crate::storage::disk_use::DiskUse;
use crate::storage::error::StorageError;
use crate::storage::files::Files;
use crate::storage::journal::writer::JournalFigures;
use crate::storage::sequence::Sequence;
use crate::storage::snapshot::{self, Section, SnapshotHeader, SnapshotReader, SnapshotWriter};

/// Length of the pause, as a multiple of the work before it. Writers can spare a quarter of one of two cores, and
/// nothing waits for the end of a snapshot.
const SNAPSHOT_RESTS: u32 = 3;

/// Time that the snapshotter works without interruption before it pauses.
const SNAPSHOT_STRETCH: Duration = Duration::from_micros(500);

/// Options for when and how snapshots are taken.
#[derive(Clone, Copy, Debug)]
pub struct SnapshotOptions {
    /// Time after which a new snapshot is taken, if anything was written. Default 15 minutes. After a large snapshot
    /// the journal must also have grown by a quarter of its size, or 16 intervals must have passed.
    pub interval: Duration,
    /// Bytes of journal after which a new snapshot is taken, or a quarter of the last snapshot if that is more.
    /// Default 256 MiB.
    pub journal_bytes: u64,
    /// Includes the inboxes of active readers, so that these are warm after a restart. Default: yes.
    pub inboxes: bool,
    /// Compresses snapshots with zstd. Default: no.
    pub compress: bool,
}

impl Default for SnapshotOptions {
    fn default() -> Self {
        Self { interval: Duration::from_secs(15 * 60), journal_bytes: 256 << 20, inboxes: true, compress: false }
    }
}

/// The background worker that takes snapshots.
pub struct Snapshotter {
    pub(crate) files: Arc<dyn Files>,
    pub(crate) options: SnapshotOptions,
    pub(crate) shared: Arc<Shared>,
    pub(crate) commands: CommandSender,
    pub(crate) couriers: Vec<Addr<Courier>>,
    pub(crate) figures: Arc<JournalFigures>,
    /// The disk usage. This thread measures it, since it may wait for the disk.
    pub(crate) disk_use: DiskUse,
    pub(crate) requests: Receiver<Reply<CompletedSnapshot>>,
    /// The places at which a shared log can be read, to which each snapshot adds one.
    pub(crate) start_points: Option<Arc<StartPoints>>,
    /// Bytes of journal that the start had to replay after the newest snapshot.
    pub(crate) replayed_bytes: u64,
    /// Set when the engine is about to end: a snapshot in progress is then aborted.
    pub(crate) stopping: Arc<AtomicBool>,
    /// Set once the engine serves no more requests: a snapshot is then written without pauses.
    pub(crate) without_pauses: Arc<AtomicBool>,
}

/// The period between checks whether a snapshot is due, and between measurements of the disk.
const DUE_CHECK_PERIOD: Duration = Duration::from_secs(1);

/// The period between checks whether the command processor has answered.
const MARK_POLL_PERIOD: Duration = Duration::from_millis(2);

/// Writes a snapshot with pauses, so that requests do not wait for it on machines with few cores.
struct Paced<'a, 'b> {
    writer: &'a mut SnapshotWriter<'b>,
    since: Instant,
    snapshotter: &'a Snapshotter,
    measured: Instant,
}

impl Records for Paced<'_, '_> {
    fn record<T: Serialize>(&mut self, section: Section, record: &T) -> Result<(), StorageError> {
        self.writer.record(section, record)?;
        let worked = self.since.elapsed();
        if self.snapshotter.stopping.load(Ordering::Relaxed) {
            return Err(StorageError::Stopping);
        }
        if worked >= SNAPSHOT_STRETCH && !self.snapshotter.without_pauses.load(Ordering::Relaxed) {
            std::thread::park_timeout(worked * SNAPSHOT_RESTS);
            self.since = Instant::now();
            // A snapshot may take minutes and fill the disk.
            if self.since.duration_since(self.measured) >= DUE_CHECK_PERIOD {
                self.snapshotter.measure_disk();
                self.measured = self.since;
            }
        }
        Ok(())
    }
}

/// Converts a storage error of a snapshot, or of an erasure that handles the same files, into an error for callers.
pub(crate) fn snapshot_failed(cause: &StorageError) -> Error {
    match cause {
        StorageError::Stopping => Error::ShuttingDown,
        cause if cause.is_full() => Error::DiskFull(cause.to_string()),
        cause => Error::SnapshotFailed(cause.to_string()),
    }
}

/// The state at the beginning of the last snapshot.
struct Last {
    /// The monotonic time of that snapshot, or of the engine's start if an earlier process took it.
    at: Duration,
    /// The age of the snapshot at that time.
    age: Duration,
    journal_bytes: u64,
    /// The size of that snapshot in bytes.
    snapshot_bytes: u64,
}

impl Snapshotter {
    /// Takes snapshots until the sender of requests is dropped.
    pub fn run(self) {
        let mut last = self.before();
        loop {
            self.measure_disk();
            // One snapshot answers all waiting requests, since it begins after each of them was sent.
            let asked: Vec<_> = match self.requests.recv_timeout(DUE_CHECK_PERIOD) {
                Ok(reply) => std::iter::once(reply).chain(self.requests.try_iter()).collect(),
                Err(RecvTimeoutError::Timeout) if self.is_due(&last) => Vec::new(),
                Err(RecvTimeoutError::Timeout) => {
                    self.release_retained();
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let began = Instant::now();
            last = self.last(Duration::ZERO, self.journal_bytes(), 0);
            let taken = self.take();
            last.snapshot_bytes = taken.as_ref().map_or(0, |done| done.taken.bytes);
            match &taken {
                Ok(CompletedSnapshot { taken, .. }) => {
                    info!("took snapshot {}: {} bytes in {:.1?}", taken.file, taken.bytes, began.elapsed());
                }
                Err(cause) => warn!("{cause}"),
            }
            for reply in asked {
                let _ = reply.send(taken.clone());
            }
        }
    }

    /// Lists the snapshots from earlier processes, and removes unfinished files that an earlier process left.
    pub(crate) fn list(&self) {
        snapshot::remove_unfinished(&*self.files);
        let there = snapshot::snapshots(&*self.files).unwrap_or_default();
        there.iter().for_each(|(file, _)| self.note_start_point(file));
        let describe = |(file, sequence): (String, Sequence)| {
            let reader = SnapshotReader::open(&*self.files, &file).ok()?;
            Some(SnapshotTaken { file, sequence, bytes: reader.file_bytes(), taken_at: reader.header().taken_at })
        };
        *self.shared.snapshots.lock() = there.into_iter().filter_map(describe).collect();
    }

    /// Removes retained segments whose time is over, that consumers have processed, or that a full disk needs.
    fn release_retained(&self) {
        if self.disk_use.stored_bytes().changes > 0
            && let Err(cause) = self.drop_retained()
        {
            warn!("could not remove segments that consumers of changes no longer need: {cause}");
        }
    }

    /// Adds this snapshot to the points from which a shared log can be read.
    fn note_start_point(&self, file: &str) {
        let Some(points) = &self.start_points else { return };
        match followed_in(&*self.files, file) {
            Ok(followed) => points.add(followed),
            Err(cause) => warn!("streams of changes cannot start at this snapshot: {cause}"),
        }
    }

    /// Returns the state at the newest snapshot, which an earlier process may have taken. So a process that often
    /// restarts takes snapshots at the usual rate.
    fn before(&self) -> Last {
        let newest = self.shared.snapshots.lock().first().map(|newest| (newest.taken_at, newest.bytes));
        let age = newest.map_or(0, |(taken_at, _)| self.shared.clock.now().0.saturating_sub(taken_at.0));
        let age = Duration::from_micros(u64::try_from(age).unwrap_or(0));
        self.last(age, 0, newest.map_or(0, |(_, bytes)| bytes))
    }

    fn last(&self, age: Duration, journal_bytes: u64, snapshot_bytes: u64) -> Last {
        Last { at: self.shared.clock.monotonic(), age, journal_bytes, snapshot_bytes }
    }

    pub(crate) fn measure_disk(&self) {
        self.disk_use.measure(&*self.files);
    }

    /// Returns the bytes of journal since the snapshot from which the start recovered.
    fn journal_bytes(&self) -> u64 {
        self.replayed_bytes + self.figures.written_bytes.load(Ordering::Relaxed)
    }

    fn is_due(&self, last: &Last) -> bool {
        self.options.is_due(Since {
            age: last.age + self.shared.clock.monotonic().saturating_sub(last.at),
            journal_bytes: self.journal_bytes() - last.journal_bytes,
            snapshot_bytes: last.snapshot_bytes,
        })
    }

    fn take(&self) -> Result<CompletedSnapshot, Error> {
        if self.stopping.load(Ordering::Relaxed) {
            return Err(Error::ShuttingDown);
        }
        if let Some(cause) = self.figures.failure() {
            // The end of a snapshot needs a sync of the journal, which would fail.
            return Err(Error::JournalFailed(cause));
        }
        self.check_disk_space()?;
        let erasures = self.shared.world.sources.erasures();
        let _no_erasure_step = erasures.hold_snapshots();
        // This is read before the mark: files older than this snapshot may contain erased data.
        let journal_from = erasures.journal_from();
        let began = self.shared.clock.now();
        let mark = self.mark(false)?;
        // This is read after the mark: posts that are no longer open are in their inboxes, and these are copied later
        // still.
        let under_way = self.shared.open_fanouts.positions();
        let header = SnapshotHeader { sequence: mark.last, taken_at: began };
        let failed = |cause: StorageError| snapshot_failed(&cause);
        let archive = self.shared.world.archive().map(|archive| &**archive);
        let writer = SnapshotWriter::begin_beside(&*self.files, header, self.options.compress, archive);
        let mut writer = writer.map_err(failed)?;
        let written = self.write(&mut writer, &mark, under_way).map_err(failed).and_then(|()| {
            // The traversal may have seen any change up to now, so all of these events must be available for replay.
            self.mark(true)
        });
        let end = match written {
            Ok(end) => end,
            Err(cause) => {
                writer.abandon();
                return Err(cause);
            }
        };
        let delivery = &self.shared.world.delivery;
        // The order matters: entries that are forgotten between the two reads are covered by the second one.
        let revealed = delivery.revealed.all();
        writer.set_delivery(delivery.tokens_from(), revealed);
        let bytes = writer.finish(end.last, end.last_instant, end.has_archived).map_err(failed)?;
        match self.drop_superfluous(mark.last, journal_from) {
            // An erasure depends on this removal.
            Err(cause) if journal_from.is_some() => return Err(failed(cause)),
            // The next snapshot tries again.
            Err(cause) => warn!("could not remove files that the snapshot makes obsolete: {cause}"),
            Ok(()) => {}
        }
        let taken = SnapshotTaken { file: snapshot::name(mark.last), sequence: mark.last, bytes, taken_at: began };
        self.note_start_point(&taken.file);
        self.shared.counters.snapshots.add(1);
        let mut kept = self.shared.snapshots.lock();
        kept.retain(|older| older.sequence != taken.sequence);
        kept.insert(0, taken.clone());
        kept.truncate(if journal_from.is_some() { 1 } else { SNAPSHOTS_KEPT });
        Ok(CompletedSnapshot { taken, end })
    }

    fn mark(&self, sync: bool) -> Result<Mark, Error> {
        let (reply, mut answer) = oneshot::channel();
        self.commands.send(Command::Mark { sync, reply }).map_err(|_| Error::ShuttingDown)?;
        loop {
            match answer.try_recv() {
                Ok(mark) => return mark,
                Err(TryRecvError::Closed) => return Err(Error::ShuttingDown),
                // On a full disk the archive waits for space. The caller of the snapshot should not wait for that.
                Err(TryRecvError::Empty) => self.check_disk_space()?,
            }
            std::thread::park_timeout(MARK_POLL_PERIOD);
        }
    }

    /// Fails if the archive has found the disk full, and there is still no space.
    fn check_disk_space(&self) -> Result<(), Error> {
        let archive = self.shared.world.archive().and_then(|archive| archive.local());
        archive.map_or(Ok(()), |archive| archive.catch_up().map_err(|cause| archive_failed(&cause)))
    }

    fn write(
        &self,
        writer: &mut SnapshotWriter<'_>,
        mark: &Mark,
        under_way: Vec<crate::feed::position::Position>,
    ) -> Result<(), StorageError> {
        let sources = mark.sources;
        if let Some(followed) = &mark.followed {
            writer.record_packed(Section::Cluster, followed)?;
        }
        let now = Instant::now();
        let mut writer = Paced { writer, since: now, snapshotter: self, measured: now };
        write_world(RecordTraversal { world: &self.shared.world, sources }, &mut writer)?;
        if self.options.inboxes {
            let posts = pack_positions(under_way.into_iter());
            writer.record(Section::UnderWay, &UnderWayRecord { posts })?;
            self.inboxes(sources, |record| writer.record(Section::Inboxes, &record))?;
        }
        Ok(())
    }

    fn inboxes(
        &self,
        sources: usize,
        mut each: impl FnMut(InboxRecord) -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        for courier in &self.couriers {
            let mut from = Some(0);
            while let Some(start) = from {
                let (reply, answer) = oneshot::channel();
                let sent = match courier.try_send(CopyInboxes { from: start, reply }) {
                    Err(SendError::Full(_)) => {
                        std::thread::park_timeout(Duration::from_millis(1));
                        continue;
                    }
                    sent => sent.is_ok(),
                };
                let Some((records, next)) = sent.then(|| answer.blocking_recv().ok()).flatten() else { break };
                records.into_iter().filter(|record| (record.reader as usize) < sources).try_for_each(&mut each)?;
                from = next;
            }
        }
        Ok(())
    }
}
