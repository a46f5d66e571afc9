//! A log in memory, which the engines of one process share. For tests, and as the naive model of other logs.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::storage::log::{LogError, LogRange, LogReader, LogRecord, LogWriter, RECORD_BYTES_MAX, ReadLog, SharedLog};
use crate::storage::sequence::Sequence;

/// Maximum number of records in one answer of a reader.
const RECORDS_PER_READ_MAX: usize = 1_024;

/// A log in memory. Clones share it.
#[derive(Clone, Default)]
pub struct MemoryLog {
    shared: Arc<Stored>,
}

#[derive(Default)]
struct Stored {
    records: Mutex<Records>,
    appended: Condvar,
}

#[derive(Default)]
struct Records {
    /// The number of records that were deleted: those before the first of `kept`.
    deleted: usize,
    kept: VecDeque<Vec<u8>>,
}

impl Records {
    fn range(&self) -> LogRange {
        let first = Sequence(self.deleted as u64).next();
        LogRange { first, last: Sequence((self.deleted + self.kept.len()) as u64) }
    }
}

struct Writer(MemoryLog);

struct Reader {
    log: MemoryLog,
    next: usize,
}

impl MemoryLog {
    /// Deletes all records before `first`, like a log with limited retention.
    pub fn delete_before(&self, first: Sequence) {
        let mut records = self.shared.records.lock();
        let count = (first.0.saturating_sub(1) as usize).saturating_sub(records.deleted).min(records.kept.len());
        records.kept.drain(..count);
        records.deleted += count;
    }
}

impl SharedLog for MemoryLog {
    fn writer(&self) -> Result<Box<dyn LogWriter>, LogError> {
        Ok(Box::new(Writer(self.clone())))
    }

    fn to_read(&self) -> Arc<dyn ReadLog> {
        Arc::new(self.clone())
    }
}

impl ReadLog for MemoryLog {
    fn reader(&self, after: Sequence) -> Result<Box<dyn LogReader>, LogError> {
        self.range()?.check_after(after)?;
        Ok(Box::new(Reader { log: self.clone(), next: after.0 as usize }))
    }

    fn range(&self) -> Result<LogRange, LogError> {
        Ok(self.shared.records.lock().range())
    }

    fn place(&self) -> String {
        "memory".to_owned()
    }
}

impl LogWriter for Writer {
    fn append(&mut self, record: Vec<u8>) -> Result<(), LogError> {
        if record.len() > RECORD_BYTES_MAX {
            return Err(LogError::TooLarge { bytes: record.len(), limit: RECORD_BYTES_MAX });
        }
        self.0.shared.records.lock().kept.push_back(record);
        self.0.shared.appended.notify_all();
        Ok(())
    }
}

impl LogReader for Reader {
    fn read(&mut self, wait: Duration) -> Result<Vec<LogRecord>, LogError> {
        let until = Instant::now() + wait;
        let mut records = self.log.shared.records.lock();
        while records.deleted + records.kept.len() <= self.next {
            if self.log.shared.appended.wait_until(&mut records, until).timed_out() {
                return Ok(Vec::new());
            }
        }
        let from = self.next;
        let Some(skipped) = from.checked_sub(records.deleted) else {
            let wanted = Sequence(from as u64).next();
            return Err(LogError::Deleted { wanted, first: records.range().first });
        };
        let read = records.kept.iter().skip(skipped).take(RECORDS_PER_READ_MAX);
        let sequences = (from as u64 + 1..).map(Sequence);
        let read: Vec<_> =
            sequences.zip(read).map(|(sequence, bytes)| LogRecord { sequence, bytes: bytes.clone() }).collect();
        self.next += read.len();
        Ok(read)
    }
}
