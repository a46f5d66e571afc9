//! Recovery: restores the acknowledged state from a data directory.
//!
//! Responsible for:
//! - choosing the newest valid snapshot, loading it, and replaying the journal events after it; the same for a node of
//!   a cluster, which replays the log of the cluster ([`node`]), and for a cluster whose log is gone ([`rebuilt`]);
//! - reporting the progress, and the data that was recovered, cut off, skipped or lost.
//!
//! The replay has three stages, each on its own thread and a few batches ahead of the next: reading and decoding events, encoding posts,
//! applying events.

mod fetch;
pub mod node;
pub(crate) mod progress;
pub mod rebuilt;
mod records;
mod replay;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use crossbeam_channel::{Receiver, Sender};
use tracing::{info, warn};

use crate::clock::Timestamp;
use crate::cluster::log_checkpoint::LogCheckpoint;
use crate::feed::event::Event;
use crate::feed::position::Position;
use crate::id::SourceSlot;
use crate::limits::POST_TAGS_MAX;
use crate::state::records::{InboxRecord, InvalidRecordError, unpack_positions};
use crate::state::world::{StateMachine, World};
use crate::storage::archive::ArchiveError;
use crate::storage::error::StorageError;
use crate::storage::files::Files;
use crate::storage::frame::unpack;
use crate::storage::journal::reader::{self, JournalRead, Lost, Reading, Torn};
use crate::storage::journal::writer::Tail;
use crate::storage::sequence::Sequence;
use crate::storage::snapshot::{self, EndRecord, SnapshotReader};

use replay::{ReadEvents, replayed};

pub use progress::RecoveryProgress;
pub use records::{RecordBatch, Records, decode, write_world};

/// The findings of a recovery.
#[derive(Debug, Default)]
pub struct RecoveryReport {
    /// The sequence of the snapshot that was loaded.
    pub snapshot: Option<Sequence>,
    /// The reasons why snapshots could not be loaded.
    pub skipped: Vec<String>,
    /// The number of events that were replayed.
    pub events: u64,
    /// Bytes of the journal segments that were read.
    pub journal_bytes: u64,
    /// The torn tail that was cut off the journal.
    pub torn: Option<Torn>,
    /// The lost data. It is empty unless `repair` is set.
    pub lost: Vec<Lost>,
}

/// A post that must be delivered again, and the sources whose followers receive it.
pub type UnfinishedFanout = (Position, Box<[SourceSlot]>);

/// The recovered state: everything that was acknowledged.
pub struct Recovered {
    /// The recovered world.
    pub world: Arc<World>,
    /// The state machine of this world.
    pub machine: StateMachine,
    /// The position where the journal continues.
    pub tail: Tail,
    /// The last logical instant that was issued.
    pub last_instant: Timestamp,
    /// Inboxes of the readers that were active.
    pub inboxes: Vec<InboxRecord>,
    /// Posts that may be missing in some of these inboxes.
    pub under_way: Vec<UnfinishedFanout>,
    /// The checkpoint up to which the log was followed, if the snapshot is one of a cluster node.
    pub followed: Option<LogCheckpoint>,
    /// The findings of the recovery.
    pub report: RecoveryReport,
}

/// The inputs of a recovery.
pub struct Recovery<'a> {
    /// Files of the data directory.
    pub files: &'a dyn Files,
    /// Creates an empty world. It is called once per attempt, since a failed attempt leaves a partly filled world.
    pub make_world: &'a (dyn Fn() -> (Arc<World>, StateMachine) + Sync),
    /// True to continue after damage instead of returning an error.
    pub repair: bool,
    /// Receives the progress of the recovery.
    pub progress: &'a RecoveryProgress,
}

/// Maximum number of batches between two stages.
const BATCHES_AHEAD: usize = 8;

/// Maximum number of events in one batch.
const EVENTS_PER_BATCH: usize = 1_024;

/// Bytes of journal after which a batch is full. The limit is in bytes, too, because some events are a thousand times larger than most.
const BATCH_BYTES: usize = 1 << 20;

/// A snapshot that could not be loaded, and the reason.
struct Skipped {
    name: String,
    cause: String,
}

/// Adds the reasons why snapshots could not be loaded to an error about missing events, since they are its cause.
fn without_snapshot(skipped: &[Skipped], cause: StorageError) -> StorageError {
    let causes: Vec<&str> = skipped.iter().map(|skipped| &*skipped.cause).collect();
    match cause {
        StorageError::Missing { from: Sequence(1), .. } if !causes.is_empty() => {
            StorageError::NoSnapshot { causes: causes.join("; "), without: Box::new(cause) }
        }
        cause => cause,
    }
}

fn end_replay(state: &mut Recovered) {
    state.machine.set_replaying(false);
    state.machine.forget_known_answers();
    state.machine.update_celebrities();
}

