//! The records of one block of a snapshot, decoded.

use crate::feed::record::PostRecord;
use crate::state::records::{
    DeletedRecord, EdgesRecord, InboxRecord, PreferencesRecord, RepostsRecord, RevocationsRecord, SourceRecord,
    UnderWayRecord,
};
use crate::storage::snapshot::{Block, Section};

/// The records of one block.
pub enum Batch {
    /// Sources, by the number that the snapshot gives them.
    Sources(Vec<SourceRecord>),
    /// The edges of readers.
    Edges(Vec<EdgesRecord>),
    /// What readers have decided.
    Preferences(Vec<PreferencesRecord>),
    /// Reposts, by what they repeat.
    Reposts(Vec<RepostsRecord>),
    /// Revocations of tokens.
    Revocations(Vec<RevocationsRecord>),
    /// Posts in memory.
    Posts(Vec<PostRecord<u32>>),
    /// Ids of deleted posts.
    Deleted(Vec<DeletedRecord>),
    /// Posts on their way into inboxes.
    UnderWay(Vec<UnderWayRecord>),
    /// Inboxes.
    Inboxes(Vec<InboxRecord>),
}

/// Decodes the records of a block, whose kind its section names.
///
/// # Errors
/// When they cannot be decoded, or the block is the end of a snapshot, which has no such records.
pub fn decode(block: &Block) -> Result<Batch, String> {
    Ok(match block.section {
        Section::Sources => Batch::Sources(block.decode()?),
        Section::Edges => Batch::Edges(block.decode()?),
        Section::Preferences => Batch::Preferences(block.decode()?),
        Section::Reposts => Batch::Reposts(block.decode()?),
        Section::Revocations => Batch::Revocations(block.decode()?),
        Section::Posts => Batch::Posts(block.decode()?),
        Section::Deleted => Batch::Deleted(block.decode()?),
        Section::UnderWay => Batch::UnderWay(block.decode()?),
        Section::Inboxes => Batch::Inboxes(block.decode()?),
        Section::End => return Err("an end record among others".to_owned()),
    })
}
