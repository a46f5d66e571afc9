//! The checkpoint up to which a node has read the log: it continues there after a start from a snapshot.

use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::cluster::membership::{Membership, ReadError, RecordOutcome};
use crate::cluster::record::{Content, FirstState, Header, decode_content, decode_header};
use crate::storage::log::{LogError, LogReader, LogRecord, SharedLog};
use crate::storage::sequence::Sequence;

/// The state of a cluster after a record of its log.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogCheckpoint {
    /// The state after the record.
    pub membership: Membership,
    /// The sequence of the record.
    pub sequence: Sequence,
    /// The sequence of the last event that took effect, or 1. It identifies the state of the world.
    #[serde(default = "founding")]
    pub last_event: Sequence,
    /// The XXH3 hash of the record, which differs in another log.
    pub fingerprint: u64,
}

fn founding() -> Sequence {
    Sequence(1)
}

impl LogCheckpoint {
    /// Reads the first record of a log.
    ///
    /// # Errors
    /// Fails if the log is not the log of a cluster.
    pub fn founded(record: &LogRecord) -> Result<Self, ReadError> {
        let (header, content) = decode_header(&record.bytes)?;
        let membership = Membership::founded(&header, content)?;
        let (sequence, fingerprint) = (record.sequence, xxh3_64(&record.bytes));
        Ok(Self { membership, sequence, last_event: founding(), fingerprint })
    }

    /// Returns the state with which the log of this first record begins, or None if it begins with an empty state.
    ///
    /// # Errors
    /// Fails if the record cannot be read.
    pub fn first_state(record: &LogRecord) -> Result<Option<FirstState>, ReadError> {
        let (_, content) = decode_header(&record.bytes)?;
        match decode_content(content)? {
            Content::FoundedFrom { state, .. } => Ok(Some(state)),
            _ => Ok(None),
        }
    }

    /// Reads the next record.
    ///
    /// # Errors
    /// Fails if the log cannot be followed any further. The checkpoint is then unchanged.
    pub fn read(&mut self, record: &LogRecord) -> Result<(Header, RecordOutcome), ReadError> {
        let (header, content) = decode_header(&record.bytes)?;
        let counted = self.membership.read(record.sequence, &header, decode_content(content))?;
        (self.sequence, self.fingerprint) = (record.sequence, xxh3_64(&record.bytes));
        if let RecordOutcome::Event(_) = counted {
            self.last_event = record.sequence;
        }
        Ok((header, counted))
    }

    /// Checks that a log has the last record that was read at its place, unless the record was deleted.
    ///
    /// # Errors
    /// Fails if the log has another record there, or cannot be read.
    pub fn check_in(&self, log: &dyn SharedLog) -> Result<(), LogError> {
        if self.sequence < log.range()?.first {
            return Ok(());
        }
        let found = first_after(log, Sequence(self.sequence.0.saturating_sub(1)))?;
        match found {
            Some(found) if xxh3_64(&found.bytes) == self.fingerprint => Ok(()),
            _ => Err(LogError::Replaced { sequence: self.sequence }),
        }
    }
}

/// Time for which one read waits for a record.
const READ_WAIT: Duration = Duration::from_millis(200);

/// Maximum time until the log has returned a record that it has: another broker replaces a hanging one after some
/// seconds.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// Returns the first record after a sequence, or None if the log ends there. Blocks until it is read.
///
/// # Errors
/// Fails if the log cannot be read.
pub fn first_after(log: &dyn SharedLog, after: Sequence) -> Result<Option<LogRecord>, LogError> {
    if log.range()?.last <= after {
        return Ok(None);
    }
    let mut reader = log.reader(after)?;
    first_read(&mut *reader, SILENCE_MAX)?
        .map(Some)
        .ok_or_else(|| LogError::Unavailable(format!("{} has not returned a record in time", log.place())))
}

/// Returns the next record of a reader. Retries while the log does not answer. Returns None if no record arrives within
/// `patience`.
pub(super) fn first_read(reader: &mut dyn LogReader, patience: Duration) -> Result<Option<LogRecord>, LogError> {
    let began = Instant::now();
    loop {
        match reader.read(READ_WAIT) {
            Ok(records) if !records.is_empty() => return Ok(records.into_iter().next()),
            Ok(_) if began.elapsed() >= patience => return Ok(None),
            Ok(_) => {}
            Err(LogError::Unavailable(_)) if began.elapsed() < patience => thread::park_timeout(READ_WAIT),
            Err(cause) => return Err(cause),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader with these answers.
    struct Answers(Vec<Result<Vec<LogRecord>, LogError>>);

    impl LogReader for Answers {
        fn read(&mut self, _: Duration) -> Result<Vec<LogRecord>, LogError> {
            self.0.pop().unwrap_or_else(|| Ok(Vec::new()))
        }
    }

    #[test]
    fn reads_of_an_unavailable_log_are_retried_for_a_limited_time() {
        let record = LogRecord { sequence: Sequence(1), bytes: vec![1] };
        let (nothing, silent) = (Ok(Vec::new()), LogError::Unavailable("no answer".to_owned()));
        let setup = LogError::Setup("another topic".to_owned());
        for (first, patience, expected) in [
            (Err(silent.clone()), SILENCE_MAX, Ok(Some(record.clone()))),
            (nothing.clone(), SILENCE_MAX, Ok(Some(record.clone()))),
            (Err(silent.clone()), Duration::ZERO, Err(silent)),
            (nothing, Duration::ZERO, Ok(None)),
            (Err(setup.clone()), SILENCE_MAX, Err(setup)),
        ] {
            let mut reader = Answers(vec![Ok(vec![record.clone()]), first]);
            assert_eq!(first_read(&mut reader, patience), expected);
        }
    }
}
