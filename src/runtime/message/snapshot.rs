//! Messages about a snapshot: the command processor's marks at its beginning and end, and the result for the caller.

use std::sync::Arc;

use crate::clock::{Timestamp, UnixMicros};
use crate::storage::archive::ArchiveSnapshot;
use crate::storage::sequence::Sequence;

/// The position of the journal, and of the state at that moment.
#[derive(Clone, Debug)]
pub struct Mark {
    /// The sequence number of the last journaled event.
    pub last: Sequence,
    /// The number of sources at that moment.
    pub sources: usize,
    /// The last instant that the clock issued, or that was read from a shared log.
    pub last_instant: Timestamp,
    /// The checkpoint of a shared log, encoded as a record of the snapshot.
    pub followed: Option<Arc<[u8]>>,
    /// At the end of a snapshot: true if the archive, persisted up to `last`, contains any post.
    pub has_archived: bool,
    /// At the end of a snapshot: the archive as it was persisted up to `last`. Later writes do not change it.
    pub archive: Option<Arc<dyn ArchiveSnapshot>>,
}

/// A snapshot that was taken, and the position of the journal at its end.
#[derive(Clone, Debug)]
pub struct CompletedSnapshot {
    /// The snapshot file.
    pub taken: SnapshotTaken,
    /// The snapshot may contain effects of events up to this position.
    pub end: Mark,
}

/// A stored snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SnapshotTaken {
    /// The name of its file.
    pub file: String,
    /// The last event that it contains. Replay continues after it.
    pub sequence: Sequence,
    /// The size of the file in bytes.
    pub bytes: u64,
    /// The time at which it was begun.
    pub taken_at: UnixMicros,
}
