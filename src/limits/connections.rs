//! Limits of connections, and of the data that arrives on them before the client is authenticated.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::limits::BULK_REQUEST_BYTES_MAX;

/// Number of file descriptors that connections leave for the journal, snapshots, the archive, its tools and other files of the process.
pub const FILES_RESERVED: usize = 128;

/// The same for each thread, because each event loop has some file descriptors.
pub const FILES_PER_THREAD: usize = 8;

/// Maximum number of connections that are accepted beyond the limit, so that they can be refused: part of the reserved files.
pub const CONNECTIONS_REFUSED_TOGETHER: usize = 32;

/// One address may have at most one in this many connections.
pub const CONNECTIONS_SHARE: usize = 4;

/// One in this many places is reserved for connections that are not live: those of operators and of ordinary requests.
pub const CONNECTIONS_NOT_LIVE_SHARE: usize = 16;

/// Idle connections that sent only requests which any client may send are closed first while they hold more than one in this many places.
/// With fewer, a new connection would be closed for the next one before its client has authenticated.
pub const CONNECTIONS_UNKNOWN_SHARE: usize = 16;

/// Maximum number of idle connections that are closed in one pass.
pub const CONNECTIONS_PER_SWEEP: usize = 4_096;

/// Maximum idle time of a connection, whatever it sends: a little longer than the keep-alive timeout of HTTP plus the timeout for a request
/// head.
pub const CONNECTION_IDLE_MAX: Duration = Duration::from_secs(90);

/// Maximum number of addresses that may be configured as proxies.
pub const PROXIES_MAX: usize = 64;

/// Maximum bytes of later requests that are held back while an earlier request of the same connection is answered.
pub const PIPELINED_BYTES_MAX: usize = 64 * 1024;

/// The same for all connections together. Beyond it, later requests are read only after the request before them is answered.
pub const PIPELINED_BYTES_IN_ALL_MAX: usize = 16 << 20;

/// Maximum bytes of a body that are read after its request was answered: a few times the largest allowed body.
pub const UNREAD_BYTES_MAX: usize = 4 * BULK_REQUEST_BYTES_MAX;

/// Maximum bytes of a chunked body in addition to its data: extensions, white space and leading zeros of all chunk sizes, and its trailers.
pub const CHUNK_OVERHEAD_BYTES_MAX: usize = 32 * 1024;

/// Requests without required credentials that one address may send per second; the burst is twice as many.
pub const OPEN_REQUESTS_PER_SECOND: NonZeroU32 = NonZeroU32::new(200).expect("it is not 0");
