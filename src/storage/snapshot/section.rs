//! The sections of a snapshot, each with records of one kind.

/// The kind of the records in a block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Section {
    /// The block contains [`crate::state::records::SourceRecord`], in the order of their numbers.
    Sources,
    /// The block contains [`crate::state::records::EdgesRecord`].
    Edges,
    /// The block contains [`crate::state::records::PreferencesRecord`].
    Preferences,
    /// The block contains [`crate::state::records::RepostsRecord`].
    Reposts,
    /// The block contains [`crate::state::records::RevocationsRecord`].
    Revocations,
    /// The block contains [`crate::feed::record::PostRecord`].
    Posts,
    /// The block contains [`crate::state::records::DeletedRecord`].
    Deleted,
    /// The block contains [`crate::state::records::UnderWayRecord`].
    UnderWay,
    /// The block contains [`crate::state::records::InboxRecord`].
    Inboxes,
    /// The block contains one [`crate::cluster::log_checkpoint::LogCheckpoint`], the position of a cluster node in the log. It is the
    /// first block.
    Cluster,
    /// The block contains [`crate::state::records::ArchivedCountsRecord`].
    ArchivedCounts,
    /// The block contains [`crate::state::records::AwaitedRecord`].
    Awaited,
    /// The block contains one [`super::EndRecord`].
    End,
}

impl Section {
    /// All kinds of sections.
    pub(super) const ALL: [Self; 13] = [
        Self::Sources,
        Self::Edges,
        Self::Preferences,
        Self::Reposts,
        Self::Revocations,
        Self::Posts,
        Self::Deleted,
        Self::UnderWay,
        Self::Inboxes,
        Self::Cluster,
        Self::ArchivedCounts,
        Self::Awaited,
        Self::End,
    ];

    /// The number of the kind in a file.
    pub(super) fn byte(self) -> u8 {
        match self {
            Self::Sources => 1,
            Self::Edges => 2,
            Self::Posts => 3,
            Self::Deleted => 4,
            Self::UnderWay => 5,
            Self::Inboxes => 6,
            Self::Preferences => 7,
            Self::Reposts => 8,
            Self::Revocations => 9,
            Self::Cluster => 10,
            Self::ArchivedCounts => 11,
            Self::Awaited => 12,
            Self::End => 255,
        }
    }

    /// Name of the section, for the output of tools.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sources => "sources",
            Self::Edges => "edges",
            Self::Preferences => "choices",
            Self::Reposts => "reposts",
            Self::Revocations => "revocations",
            Self::Posts => "posts",
            Self::Deleted => "deleted",
            Self::UnderWay => "under way",
            Self::Inboxes => "inboxes",
            Self::Cluster => "cluster",
            Self::ArchivedCounts => "archived counts",
            Self::Awaited => "awaited",
            Self::End => "end",
        }
    }
}
