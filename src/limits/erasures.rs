//! Limits of the erasure of users.

use std::time::Duration;

/// Maximum number of users that are being erased at the same time. They share one pass over the archive.
pub const ERASURES_MAX: usize = 1_024;

/// Length of the pause of an erasure, as a multiple of the work before it.
pub const ERASURE_RESTS: u32 = 1;

/// Time after the last reader of changes has gone in which an erasure still expects it back, and keeps the journal for a while.
pub const CHANGE_READER_AWAY_MAX: Duration = Duration::from_secs(3_600);

/// Time after a start in which an erasure waits for readers of changes, who lost their connections by the restart. Clients try again after at
/// most 30 s.
pub const CHANGE_READERS_RETURN_MAX: Duration = Duration::from_secs(40);

/// Time for which an erasure keeps the journal for readers of changes, where nobody says another: `--erasure-grace` of the server.
pub const ERASURE_GRACE_OF_SERVER: Duration = Duration::from_secs(60);

/// Upper bound of `--erasure-grace`: so long the data of an erased user stays in the journal.
pub const ERASURE_GRACE_MAX: Duration = Duration::from_secs(24 * 3_600);
