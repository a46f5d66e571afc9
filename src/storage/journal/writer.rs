//! Writes the journal on disk: one open segment at a time.

use std::convert::Infallible;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use crate::clock::Clock;
use crate::feed::event::Event;
use crate::latency::Latency;
use crate::limits::{SEGMENT_BYTES, SEGMENT_READ_BYTES_MAX};
use crate::storage::error::StorageError;
use crate::storage::files::{AppendFile, Files, is_full, is_out_of_files};
use crate::storage::frame::{self, FrameKind, MARK};
use crate::storage::journal::committed::CommittedMark;
use crate::storage::journal::space::{self, LastRefusal, WriteRefusal};
use crate::storage::journal::sync::SyncState;
use crate::storage::journal::{Committed, Durability, Journal, JournalError};
use crate::storage::segment;
use crate::storage::sequence::Sequence;

/// The options of a journal.
#[derive(Clone, Copy, Debug)]
pub struct JournalOptions {
    /// When an event counts as committed. The default is when it is synced.
    pub durability: Durability,
    /// Bytes after which the next segment is started. The default is 64 MiB; values above 512 MiB are reduced to 512 MiB.
    pub segment_bytes: u64,
}

impl Default for JournalOptions {
    fn default() -> Self {
        Self { durability: Durability::Always, segment_bytes: SEGMENT_BYTES }
    }
}

/// The position where writing continues.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tail {
    /// The last event of the journal.
    pub last: Sequence,
    /// The last segment and the number of its valid bytes. 0 bytes: its header was not synced, so it is created again. None: a new segment
    /// is started.
    pub segment: Option<(Sequence, u64)>,
}

/// Figures of a journal that other threads may read while it is written.
#[derive(Default)]
pub struct JournalFigures {
    /// The last committed event, and a way to wait for the next.
    pub committed: CommittedMark,
    /// Bytes written since the start.
    pub written_bytes: AtomicU64,
    /// The number of groups committed since the start.
    pub commits: AtomicU64,
    refusal: LastRefusal,
    sync: Arc<SyncState>,
    /// True if events are committed before a later sync, which is certain to come.
    is_synced_later: bool,
}

impl JournalFigures {
    /// Returns the mark up to which events may be shown to others: the committed events. If they are synced once a second, only the
    /// synced events, since a power loss destroys the others.
    pub fn tellable(&self) -> &CommittedMark {
        if self.is_synced_later { &self.sync.durable } else { &self.committed }
    }

    /// Returns the reason why the journal no longer accepts events, or none if it does.
    pub fn failure(&self) -> Option<String> {
        self.sync.failure()
    }

    /// Returns the reason why the journal stores no events now, or none if it does.
    pub fn refusal(&self) -> Option<WriteRefusal> {
        if self.sync.has_failed() { Some(WriteRefusal::JournalFailed) } else { self.refusal.get() }
    }

    /// Durations of the syncs.
    pub fn sync_latency(&self) -> &Latency {
        &self.sync.latency
    }
}

/// A journal that is stored in segment files.
pub struct SegmentJournal {
    files: Arc<dyn Files>,
    options: JournalOptions,
    segment: OpenSegment,
    next: Sequence,
    /// The last event that a frame in the file records as synced.
    marked: Sequence,
    /// True if a frame without an event was written to the segment, and the segment was not synced since.
    mark_unsynced: bool,
    pending: Vec<u8>,
    /// The size of the last write that failed on a full disk.
    refused_bytes: usize,
    sync: Arc<SyncState>,
    syncer: Option<JoinHandle<()>>,
    figures: Arc<JournalFigures>,
}

struct OpenSegment {
    file: Arc<dyn AppendFile>,
    place: String,
    first: Sequence,
    bytes: u64,
}

