//! Limits of the erasure of users.

use std::time::Duration;

/// Maximum number of users that are being erased at the same time. They share one pass over the archive.
pub const ERASURES_MAX: usize = 1_024;

/// Maximum number of changes that an erasure requests together: posts to delete, or edges and preferences of other users to remove.
pub const ERASURE_STEP_MAX: usize = 256;

/// Length of the pause of an erasure, as a multiple of the work before it.
pub const ERASURE_RESTS: u32 = 1;

/// Number of posts that an erasure deletes in the archive before it waits until the archive has written the deletions.
pub const ERASURE_FLUSH_POSTS: usize = 4 * 1024;

/// Delay after the first failed attempt of an erasure; it doubles after each further one. The reason of a failure may be a disk without
/// space for another copy of the archive.
pub const ERASURE_RETRY: Duration = Duration::from_secs(1);

/// Maximum delay between two attempts.
pub const ERASURE_RETRY_MAX: Duration = Duration::from_secs(10 * 60);

/// Bytes of rows after which the copy of an archive that is being rewritten is passed to the operating system.
pub const REWRITE_CHUNK_BYTES: usize = 8 << 20;
