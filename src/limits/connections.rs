//! Limits of connections, and of the data that arrives on them before the client is authenticated.

use std::num::NonZeroU32;

use crate::limits::BULK_REQUEST_BYTES_MAX;

/// Idle connections that have sent only requests which need no credentials are closed first while they are more than one in this many
/// connections. With a smaller share, the server would close a new connection for the next one before its client has authenticated.
pub const CONNECTIONS_UNKNOWN_SHARE: usize = 16;

/// Maximum bytes of later requests that are buffered while an earlier request of the same connection is answered.
pub const PIPELINED_BYTES_MAX: usize = 64 * 1024;

/// The same for all connections together. Beyond it, later requests are read only after the request before them is answered.
pub const PIPELINED_BYTES_IN_ALL_MAX: usize = 16 << 20;

/// Maximum bytes of a body that are read after its request was answered: a few times the largest allowed body.
pub const UNREAD_BYTES_MAX: usize = 4 * BULK_REQUEST_BYTES_MAX;

/// Maximum bytes of a chunked body in addition to its data: extensions, white space and leading zeros of all chunk sizes, and its trailers.
pub const CHUNK_OVERHEAD_BYTES_MAX: usize = 32 * 1024;

/// Requests without required credentials that one address may send per second; the burst is twice as many.
pub const OPEN_REQUESTS_PER_SECOND: NonZeroU32 = NonZeroU32::new(200).expect("it is not 0");
