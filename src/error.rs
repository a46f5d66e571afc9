//! Errors that the engine returns.
//!
//! Their text is meant for people and may change. Programs branch on [`Error::code`].

use crate::id::{PostId, SourceId};

/// The reason why the engine refused a request, or why the request failed. A refused request has changed nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A bounded queue is full; the caller may retry.
    #[error("overloaded: the {queue} queue is full at {limit}")]
    Overloaded {
        /// The name of the queue.
        queue: &'static str,
        /// Maximum number of items in the queue.
        limit: usize,
    },
    /// Another node of the cluster is so far behind that further writes would increase its lag. Nothing was changed; the caller may retry.
    #[error("overloaded: another node is too far behind to accept more")]
    NodeBehind,
    /// The engine is stopping.
    #[error("the engine is shutting down")]
    ShuttingDown,
    /// There is no post with this id, or it was deleted.
    #[error("no post has id {0}")]
    UnknownPost(PostId),
    /// The source is not registered: no request has named it, or it was erased.
    #[error("no source has id {0}")]
    UnknownSource(SourceId),
    /// The reader has no list of this name.
    #[error("{reader} has no list {list}")]
    UnknownList {
        /// The owner of the list.
        reader: SourceId,
        /// The name of the list.
        list: String,
    },
    /// The user is being erased. The id may be used again once the erasure has ended.
    #[error("{id} is being erased; the id can be used again after the erasure")]
    BeingErased {
        /// The user who is being erased.
        id: SourceId,
    },
    /// An action that a reader cannot apply to itself.
    #[error("{reader} cannot {action} itself")]
    Oneself {
        /// The reader in question.
        reader: SourceId,
        /// The action, as a verb.
        action: &'static str,
    },
    /// The reader has reached the maximum number of something.
    #[error("{reader} already has the maximum of {limit} {what}")]
    TooMany {
        /// The reader in question.
        reader: SourceId,
        /// The kind of item, in the plural.
        what: &'static str,
        /// Maximum number of these items.
        limit: usize,
    },
    /// The id of a published post was used again for a post with other content.
    #[error("post id {0} is already used by a post with other content")]
    PostIdTaken(PostId),
    /// The id of a deleted post was used again.
    #[error("post {0} was deleted; its id cannot be used again")]
    PostDeleted(PostId),
    /// A post whose `published_at` is too far in the future.
    #[error("published_at is {ahead_seconds} s ahead of the server's clock, more than the {limit_seconds} s allowed")]
    PublishedInFuture {
        /// Seconds by which it is ahead of the server's clock.
        ahead_seconds: u64,
        /// Maximum number of seconds that it may be ahead.
        limit_seconds: u64,
    },
    /// A tag, a topic or the replies to a post were used where only a user is allowed.
    #[error("{id} is not a user, and cannot {action}")]
    NotAUser {
        /// The id of the source.
        id: SourceId,
        /// The refused action, as a verb.
        action: &'static str,
    },
    /// Some of the follow edges cannot be created. None of the request was created.
    #[error("{} of {requested} follow edges are refused, none is created; the first reason: {}", .refusals.len(), first(.refusals))]
    FollowsRefused {
        /// Number of edges in the request.
        requested: usize,
        /// Each refused edge, by its index in the request.
        refusals: Vec<(usize, FollowRefusal)>,
    },
    /// A request that violates a fixed limit or rule; the HTTP interface refuses such requests earlier.
    #[error("{what}")]
    InvalidDraft {
        /// The limit that is violated, and by how much.
        what: String,
    },
    /// The store has no capacity for another post or source.
    #[error("the {what} store is full at {limit}")]
    Full {
        /// The kind of item that fills the store.
        what: &'static str,
        /// Maximum size or number of these items.
        limit: usize,
    },
    /// Writing to the journal failed. The engine refuses all writes until a restart.
    #[error("the journal failed: {0}")]
    JournalFailed(String),
    /// There is no disk space for the journal. Nothing was changed; the same request may succeed once there is space.
    #[error("the disk is full: {0}")]
    DiskFull(String),
    /// The system could not open another file for the journal. Nothing was changed; the same request may succeed once other files are
    /// closed.
    #[error("the system has no room for another open file: {0}")]
    OutOfFiles(String),
    /// This node is not the sequencer, or cannot verify that it still is. Nothing was changed.
    #[error("this node does not accept writes now: another node does, or a takeover is in progress")]
    NotSequencer,
    /// The shared log does not accept events now. Nothing was changed.
    #[error("the log is unavailable: {0}")]
    LogUnavailable(String),
    /// The log has not confirmed the event, which may or may not be stored. A repeated publish with the same post id is safe.
    #[error(
        "the log has not confirmed the change in time: it may be stored or not; publishing again with the same id is safe"
    )]
    OutcomeUnknown,
    /// Taking a snapshot failed.
    #[error("the snapshot failed: {0}")]
    SnapshotFailed(String),
    /// There is no data directory to take a snapshot into.
    #[error("this engine keeps everything in memory and has no data directory")]
    NoDataDirectory,
    /// Reading the archive failed.
    #[error("the archive failed: {0}")]
    ArchiveFailed(String),
    /// The archive is on the network and does not answer now.
    #[error("{0}")]
    ArchiveUnavailable(String),
    /// The reader's actor crashed while it answered the request.
    #[error("the feed of {0} could not be read: its actor crashed")]
    ReaderCrashed(SourceId),
    /// The reader's actor crashed repeatedly and is not started again for a while.
    #[error("the feed of {reader} is quarantined after {crashes} crashes")]
    Quarantined {
        /// The reader in question.
        reader: SourceId,
        /// Number of crashes of its actor.
        crashes: u32,
    },
}

