//! Errors of the engine.
//!
//! Their text is for people and may change. Programs branch on [`Error::code`].

use crate::id::{PostId, SourceId};

/// Why the engine refused or failed a request. Nothing of a refused request was done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A bounded queue is full; the caller may retry.
    #[error("overloaded: the {queue} queue is full at {limit}")]
    Overloaded {
        /// Which queue.
        queue: &'static str,
        /// How many it holds.
        limit: usize,
    },
    /// The engine is stopping.
    #[error("the engine is shutting down")]
    ShuttingDown,
    /// No such post, or it was deleted.
    #[error("no post has id {0}")]
    UnknownPost(PostId),
    /// Nothing ever named this source.
    #[error("no source has id {0}")]
    UnknownSource(SourceId),
    /// A reader has no such list.
    #[error("{reader} has no list {list}")]
    UnknownList {
        /// The reader.
        reader: SourceId,
        /// The name.
        list: String,
    },
    /// A user is being erased. The id may be used again once that has ended.
    #[error("{id} is being erased; the id may be used again once that has ended")]
    BeingErased {
        /// The user.
        id: SourceId,
    },
    /// Something a reader cannot decide about oneself.
    #[error("{reader} cannot {action} itself")]
    Oneself {
        /// The reader.
        reader: SourceId,
        /// What.
        action: &'static str,
    },
    /// A reader has as many of something as there may be.
    #[error("{reader} has as many {what} as there may be, {limit}")]
    TooMany {
        /// The reader.
        reader: SourceId,
        /// Of what.
        what: &'static str,
        /// How many there may be.
        limit: usize,
    },
    /// The id of a published post was used again for something else.
    #[error("post id {0} is taken by a post of other content")]
    PostIdTaken(PostId),
    /// The id of a deleted post was used again.
    #[error("post {0} was deleted; its id cannot be used again")]
    PostDeleted(PostId),
    /// A post dated too far ahead.
    #[error("published_at is {ahead_seconds} s ahead of the server's clock, more than the {limit_seconds} s allowed")]
    PublishedInFuture {
        /// How far ahead it is.
        ahead_seconds: u64,
        /// How far ahead it may be.
        limit_seconds: u64,
    },
    /// A tag or topic was used where only a user can stand.
    #[error("{id} is a tag or topic, which cannot {action}")]
    NotAUser {
        /// The tag or topic.
        id: SourceId,
        /// What it was to do.
        action: &'static str,
    },
    /// Edges that cannot be made; none of the request was.
    #[error("{} of {requested} follow edges refused, none made; the first: {}", .refusals.len(), first(.refusals))]
    FollowsRefused {
        /// How many edges the request had.
        requested: usize,
        /// Each refused edge, by its index in the request.
        refusals: Vec<(usize, FollowRefusal)>,
    },
    /// A request that breaks a fixed limit or rule; the HTTP interface refuses it earlier.
    #[error("{what}")]
    InvalidDraft {
        /// Which limit, and by how much.
        what: String,
    },
    /// The store has no room for another post or source.
    #[error("the {what} store is full at {limit}")]
    Full {
        /// What there is too much of.
        what: &'static str,
        /// How much there may be.
        limit: usize,
    },
    /// The journal could not be written. No writes are taken until a restart.
    #[error("the journal failed: {0}")]
    JournalFailed(String),
    /// There is no space for the journal. Nothing was done; the same may succeed once there is.
    #[error("the disk is full: {0}")]
    DiskFull(String),
    /// The system could not open another file for the journal. Nothing was done; the same may succeed once others are closed.
    #[error("the system has no room for another open file: {0}")]
    OutOfFiles(String),
    /// A snapshot could not be taken.
    #[error("the snapshot failed: {0}")]
    SnapshotFailed(String),
    /// There is no data directory to take a snapshot into.
    #[error("this engine keeps everything in memory and has no data directory")]
    NoDataDirectory,
    /// The archive could not be read.
    #[error("the archive failed: {0}")]
    ArchiveFailed(String),
    /// The reader's actor crashed while it answered.
    #[error("the feed of {0} could not be read: its actor crashed")]
    ReaderCrashed(SourceId),
    /// The reader's actor crashed repeatedly and is left alone for a while.
    #[error("the feed of {reader} is quarantined after {crashes} crashes")]
    Quarantined {
        /// The reader.
        reader: SourceId,
        /// How often its actor crashed.
        crashes: u32,
    },
}

