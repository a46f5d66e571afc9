//! Fixed limits that several modules or tests share, and the checks of their dependencies. A limit that one file uses is in that file;
//! limits that an operator may want to change are in `config`.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::clock::UnixMicros;

/// Maximum length of the id of a user in bytes.
pub const USER_ID_BYTES_MAX: usize = 128;

/// Maximum length of the name of a tag or a topic in bytes.
pub const NAME_BYTES_MAX: usize = 128;

/// Maximum length of a source id in bytes: that of a topic.
pub const SOURCE_ID_BYTES_MAX: usize = "topic:".len() + NAME_BYTES_MAX;

/// Maximum bytes of the `body` of a post, as JSON text.
pub const POST_BODY_BYTES_MAX: usize = 64 * 1024;

/// Maximum nesting of arrays and objects in a `body`: the depth that common JSON parsers accept with their default settings.
pub const POST_BODY_DEPTH_MAX: usize = 64;

/// Maximum characters of a number in a post's body. An exact double takes at most 24, and some parsers refuse much longer numbers.
pub const POST_NUMBER_BYTES_MAX: usize = 64;

/// Maximum bytes of the id that another system gave to a post.
pub const EXTERNAL_ID_BYTES_MAX: usize = 64;

/// Maximum number of tags on one post.
pub const POST_TAGS_MAX: usize = 16;

/// Maximum time by which the `published_at` of a post may be ahead of the server's clock.
pub const PUBLISH_AHEAD_MAX: Duration = Duration::from_secs(5 * 60);

/// Maximum deviation of the clock, ahead of the monotonic clock or behind displayed times, that is not treated as a jump. If the clock
/// steps back by less, new posts wait for it so that their times increase; a post may be dated ahead by the same amount.
pub const CLOCK_STEP_MAX: Duration = PUBLISH_AHEAD_MAX;

/// The earliest plausible reading of a clock that has shown a later time before: the start of 2020. Machines without a battery start with a
/// much earlier time.
pub const CLOCK_EARLIEST: UnixMicros = UnixMicros(1_577_836_800_000_000);

/// Number of entries of a page when the request gives no limit.
pub const PAGE_POSTS_DEFAULT: usize = 20;

/// Maximum number of reposts of a post that are examined at once: some 50 us, during which no repost of this post can be added. A request
/// about its fan-out examines no more. A list of more reposts is built on a separate thread.
pub const REPOSTS_EXAMINED_MAX: usize = 4_096;

/// Maximum number of reposts of a post that a request about its fan-out lists.
pub const REPOSTS_LISTED_MAX: usize = 50;

/// Maximum number of sources that one search returns.
pub const SOURCES_FOUND_MAX: usize = 50;

/// Maximum time of one search for sources, on a separate thread: enough for two million ids in memory.
pub const SEARCH_TIME_MAX: Duration = Duration::from_millis(100);

/// Number of the most recent posts whose fan-out is recorded for operators.
pub const FANOUT_RECORDS_MAX: usize = 1_024;

/// Maximum number of entries of a page.
pub const PAGE_POSTS_MAX: usize = 100;

/// Maximum work for one page on a shared shard thread, in units of about ten nanoseconds: some four milliseconds. A page of a reader who
/// follows 5,000 pulled sources takes a third of it. Pages that need more are built on another thread.
pub const PAGE_WORK_ON_SHARD_MAX: u64 = 400_000;

/// Maximum work for one page on a thread that no shard waits for: twenty thousand candidates. Beyond it the page ends early, with a `next`
/// cursor at which to continue.
pub const PAGE_WORK_MAX: u64 = 4_000_000;

/// Maximum number of unreadable sources that a page lists by name. For the others it reports only the number.
pub const PARTIAL_NAMES_MAX: usize = 100;

/// Maximum number of edges in one bulk follow.
pub const FOLLOWS_PER_REQUEST_MAX: usize = 10_000;

/// Maximum number of posts in one request that publishes many.
pub const POSTS_PER_REQUEST_MAX: usize = 1_000;

/// Maximum number of posts in one request that reads many.
pub const POSTS_PER_READ_MAX: usize = 100;

/// Maximum number of readers in one request for the feeds of many.
pub const FEEDS_PER_REQUEST_MAX: usize = 100;

/// Bytes after which the answer to such a request gets no further feed. An answer exceeds this by at most one page.
pub const FEEDS_ANSWER_BYTES: usize = 8 << 20;

/// Maximum bytes of the request body of a single write: a post body, its escapes, and the other fields.
pub const REQUEST_BYTES_MAX: usize = POST_BODY_BYTES_MAX + 16 * 1024;

/// Maximum bytes of the request body of a bulk follow: the maximum number of edges with the longest ids.
pub const BULK_REQUEST_BYTES_MAX: usize = FOLLOWS_PER_REQUEST_MAX * (USER_ID_BYTES_MAX + SOURCE_ID_BYTES_MAX + 96);

