//! The segment files of a journal, read as a log while the journal is written.
//!
//! Bytes after the last committed event may still be cut and written again. So a reader stops at the committed mark, retains no bytes
//! between calls, and continues right after the last event that it has read. It keeps no file open, because the disk space of an open
//! file cannot be freed, and file descriptors are limited.

use std::io::{ErrorKind, Read};
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::storage::error::StorageError;
use crate::storage::files::Files;
use crate::storage::frame::{self, FrameError, FrameKind};
use crate::storage::journal::writer::JournalFigures;
use crate::storage::log::{LogError, LogRange, LogReader, LogRecord, ReadLog};
use crate::storage::retained::{EventFile, EventFiles};
use crate::storage::segment::{self, SEGMENT_HEADER_BYTES_MAX};
use crate::storage::sequence::Sequence;

/// Maximum number of records in one answer.
const RECORDS_PER_READ_MAX: usize = 1_024;

/// Bytes to read from a file at once: somewhat more than the records of one answer usually have. For a larger record, the size is
/// multiplied by the smallest sufficient power of two.
const PIECE_BYTES: usize = 256 << 10;

/// Maximum bytes that are read at once: the largest record and some frames without an event before it.
const PIECE_BYTES_MAX: usize = 32 << 20;

/// The journal of a directory, as a log that can be read.
#[derive(Clone)]
pub struct SegmentLog {
    files: Arc<dyn Files>,
    figures: Arc<JournalFigures>,
    /// The first event after the retained segments that readers found damaged or missing. Requests for an earlier event are rejected at
    /// once.
    readable_from: Arc<AtomicU64>,
}

impl SegmentLog {
    /// Creates the log of the journal in `files`. The figures are those of its writer.
    pub fn new(files: Arc<dyn Files>, figures: Arc<JournalFigures>) -> Self {
        Self { files, figures, readable_from: Arc::default() }
    }

    /// Returns the files with events, in their order.
    fn files(&self) -> Result<Vec<EventFile>, LogError> {
        Ok(EventFiles::list(&*self.files).map_err(|cause| unavailable(&cause))?.readable())
    }
}

impl ReadLog for SegmentLog {
    fn reader(&self, after: Sequence) -> Result<Box<dyn LogReader>, LogError> {
        self.range()?.check_after(after)?;
        Ok(Box::new(SegmentReader { log: self.clone(), next: after.next(), place: None, buffer: Vec::new() }))
    }

    fn range(&self) -> Result<LogRange, LogError> {
        let first = self.files()?.first().map(|file| file.first);
        // Read after the list of files, since events are committed only to segments that exist.
        let last = self.figures.tellable().last();
        let first = first.unwrap_or(last.next()).max(Sequence(self.readable_from.load(Ordering::Relaxed)));
        Ok(LogRange { first, last })
    }

    fn place(&self) -> String {
        self.files.place("")
    }
}

struct SegmentReader {
    log: SegmentLog,
    /// The next event to deliver.
    next: Sequence,
    /// The place to continue at. None before the first event.
    place: Option<Place>,
    /// Memory for the next piece, reused by all reads. If each read freed it, the system would allocate and clear new pages for a reader
    /// that follows the journal, a hundred times a second.
    buffer: Vec<u8>,
}

/// A place in the journal, right after a committed event or at the start of a segment.
#[derive(Clone, Copy)]
struct Place {
    file: EventFile,
    offset_bytes: u64,
    /// The next event from here on.
    next: Sequence,
}

impl Place {
    fn start_of(file: EventFile) -> Self {
        Self { file, offset_bytes: 0, next: file.first }
    }
}

/// Bytes of a file from a place on.
struct Piece {
    bytes: Vec<u8>,
    /// True if the file ends after these bytes.
    is_last: bool,
}

/// The reason why walking through a piece ended.
enum Stop {
    /// All requested events in it are read.
    Done,
    /// It ends in the middle of a frame, and the file continues.
    CutShort,
    /// The segment ends after its last frame.
    SegmentEnds,
}

impl SegmentReader {
    /// Returns the start of the segment with the next event. It skips `gone`, a file that does not exist, and all files before it. If
    /// that file was retained or rewritten meanwhile, another file has the same events.
    fn find(&self, gone: Option<EventFile>) -> Result<Place, LogError> {
        let (all, wanted) = (self.log.files()?, self.next);
        let found = all.iter().rev().find(|file| file.first <= wanted);
        let is_other =
            |file: &&EventFile| gone.is_none_or(|gone| file.first >= gone.first && file.name() != gone.name());
        if let Some(file) = found.filter(is_other) {
            return Ok(Place::start_of(*file));
        }
        match all.iter().find(|file| file.first > wanted) {
            Some(EventFile { first, .. }) => Err(LogError::Deleted { wanted, first: *first }),
            None => {
                let missing = gone.map_or_else(|| segment::name(wanted), EventFile::name);
                Err(self.damaged(&missing, 0, wanted, "the segment is missing"))
            }
        }
    }

