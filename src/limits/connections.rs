//! Limits of connections, and of what comes over them before anybody knows whose they are.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::limits::BULK_REQUEST_BYTES_MAX;

/// Open files that connections leave for the journal, snapshots, the archive, its tools and what the program itself opens.
pub const FILES_RESERVED: usize = 128;

/// The same for each thread, whose event loop has some.
pub const FILES_PER_THREAD: usize = 8;

/// Connections that are accepted beyond the limit, so that they can be refused: of those files that are reserved.
pub const CONNECTIONS_REFUSED_TOGETHER: usize = 32;

/// One in so many connections may be one address's.
pub const CONNECTIONS_SHARE: usize = 4;

/// One in so many places is left to connections that are not live: those of operators, and of all who ask for something.
pub const CONNECTIONS_NOT_LIVE_SHARE: usize = 16;

/// Idle connections that sent nothing but what everybody may end first while they have more than one in so many places. With fewer, a new
/// one would end for the next before it has said who it is.
pub const CONNECTIONS_UNKNOWN_SHARE: usize = 16;

/// Connections that stayed idle and are ended together.
pub const CONNECTIONS_PER_SWEEP: usize = 4_096;

/// How long a connection may be idle, whatever it sends: a little longer than HTTP keeps one that sends nothing, and the time for a head.
pub const CONNECTION_IDLE_MAX: Duration = Duration::from_secs(90);

/// Addresses that may be named as those of proxies.
pub const PROXIES_MAX: usize = 64;

/// Bytes of later requests that are held back while one of the same connection is answered.
pub const PIPELINED_BYTES_MAX: usize = 64 * 1024;

/// The same of all connections together. Past it later requests are read once the one before them is answered.
pub const PIPELINED_BYTES_IN_ALL_MAX: usize = 16 << 20;

/// Bytes of a body that are taken after its request was answered, at most: a few times the largest body there may be.
pub const UNREAD_BYTES_MAX: usize = 4 * BULK_REQUEST_BYTES_MAX;

/// Bytes of a body in parts beside these: extensions, white space and zeros of all its sizes, and its trailers.
pub const CHUNK_OVERHEAD_BYTES_MAX: usize = 32 * 1024;

/// Requests a second from one address for what needs no credentials, twice as many at once.
pub const OPEN_REQUESTS_PER_SECOND: NonZeroU32 = NonZeroU32::new(200).expect("it is not 0");