/// Why a follow edge was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FollowRefusal {
    /// Nobody follows oneself.
    #[error("{0} cannot follow itself")]
    Oneself(SourceId),
    /// Tags and topics follow nobody.
    #[error("{0} is a tag or topic, which cannot follow")]
    NotAUser(SourceId),
    /// One of both has blocked the other.
    #[error("{follower} and {source_id} cannot follow each other: one has blocked the other")]
    Blocked {
        /// Who follows.
        follower: SourceId,
        /// Whom.
        source_id: SourceId,
    },
    /// The follower is at its limit.
    #[error("{follower} already follows the {limit} sources it may")]
    Limit {
        /// Who follows.
        follower: SourceId,
        /// How many sources it may follow.
        limit: usize,
    },
}

fn first(refusals: &[(usize, FollowRefusal)]) -> String {
    refusals.first().map(|(_, refusal)| refusal.to_string()).unwrap_or_default()
}

impl FollowRefusal {
    /// Whether somebody does not want the edge, instead of its being none.
    pub fn is_forbidden(&self) -> bool {
        matches!(self, Self::Blocked { .. })
    }

    /// A stable name for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Oneself(_) => "self_follow",
            Self::NotAUser(_) => "not_a_user",
            Self::Blocked { .. } => "blocked",
            Self::Limit { .. } => "following_limit",
        }
    }
}

impl Error {
    /// A stable name for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Overloaded { .. } => "overloaded",
            Self::ShuttingDown => "shutting_down",
            Self::UnknownPost(_) => "unknown_post",
            Self::UnknownSource(_) => "unknown_source",
            Self::UnknownList { .. } => "unknown_list",
            Self::BeingErased { .. } => "being_erased",
            Self::Oneself { action, .. } => match *action {
                "mute" => "self_mute",
                _ => "self_block",
            },
            Self::TooMany { .. } => "too_many",
            Self::PostIdTaken(_) => "post_id_taken",
            Self::PostDeleted(_) => "post_deleted",
            Self::PublishedInFuture { .. } => "published_in_future",
            Self::NotAUser { .. } => "not_a_user",
            Self::FollowsRefused { refusals, .. } => {
                // A mixture is not forbidden as a whole, so it is not named after what is.
                let telling = refusals.iter().find(|(_, refusal)| !refusal.is_forbidden()).or(refusals.first());
                telling.map_or("follows_refused", |(_, refusal)| refusal.code())
            }
            Self::InvalidDraft { .. } => "misfit",
            Self::Full { .. } => "store_full",
            Self::JournalFailed(_) => "journal_failed",
            Self::DiskFull(_) => "disk_full",
            Self::OutOfFiles(_) => "out_of_files",
            Self::SnapshotFailed(_) => "snapshot_failed",
            Self::NoDataDirectory => "no_data_directory",
            Self::ArchiveFailed(_) => "archive_failed",
            Self::ReaderCrashed(_) => "reader_crashed",
            Self::Quarantined { .. } => "quarantined",
        }
    }

    /// Whether the same request may succeed later without anything else being changed.
    pub fn is_temporary(&self) -> bool {
        matches!(
            self,
            Self::Overloaded { .. }
                | Self::ShuttingDown
                | Self::DiskFull(_)
                | Self::OutOfFiles(_)
                | Self::ReaderCrashed(_)
                | Self::Quarantined { .. }
        )
    }
}
