//! A log that consists of records copied to files, so that a state can be rebuilt without the original log.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::storage::error::StorageError;
use crate::storage::files::Files;
use crate::storage::frame::{self, FrameKind};
use crate::storage::identity::Identity;
use crate::storage::journal::pieces::Piece;
use crate::storage::journal::reader::segments;
use crate::storage::log::{LogError, LogRange, LogReader, LogRecord, LogWriter, ReadLog, SharedLog};
use crate::storage::segment::{self, End, Segment};
use crate::storage::sequence::Sequence;

/// Bytes after which a piece is full. The last record may exceed this limit.
const PIECE_BYTES: usize = 8 << 20;

/// Time for which one read waits for records.
const READ_WAIT: Duration = Duration::from_millis(200);

/// Time without a record after which a log with further records counts as unavailable.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// Calls `each` with pieces that contain all records after `after`, up to and including `through`. The log must contain these records.
/// The pieces are segments with this identity. Blocks until the records are read.
///
/// # Errors
/// Fails if the log cannot be read or has deleted one of these records, and returns the error of `each`.
pub fn copy<E: From<LogError>>(
    log: &dyn SharedLog,
    identity: Identity,
    after: Sequence,
    through: Sequence,
    mut each: impl FnMut(Piece) -> Result<(), E>,
) -> Result<(), E> {
    let (mut reader, mut last, mut heard) = (None, after, Instant::now());
    let begin = |after: Sequence| (after.next(), segment::header_with(after.next(), Some(identity)));
    let (mut first, mut bytes) = begin(after);
    while last < through {
        let reader = match &mut reader {
            Some(reader) => reader,
            None => reader.insert(log.reader(last)?),
        };
        let records = match reader.read(READ_WAIT) {
            Ok(records) => records,
            Err(LogError::Unavailable(_)) if heard.elapsed() < SILENCE_MAX => {
                std::thread::park_timeout(READ_WAIT);
                continue;
            }
            Err(cause) => return Err(cause.into()),
        };
        if records.is_empty() && heard.elapsed() >= SILENCE_MAX {
            let silent = format!("{} has not returned record {}", log.place(), last.next());
            return Err(LogError::Unavailable(silent).into());
        }
        for record in records.into_iter().take_while(|record| record.sequence <= through) {
            // The frame marks all records before it as synced, so that a reader detects damage to any of them.
            frame::encode(&mut bytes, FrameKind::Event, record.sequence, last, |into| into.extend(record.bytes));
            (last, heard) = (record.sequence, Instant::now());
            if bytes.len() >= PIECE_BYTES {
                each(Piece { first, last, bytes: std::mem::take(&mut bytes) })?;
                (first, bytes) = begin(last);
            }
        }
    }
    if last >= first { each(Piece { first, last, bytes }) } else { Ok(()) }
}

/// A log that consists of copied records.
#[derive(Clone)]
pub struct CopiedLog {
    files: Arc<dyn Files>,
    segments: Arc<[(String, Sequence)]>,
    range: LogRange,
}

impl CopiedLog {
    /// Opens the segments of a directory, which must contain at least one. A segment may be empty.
    ///
    /// # Errors
    /// Fails if there is no segment, or the last one cannot be read.
    pub fn open(files: Arc<dyn Files>) -> Result<Self, StorageError> {
        let segments = segments(&*files)?;
        let (Some((_, first)), Some((name, last_first))) = (segments.first(), segments.last()) else {
            let cause = io::Error::new(io::ErrorKind::NotFound, "it has no copied records");
            return Err(StorageError::io("read", files.place(""))(cause));
        };
        let read = Segment::read(&*files, name, *last_first)?.walk(|_| Ok::<_, StorageError>(()))?;
        let range = LogRange { first: *first, last: Sequence(read.next.0 - 1) };
        Ok(Self { segments: segments.into(), files, range })
    }
}

impl SharedLog for CopiedLog {
    fn writer(&self) -> Result<Box<dyn LogWriter>, LogError> {
        Err(LogError::Setup(format!("{} has copied records, and accepts no others", self.place())))
    }

    fn to_read(&self) -> Arc<dyn ReadLog> {
        Arc::new(self.clone())
    }
}