    /// Records damage that no reader can get past, unless it is in the journal: that is a failure of the server.
    fn note(&self, cause: &LogError) {
        let retained = self.place.filter(|place| place.file.is_retained());
        let from = match (cause, retained) {
            (LogError::Deleted { first, .. }, _) => *first,
            (LogError::Damaged { .. }, Some(place)) => place.file.last.next(),
            _ => return,
        };
        self.log.readable_from.fetch_max(from.0, Ordering::Relaxed);
    }

    fn damaged(&self, name: &str, offset_bytes: u64, sequence: Sequence, reason: &str) -> LogError {
        let (place, reason) = (self.log.files.place(name), reason.to_owned());
        LogError::Damaged { place, offset_bytes, sequence, reason }
    }

    /// Reads at most `bytes_max` bytes from a place on. Returns none if the segment does not exist.
    fn piece(&mut self, place: &Place, bytes_max: usize) -> Result<Option<Piece>, LogError> {
        let (name, mut bytes) = (place.file.name(), mem::take(&mut self.buffer));
        bytes.clear();
        let opened = self.log.files.read_from(&name, place.offset_bytes);
        match opened.and_then(|file| file.take(bytes_max as u64).read_to_end(&mut bytes)) {
            Ok(_) => Ok(Some(Piece { is_last: bytes.len() < bytes_max, bytes })),
            Err(cause) if cause.kind() == ErrorKind::NotFound => Ok(None),
            Err(cause) => Err(unavailable(&StorageError::io("read", self.log.files.place(&name))(cause))),
        }
    }

    /// Adds the events of a piece up to `committed`, and moves the place after the last of them.
    fn walk(
        &mut self,
        piece: &Piece,
        place: &mut Place,
        committed: Sequence,
        into: &mut Vec<LogRecord>,
    ) -> Result<Stop, LogError> {
        let (name, start) = (place.file.name(), place.offset_bytes);
        let mut at = 0;
        if start == 0 {
            let header = segment::header_bytes(&piece.bytes, place.file.first);
            at = header.ok_or_else(|| self.damaged(&name, 0, place.next, "the segment's header is wrong"))?;
            place.offset_bytes = at as u64;
        }
        while place.next <= committed && into.len() < RECORDS_PER_READ_MAX {
            let rest = &piece.bytes[at..];
            let frame = match frame::decode(rest) {
                Err(FrameError::CutShort) if !piece.is_last => return Ok(Stop::CutShort),
                Err(_) if rest.is_empty() => return Ok(Stop::SegmentEnds),
                decoded => decoded.map_err(|cause| cause.to_string()),
            };
            let frame = match frame.and_then(|frame| segment::expect(frame, place.next)) {
                Ok(frame) => frame,
                // The next read begins with the damage.
                Err(_) if !into.is_empty() => return Ok(Stop::Done),
                Err(reason) => return Err(self.damaged(&name, start + at as u64, place.next, &reason)),
            };
            at += frame.bytes();
            if frame.kind == FrameKind::Event {
                if frame.sequence >= self.next {
                    into.push(LogRecord { sequence: frame.sequence, bytes: frame.payload.to_vec() });
                    self.next = frame.sequence.next();
                }
                // Frames without an event after it may not be committed.
                (place.offset_bytes, place.next) = (start + at as u64, frame.sequence.next());
            }
        }
        Ok(Stop::Done)
    }

    /// Reads from the current place on until there are records, up to `committed`.
    fn advance(&mut self, committed: Sequence, records: &mut Vec<LogRecord>) -> Result<(), LogError> {
        let mut bytes_max = PIECE_BYTES;
        while records.is_empty() {
            let mut place = self.place.map_or_else(|| self.find(None), Ok)?;
            let Some(piece) = self.piece(&place, bytes_max)? else {
                self.place = Some(self.find(Some(place.file))?);
                continue;
            };
            let before = place.next;
            let stop = self.walk(&piece, &mut place, committed, records)?;
            self.buffer = piece.bytes;
            self.buffer.shrink_to(PIECE_BYTES);
            match stop {
                Stop::Done => {}
                Stop::SegmentEnds if place.next == place.file.first => {
                    let name = place.file.name();
                    return Err(self.damaged(&name, place.offset_bytes, place.next, "the segment has no events"));
                }
                Stop::SegmentEnds => place = Place::start_of(EventFile::written(place.next)),
                Stop::CutShort if place.next > before => bytes_max = PIECE_BYTES,
                Stop::CutShort if bytes_max < PIECE_BYTES_MAX => bytes_max *= 2,
                Stop::CutShort => {
                    let (name, reason) = (place.file.name(), "the frame is larger than any version writes");
                    return Err(self.damaged(&name, place.offset_bytes, place.next, reason));
                }
            }
            self.place = Some(place);
        }
        Ok(())
    }
}

impl LogReader for SegmentReader {
    fn read(&mut self, wait: Duration) -> Result<Vec<LogRecord>, LogError> {
        let committed = self.log.figures.tellable().wait_for(self.next, wait);
        let mut records = Vec::new();
        if committed >= self.next {
            self.advance(committed, &mut records).inspect_err(|cause| self.note(cause))?;
        }
        Ok(records)
    }
}

fn unavailable(cause: &StorageError) -> LogError {
    LogError::Unavailable(cause.to_string())
}

const _: () = assert!(SEGMENT_HEADER_BYTES_MAX < PIECE_BYTES, "a piece has space for a header");
