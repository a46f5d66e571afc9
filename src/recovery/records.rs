//! The records of the state in a snapshot: written in their order, and decoded from its blocks.

use serde::Serialize;

use crate::cluster::log_checkpoint::LogCheckpoint;
use crate::feed::record::PostRecord;
use crate::state::records::{
    ArchivedCountsRecord, AwaitedRecord, DeletedRecord, EdgesRecord, InboxRecord, PreferencesRecord, RecordTraversal,
    RepostsRecord, RevocationsRecord, SourceRecord, UnderWayRecord,
};
use crate::storage::error::StorageError;
use crate::storage::snapshot::{Block, Section, SnapshotWriter};

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

/// The decoded records of one block.
pub enum RecordBatch {
    /// Sources, in the order of their numbers in the snapshot.
    Sources(Vec<SourceRecord>),
    /// Edges of readers to the sources that they follow.
    Edges(Vec<EdgesRecord>),
    /// Preferences of the readers.
    Preferences(Vec<PreferencesRecord>),
    /// Reposts, grouped by the original post.
    Reposts(Vec<RepostsRecord>),
    /// Revocations of access tokens.
    Revocations(Vec<RevocationsRecord>),
    /// Posts that were in memory.
    Posts(Vec<PostRecord<u32>>),
    /// Ids of deleted posts.
    Deleted(Vec<DeletedRecord>),
    /// Posts whose fan-out was unfinished.
    UnfinishedFanout(Vec<UnderWayRecord>),
    /// Inboxes of active readers.
    Inboxes(Vec<InboxRecord>),
    /// The counts of the archived posts of outboxes.
    ArchivedCounts(Vec<ArchivedCountsRecord>),
    /// Replies to posts that are unknown.
    Awaited(Vec<AwaitedRecord>),
    /// The checkpoint up to which a node of a cluster has read the log.
    Cluster(Vec<LogCheckpoint>),
}

/// Decodes the records of a block. The section of the block defines their type.
///
/// # Errors
/// Fails if the records cannot be decoded, or if the block contains the end record of a snapshot.
pub fn decode(block: &Block) -> Result<RecordBatch, String> {
    Ok(match block.section {
        Section::Sources => RecordBatch::Sources(block.decode()?),
        Section::Edges => RecordBatch::Edges(block.decode()?),
        Section::Preferences => RecordBatch::Preferences(block.decode()?),
        Section::Reposts => RecordBatch::Reposts(block.decode()?),
        Section::Revocations => RecordBatch::Revocations(block.decode()?),
        Section::Posts => RecordBatch::Posts(block.decode()?),
        Section::Deleted => RecordBatch::Deleted(block.decode()?),
        Section::UnderWay => RecordBatch::UnfinishedFanout(block.decode()?),
        Section::Inboxes => RecordBatch::Inboxes(block.decode()?),
        Section::ArchivedCounts => RecordBatch::ArchivedCounts(block.decode()?),
        Section::Awaited => RecordBatch::Awaited(block.decode()?),
        Section::Cluster => RecordBatch::Cluster(block.decode()?),
        Section::End => return Err("an unexpected end record".to_owned()),
    })
}