/// Maximum number of reads in progress: the number that two cores answer in some 30 ms.
pub const READS_MAX: usize = 1_024;

/// Maximum bytes of a response that are written to a connection at once. Larger responses are counted until their last piece is written;
/// smaller ones fit into the buffers of the connection.
pub const RESPONSE_PIECE_BYTES: usize = 64 * 1024;

/// Maximum time that sent data may wait for a client to receive [`RESPONSE_STALL_BYTES_MIN`] of it. After it the connection is closed.
pub const RESPONSE_STALL_MAX: Duration = Duration::from_secs(30);

/// Minimum bytes that a client must receive in that time while more data waits. It is about the size of the system's socket buffer, so that
/// a client may receive a response that fits into the buffer at any rate.
pub const RESPONSE_STALL_BYTES_MIN: usize = 256 * 1024;

/// Maximum number of streams of changes that are open at the same time. Each reads the journal separately, mostly on a thread of its own.
pub const CHANGE_STREAMS_MAX: usize = 16;

/// Maximum number of consumers of changes that are registered by name.
pub const CHANGE_CONSUMERS_MAX: usize = 64;

/// Number of events that a request for changes returns if it gives no limit and does not stay connected.
pub const CHANGES_DEFAULT: usize = 1_000;

/// Number of posts of a page of all posts when the request gives no limit.
pub const POSTS_PAGE_DEFAULT: usize = 100;

/// Maximum number of posts of a page of all posts.
pub const POSTS_PAGE_MAX: usize = 1_000;

/// Number of users of a page of all users when the request gives no limit.
pub const USERS_PAGE_DEFAULT: usize = 100;

/// Maximum number of users of a page of all users.
pub const USERS_PAGE_MAX: usize = 1_000;

/// Bytes of JSON after which a page of all posts ends.
pub const POSTS_PAGE_BYTES: usize = 4 << 20;

/// The maximum number of events that a request for changes may ask for.
pub const CHANGES_MAX: usize = 100_000;

/// Maximum number of operator requests in progress.
pub const OPERATIONS_MAX: usize = 64;

/// Maximum number of commands that wait for the command processor.
pub const COMMAND_QUEUE_MAX: usize = 16 * 1024;

/// Maximum bytes of posts and edges in these commands: the amount that a good disk writes in a fraction of a second.
pub const COMMAND_QUEUE_BYTES_MAX: usize = 128 << 20;

/// Maximum number of commands that the command processor journals and answers in one batch.
pub const COMMAND_BATCH_MAX: usize = 4 * 1024;

/// Maximum number of posts that are queued for the fan-out supervisor. Beyond it publishing is refused.
pub const FANOUT_QUEUE_MAX: usize = 28 * 1024;

/// Maximum number of posts that are being fanned out at the same time. With more of them, posts reach an inbox less in order and are
/// inserted between packed entries more often: with 16,384, deliveries took 5 % more processor time.
pub const FANOUT_JOBS_MAX: usize = 4 * 1024;

/// Maximum number of recipients in one slice of a fan-out, the unit in which jobs are scheduled.
pub const SLICE_RECIPIENTS_MAX: usize = 500;

/// Maximum number of slices that a shard may have in flight, for small jobs and for large jobs separately, however few recipients they
/// have.
pub const SLICES_IN_FLIGHT_MAX: usize = 16;

/// Maximum number of messages that wait for one user actor.
pub const USER_MAILBOX_MAX: usize = 128;

/// Maximum number of readers of one shard that wait to be woken.
pub const WAKE_QUEUE_MAX: usize = 4 * 1024;

/// Maximum number of reads of one shard that wait for a read permit: one to two seconds of work.
pub const READS_WAITING_PER_SHARD_MAX: usize = 64 * 1024;

/// Maximum number of late posts that are recorded for one source, 24 bytes each. Clients that return after more than that have to read the
/// feed again.
pub const LATE_POSTS_PER_SOURCE_MAX: usize = 64;

/// Maximum number of unknown posts whose replies are recorded until the post is known, at about 200 bytes each. Beyond it, the posts that
/// have waited longest are dropped: a polling client may then miss replies to them that become visible only when the post is known.
pub const AWAITED_POSTS_MAX: usize = 65_536;

/// Maximum number of replies that are recorded for one such post. With more, all clients have to read their feeds again once it is known.
pub const AWAITED_ANSWERS_MAX: usize = 1_024;

/// Maximum number of earlier reposts of a repost that repeat its original once it is published, about 60 bytes each in its event, and at
/// most 2 KiB with all tags. With more, the others stay reposts of that repost.
pub const EARLIER_REPOSTS_MAX: usize = 1_024;

