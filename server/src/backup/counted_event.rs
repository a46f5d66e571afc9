//! Selects the events that count among the copied records of a cluster.

use crate::backup::BackupError;
use tidewire::cluster::journal::JoinError;
use tidewire::cluster::log_checkpoint::LogCheckpoint;
use tidewire::cluster::membership::RecordOutcome;
use tidewire::feed::event::Event;
use tidewire::storage::log::LogRecord;
use tidewire::storage::segment::FoundEvent;

/// Applies a copied record to the checkpoint, and returns its event if it counts. Records of a replaced sequencer do not count.
pub(super) fn counted_event(
    followed: &mut LogCheckpoint,
    place: &str,
    found: &FoundEvent<'_>,
) -> Result<Option<Event>, BackupError> {
    let record = LogRecord { sequence: found.sequence, bytes: found.payload.to_vec() };
    match followed.read(&record) {
        Ok((_, RecordOutcome::Event(event))) => Ok(Some(event)),
        Ok(_) => Ok(None),
        Err(cause) => Err(JoinError::Record { place: place.to_owned(), sequence: found.sequence, cause }.into()),
    }
}
