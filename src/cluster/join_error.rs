//! The reasons why a node cannot join its cluster.

use crate::cluster::membership::ReadError;
use crate::cluster::record::{ClusterId, FirstState};
use crate::storage::error::StorageError;
use crate::storage::log::LogError;
use crate::storage::sequence::Sequence;

/// The reason why a node could not join a cluster.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// The log could not be used.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The data directory could not be used.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The archive belongs to another cluster, or to a server on one machine.
    #[error("the archive {place} belongs to {found}, not to cluster {cluster}; name the archive of this cluster")]
    OtherArchive {
        /// The address of the archive.
        place: String,
        /// The owner of the archive.
        found: String,
        /// The cluster that this node takes part in.
        cluster: ClusterId,
    },
    /// The cluster was bootstrapped without an archive: its log does not have enough data for nodes that have some
    /// posts only in an archive.
    #[error(
        "cluster {cluster} was created without an archive, and cannot add {place} later: start its nodes without --archive, or create \
         another cluster from a backup of this one with `tidewire cluster init --archive --from-snapshot`"
    )]
    NewArchive {
        /// The address of the archive.
        place: String,
        /// The cluster that this node takes part in.
        cluster: ClusterId,
    },
    /// The cluster has an archive, and this node was started without one.
    #[error(
        "cluster {cluster} was created with an archive for old posts, which all nodes share: start this node with the same --archive as the others"
    )]
    NoArchive {
        /// The cluster that this node takes part in.
        cluster: ClusterId,
    },
    /// The log ends before the last record that the archive has. The archive would ignore the next writes as old, and
    /// they would be lost.
    #[error(
        "{log} ends at record {last}, and the archive {archive} has writes of records up to {written}: the log has lost records, and the archive \
         would ignore new posts and edits; restore the archive from its backup of the same time as the log"
    )]
    BehindArchive {
        /// The address of the log.
        log: String,
        /// The last record of the log.
        last: Sequence,
        /// The address of the archive.
        archive: String,
        /// The last record with which the archive was written.
        written: Sequence,
    },
    /// The log is empty.
    #[error("{0} is empty: create the cluster with `tidewire cluster init`")]
    Empty(String),
    /// A record cannot be read, or the first record is not that of a cluster.
    #[error("record {sequence} of {place}: {cause}")]
    Record {
        /// The address of the log.
        place: String,
        /// The sequence of the record.
        sequence: Sequence,
        /// The reason of the refusal.
        cause: ReadError,
    },
    /// The log ends before the last record that a snapshot contains.
    #[error(
        "{log} ends at record {last}, and {snapshot} was taken at record {through}: this is another log, or it has lost records; restore \
         the log, or choose another data directory"
    )]
    Shorter {
        /// The address of the log.
        log: String,
        /// The last record of the log.
        last: Sequence,
        /// Path of the snapshot.
        snapshot: String,
        /// The last record of which the snapshot may contain an effect.
        through: Sequence,
    },
    /// The log begins with a state that this node does not have and could not fetch.
    #[error(
        "{log} begins with {state}, and {has}; start the node with the data directory that `tidewire cluster init --from-snapshot` \
         created; {no_newer}"
    )]
    NoFirstState {
        /// The address of the log.
        log: String,
        /// The state with which it begins.
        state: FirstState,
        /// The snapshots of this node, as text.
        has: String,
        /// The reason why there is no other snapshot, as text.
        no_newer: String,
    },
    /// A snapshot is not the state with which the log begins.
    #[error(
        "{snapshot} has the digest {found}, and {log} begins with a state of the digest {expected}: remove the snapshot"
    )]
    OtherFirstState {
        /// Path of the snapshot.
        snapshot: String,
        /// The digest of its state.
        found: String,
        /// The address of the log.
        log: String,
        /// The digest in the first record.
        expected: String,
    },
    /// The log does not have the record after the state of this node, and the node could not fetch a newer state.
    #[error("{log} begins at record {first}, and {has}; {no_newer}")]
    Deleted {
        /// The address of the log.
        log: String,
        /// The first record of the log.
        first: Sequence,
        /// A description of the state of this node, as text.
        has: String,
        /// The reason why there is no newer state, as text.
        no_newer: String,
    },
}