/// The reason why a follow edge was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FollowRefusal {
    /// A source cannot follow itself.
    #[error("{0} cannot follow itself")]
    Oneself(SourceId),
    /// Only users follow.
    #[error("{0} is not a user, and cannot follow")]
    NotAUser(SourceId),
    /// One of the two users has blocked the other.
    #[error("{follower} and {source_id} cannot follow each other: one has blocked the other")]
    Blocked {
        /// The source that would follow.
        follower: SourceId,
        /// The source to be followed.
        source_id: SourceId,
    },
    /// The follower already follows its maximum number of sources.
    #[error("{follower} already follows {limit} sources, the maximum")]
    Limit {
        /// The source that would follow.
        follower: SourceId,
        /// Maximum number of sources that it may follow.
        limit: usize,
    },
}

fn first(refusals: &[(usize, FollowRefusal)]) -> String {
    refusals.first().map(|(_, refusal)| refusal.to_string()).unwrap_or_default()
}

impl FollowRefusal {
    /// Returns true if a user forbids the edge, and false if the edge is invalid.
    pub fn is_forbidden(&self) -> bool {
        matches!(self, Self::Blocked { .. })
    }

    /// Returns a stable name of the reason, for programs.
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
    /// Returns a stable name of the error, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Overloaded { .. } | Self::NodeBehind => "overloaded",
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
                // The request as a whole is forbidden only if all refusals are. Otherwise the code is that of the first refusal of another
                // kind.
                let decisive = refusals.iter().find(|(_, refusal)| !refusal.is_forbidden()).or(refusals.first());
                decisive.map_or("follows_refused", |(_, refusal)| refusal.code())
            }
            Self::InvalidDraft { .. } => "misfit",
            Self::Full { .. } => "store_full",
            Self::JournalFailed(_) => "journal_failed",
            Self::DiskFull(_) => "disk_full",
            Self::OutOfFiles(_) => "out_of_files",
            Self::NotSequencer => "not_sequencer",
            Self::LogUnavailable(_) => "log_unavailable",
            Self::OutcomeUnknown => "outcome_unknown",
            Self::SnapshotFailed(_) => "snapshot_failed",
            Self::NoDataDirectory => "no_data_directory",
            Self::ArchiveFailed(_) => "archive_failed",
            Self::ArchiveUnavailable(_) => "archive_unavailable",
            Self::ReaderCrashed(_) => "reader_crashed",
            Self::Quarantined { .. } => "quarantined",
        }
    }

    /// Returns true if the same request may succeed later although nothing else is changed.
    pub fn is_temporary(&self) -> bool {
        matches!(
            self,
            Self::Overloaded { .. }
                | Self::NodeBehind
                | Self::ShuttingDown
                | Self::NotSequencer
                | Self::LogUnavailable(_)
                | Self::OutcomeUnknown
                | Self::DiskFull(_)
                | Self::OutOfFiles(_)
                | Self::ArchiveUnavailable(_)
                | Self::ReaderCrashed(_)
                | Self::Quarantined { .. }
        )
    }
}
