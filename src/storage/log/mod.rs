//! A log that several nodes share: the order of records for all of them.
//!
//! Responsible for:
//! - the interface between a cluster and its log: appending records, and reading them back in order.
//!
//! A writer gets no acknowledgement for its records: it reads them back. A record that was not read back may or may not be in the log.

pub mod copied;
pub mod files;
pub mod memory;
pub mod patient;
mod segment_tests;
pub mod segments;

use std::sync::Arc;
use std::time::Duration;

use crate::storage::sequence::Sequence;

/// Maximum bytes of one record. The largest is a bulk of follow edges with the longest ids.
pub const RECORD_BYTES_MAX: usize = 16 << 20;

/// A record as it was read from the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogRecord {
    /// Its place in the order. Sequences start at 1 and increase without gaps.
    pub sequence: Sequence,
    /// Its content, as it was appended.
    pub bytes: Vec<u8>,
}

/// The records that the log still contains: from `first` up to and including `last`. The log is empty if `last` is before `first`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogRange {
    /// The first record that was not deleted.
    pub first: Sequence,
    /// The last stored record.
    pub last: Sequence,
}

impl LogRange {
    /// Checks that the records after `after` can be read.
    ///
    /// # Errors
    /// Fails if the first of them was deleted, or the log ends before `after`.
    pub fn check_after(self, after: Sequence) -> Result<(), LogError> {
        let Self { first, last } = self;
        if after > last {
            return Err(LogError::Shorter { wanted: after, last });
        }
        if after.next() < first {
            return Err(LogError::Deleted { wanted: after.next(), first });
        }
        Ok(())
    }
}

/// The reason why a log could not be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// The log cannot be reached now, or does not answer in time. Later attempts may succeed.
    #[error("the log is unavailable: {0}")]
    Unavailable(String),
    /// The writer has reached its limit of records in flight.
    #[error("{records} records wait to be stored in the log")]
    Busy {
        /// The number of these records.
        records: usize,
    },
    /// The record exceeds the size limit of the log.
    #[error("a record of {bytes} bytes exceeds the limit of the log, {limit} bytes")]
    TooLarge {
        /// The size of the record.
        bytes: usize,
        /// The limit of the log.
        limit: usize,
    },
    /// The records after a sequence were deleted from the log.
    #[error("the log begins at record {first}, and record {wanted} is needed")]
    Deleted {
        /// The record that is needed.
        wanted: Sequence,
        /// The first record that the log still contains.
        first: Sequence,
    },
    /// The log ends before a record that was read from it earlier: it is another log, or records are lost.
    #[error("the log ends at record {last}, and record {wanted} was read from it before")]
    Shorter {
        /// The record that was read.
        wanted: Sequence,
        /// The last record of the log.
        last: Sequence,
    },
    /// A record is not the one that was read in its place before: the log was replaced by another one.
    #[error("record {sequence} of the log is not the one that was read before: this is another log")]
    Replaced {
        /// The record that differs.
        sequence: Sequence,
    },
    /// A record that was stored cannot be read.
    #[error("{place} is damaged at byte {offset_bytes}, where record {sequence} should be: {reason}")]
    Damaged {
        /// Path of the file.
        place: String,
        /// Offset of the damage in the file, in bytes.
        offset_bytes: u64,
        /// The record that is expected there.
        sequence: Sequence,
        /// Description of the damage.
        reason: String,
    },
    /// The configuration of the log would lose records. The text names the setting, its value, and the required value.
    #[error("{0}")]
    Setup(String),
}

/// A log that can be read while others append to it.
pub trait ReadLog: Send + Sync {
    /// Creates a reader of the records after `after`.
    ///
    /// # Errors
    /// Fails if the log cannot be used, has deleted the record after `after`, or ends before `after`.
    fn reader(&self, after: Sequence) -> Result<Box<dyn LogReader>, LogError>;

    /// Returns the range of records in the log. May block until the log answers.
    ///
    /// # Errors
    /// Fails if the log does not answer.
    fn range(&self) -> Result<LogRange, LogError>;

    /// Returns the address of the log for messages.
    fn place(&self) -> String;
}

/// A log, as one node uses it.
pub trait SharedLog: ReadLog {
    /// Creates a writer. Each node has one.
    ///
    /// # Errors
    /// Fails if the log cannot be used.
    fn writer(&self) -> Result<Box<dyn LogWriter>, LogError>;

    /// Returns a handle for reading, which may outlive this one.
    fn to_read(&self) -> Arc<dyn ReadLog>;
}

/// Appends records to a log. Records that are not stored when it is dropped are lost.
pub trait LogWriter: Send + 'static {
    /// Appends a record, and returns at once: the log stores the record later, or never. The log stores the records of one writer in the
    /// order of the appends, and each at most once. It may store later records although it lost an earlier one. The error
    /// [`LogError::Unavailable`] ends this order: a record from before it may still be stored after a record that is appended later.
    ///
    /// # Errors
    /// Fails if the record was certainly not appended.
    fn append(&mut self, record: Vec<u8>) -> Result<(), LogError>;

    /// Waits until all records are stored, up to `at_most`. Records that are not stored by then may be lost when the writer is dropped.
    fn flush(&mut self, at_most: Duration) {
        let _ = at_most;
    }
}

/// Reads the records of a log in their order.
pub trait LogReader: Send + 'static {
    /// Returns the next stored records, at most a few thousand. Waits for the first of them up to `wait`, and returns an empty list if
    /// none arrives by then.
    ///
    /// # Errors
    /// Fails if the log cannot be read. The next call continues at the same record. It may fail at once, so pause before it.
    fn read(&mut self, wait: Duration) -> Result<Vec<LogRecord>, LogError>;
}