struct Loaded {
    state: Recovered,
    /// Posts whose fan-out was unfinished. Their recipients are resolved once the posts in memory and in the archive are known.
    under_way: Vec<Position>,
    sequence: Sequence,
    through: Sequence,
    place: String,
    /// True if the snapshot relies on an archive and lacks the counts of its outboxes, because that archive counted
    /// them.
    lacks_counts: bool,
}

impl Loaded {
    /// Records the archived count of each outbox, unless the snapshot contains the counts.
    fn note_archived_counts(&mut self) -> Result<(), ArchiveError> {
        let archive = self.state.world.archive().filter(|archive| self.lacks_counts && archive.is_remote());
        if let Some(archive) = archive {
            info!("listing the whole archive {} once, since the snapshot lacks its counts", archive.place());
        }
        self.state.machine.note_archived_counts(self.lacks_counts)
    }
}

impl Recovery<'_> {
    /// Runs the recovery.
    ///
    /// # Errors
    /// Fails if acknowledged data is missing or damaged and `repair` is not set.
    pub fn run(self) -> Result<Recovered, StorageError> {
        self.progress.enter(progress::LOADING);
        let mut skipped = Vec::new();
        let mut loaded = self.newest_snapshot(&mut skipped)?;
        if let Some(followed) = &loaded.state.followed {
            let (directory, cluster) = (self.files.place(""), followed.membership.cluster().0);
            return Err(StorageError::OfNode { directory, cluster });
        }
        // The sources of the snapshot have the numbers from 0 on. So sources that only the archive has are interned
        // after them.
        loaded.note_archived_counts()?;
        // Celebrities are chosen before the replay and again after it. The command processor validated the replayed events with the celebrities that
        // were known then.
        loaded.state.machine.update_celebrities();
        self.progress.enter(progress::REPLAYING);
        loaded.state.machine.set_replaying(true);
        self.replay(&mut loaded).map_err(|cause| without_snapshot(&skipped, cause))?;
        let Loaded { mut state, under_way, .. } = loaded;
        resolve(under_way, &mut state);
        state.machine.check_replay()?;
        end_replay(&mut state);
        self.set_aside(&mut state.report, skipped);
        Ok(state)
    }

    /// Renames the snapshots that cannot be loaded, so that they do not count as retained snapshots.
    fn set_aside(&self, report: &mut RecoveryReport, skipped: Vec<Skipped>) {
        for Skipped { name, cause } in skipped {
            if let Err(cause) = self.files.rename(&name, &format!("{name}.damaged")) {
                warn!("cannot rename {}: {cause}", self.files.place(&name));
            }
            report.skipped.push(cause);
        }
    }

    fn newest_snapshot(&self, skipped: &mut Vec<Skipped>) -> Result<Loaded, StorageError> {
        for (name, sequence) in snapshot::snapshots(self.files)? {
            match self.load(&name, sequence) {
                Ok(loaded) => return Ok(loaded),
                Err(cause @ (StorageError::BadSnapshot { .. } | StorageError::Foreign { .. })) => {
                    warn!("{cause}; trying an older snapshot and more of the journal");
                    skipped.push(Skipped { name, cause: cause.to_string() });
                }
                Err(cause) => return Err(cause),
            }
        }
        let place = self.files.place("");
        let (sequence, through, lacks_counts) = (Sequence(0), Sequence(0), false);
        Ok(Loaded { state: self.empty(), under_way: Vec::new(), sequence, through, place, lacks_counts })
    }

    fn empty(&self) -> Recovered {
        let (world, machine) = (self.make_world)();
        Recovered {
            world,
            machine,
            tail: Tail::default(),
            last_instant: Timestamp::NONE,
            inboxes: Vec::new(),
            under_way: Vec::new(),
            followed: None,
            report: RecoveryReport::default(),
        }
    }

    fn load(&self, name: &str, sequence: Sequence) -> Result<Loaded, StorageError> {
        let mut reader = SnapshotReader::open(self.files, name)?;
        let place = reader.place().to_owned();
        let is_of_node = reader.identity().is_some_and(|identity| identity.cluster().is_some());
        if reader.header().sequence != sequence {
            return Err(reader.bad("its name and its header have different sequences".to_owned()));
        }
        self.progress.snapshot_bytes.store(0, Ordering::Relaxed);
        self.progress.snapshot_bytes_total.store(reader.file_bytes(), Ordering::Relaxed);
        let (mut state, mut under_way, has_counts) = (self.empty(), Vec::new(), reader.has_archived_counts());
        let (batches, taken) = crossbeam_channel::bounded(BATCHES_AHEAD);
        let end = thread::scope(|scope| {
            // The thread owns the sender. When the thread ends, the channel is closed after the last batch.
            let decoding = scope.spawn(move || {
                self.decode(&mut reader, &batches)?;
                Ok::<_, StorageError>(reader.end())
            });
            // The receiver is dropped at the first record that does not fit. Then the other thread ends.
            let fits = apply_all(&mut state, &mut under_way, taken);
            let decoded = decoding.join().expect("decoding does not panic");
            fits.map_err(|cause| match cause {
                LoadError::InvalidDraft(InvalidRecordError(reason)) => {
                    StorageError::BadSnapshot { place: place.clone(), offset_bytes: 0, reason }
                }
                LoadError::Archive(cause) => cause.into(),
            })?;
            decoded
        })?;
        let EndRecord { through, last_instant, drift_us, tokens_from, revealed, archive, .. } =
            end.expect("all blocks were read");
        let followed = state.followed.as_ref().map(|followed| followed.sequence);
        if followed.is_some_and(|followed| followed != sequence) || followed.is_none() && is_of_node {
            let reason = "its position in the log of the cluster is missing or wrong".to_owned();
            return Err(StorageError::BadSnapshot { place, offset_bytes: 0, reason });
        }
        if archive {
            state.report.lost.extend(self.check_archive(&state.world, through, &place)?);
        }
        state.last_instant = Timestamp { instant: last_instant, drift_us };
        state.world.delivery.restore(drift_us, tokens_from, &revealed);
        state.report.snapshot = Some(sequence);
        info!("loaded {place}: {} posts, {} edges", state.world.posts.len(), state.world.edges());
        Ok(Loaded { state, under_way, sequence, through, place, lacks_counts: archive && !has_counts })
    }

    /// Checks that the archive contains the posts that a snapshot left to it. If some are gone and `repair` is set, returns the loss
    /// instead of an error.
    fn check_archive(&self, world: &World, needs: Sequence, place: &str) -> Result<Option<Lost>, StorageError> {
        let lost = |from: Sequence, reason: &str| {
            let place = world.archive().map_or("the archive".to_owned(), |archive| archive.place());
            Lost { from, until: Some(needs.next()), place, reason: reason.to_owned() }
        };
        let place = place.to_owned();
        match world.archive().filter(|archive| !archive.is_empty()) {
            None if self.repair => {
                Ok(Some(lost(Sequence(1), "the archive is missing, and the archived posts are lost")))
            }
            None => Err(StorageError::NoArchive { place }),
            Some(archive) => {
                let has = archive.through()?;
                if has >= needs {
                    Ok(None)
                } else if self.repair {
                    Ok(Some(lost(
                        has.next(),
                        "the archive is an older copy, and posts that were archived later are lost",
                    )))
                } else {
                    let archive = archive.place();
                    Err(StorageError::BehindArchive { place, archive, has, needs })
                }
            }
        }
    }

    fn decode(&self, reader: &mut SnapshotReader, batches: &Sender<RecordBatch>) -> Result<(), StorageError> {
        while let Some(block) = reader.next_block()? {
            let batch = decode(&block).map_err(|reason| reader.bad(reason))?;
            self.progress.snapshot_bytes.fetch_add(block.stored_bytes, Ordering::Relaxed);
            if batches.send(batch).is_err() {
                return Err(reader.bad("a record does not fit".to_owned()));
            }
        }
        Ok(())
    }

    fn read(&self, reading: Reading, events: &Sender<ReadEvents>) -> Result<JournalRead, StorageError> {
        let mut batch = Vec::with_capacity(EVENTS_PER_BATCH);
        let (mut batch_bytes, mut through) = (0, reading.after);
        let read = reader::read(self.files, reading, |found| {
            batch.push(event(found.payload)?);
            batch_bytes += found.payload.len();
            through = found.sequence;
            if batch.len() == EVENTS_PER_BATCH || batch_bytes >= BATCH_BYTES {
                batch_bytes = 0;
                let full = std::mem::replace(&mut batch, Vec::with_capacity(EVENTS_PER_BATCH));
                events.send(ReadEvents { events: full, through }).map_err(|_| "replay has ended".to_owned())?;
            }
            Ok(())
        });
        // The send fails only if the replay has ended.
        let _ = events.send(ReadEvents { events: batch, through });
        read
    }

    /// Syncs the end of the journal before replayed events are written to a remote archive: the last process may have
    /// died before it synced them. All segments before the last one are synced.
    fn sync_journal(&self, world: &World) -> Result<(), StorageError> {
        let segments = reader::segments(self.files)?;
        let Some((last, _)) = segments.last().filter(|_| world.archive().is_some_and(|archive| archive.is_remote()))
        else {
            return Ok(());
        };
        let sync = || {
            let (_, bytes) = self.files.read(last)?;
            self.files.reopen(last, bytes)?.sync()
        };
        sync().map_err(StorageError::io("sync", self.files.place(last)))
    }

    fn replay(&self, loaded: &mut Loaded) -> Result<(), StorageError> {
        self.sync_journal(&loaded.state.world)?;
        let reading = Reading { after: loaded.sequence, repair: self.repair };
        let state = &mut loaded.state;
        let read = replayed(state, self.progress, |events| self.read(reading, &events))?;
        let (through, place) = (loaded.through.max(loaded.sequence), loaded.place.clone());
        state.tail = read.tail;
        state.report.journal_bytes = read.bytes;
        (state.report.events, state.report.torn) = (read.events, read.torn);
        state.report.lost.extend(read.lost);
        if state.tail.last < through {
            let last = state.tail.last;
            if !self.repair {
                return Err(StorageError::BehindSnapshot { place, last, through });
            }
            // The snapshot contains all events up to its own sequence, and some of the later events.
            let from = last.max(loaded.sequence).next();
            let reason = format!("the journal ends at event {last}, but the snapshot contains event {through}");
            state.report.lost.push(Lost { from, until: None, place, reason });
            state.tail = Tail { last: through, segment: None };
        }
        check_writes(&state.world, state.tail.last)
    }
}

