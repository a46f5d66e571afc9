//! Limits of access control: keys, tokens, and requests without valid credentials.

use std::num::NonZeroU32;
use std::time::Duration;

/// Maximum bytes of a credential: it has to fit into a live client's frame.
pub const CREDENTIAL_BYTES_MAX: usize = 3 * 1024;

/// Maximum number of server keys in an access file, and the same number of token signing keys.
pub const ACCESS_KEYS_MAX: usize = 64;

/// Maximum time by which the clock of a token issuer may be ahead of the server's clock.
pub const TOKEN_CLOCK_AHEAD_MAX: Duration = Duration::from_secs(60);

/// Maximum number of users with revoked tokens: some 120 bytes each, twice that with the longest ids. Beyond it further revocations are
/// refused. If tokens have a maximum lifetime, a revocation is deleted after that time.
pub const REVOCATIONS_MAX: usize = 1 << 20;

/// Maximum number of unauthenticated live connections at the same time.
pub const LIVE_UNAUTHENTICATED_MAX: usize = 1_024;

/// Maximum time that a live connection may take to authenticate.
pub const LIVE_UNAUTHENTICATED_TIME: Duration = Duration::from_secs(10);

/// The same limit for one address (with IPv6: one network), unless it is a proxy's.
pub const LIVE_UNAUTHENTICATED_PER_ADDRESS_MAX: usize = LIVE_UNAUTHENTICATED_MAX / 16;

/// Requests with unknown credentials that one address, unless it is a proxy's, may send per second; the burst is twice as many. Beyond it,
/// these requests are refused without distinguishing their credentials.
pub const UNKNOWN_CREDENTIALS_PER_SECOND: NonZeroU32 = NonZeroU32::new(100).expect("it is not 0");

/// Signatures of invalid tokens that are computed per second for one network (an IPv4 address or 64 bits of an IPv6 address): on one core,
/// 5 to 10 ms of work. A token costs one for each key that may have signed it, and a valid token costs nothing.
pub const FORGED_SIGNATURES_PER_SECOND: u32 = 100;

/// The same for all `--proxies` together, which forward the requests of many clients.
pub const FORGED_SIGNATURES_OF_PROXIES_PER_SECOND: u32 = 16 * FORGED_SIGNATURES_PER_SECOND;

/// Burst of such signatures for one network, and a proportionally larger one for proxies: the allowance of two seconds.
pub const FORGED_SIGNATURES_AT_ONCE: u32 = 2 * FORGED_SIGNATURES_PER_SECOND;

/// Number of new sources that a user's tokens may register at once, and again within [`NEW_SOURCES_PERIOD`]: about as many as a reader may
/// follow and mute. A registered source stays registered even if nobody follows it.
pub const NEW_SOURCES_OF_USER_MAX: NonZeroU32 = NonZeroU32::new(10_000).expect("it is not 0");

/// The period in which the allowance of new sources is restored in full.
pub const NEW_SOURCES_PERIOD: Duration = Duration::from_secs(24 * 3_600);

/// Maximum number of token keys of one algorithm without a `kid`: each of them is tried for a token that has none.
pub const KEYS_TRIED_MAX: usize = 8;

/// Maximum number of clients whose rate is tracked individually. Others share [`RATED_GROUPS`] rates.
pub const RATED_CLIENTS_MAX: usize = 128 * 1024;

/// Number of rates that clients share while there are too many to track each of them.
pub const RATED_GROUPS: u64 = 1_024;
