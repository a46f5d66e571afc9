//! Limits of erasing users.

use std::time::Duration;

/// Users that may be being erased at the same time. They share one pass over the archive.
pub const ERASURES_MAX: usize = 1_024;

/// Changes that an erasure asks for together: posts that it deletes, or edges and decisions of others that it takes back.
pub const ERASURE_STEP_MAX: usize = 256;

/// How many times as long as it worked an erasure rests.
pub const ERASURE_RESTS: u32 = 1;

/// Posts that an erasure deletes in the archive between two times that it waits until the archive has that.
pub const ERASURE_FLUSH_POSTS: usize = 4 * 1024;

/// How long after a first failed attempt an erasure goes on, and twice as long after each further one. What fails may be a disk without room
/// for another copy of the archive.
pub const ERASURE_RETRY: Duration = Duration::from_secs(1);

/// Longest time between two attempts.
pub const ERASURE_RETRY_MAX: Duration = Duration::from_secs(10 * 60);

/// Bytes of rows after which a copy of the archive is handed to the system, while it is rewritten.
pub const REWRITE_CHUNK_BYTES: usize = 8 << 20;
