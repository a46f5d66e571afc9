//! Decodes the records of one block of a snapshot.

use crate::cluster::log_checkpoint::LogCheckpoint;
use crate::feed::record::PostRecord;
use crate::state::records::{
    ArchivedCountsRecord, AwaitedRecord, DeletedRecord, EdgesRecord, InboxRecord, PreferencesRecord, RepostsRecord,
    RevocationsRecord, SourceRecord, UnderWayRecord,
};
use crate::storage::snapshot::{Block, Section};

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
