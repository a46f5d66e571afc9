//! The records of the state in a snapshot, and their order.

use serde::Serialize;

use crate::state::records::RecordTraversal;
use crate::storage::error::StorageError;
use crate::storage::snapshot::{Section, SnapshotWriter};

/// A receiver of the records of a snapshot.
pub trait Records {
    /// Receives one record of a section.
    ///
    /// # Errors
    /// Fails if the record cannot be written, or if the receiver accepts no more records.
    fn record<T: Serialize>(&mut self, section: Section, record: &T) -> Result<(), StorageError>;
}

impl Records for SnapshotWriter<'_> {
    fn record<T: Serialize>(&mut self, section: Section, record: &T) -> Result<(), StorageError> {
        Self::record(self, section, record)
    }
}

/// Traverses the state, and passes its records to `records`. `recovery` reads them again.
///
/// # Errors
/// Fails if a record was rejected.
pub fn write_world(walk: RecordTraversal<'_>, records: &mut impl Records) -> Result<(), StorageError> {
    let awaited = walk.awaited();
    walk.sources().try_for_each(|record| records.record(Section::Sources, &record))?;
    awaited.iter().try_for_each(|record| records.record(Section::Awaited, record))?;
    walk.edges().try_for_each(|record| records.record(Section::Edges, &record))?;
    walk.preferences().try_for_each(|record| records.record(Section::Preferences, &record))?;
    walk.reposts(|record| records.record(Section::Reposts, &record))?;
    walk.revocations().try_for_each(|record| records.record(Section::Revocations, &record))?;
    walk.posts(|record| records.record(Section::Posts, &record))?;
    walk.deleted().try_for_each(|record| records.record(Section::Deleted, &record))?;
    // After the posts: a post that is archived meanwhile may be in both sections, but is in at least one.
    walk.archived_counts().try_for_each(|record| records.record(Section::ArchivedCounts, &record))
}