/// Checks that the archive would not ignore writes of events after the end of the journal. A repair does not help: new
/// events would get the same sequences again.
fn check_writes(world: &World, last: Sequence) -> Result<(), StorageError> {
    let Some(archive) = world.archive().and_then(|archive| archive.remote()) else { return Ok(()) };
    let written = archive.written()?;
    if written <= last {
        return Ok(());
    }
    Err(StorageError::BehindWrites { archive: archive.place(), last, written })
}

/// The reason why records of a snapshot could not be loaded.
#[derive(Debug, thiserror::Error)]
enum LoadError {
    #[error(transparent)]
    InvalidDraft(#[from] InvalidRecordError),
    #[error(transparent)]
    Archive(#[from] ArchiveError),
}

fn apply_all(
    state: &mut Recovered,
    under_way: &mut Vec<Position>,
    taken: Receiver<RecordBatch>,
) -> Result<(), LoadError> {
    for batch in taken {
        let machine = &mut state.machine;
        match batch {
            RecordBatch::Sources(records) => records.iter().try_for_each(|record| machine.restore_source(record))?,
            RecordBatch::Edges(records) => records.iter().try_for_each(|record| machine.restore_edges(record))?,
            RecordBatch::Preferences(records) => {
                records.iter().try_for_each(|record| machine.restore_preferences(record))?;
            }
            RecordBatch::Reposts(records) => records.iter().try_for_each(|record| machine.restore_reposts(record))?,
            RecordBatch::Revocations(records) => records.iter().for_each(|record| machine.restore_revocations(record)),
            RecordBatch::Posts(records) => {
                records.iter().try_for_each(|record| machine.restore_post(record))?;
                machine.keep_load_within_limit()?;
            }
            RecordBatch::Deleted(records) => records.iter().for_each(|record| machine.restore_deleted(record)),
            RecordBatch::UnfinishedFanout(records) => {
                under_way.extend(records.iter().flat_map(|record| unpack_positions(&record.posts)));
            }
            RecordBatch::ArchivedCounts(records) => {
                records.iter().try_for_each(|record| machine.restore_archived_counts(record))?;
            }
            RecordBatch::Awaited(records) => records.iter().try_for_each(|record| machine.restore_awaited(record))?,
            RecordBatch::Cluster(records) => state.followed = records.into_iter().next(),
            RecordBatch::Inboxes(records) => {
                let known = state.world.sources.len();
                if let Some(record) = records.iter().find(|record| record.reader as usize >= known) {
                    return Err(
                        InvalidRecordError(format!("the source {} of an inbox does not exist", record.reader)).into()
                    );
                }
                state.inboxes.extend(records);
            }
        }
    }
    Ok(())
}

/// Determines the recipients of posts that must be delivered again. If no inbox was active, there are none.
fn resolve(under_way: Vec<Position>, state: &mut Recovered) {
    if state.inboxes.is_empty() {
        state.under_way.clear();
        return;
    }
    for position in under_way {
        if let Some(push) = state.machine.pushed_again(position) {
            state.under_way.push((position, push));
        }
    }
}

/// Decodes an event. Fails if no version writes such an event.
pub fn event(payload: &[u8]) -> Result<Event, String> {
    let event = unpack(payload)?;
    match &event {
        Event::Published { draft, .. } if draft.tags.len() > POST_TAGS_MAX => {
            Err(format!("a post with {} tags", draft.tags.len()))
        }
        Event::Followed { edges, since } | Event::FollowsChanged { follows: edges, since, .. }
            if since.0.checked_add(edges.len() as i64).is_none() =>
        {
            Err("edges that are made after the end of time".to_owned())
        }
        _ => Ok(event),
    }
}
