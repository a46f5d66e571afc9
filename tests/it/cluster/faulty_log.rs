//! A log from which single nodes can be cut off: what they append meanwhile is lost, or comes later.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use tidewire::storage::log::memory::MemoryLog;
use tidewire::storage::log::{LogError, LogRange, LogReader, LogRecord, LogWriter, ReadLog, SharedLog};
use tidewire::storage::sequence::Sequence;

/// The way in which a node is cut off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Cut {
    /// It is not.
    No = 0,
    /// It reads nothing. What it appends is held back, and stored when this ends: as if it had been paused, or its network had.
    Delayed = 1,
    /// It reads, but what it appends is lost, without a word.
    Lost = 2,
    /// It reads, and appending fails.
    Refused = 3,
    /// It reads nothing, while what it appends is stored.
    Deaf = 4,
    /// It reads everything late, by [`LATE`] for each read.
    Slow = 5,
}

/// The delay of a slow log.
pub const LATE: Duration = Duration::from_millis(100);

/// The log of one node.
#[derive(Clone)]
pub struct FaultyLog {
    log: MemoryLog,
    cut: Arc<AtomicU8>,
    /// The sequence after which the last reader began.
    began: Arc<AtomicU64>,
}

impl FaultyLog {
    pub fn new(log: &MemoryLog) -> Self {
        Self { log: log.clone(), cut: Arc::default(), began: Arc::default() }
    }

    pub fn set(&self, cut: Cut) {
        self.cut.store(cut as u8, Ordering::SeqCst);
    }

    /// Returns the sequence after which the last reader began.
    pub fn began(&self) -> Sequence {
        Sequence(self.began.load(Ordering::SeqCst))
    }

    fn is(&self, cut: Cut) -> bool {
        self.cut.load(Ordering::SeqCst) == cut as u8
    }
}

struct Writer {
    of: FaultyLog,
    writer: Box<dyn LogWriter>,
    held: Vec<Vec<u8>>,
}

struct Reader {
    of: FaultyLog,
    reader: Box<dyn LogReader>,
}

impl SharedLog for FaultyLog {
    fn writer(&self) -> Result<Box<dyn LogWriter>, LogError> {
        Ok(Box::new(Writer { of: self.clone(), writer: self.log.writer()?, held: Vec::new() }))
    }

    fn to_read(&self) -> Arc<dyn ReadLog> {
        Arc::new(self.clone())
    }
}

impl ReadLog for FaultyLog {
    fn reader(&self, after: Sequence) -> Result<Box<dyn LogReader>, LogError> {
        self.began.store(after.0, Ordering::SeqCst);
        Ok(Box::new(Reader { of: self.clone(), reader: self.log.reader(after)? }))
    }

    fn range(&self) -> Result<LogRange, LogError> {
        self.log.range()
    }

    fn place(&self) -> String {
        self.log.place()
    }
}

impl LogWriter for Writer {
    fn append(&mut self, record: Vec<u8>) -> Result<(), LogError> {
        if self.of.is(Cut::Refused) {
            return Err(LogError::Unavailable("cut off".to_owned()));
        }
        if self.of.is(Cut::Lost) {
            return Ok(());
        }
        self.held.push(record);
        if !self.of.is(Cut::Delayed) {
            self.held.drain(..).try_for_each(|record| self.writer.append(record))?;
        }
        Ok(())
    }
}

impl LogReader for Reader {
    fn read(&mut self, wait: Duration) -> Result<Vec<LogRecord>, LogError> {
        if self.of.is(Cut::Delayed) {
            std::thread::park_timeout(wait);
            return Err(LogError::Unavailable("cut off".to_owned()));
        }
        if self.of.is(Cut::Deaf) {
            std::thread::park_timeout(wait);
            return Ok(Vec::new());
        }
        if self.of.is(Cut::Slow) {
            std::thread::park_timeout(LATE);
        }
        self.reader.read(wait)
    }
}