impl SegmentJournal {
    /// Opens the journal at the position `tail`. All events up to there are synced when this returns. `clock` determines when the next
    /// sync of [`Durability::EverySecond`] is due: while it stands still, nothing is synced in the background.
    ///
    /// # Errors
    /// Fails if the segment cannot be opened or synced.
    pub fn open(
        files: Arc<dyn Files>,
        tail: &Tail,
        options: JournalOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, StorageError> {
        space::remove_left(&*files);
        let next = tail.last.next();
        let segment = match tail.segment {
            Some((first, good_bytes)) if good_bytes > 0 => {
                let name = segment::name(first);
                let place = files.place(&name);
                let file = files.reopen(&name, good_bytes).map_err(StorageError::io("write", &*place))?;
                OpenSegment { file, place, first, bytes: good_bytes }
            }
            torn => {
                let place = files.place(&segment::name(next));
                let name = segment::name(next);
                if torn.is_some() {
                    // The header of this segment was not synced, so the segment contains no acknowledged event.
                    files.remove(&name).map_err(StorageError::io("remove", &*place))?;
                } else if files.list().map_err(StorageError::io("read the directory of", &*place))?.contains(&name) {
                    set_aside(&*files, &name)?;
                }
                OpenSegment::create(&*files, next).map_err(StorageError::io("create", place))?
            }
        };
        let sync = Arc::new(SyncState::new(clock));
        sync.note_written(&segment.file, tail.last);
        segment.file.sync().map_err(StorageError::io("sync", &*segment.place))?;
        sync.sync().map_err(std::io::Error::other).map_err(StorageError::io("sync", &*segment.place))?;
        files.sync_directory().map_err(StorageError::io("sync the directory of", &*segment.place))?;
        let syncer = match options.durability {
            Durability::EverySecond => {
                Some(sync.start().map_err(StorageError::io("start a thread to sync", "the journal"))?)
            }
            Durability::Always | Durability::Never => None,
        };
        let is_synced_later = options.durability == Durability::EverySecond;
        let figures =
            Arc::new(JournalFigures { sync: Arc::clone(&sync), is_synced_later, ..JournalFigures::default() });
        figures.committed.publish(tail.last);
        let marked = tail.last;
        Ok(Self {
            files,
            options,
            segment,
            next,
            marked,
            mark_unsynced: false,
            pending: Vec::new(),
            refused_bytes: 0,
            sync,
            syncer,
            figures,
        })
    }

    /// Returns the figures of this journal.
    pub fn figures(&self) -> Arc<JournalFigures> {
        Arc::clone(&self.figures)
    }

    /// Appends a record whose content `payload` appends. The journal contains events only.
    pub(in crate::storage) fn append_record(&mut self, payload: impl FnOnce(&mut Vec<u8>)) -> Sequence {
        let sequence = self.next;
        self.append_frame(FrameKind::Event, sequence, payload);
        self.next = sequence.next();
        sequence
    }

    fn append_frame(&mut self, kind: FrameKind, sequence: Sequence, payload: impl FnOnce(&mut Vec<u8>)) {
        frame::encode(&mut self.pending, kind, sequence, self.sync.synced(), payload);
    }

    /// Writes the pending frames to the segment, and publishes a refusal to other threads.
    fn write(&mut self) -> Result<(), JournalError> {
        let written = self.write_pending();
        self.figures.refusal.note(&written);
        self.refused_bytes = if written.is_err() { self.pending.len() } else { 0 };
        written
    }

    fn write_pending(&mut self) -> Result<(), JournalError> {
        // This check is before the write: events that are rejected must not be present after a restart.
        if let Some(cause) = self.sync.failure() {
            return Err(JournalError::Failed(cause));
        }
        // A segment is named after its first event. While it contains no event, the next segment would have the same name.
        let has_events = self.last() >= self.segment.first;
        let most = self.options.segment_bytes.min(SEGMENT_READ_BYTES_MAX as u64 / 2);
        if has_events && self.segment.bytes + self.pending.len() as u64 > most {
            self.start_next()?;
        }
        let segment = &mut self.segment;
        match segment.file.append(&self.pending) {
            Ok(()) => {}
            Err(cause) if is_full(&cause) => {
                let place = segment.place.clone();
                // The cut is synced. Otherwise a power loss could bring back the rejected events.
                return match segment.file.cut(segment.bytes).and_then(|()| segment.file.sync()) {
                    Ok(()) => Err(JournalError::DiskFull { place }),
                    Err(cause) => Err(self.fail(format!("cannot cut {place} after the disk was full: {cause}"))),
                };
            }
            Err(cause) => {
                let cause = format!("cannot append to {} at byte {}: {cause}", segment.place, segment.bytes);
                return Err(self.fail(cause));
            }
        }
        segment.bytes += self.pending.len() as u64;
        self.figures.written_bytes.fetch_add(self.pending.len() as u64, Ordering::Relaxed);
        self.pending.clear();
        Ok(())
    }

    /// Starts the next segment. The old segment is synced first, because a following segment means that the old one is complete.
    fn start_next(&mut self) -> Result<(), JournalError> {
        self.sync()?;
        if std::mem::take(&mut self.mark_unsynced) {
            // Otherwise a power loss could tear the mark, and a torn segment before another one is damaged.
            let synced = self.segment.file.sync();
            synced.map_err(|cause| self.fail(format!("cannot sync {}: {cause}", self.segment.place)))?;
        }
        let first = self.sync.synced().next();
        match OpenSegment::create(&*self.files, first) {
            Ok(segment) => {
                self.segment = segment;
                Ok(())
            }
            Err(cause) => {
                let name = segment::name(first);
                let place = self.files.place(&name);
                let refusal = if is_full(&cause) {
                    Some(JournalError::DiskFull { place: place.clone() })
                } else if is_out_of_files(&cause) {
                    Some(JournalError::OutOfFiles { place: place.clone(), cause: cause.to_string() })
                } else {
                    None
                };
                // A partly created file would block the next attempt. If a power loss brought it back, it would block a start as well.
                let gone =
                    |cause: std::io::Error| if cause.kind() == ErrorKind::NotFound { Ok(()) } else { Err(cause) };
                let removed = || self.files.remove(&name).or_else(gone).and_then(|()| self.files.sync_directory());
                match refusal {
                    Some(refusal) if removed().is_ok() => Err(refusal),
                    _ => Err(self.fail(format!("cannot start segment {place}: {cause}"))),
                }
            }
        }
    }

    fn fail(&self, cause: String) -> JournalError {
        self.sync.fail(&cause);
        JournalError::Failed(cause)
    }

    fn sync_by_policy(&mut self) -> Result<(), JournalError> {
        let last = Sequence(self.next.0 - 1);
        self.sync.note_written(&self.segment.file, last);
        let kept = match self.options.durability {
            Durability::Always => self.sync.sync(),
            Durability::EverySecond => self.sync.wait_if_late(),
            Durability::Never => Ok(()),
        };
        kept.map_err(|cause| self.fail(format!("cannot sync {}: {cause}", self.segment.place)))?;
        self.figures.committed.publish(last);
        Ok(())
    }
}

/// Renames a damaged segment to an unused name, so that it can be inspected.
fn set_aside(files: &dyn Files, name: &str) -> Result<(), StorageError> {
    let there = files.list().map_err(StorageError::io("read the directory of", files.place(name)))?;
    let names = (0u32..).map(|nth| if nth == 0 { format!("{name}.damaged") } else { format!("{name}.damaged-{nth}") });
    let aside = names.into_iter().find(|aside| !there.contains(aside)).unwrap_or_default();
    files.rename(name, &aside).map_err(StorageError::io("set aside", files.place(name)))
}

impl OpenSegment {
    fn create(files: &dyn Files, first: Sequence) -> std::io::Result<Self> {
        let name = segment::name(first);
        let (file, header) = (files.create(&name)?, segment::header_with(first, files.identity()));
        file.append(&header)?;
        file.sync()?;
        files.sync_directory()?;
        Ok(Self { file, place: files.place(&name), first, bytes: header.len() as u64 })
    }
}

impl Journal for SegmentJournal {
    type Received = Infallible;

