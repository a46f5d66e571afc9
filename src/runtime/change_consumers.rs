//! Consumers of changes that are registered by name, with their positions.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::id::ConsumerName;
use crate::limits::CHANGE_CONSUMERS_MAX;
use crate::storage::error::StorageError;
use crate::storage::files::{Files, replace};
use crate::storage::sequence::Sequence;

/// The file with all positions, as JSON.
const FILE: &str = "consumers.json";

/// The format that is written, and the only one that can be read.
const FORMAT: u16 = 1;

/// Maximum size of the file; a larger one was not written by Tidewire. The largest has about 10 KiB.
const FILE_BYTES_MAX: u64 = 1 << 20;

type Positions = BTreeMap<ConsumerName, Sequence>;

/// The content of the file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    format: u16,
    consumers: Positions,
}

/// The registered consumers of one engine, at most [`CHANGE_CONSUMERS_MAX`].
#[derive(Default)]
pub(crate) struct ChangeConsumers {
    positions: Mutex<Positions>,
    files: Option<Arc<dyn Files>>,
    /// Locked while the file is written, so that the latest content is written last.
    writing: Mutex<()>,
    /// The first event that an erasure leaves in the journal, or 0. Locked while a position is compared with the journal and stored, and while
    /// the journal is removed.
    journal: Mutex<Sequence>,
}

impl ChangeConsumers {
    /// Reads the consumers that an earlier process stored in this directory, and stores all changes there. `last` is
    /// the last event of the journal. A consumer at a later position has processed events that are lost, so it is
    /// removed with a warning.
    ///
    /// # Errors
    /// Fails if the file cannot be read. Without it, the journal would be removed before the consumers have read it.
    pub(crate) fn open(files: Arc<dyn Files>, last: Sequence) -> Result<Self, StorageError> {
        let names = files.list().map_err(StorageError::io("read the directory", files.place("")))?;
        let mut positions = if names.iter().any(|name| name == FILE) { read(&*files)? } else { Positions::new() };
        let count = positions.len();
        positions.retain(|name, position| {
            let is_known = *position <= last;
            if !is_known {
                let name = name.as_str();
                warn!(
                    "removed the consumer of changes {name}: its position {position} is after the end of the journal, {last}"
                );
            }
            is_known
        });
        if positions.len() < count {
            // A later start would find events with these sequences again.
            write(&*files, &positions)?;
        }
        Ok(Self { positions: Mutex::new(positions), files: Some(files), ..Self::default() })
    }

    /// While the guard exists, no part of the journal is removed and no position is stored. The guard contains the
    /// first event that an erasure leaves; earlier positions are refused, since the erasure is about to remove their
    /// events. Blocks.
    pub(crate) fn hold_journal(&self) -> MutexGuard<'_, Sequence> {
        self.journal.lock()
    }

    /// Returns all consumers with their positions, in the order of their names.
    pub(crate) fn all(&self) -> Vec<(ConsumerName, Sequence)> {
        self.positions.lock().iter().map(|(name, position)| (name.clone(), *position)).collect()
    }

    /// Returns the position of a consumer: the last event that it has processed.
    pub(crate) fn position(&self, name: &ConsumerName) -> Option<Sequence> {
        self.positions.lock().get(name).copied()
    }

    /// Returns the last event that all consumers have processed, or None without consumers. A consumer whose next event
    /// is before `oldest`, the first event left, does not count, since it cannot continue.
    pub(crate) fn consumed(&self, oldest: Sequence) -> Option<Sequence> {
        self.positions.lock().values().filter(|position| position.next() >= oldest).min().copied()
    }

    /// Registers a consumer, or moves it. Blocks until this is stored. Returns false and changes nothing if the maximum
    /// number of consumers is reached.
    ///
    /// # Errors
    /// Fails if the file cannot be written. The positions are then unchanged.
    pub(crate) fn set(&self, name: ConsumerName, position: Sequence) -> Result<bool, StorageError> {
        self.change(|consumers| {
            let has_room = consumers.contains_key(&name) || consumers.len() < CHANGE_CONSUMERS_MAX;
            if has_room {
                consumers.insert(name, position);
            }
            has_room
        })
    }

    /// Removes a consumer. Blocks until this is stored. Returns false if no consumer has this name.
    ///
    /// # Errors
    /// Fails if the file cannot be written. The positions are then unchanged.
    pub(crate) fn remove(&self, name: &ConsumerName) -> Result<bool, StorageError> {
        self.change(|consumers| consumers.remove(name).is_some())
    }

    /// Changes the positions and stores them. If `change` returns false, it has changed nothing, and nothing is stored.
    fn change(&self, change: impl FnOnce(&mut Positions) -> bool) -> Result<bool, StorageError> {
        let _writing = self.writing.lock();
        // The file is written without a lock on the positions: requests that only read them do not wait for the disk.
        let mut changed = self.positions.lock().clone();
        if !change(&mut changed) {
            return Ok(false);
        }
        if let Some(files) = &self.files {
            write(&**files, &changed)?;
        }
        *self.positions.lock() = changed;
        Ok(true)
    }
}

