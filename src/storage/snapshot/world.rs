//! The state in a snapshot: which records there are, in which order.

use serde::Serialize;

use crate::state::records::Walk;
use crate::storage::error::StorageError;
use crate::storage::snapshot::{Section, SnapshotWriter};

/// What takes the records of a snapshot.
pub trait Records {
    /// Takes one.
    ///
    /// # Errors
    /// When it cannot be written, or no more are wanted.
    fn record<T: Serialize>(&mut self, section: Section, record: &T) -> Result<(), StorageError>;
}

impl Records for SnapshotWriter<'_> {
    fn record<T: Serialize>(&mut self, section: Section, record: &T) -> Result<(), StorageError> {
        Self::record(self, section, record)
    }
}

/// Walks the state, and hands over its records. `storage::recovery` reads them again.
///
/// # Errors
/// When one was not taken.
pub fn write_world(walk: Walk<'_>, records: &mut impl Records) -> Result<(), StorageError> {
    walk.sources().try_for_each(|record| records.record(Section::Sources, &record))?;
    walk.edges().try_for_each(|record| records.record(Section::Edges, &record))?;
    walk.preferences().try_for_each(|record| records.record(Section::Preferences, &record))?;
    walk.reposts(|record| records.record(Section::Reposts, &record))?;
    walk.revocations().try_for_each(|record| records.record(Section::Revocations, &record))?;
    walk.posts(|record| records.record(Section::Posts, &record))?;
    walk.deleted().try_for_each(|record| records.record(Section::Deleted, &record))
}