    fn append(&mut self, event: &Event) -> Result<Sequence, JournalError> {
        Ok(self.append_record(|into| frame::pack(event, into)))
    }

    fn pending_bytes(&self) -> usize {
        self.pending.len()
    }

    fn commit(&mut self) -> Result<Committed, JournalError> {
        if self.pending.is_empty() {
            return Ok(Committed::Stored);
        }
        let written = self.write();
        if written.is_err() {
            self.pending.clear();
            self.next = self.figures.committed.last().next();
        }
        written?;
        self.figures.commits.fetch_add(1, Ordering::Relaxed);
        self.sync_by_policy().map(|()| Committed::Stored)
    }

    fn sync(&mut self) -> Result<(), JournalError> {
        if let Some(cause) = self.sync.failure() {
            return Err(JournalError::Failed(cause));
        }
        let synced = self.sync.sync();
        synced.map_err(|cause| self.fail(format!("cannot sync {}: {cause}", self.segment.place)))
    }

    fn last(&self) -> Sequence {
        self.figures.committed.last()
    }

    fn wants_mark(&self) -> bool {
        // A segment without events needs no mark: its existence means that the previous segment is synced.
        let is_open = self.last() > self.marked && self.last() >= self.segment.first;
        is_open && self.options.durability != Durability::Never && self.sync.failure().is_none()
    }

    fn mark_synced(&mut self) {
        // While the disk is full, room for a mark does not imply room for events.
        let waits = self.is_refusing() || !self.pending.is_empty();
        if waits || !self.wants_mark() || self.sync.synced() < self.last() {
            return;
        }
        self.append_frame(FrameKind::Closed, self.last(), |into| into.extend(MARK));
        if self.write().is_err() {
            // On a full disk the next written event records this instead. Any other failure is returned by the next commit.
            self.pending.clear();
        }
        self.mark_unsynced = true;
        self.marked = self.last();
    }

    fn is_refusing(&self) -> bool {
        self.figures.refusal.get().is_some() && !self.sync.has_failed()
    }

    fn probe(&mut self) -> Result<(), JournalError> {
        let place = self.segment.place.clone();
        let found = space::probe(&*self.files, self.refused_bytes).map_err(|cause| {
            if is_out_of_files(&cause) {
                JournalError::OutOfFiles { place, cause: cause.to_string() }
            } else {
                // Also for any other cause: only a successful write proves that there is space.
                JournalError::DiskFull { place }
            }
        });
        self.figures.refusal.note(&found);
        found
    }

    fn begin_segment(&mut self) -> Result<(), JournalError> {
        if let Some(cause) = self.sync.failure() {
            return Err(JournalError::Failed(cause));
        }
        // A segment without events is new already.
        if self.last() >= self.segment.first { self.start_next() } else { Ok(()) }
    }

    fn close(&mut self) -> Result<(), JournalError> {
        self.commit()?;
        self.sync()?;
        if self.last() >= self.segment.first {
            self.append_frame(FrameKind::Closed, self.last(), |_| {});
            self.write()?;
            let closed = self.segment.file.sync();
            closed.map_err(|cause| self.fail(format!("cannot sync {}: {cause}", self.segment.place)))?;
        }
        Ok(())
    }
}

impl Drop for SegmentJournal {
    fn drop(&mut self) {
        self.sync.stop();
        if let Some(syncer) = self.syncer.take() {
            // The thread ends by itself after `stop`. A panic in it is ignored.
            let _ = syncer.join();
        }
    }
}
