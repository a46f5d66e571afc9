//! Limits of access: keys, tokens, and what may be asked without being let in.

use std::num::NonZeroU32;
use std::time::Duration;

/// Longest credential that is looked at: it has to fit into a live client's frame.
pub const CREDENTIAL_BYTES_MAX: usize = 3 * 1024;

/// Largest settings file.
pub const SETTINGS_FILE_BYTES_MAX: u64 = 256 * 1024;

/// Largest access file.
pub const ACCESS_FILE_BYTES_MAX: u64 = 256 * 1024;

/// Server keys in an access file, and as many keys that tokens are signed with.
pub const ACCESS_KEYS_MAX: usize = 64;

/// Shortest secret that tokens may be signed with: as long as the signature.
pub const TOKEN_SECRET_BYTES_MIN: usize = 32;

/// By how much the clock of who makes tokens may be ahead of the server's.
pub const TOKEN_CLOCK_AHEAD_MAX: Duration = Duration::from_secs(60);

/// Users whose tokens are revoked at the same time: some 120 bytes each, with the longest ids twice that. Beyond it another
/// revocation is refused. Where tokens have a longest lifetime, one is forgotten after that time.
pub const REVOCATIONS_MAX: usize = 1 << 20;

/// Revocations that are forgotten with a new one, so that it takes no longer after a quiet time.
pub const REVOCATIONS_FORGOTTEN_TOGETHER: usize = 1_024;

/// Time between two looks whether the access file changed.
pub const ACCESS_FILE_LOOK: Duration = Duration::from_secs(1);

/// Live connections at the same time that have yet to say who they are.
pub const LIVE_UNAUTHENTICATED_MAX: usize = 1_024;

/// The same from one address (of IPv6: one network) that is no proxy's.
pub const LIVE_UNAUTHENTICATED_PER_ADDRESS_MAX: usize = LIVE_UNAUTHENTICATED_MAX / 16;

/// How long such a connection may take to say it.
pub const LIVE_UNAUTHENTICATED_TIME: Duration = Duration::from_secs(10);

/// Origins whose pages may use the server.
pub const CORS_ORIGINS_MAX: usize = 64;

/// Names that the server may go by.
pub const HOSTS_MAX: usize = 64;

/// Requests a second from one address that is no proxy's with credentials that are not known, twice as many at once. More are not told apart.
pub const UNKNOWN_CREDENTIALS_PER_SECOND: NonZeroU32 = NonZeroU32::new(100).expect("it is not 0");

/// Signatures of tokens that are computed in vain a second for one network (an address; of IPv6, 64 bits): on one core, 5 to 10 ms of
/// work. A token costs one for each key that may have signed it, and nothing if it is good.
pub const FORGED_SIGNATURES_PER_SECOND: u32 = 100;

/// The same for all `--proxies` together, by which many clients come.
pub const FORGED_SIGNATURES_OF_PROXIES_PER_SECOND: u32 = 16 * FORGED_SIGNATURES_PER_SECOND;

/// How many of one network at once, of proxies as many times more: what is earned in two seconds.
pub const FORGED_SIGNATURES_AT_ONCE: u32 = 2 * FORGED_SIGNATURES_PER_SECOND;

/// Tokens that are remembered as verified, so that their signature is not computed for each request: some 150 bytes each, with
/// the longest ids twice that.
pub const VERIFIED_TOKENS_MAX: usize = 64 * 1_024;

/// Sources that a user's tokens may make known at once, and again within [`NEW_SOURCES_PERIOD`]: about what a reader may follow
/// and mute. Nothing that is known is ever forgotten, followed or not.
pub const NEW_SOURCES_OF_USER_MAX: NonZeroU32 = NonZeroU32::new(10_000).expect("it is not 0");

/// See there.
pub const NEW_SOURCES_PERIOD: Duration = Duration::from_secs(24 * 3_600);

/// Time between two lines of the log of one kind that strangers cause: denials, malformed requests, refused connections and their like.
pub const LOG_THROTTLE_PERIOD: Duration = Duration::from_secs(10);

/// Keys for tokens of one algorithm that have no `kid`: each of them is tried on a token without one.
pub const KEYS_TRIED_MAX: usize = 8;

/// Clients whose rate is known one by one at the same time. Others share [`RATED_GROUPS`] rates.
pub const RATED_CLIENTS_MAX: usize = 128 * 1024;

/// Rates that clients share while there are too many to know each one's.
pub const RATED_GROUPS: u64 = 1_024;
