//! Limits of backups: how much is held in memory, and on the disk of the data directory.

/// Maximum bytes of journal segments that are kept only because no backup has them yet. Beyond it the oldest are removed as without backups:
/// a store that cannot be reached must not fill the disk of the server.
pub const JOURNAL_KEPT_FOR_BACKUP_BYTES_MAX: u64 = 4 << 30;

/// Bytes of rows after which a chunk of a copied archive may end, and at which it ends at the latest.
pub const ARCHIVE_CHUNK_BYTES: usize = 8 << 20;

/// See [`ARCHIVE_CHUNK_BYTES`].
pub const ARCHIVE_CHUNK_BYTES_MAX: usize = 32 << 20;
