//! Limits of backups: their use of memory, and of the disk of the data directory.

/// Maximum bytes of journal segments that are retained only because no backup contains them yet. Beyond it the oldest are removed, so that
/// an unreachable object store cannot fill the disk of the server.
pub const JOURNAL_KEPT_FOR_BACKUP_BYTES_MAX: u64 = 4 << 30;

/// Bytes of rows after which a chunk of a copied archive may end.
pub const ARCHIVE_CHUNK_BYTES: usize = 8 << 20;

/// Bytes of rows at which a chunk of a copied archive ends at the latest.
pub const ARCHIVE_CHUNK_BYTES_MAX: usize = 32 << 20;
