//! Limits of the erasure of users.

use std::time::Duration;

/// Maximum number of users that are being erased at the same time. They share one pass over the archive.
pub const ERASURES_MAX: usize = 1_024;

/// Length of a pause of an erasure, as a multiple of the working time before it.
pub const ERASURE_RESTS: u32 = 1;

/// Time after the last reader of the change stream has disconnected during which an erasure still expects it to return, and retains the
/// journal for it.
pub const CHANGE_READER_AWAY_MAX: Duration = Duration::from_secs(3_600);

/// Time after a start during which an erasure waits for readers of the change stream, which lost their connections by the restart. Clients
/// reconnect after at most 30 s.
pub const CHANGE_READERS_RETURN_MAX: Duration = Duration::from_secs(40);

/// Default of the server's `--erasure-grace`: the time for which an erasure retains the journal for readers of the change stream.
pub const ERASURE_GRACE_OF_SERVER: Duration = Duration::from_secs(60);

/// Upper bound of `--erasure-grace`. The data of an erased user stays in the journal for up to this time.
pub const ERASURE_GRACE_MAX: Duration = Duration::from_secs(24 * 3_600);