impl ReadLog for CopiedLog {
    fn reader(&self, after: Sequence) -> Result<Box<dyn LogReader>, LogError> {
        self.range.check_after(after)?;
        let next = self.segments.partition_point(|(_, first)| *first <= after.next()).saturating_sub(1);
        Ok(Box::new(Reader { files: Arc::clone(&self.files), segments: Arc::clone(&self.segments), next, after }))
    }

    fn range(&self) -> Result<LogRange, LogError> {
        Ok(self.range)
    }

    fn place(&self) -> String {
        self.files.place("")
    }
}

struct Reader {
    files: Arc<dyn Files>,
    segments: Arc<[(String, Sequence)]>,
    /// The index of the next segment.
    next: usize,
    after: Sequence,
}

impl LogReader for Reader {
    fn read(&mut self, _: Duration) -> Result<Vec<LogRecord>, LogError> {
        let mut records = Vec::new();
        while records.is_empty()
            && let Some((name, first)) = self.segments.get(self.next)
        {
            let place = self.files.place(name);
            let unusable = |cause: String| LogError::Setup(format!("{place}: {cause}"));
            let segment = Segment::read(&*self.files, name, *first).map_err(|cause| unusable(cause.to_string()))?;
            let read = segment.walk(|found| {
                if found.sequence == self.after.next() {
                    self.after = found.sequence;
                    records.push(LogRecord { sequence: found.sequence, bytes: found.payload.to_vec() });
                }
                Ok::<_, LogError>(())
            })?;
            if let End::Damaged { reason } = read.end {
                return Err(unusable(reason));
            }
            self.next += 1;
        }
        Ok(records)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::files::memory::MemoryFiles;
    use crate::storage::log::memory::MemoryLog;

    fn pieces(log: &MemoryLog, after: u64, through: u64) -> Result<Vec<Piece>, LogError> {
        let mut pieces = Vec::new();
        copy(log, Identity::of_cluster(7), Sequence(after), Sequence(through), |piece| {
            pieces.push(piece);
            Ok::<_, LogError>(())
        })?;
        Ok(pieces)
    }

    fn log(records: impl IntoIterator<Item = Vec<u8>>) -> MemoryLog {
        let log = MemoryLog::default();
        let mut writer = log.writer().unwrap();
        records.into_iter().for_each(|record| writer.append(record).unwrap());
        log
    }

    #[test]
    fn copied_records_form_a_log_that_can_be_read_from_any_record() {
        // Two of the large records fill a piece.
        let content = |nth: u8| vec![nth; if nth.is_multiple_of(2) { 6 << 20 } else { 3 }];
        let log = log((0..9).map(content));
        let copied = pieces(&log, 2, 8).unwrap();
        assert_eq!(copied.len(), 2, "{:?}", copied.iter().map(|piece| (piece.first, piece.last)).collect::<Vec<_>>());
        assert_eq!(pieces(&log, copied[0].first.0 - 1, copied[0].last.0).unwrap(), copied[..1], "the same bytes");
        assert_eq!(pieces(&log, 8, 8).unwrap(), []);
        let files = MemoryFiles::default();
        for piece in &copied {
            files.create(&segment::name(piece.first)).unwrap().append(&piece.bytes).unwrap();
        }
        let copied = CopiedLog::open(Arc::new(files)).unwrap();
        assert_eq!(copied.range().unwrap(), LogRange { first: Sequence(3), last: Sequence(8) });
        for after in 2..=8 {
            let (mut reader, mut found) = (copied.reader(Sequence(after)).unwrap(), Vec::new());
            while let read = reader.read(Duration::ZERO).unwrap()
                && !read.is_empty()
            {
                found.extend(read);
            }
            let expected = |sequence| LogRecord { sequence: Sequence(sequence), bytes: content(sequence as u8 - 1) };
            assert!(found == (after + 1..=8).map(expected).collect::<Vec<_>>(), "after {after}");
        }
        assert!(matches!(copied.reader(Sequence(1)), Err(LogError::Deleted { .. })));
        assert!(matches!(copied.reader(Sequence(9)), Err(LogError::Shorter { .. })));
    }

    #[test]
    fn copying_deleted_records_fails() {
        let log = log((0..9u8).map(|nth| vec![nth]));
        log.delete_before(Sequence(5));
        assert!(matches!(pieces(&log, 3, 9), Err(LogError::Deleted { .. })));
        assert_eq!(pieces(&log, 4, 9).unwrap().len(), 1);
    }
}