/// Maximum number of late reposts that are recorded with their sources when a post becomes visible. With more, the post is recorded
/// instead, and each page that a client resumes searches for the reposts that concern its reader.
pub const LATE_REPOSTS_MAX: usize = 1_024;

/// Maximum number of recorded posts with more than [`LATE_REPOSTS_MAX`] reposts, 16 bytes each. Beyond it, the oldest records are dropped:
/// clients that return after them have to read their feeds again.
pub const REVEALED_ORIGINS_MAX: usize = 256;

/// Maximum number of attempts of a read whose user actor falls asleep before it answers. If far more readers are active than may be awake,
/// several failed attempts in a row are not rare.
pub const READ_ATTEMPTS_MAX: usize = 32;

/// Number of further crashes of the user actor, after a first attempt without an answer, at which a read is abandoned. Together they are
/// fewer than [`USER_PANICS_MAX`], so that one bad request alone cannot quarantine a reader.
pub const READ_CRASHES_MAX: u32 = 2;

/// Number of crashes of one user actor after which it is quarantined.
pub const USER_PANICS_MAX: u32 = 5;

/// Time for which a quarantined user actor is not started again.
pub const QUARANTINE: Duration = Duration::from_secs(60);

/// Bytes of a journal segment after which the next one is started.
pub const SEGMENT_BYTES: u64 = 64 << 20;

/// Maximum bytes of a file that is read as a segment: a full segment and one more commit group.
pub const SEGMENT_READ_BYTES_MAX: usize = 1 << 30;

/// Bytes of records after which a block of a snapshot is written.
pub const SNAPSHOT_BLOCK_BYTES: usize = 1 << 20;

/// Maximum bytes of a block of a snapshot: a full block and the largest record.
pub const SNAPSHOT_BLOCK_BYTES_MAX: usize = 64 << 20;

/// Number of snapshots that are retained.
pub const SNAPSHOTS_KEPT: usize = 2;

/// Maximum number of lists of one reader.
pub const LISTS_MAX: usize = 100;

/// Maximum number of earlier posts that may be requested with a new edge, unless all of them are requested.
pub const BACKFILL_MAX: usize = 10_000;

/// The same for all edges of one request together, because the command processor looks up the posts.
pub const BACKFILLS_PER_REQUEST_MAX: usize = 100_000;

/// Maximum number of unread entries that are counted exactly.
pub const UNREAD_MAX: usize = 99;

/// Maximum number of snapshot requests that wait for the snapshot being taken.
pub const SNAPSHOT_REQUESTS_MAX: usize = 16;

/// Number of outboxes that are examined in one round when posts take too many bytes: about a millisecond of the command processor's time.
pub const BUDGET_SOURCES_PER_ROUND: usize = 8 * 1024;

/// Number of posts that are sampled to estimate the age of the oldest posts.
pub const BUDGET_SAMPLE_POSTS: usize = 1_024;

/// Maximum number of tombstones that stay in memory after they are archived: pages look these up most often.
pub const TOMBSTONES_IN_MEMORY_MAX: usize = 1 << 20;

/// Maximum number of sources that are held back because of a damaged page of the archive. Their posts are not written until a restart. With
/// more, all sources are retried.
pub const HELD_BACK_SOURCES_MAX: usize = 1_024;

/// Maximum number of writes by which one round of tiering searches for the sources on a damaged page.
pub const TIERING_WRITES_MAX: usize = 64;

/// Maximum number of reads that wait for an archive thread, which may block on the disk.
pub const ARCHIVE_QUEUE_MAX: usize = 1_024;

/// Maximum number of archived ids in the range to be minted next that are listed at once. At most twice as many are cached. Only ids that
/// callers have assigned can be in this range.
pub const ARCHIVED_IDS_LISTED_MAX: usize = 1_024;

/// Maximum bytes of edits of archived posts that the archive of a cluster does not contain yet, with 128 bytes for each. A node stores the
/// edits of posts that it does not have in memory. At the maximum, the sequencer refuses further edits until the archive contains some of
/// them. One group of commands may exceed the maximum.
pub const PENDING_EDITS_BYTES_MAX: usize = 64 << 20;

/// Maximum bytes of the archive that are cached in memory.
pub const ARCHIVE_CACHE_BYTES: usize = 64 << 20;

/// Maximum time for which a slow source is skipped: a source that is fast again is read like all others after this time.
pub const SLOW_SOURCE_PROBE_MAX: Duration = Duration::from_secs(5 * 60);

/// Maximum number of invalidations that wait for one watched reader. More are merged into one that reports a loss.
pub const LIVE_NOTICES_MAX: usize = 256;

/// Maximum number of live connections of one reader.
pub const LIVE_CONNECTIONS_PER_READER_MAX: usize = 32;

