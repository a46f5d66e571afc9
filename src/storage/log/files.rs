//! A log in segment files, for tests: it runs the readers of a single machine's journal under the contract of a shared log.
#![cfg(any(test, feature = "testing"))]
#![allow(clippy::missing_panics_doc, reason = "tests")]

use std::sync::Arc;

use parking_lot::Mutex;

use crate::clock::SystemClock;
use crate::storage::files::Files;
use crate::storage::journal::writer::{JournalOptions, SegmentJournal, Tail};
use crate::storage::journal::{Durability, Journal};
use crate::storage::log::segments::SegmentLog;
use crate::storage::log::{LogError, LogRange, LogReader, LogWriter, RECORD_BYTES_MAX, ReadLog, SharedLog};
use crate::storage::sequence::Sequence;

/// Segment files with a writer that accepts any records.
pub struct FilesLog {
    journal: Arc<Mutex<SegmentJournal>>,
    log: SegmentLog,
}

impl FilesLog {
    /// Creates a log whose files have about this many bytes each.
    pub fn create(files: Arc<dyn Files>, segment_bytes: u64) -> Self {
        let options = JournalOptions { durability: Durability::Never, segment_bytes };
        let journal = SegmentJournal::open(Arc::clone(&files), &Tail::default(), options, Arc::new(SystemClock))
            .expect("an empty journal can be opened");
        let log = SegmentLog::new(files, journal.figures());
        Self { journal: Arc::new(Mutex::new(journal)), log }
    }
}

impl SharedLog for FilesLog {
    fn writer(&self) -> Result<Box<dyn LogWriter>, LogError> {
        Ok(Box::new(Writer(Arc::clone(&self.journal))))
    }

    fn to_read(&self) -> Arc<dyn ReadLog> {
        Arc::new(self.log.clone())
    }
}

impl ReadLog for FilesLog {
    fn reader(&self, after: Sequence) -> Result<Box<dyn LogReader>, LogError> {
        self.log.reader(after)
    }

    fn range(&self) -> Result<LogRange, LogError> {
        self.log.range()
    }

    fn place(&self) -> String {
        self.log.place()
    }
}

struct Writer(Arc<Mutex<SegmentJournal>>);

impl LogWriter for Writer {
    fn append(&mut self, record: Vec<u8>) -> Result<(), LogError> {
        if record.len() > RECORD_BYTES_MAX {
            return Err(LogError::TooLarge { bytes: record.len(), limit: RECORD_BYTES_MAX });
        }
        let mut journal = self.0.lock();
        journal.append_record(|into| into.extend(record));
        journal.commit().map(drop).map_err(|cause| LogError::Unavailable(cause.to_string()))
    }
}
