//! A log in memory, which the engines of one process share. For tests, and as the naive model of other logs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::storage::journal::Sequence;
use crate::storage::log::{LogError, LogRange, LogReader, LogRecord, LogWriter, RECORD_BYTES_MAX, SharedLog};

/// Maximum number of records in one answer of a reader.
const RECORDS_PER_READ_MAX: usize = 1_024;

/// A log in memory. Clones share it.
#[derive(Clone, Default)]
pub struct MemoryLog {
    shared: Arc<Stored>,
}

#[derive(Default)]
struct Stored {
    records: Mutex<Vec<Vec<u8>>>,
    appended: Condvar,
}

struct Writer(MemoryLog);

struct Reader {
    log: MemoryLog,
    next: usize,
}

impl SharedLog for MemoryLog {
    fn writer(&self) -> Result<Box<dyn LogWriter>, LogError> {
        Ok(Box::new(Writer(self.clone())))
    }

    fn reader(&self, after: Sequence) -> Result<Box<dyn LogReader>, LogError> {
        let LogRange { last, .. } = self.range()?;
        if after > last {
            return Err(LogError::Shorter { wanted: after, last });
        }
        Ok(Box::new(Reader { log: self.clone(), next: after.0 as usize }))
    }

    fn range(&self) -> Result<LogRange, LogError> {
        Ok(LogRange { first: Sequence(1), last: Sequence(self.shared.records.lock().len() as u64) })
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
        self.0.shared.records.lock().push(record);
        self.0.shared.appended.notify_all();
        Ok(())
    }
}

impl LogReader for Reader {
    fn read(&mut self, wait: Duration) -> Result<Vec<LogRecord>, LogError> {
        let until = Instant::now() + wait;
        let mut records = self.log.shared.records.lock();
        while records.len() <= self.next {
            if self.log.shared.appended.wait_until(&mut records, until).timed_out() {
                return Ok(Vec::new());
            }
        }
        let from = self.next;
        self.next = records.len().min(from + RECORDS_PER_READ_MAX);
        let with_sequence = |(nth, bytes): (usize, &Vec<u8>)| LogRecord {
            sequence: Sequence((from + nth + 1) as u64),
            bytes: bytes.clone(),
        };
        Ok(records[from..self.next].iter().enumerate().map(with_sequence).collect())
    }
}