fn read(files: &dyn Files) -> Result<Positions, StorageError> {
    let failed = || StorageError::io("read", files.place(FILE));
    let mut bytes = Vec::new();
    files.read(FILE).map_err(failed())?.0.take(FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(failed())?;
    let bad = |reason: String| StorageError::BadConsumers { place: files.place(FILE), reason };
    let Stored { format, consumers } = serde_json::from_slice(&bytes).map_err(|cause| bad(cause.to_string()))?;
    if format == FORMAT { Ok(consumers) } else { Err(bad(format!("format {format} is not known"))) }
}

fn write(files: &dyn Files, consumers: &Positions) -> Result<(), StorageError> {
    let stored = Stored { format: FORMAT, consumers: consumers.clone() };
    let bytes = serde_json::to_vec(&stored).map_err(io::Error::from);
    bytes.and_then(|bytes| replace(files, FILE, &bytes)).map_err(StorageError::io("write", files.place(FILE)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::files::memory::MemoryFiles;

    fn name(text: &str) -> ConsumerName {
        text.parse().unwrap()
    }

    /// The first event of the journal, and the last one.
    const JOURNAL: [Sequence; 2] = [Sequence(1), Sequence(9)];

    fn opened(files: &MemoryFiles) -> Result<ChangeConsumers, StorageError> {
        ChangeConsumers::open(Arc::new(files.clone()), JOURNAL[1])
    }

    #[test]
    fn positions_survive_a_restart_and_the_slowest_consumer_counts() {
        let files = MemoryFiles::default();
        let consumers = opened(&files).unwrap();
        assert_eq!(consumers.consumed(JOURNAL[0]), None);
        for (text, position) in [("search", 7), ("push", 9), ("search", 8)] {
            assert!(consumers.set(name(text), Sequence(position)).unwrap());
        }
        drop(consumers);
        let consumers = opened(&files).unwrap();
        assert_eq!(consumers.all(), [(name("push"), Sequence(9)), (name("search"), Sequence(8))]);
        assert_eq!(consumers.consumed(JOURNAL[0]), Some(Sequence(8)));
        assert!(consumers.remove(&name("search")).unwrap() && !consumers.remove(&name("search")).unwrap());
        let consumers = opened(&files).unwrap();
        assert_eq!((consumers.position(&name("search")), consumers.consumed(JOURNAL[0])), (None, Some(Sequence(9))));
    }

    #[test]
    fn a_consumer_of_lost_events_is_removed_and_one_that_cannot_resume_retains_none() {
        let files = MemoryFiles::default();
        let consumers = opened(&files).unwrap();
        for (text, position) in [("late", 2), ("search", 8)] {
            assert!(consumers.set(name(text), Sequence(position)).unwrap());
        }
        let consumed = |oldest| consumers.consumed(Sequence(oldest)).map(|sequence| sequence.0);
        assert_eq!([1, 3, 4, 9, 10].map(consumed), [Some(2), Some(2), Some(8), Some(8), None]);
        for last in [7, 9] {
            let consumers = ChangeConsumers::open(Arc::new(files.clone()), Sequence(last)).unwrap();
            assert_eq!(consumers.all(), [(name("late"), Sequence(2))]);
        }
    }

    #[test]
    fn a_failed_or_excess_consumer_change_has_no_effect() {
        let files = MemoryFiles::default();
        let consumers = opened(&files).unwrap();
        for nth in 0..CHANGE_CONSUMERS_MAX {
            assert!(consumers.set(name(&nth.to_string()), Sequence(1)).unwrap());
        }
        assert!(!consumers.set(name("more"), Sequence(1)).unwrap());
        files.limit(Some(files.bytes()));
        assert!(consumers.set(name("0"), Sequence(2)).is_err());
        assert!(consumers.remove(&name("0")).is_err());
        for consumers in [consumers, opened(&files).unwrap()] {
            assert_eq!(
                (consumers.all().len(), consumers.consumed(JOURNAL[0])),
                (CHANGE_CONSUMERS_MAX, Some(Sequence(1)))
            );
            assert_eq!(consumers.position(&name("0")), Some(Sequence(1)));
        }
    }

    #[test]
    fn an_invalid_consumers_file_is_named() {
        for (content, reason) in [
            ("", "EOF while parsing a value at line 1 column 0"),
            (r#"{"format":2,"consumers":{}}"#, "format 2 is not known"),
            (r#"{"format":1,"consumers":{"a b":1}}"#, "but has ' ' at byte 1"),
        ] {
            let files = MemoryFiles::default();
            files.put(FILE, content.into());
            let Err(cause) = opened(&files) else { panic!("{content} was read") };
            let cause = cause.to_string();
            assert!(cause.contains("memory/consumers.json") && cause.contains(reason), "{cause}");
        }
    }
}