/// Maximum bytes that wait for one live connection. Beyond it a burst is replaced by a request to read the feed again, and a connection
/// that has received nothing for [`LIVE_BURST_MAX`] is closed.
pub const LIVE_QUEUE_BYTES_MAX: usize = 1 << 20;

/// Time within which a live connection must receive some data of a burst. A follow or a batch may queue more than the limit of bytes before
/// the task of the connection runs, however fast its client reads.
pub const LIVE_BURST_MAX: Duration = Duration::from_secs(2);

/// Maximum time that a live connection may receive nothing of the data that waits for it. After it the connection is closed.
pub const LIVE_BEHIND_MAX: Duration = Duration::from_secs(10);

/// Maximum bytes of a frame that a live client may send: it only has to authenticate and to answer heartbeats.
pub const LIVE_FRAME_BYTES_MAX: usize = 4 * 1024;

/// Maximum number of sources of the reposts of one post that are looked up to find the watched readers to notify. With more, all watched
/// readers are notified.
pub const LIVE_REPOSTERS_MAX: usize = 1_024;

/// Maximum time that a shutdown waits for fan-outs in progress.
pub const FANOUT_DRAIN_MAX: Duration = Duration::from_secs(5);

/// Maximum number of inboxes that a sample of a shard examines: some fifty microseconds.
pub const SAMPLED_INBOXES_MAX: usize = 512;

// Connections, and the data that arrives on them before the client is authenticated.

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

// Access control: keys, tokens, and requests without valid credentials.

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

// The erasure of users.

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

// Backups: their use of memory, and of the disk of the data directory.

/// Maximum bytes of journal segments that are retained only because no backup contains them yet. Beyond it the oldest are removed, so that
/// an unreachable object store cannot fill the disk of the server.
pub const JOURNAL_KEPT_FOR_BACKUP_BYTES_MAX: u64 = 4 << 30;

/// Bytes of rows after which a chunk of a copied archive may end.
pub const ARCHIVE_CHUNK_BYTES: usize = 8 << 20;

/// Bytes of rows at which a chunk of a copied archive ends at the latest.
pub const ARCHIVE_CHUNK_BYTES_MAX: usize = 32 << 20;

/// Checks the dependencies between limits at compile time: the build fails if one is changed without the others.
const _: () = {
    assert!(PAGE_POSTS_DEFAULT <= PAGE_POSTS_MAX, "the default page is a page");
    assert!(UNREAD_MAX < PAGE_POSTS_MAX, "unread entries are counted by building one page");
    assert!(PAGE_WORK_ON_SHARD_MAX < PAGE_WORK_MAX, "a page that is too long for a shard is built elsewhere");
    assert!(
        REQUEST_BYTES_MAX > POST_BODY_BYTES_MAX + (POST_TAGS_MAX + 4) * SOURCE_ID_BYTES_MAX,
        "a request has space for any post"
    );
    assert!(
        REQUEST_BYTES_MAX > FEEDS_PER_REQUEST_MAX * (SOURCE_ID_BYTES_MAX + 3),
        "a request can name so many readers"
    );
    assert!(BULK_REQUEST_BYTES_MAX >= REQUEST_BYTES_MAX, "a bulk request is no smaller than a single one");
    assert!(BACKFILL_MAX <= BACKFILLS_PER_REQUEST_MAX, "one follow may bring as much as a follow may");
    assert!(
        COMMAND_BATCH_MAX < COMMAND_QUEUE_MAX && COMMAND_BATCH_MAX < FANOUT_QUEUE_MAX,
        "queues have space for a group"
    );
    assert!(
        COMMAND_QUEUE_BYTES_MAX > BULK_REQUEST_BYTES_MAX,
        "the command processor's queue has space for the largest command"
    );
    assert!(
        SNAPSHOT_BLOCK_BYTES + 2 * REQUEST_BYTES_MAX < SNAPSHOT_BLOCK_BYTES_MAX,
        "a block that is written can be read"
    );
    assert!((SEGMENT_BYTES as usize) < SEGMENT_READ_BYTES_MAX, "a segment that is written can be read");
    assert!(LIVE_QUEUE_BYTES_MAX > REQUEST_BYTES_MAX, "a subscriber queue has space for any post");
    assert!(
        LIVE_UNAUTHENTICATED_PER_ADDRESS_MAX > 0 && CREDENTIAL_BYTES_MAX < LIVE_FRAME_BYTES_MAX,
        "a token fits into a frame"
    );
    assert!(PIPELINED_BYTES_MAX < PIPELINED_BYTES_IN_ALL_MAX, "one connection does not take what all may");
    assert!(UNREAD_BYTES_MAX >= BULK_REQUEST_BYTES_MAX, "the rest of any good body is read after an early answer");
    assert!(TIERING_WRITES_MAX > 1 && SLICE_RECIPIENTS_MAX > 0 && SLICES_IN_FLIGHT_MAX > 0, "work goes on");
};
