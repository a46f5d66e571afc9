//! All fixed limits, in one place. Limits that an operator may want to change are in `config` instead.

mod access;
mod connections;
mod erasures;

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::clock::UnixMicros;

pub use access::*;
pub use connections::*;
pub use erasures::*;

/// Maximum length of a source id in bytes.
pub const SOURCE_ID_BYTES_MAX: usize = 128;

/// Maximum number of sources that one process can know: slots have 32 bits, and the last one is reserved.
pub const SOURCES_MAX: usize = u32::MAX as usize - 1;

/// Maximum bytes of the `body` of a post, as JSON text.
pub const POST_BODY_BYTES_MAX: usize = 64 * 1024;

/// Maximum nesting of arrays and objects in a `body`: the depth that common JSON parsers accept with their default settings.
pub const POST_BODY_DEPTH_MAX: usize = 64;

/// Maximum characters of a number in a post's body. An exact double takes at most 24, and some parsers refuse much longer numbers.
pub const POST_NUMBER_BYTES_MAX: usize = 64;

/// Maximum number of tags on one post.
pub const POST_TAGS_MAX: usize = 16;

/// Maximum number of sources that one post can belong to: its author, its tags and its topic.
pub const POST_SOURCES_MAX: usize = 1 + POST_TAGS_MAX + 1;

/// Maximum time by which the `published_at` of a post may be ahead of the server's clock.
pub const PUBLISH_AHEAD_MAX: Duration = Duration::from_secs(5 * 60);

/// Maximum deviation of the clock, ahead of the monotonic clock or behind displayed times, that is not treated as a jump. If the clock
/// steps back by less, new posts wait for it so that their times increase; a post may be dated ahead by the same amount.
pub const CLOCK_STEP_MAX: Duration = PUBLISH_AHEAD_MAX;

/// The earliest plausible reading of a clock that has shown a later time before: the start of 2020. Machines without a battery start with a
/// much earlier time.
pub const CLOCK_EARLIEST: UnixMicros = UnixMicros(1_577_836_800_000_000);

/// Maximum time by which the clock may be ahead of all stored data at a start without a log message: longer than most servers are stopped.
pub const CLOCK_GAP_REPORTED: Duration = Duration::from_secs(30 * 24 * 3_600);

/// Number of entries of a page when the request gives no limit.
pub const PAGE_POSTS_DEFAULT: usize = 20;

/// Maximum number of entries of a page.
pub const PAGE_POSTS_MAX: usize = 100;

/// Maximum work for one page on a shared shard thread, in units of about ten nanoseconds: some four milliseconds. A page of a reader who
/// follows 5,000 pulled sources takes a third of it. Pages that need more are built on another thread.
pub const PAGE_WORK_ON_SHARD_MAX: u64 = 400_000;

/// Maximum work for one page on a thread that no shard waits for: twenty thousand candidates. Beyond it the page ends early, with a `next`
/// cursor at which to continue.
pub const PAGE_WORK_MAX: u64 = 4_000_000;

/// Work between two checks of the clock: some fifty microseconds.
pub const PAGE_WORK_PER_CLOCK_LOOK: u64 = 5_000;

/// Work for a page whose time is spent before any candidate is known: a hundred candidates, so that the page shows something.
pub const PAGE_WORK_GRACE: u64 = 20_000;

/// Maximum number of unreadable sources that a page lists by name. For the others it reports only the number.
pub const PARTIAL_NAMES_MAX: usize = 100;

/// Maximum number of edges in one bulk follow.
pub const FOLLOWS_PER_REQUEST_MAX: usize = 10_000;

/// Maximum bytes of the request body of a single write: a post body, its escapes, and the other fields.
pub const REQUEST_BYTES_MAX: usize = POST_BODY_BYTES_MAX + 16 * 1024;

/// Maximum bytes of the request body of a bulk follow: the maximum number of edges with the longest ids.
pub const BULK_REQUEST_BYTES_MAX: usize = FOLLOWS_PER_REQUEST_MAX * (2 * SOURCE_ID_BYTES_MAX + 96);

/// Maximum number of reads in progress: the number that two cores answer in some 30 ms.
pub const READS_MAX: usize = 1_024;

/// Maximum number of these reads that have to wake their reader first.
pub const WAKE_UPS_MAX: usize = READS_MAX / 2;

/// Maximum number of writes in progress: the number that the scribe journals in one batch.
pub const WRITES_MAX: usize = SCRIBE_BATCH_MAX;

/// Maximum total bytes of the bodies of writes in progress, as far as the requests declare their length.
pub const WRITE_BYTES_MAX: usize = 256 << 20;

/// Maximum bytes of responses that clients have not received yet: some forty of the largest pages.
pub const RESPONSE_BYTES_MAX: usize = 256 << 20;

/// Maximum bytes of a response that are written to a connection at once. Larger responses are counted until their last piece is written;
/// smaller ones leave no more with a connection than its buffers.
pub const RESPONSE_PIECE_BYTES: usize = 64 * 1024;

/// Bytes of a large response that extend its time limit by one second beyond [`RESPONSE_STALL_MAX`]: the rate of a poor mobile connection.
/// Slower clients would hold the reserved bytes for too long.
pub const RESPONSE_BYTES_PER_SECOND_MIN: usize = 64 * 1024;

/// Number of clients that can fill a byte limit together: one client may reserve at most this fraction of the limit. It is small, so that a
/// single client is not slowed down.
pub const CLIENTS_PER_GATE: usize = 16;

/// Base time limit of every request body: lost packets are retransmitted within it, even on bad networks.
pub const BODY_TIME: Duration = Duration::from_secs(5);

/// Bytes of a body that extend its time limit by one second: the rate of the slowest mobile networks.
pub const BODY_BYTES_PER_SECOND_MIN: usize = 4 * 1024;

/// Maximum time that a request body may take, whatever its size. Bodies of users end before it at the rate above; larger ones are sent by
/// servers.
pub const BODY_TIME_MAX: Duration = Duration::from_secs(30);

/// Maximum time that sent data may wait for a client to receive [`RESPONSE_STALL_BYTES_MIN`] of it. After it the connection is closed.
pub const RESPONSE_STALL_MAX: Duration = Duration::from_secs(30);

/// Minimum bytes that a client must receive in that time while more data waits: about the size of the system's socket buffer, so that a
/// client may receive a response that fits into the buffer at any rate.
pub const RESPONSE_STALL_BYTES_MIN: usize = 256 * 1024;

/// Maximum number of bulk writes in progress.
pub const BULK_WRITES_MAX: usize = 16;

/// Maximum number of live connections that are being admitted at the same time.
pub const JOINS_MAX: usize = 2_048;

/// Maximum number of operator requests in progress.
pub const OPERATIONS_MAX: usize = 64;

/// Maximum number of metrics requests in progress: a few collectors, whose capacity no other request takes.
pub const METRICS_MAX: usize = 8;

/// Range of the `Retry-After` seconds for requests that are refused for lack of capacity. Each response has one value of it.
pub const RETRY_SECONDS: RangeInclusive<u64> = 1..=3;

/// Maximum number of commands that wait for the scribe.
pub const SCRIBE_QUEUE_MAX: usize = 16 * 1024;

/// Maximum bytes of posts and edges in these commands: the amount that a good disk writes in a fraction of a second.
pub const SCRIBE_QUEUE_BYTES_MAX: usize = 128 << 20;

/// Maximum number of commands that the scribe journals and answers in one batch.
pub const SCRIBE_BATCH_MAX: usize = 4 * 1024;

/// Maximum number of posts that are queued for the fan-out supervisor. Beyond it publishing is refused.
pub const FANOUT_QUEUE_MAX: usize = 16 * 1024;

/// Maximum number of posts that are being fanned out at the same time.
pub const FANOUT_JOBS_MAX: usize = 16 * 1024;

/// Maximum number of posts of one author that may wait for their delivery. Beyond it only this author is refused.
pub const FANOUTS_PER_AUTHOR_MAX: usize = 4 * 1024;

/// Maximum number of deliveries that the posts being fanned out may still need, for each shard: what a shard delivers in half a second to a
/// second. Beyond it publishing is refused, because posts accepted then would appear later than readers wait for them.
pub const FANOUT_BACKLOG_PER_SHARD_MAX: usize = 2 << 20;

/// The fraction (one in this many) of that backlog that the posts of one author may use.
pub const FANOUT_BACKLOG_AUTHORS: usize = 4;

/// Length of one window in which fan-outs are timed. A report covers the last one to two windows.
pub const FANOUT_LATENCY_WINDOW: Duration = Duration::from_secs(10);

/// Maximum fan-out time that is reported; longer ones count as this.
pub const FANOUT_LATENCY_MAX: Duration = Duration::from_secs(3_600);

/// Maximum number of recipients in one slice of a fan-out, the unit in which jobs are scheduled.
pub const SLICE_RECIPIENTS_MAX: usize = 500;

/// Maximum number of followers that are scanned for one slice, active or not.
pub const SLICE_SCAN_MAX: usize = 64 * 1024;

/// Number of recipients in flight at which a shard gets no further slice: two full slices, so that it never waits for the next one, and a
/// small post never waits for more than those two.
pub const RECIPIENTS_IN_FLIGHT_MAX: usize = 2 * SLICE_RECIPIENTS_MAX;

/// Maximum number of slices that a shard may have in flight, however small.
pub const SLICES_IN_FLIGHT_MAX: usize = 16;

/// Number of deliveries after which a courier yields to the other actors of its shard.
pub const DELIVERIES_PER_TURN_MAX: usize = 512;

/// Maximum number of messages that wait for one user actor.
pub const USER_MAILBOX_MAX: usize = 128;

/// Maximum number of readers of one shard that wait to be woken.
pub const WAKE_QUEUE_MAX: usize = 4 * 1024;

/// Maximum number of reads that the actors of one shard process at the same time: a fraction of a millisecond's work, and enough that no
/// actor waits for the next read.
pub const READS_TOGETHER_MAX: usize = 16;

/// Maximum number of reads of one shard that wait for a read permit: what takes a second or two.
pub const READS_WAITING_PER_SHARD_MAX: usize = 64 * 1024;

/// Number of newest posts of a source that readers pull without a lock: at most 512 bytes for each source that has posts to pull. A page of
/// 20 entries first requests at most 21 of each source.
pub const NEWEST_PULLED_MAX: usize = 32;

/// A post whose position is further than this below the time of its acceptance is recorded as late with its sources. A page that a client
/// resumes scans all entries of this last period again. Services backdate posts by milliseconds to seconds, for the time in their queues.
pub const LATE_AFTER: Duration = Duration::from_secs(5);

/// Maximum number of late posts that are recorded for one source, 24 bytes each. Clients that return after more than that have to read the
/// feed again.
pub const LATE_POSTS_PER_SOURCE_MAX: usize = 64;

/// Maximum number of late posts that are examined for one page.
pub const LATE_POSTS_PER_PAGE_MAX: usize = 1_024;

/// Maximum number of unknown posts whose replies are recorded until the post is known, at 64 bytes or more each. Beyond it, the posts that
/// have waited longest are dropped: a polling client may then miss replies to them that become visible only when the post is known.
pub const AWAITED_POSTS_MAX: usize = 65_536;

/// Maximum number of replies that are recorded for one such post. With more, all clients have to read their feeds again once it is known.
pub const AWAITED_ANSWERS_MAX: usize = 1_024;

/// Maximum number of replies that are recorded for all such posts together, eight bytes each.
pub const AWAITED_ANSWERS_IN_ALL_MAX: usize = 4 * AWAITED_POSTS_MAX;

/// Maximum number of reposts of a post that becomes visible which are recorded as late with their sources. With more, the post is recorded
/// instead, and each page that a client resumes searches for those of its reader.
pub const LATE_REPOSTS_MAX: usize = 1_024;

/// Maximum number of recorded posts that have more reposts than that, 16 bytes each. Beyond it, the oldest records are dropped: clients
/// that return after them have to read their feeds again.
pub const REVEALED_ORIGINS_MAX: usize = 256;

/// Maximum number of a reader's sources that are examined to compute its flow key for fair queueing. With the default settings these are
/// all of them.
pub const FLOW_KEY_SOURCES_MAX: usize = 5_000;

/// Maximum number of attempts of a read whose user actor falls asleep before it answers. With far more readers than may be awake, several
/// in a row are not rare.
pub const READ_ATTEMPTS_MAX: usize = 32;

/// Number of further crashes of its user actor, after a first attempt without an answer, at which a read is abandoned. Together they are
/// fewer than [`USER_PANICS_MAX`]: one bad request alone must not quarantine a reader.
pub const READ_CRASHES_MAX: u32 = 2;

/// Number of crashes of one user actor after which it is quarantined.
pub const USER_PANICS_MAX: u32 = 5;

/// Time that a quarantined user actor is not started again.
pub const QUARANTINE: Duration = Duration::from_secs(60);

/// Maximum number of shards.
pub const SHARDS_MAX: usize = 256;

/// Maximum bytes of encoded events that the scribe commits in one batch.
pub const SCRIBE_BATCH_BYTES_MAX: usize = 256 * 1024;

/// Time without a write after which the journal itself records what is synced.
pub const JOURNAL_IDLE: Duration = Duration::from_secs(1);

/// Bytes of a journal segment after which the next one is started.
pub const SEGMENT_BYTES: u64 = 64 << 20;

/// Maximum payload bytes of one frame. The largest event is a bulk of follow edges with the longest ids.
pub const FRAME_PAYLOAD_BYTES_MAX: usize = 16 << 20;

/// Maximum bytes of a file that is read as a segment: a full segment and one more commit group.
pub const SEGMENT_READ_BYTES_MAX: usize = 1 << 30;

/// Bytes of records after which a block of a snapshot is written.
pub const SNAPSHOT_BLOCK_BYTES: usize = 1 << 20;

/// Maximum bytes of a block of a snapshot: a full block and the largest record.
pub const SNAPSHOT_BLOCK_BYTES_MAX: usize = 64 << 20;

/// Number of snapshots that are retained.
pub const SNAPSHOTS_KEPT: usize = 2;

/// The next snapshot is due when one in this many bytes of the last snapshot was journaled. A start then replays this fraction of what it
/// loads, and the replay takes about this fraction of the time.
pub const SNAPSHOT_JOURNAL_SHARE: u64 = 4;

/// Number of snapshot intervals after which the next snapshot is due if anything was journaled, however little.
pub const SNAPSHOT_INTERVALS_MAX: u32 = 16;

/// Snapshots up to this size are due however little was journaled: writing one is half a second's work.
pub const SNAPSHOT_SMALL_BYTES: u64 = 64 << 20;

/// Number of inboxes that a courier copies for a snapshot before it yields.
pub const INBOXES_PER_COPY: usize = 64;

/// Number of inboxes that are restored in one batch after a start.
pub const INBOXES_PER_RESTORE: usize = 4 * 1024;

/// Maximum number of sources that one reader may mute, and the same number that it may block.
pub const SILENCED_MAX: usize = 10_000;

/// Maximum number of lists of one reader.
pub const LISTS_MAX: usize = 100;

/// Maximum number of earlier posts that may be requested with a new edge, unless all of them are requested.
pub const BACKFILL_MAX: usize = 10_000;

/// The same for all edges of one request together, because the single writer looks them up.
pub const BACKFILLS_PER_REQUEST_MAX: usize = 100_000;

/// Maximum number of unread entries that are counted exactly.
pub const UNREAD_MAX: usize = 99;

/// Maximum number of ranges of one source's posts that a feed keeps when the source is unfollowed repeatedly.
pub const KEPT_PER_SOURCE_MAX: usize = 8;

/// Upper bound of the setting for edges of one follower: 12 bytes each, all in one record of a snapshot.
pub const FOLLOWING_MAX: usize = 4_000_000;

/// Maximum number of snapshot requests that wait for the snapshot being taken.
pub const SNAPSHOT_REQUESTS_MAX: usize = 16;

/// Number of posts that an outbox may have in memory beyond its limit before its oldest posts are moved to the archive together.
pub const TIERING_SLACK: usize = 128;

/// Maximum number of outbox entries that are moved to the archive in one round.
pub const TIERING_ENTRIES_MAX: usize = 8 * 1024;

/// Number of outboxes that are examined in one round when posts take too many bytes: about a millisecond of the scribe's time.
pub const BUDGET_SOURCES_PER_ROUND: usize = 8 * 1024;

/// Number of posts that are sampled to estimate the age of the oldest posts.
pub const BUDGET_SAMPLE_POSTS: usize = 1_024;

/// Maximum number of tombstones that stay in memory after they are archived: pages look these up most often.
pub const TOMBSTONES_IN_MEMORY_MAX: usize = 1 << 20;

/// Delay between a failed round of tiering and the next attempt.
pub const TIERING_RETRY: Duration = Duration::from_secs(1);

/// Maximum number of sources that are held back because of a damaged page of the archive; nothing of these is written until a restart. With
/// more, all sources are tried again.
pub const HELD_BACK_SOURCES_MAX: usize = 1_024;

/// Maximum number of writes with which one round of tiering finds the sources on a damaged page.
pub const TIERING_WRITES_MAX: usize = 64;

/// Number of rounds of tiering between two that sync the archive, so that it survives a power loss.
pub const TIERINGS_PER_PERSIST: u32 = 32;

/// Maximum number of reads that wait for an archive thread, which may block on the disk.
pub const ARCHIVE_QUEUE_MAX: usize = 1_024;

/// Maximum number of archive look-ups of one command before it is refused. The results stay in memory from the first look-up on, so that
/// one more is enough.
pub const RESOLUTIONS_MAX: u32 = 8;

/// Maximum number of archived ids, among those to be minted next, that are listed at once; at most twice as many are remembered. Only ids
/// that callers have assigned are among them.
pub const ARCHIVED_IDS_LISTED_MAX: usize = 1_024;

/// Number of threads that read the archive.
pub const ARCHIVE_READERS: usize = 4;

/// Maximum bytes of the archive that are cached in memory.
pub const ARCHIVE_CACHE_BYTES: usize = 64 << 20;

/// Maximum number of sources that are remembered as slow to read in the archive. Beyond it, the ones that are probed next are dropped.
pub const SLOW_SOURCES_MAX: usize = 1_024;

/// A read of one source is slow if it takes more than one in this many parts of a page's time.
pub const SLOW_READ_SHARE: u32 = 4;

/// A read that takes less than this is never slow, however little time a page has left.
pub const SLOW_READ_MIN: Duration = Duration::from_millis(5);

/// Number of slow reads whose time does not count against one page, because their sources were not known to be slow.
pub const SLOW_READS_EXCUSED_MAX: u32 = 2;

/// A source that is too slow for a page is skipped for this many times the duration of its last read. Probes of it thus take at most this
/// fraction of one archive thread.
pub const SLOW_SOURCE_PROBE_RESTS: u32 = 8;

/// Minimum time that such a source is skipped.
pub const SLOW_SOURCE_PROBE_MIN: Duration = Duration::from_secs(1);

/// Maximum time that such a source is skipped: a source that is fast again is read like all others after this time.
pub const SLOW_SOURCE_PROBE_MAX: Duration = Duration::from_secs(5 * 60);

/// Maximum number of different causes that are reported for failed reads of the archive.
pub const READ_FAILURES_REPORTED_MAX: usize = 1_000;

/// Maximum number of posts of each kind that the verification of an inbox lists.
pub const VERDICT_POSTS_MAX: usize = 100;

/// Delay after which an inbox with an apparent error is checked again before the error is reported. Posts that are being delivered arrive
/// sooner.
pub const VERIFY_AGAIN_AFTER: Duration = Duration::from_millis(50);

/// Bytes of a snapshot that are written between two syncs.
pub const SNAPSHOT_SYNC_BYTES: usize = 8 << 20;

/// Time that the snapshotter works without interruption before it pauses.
pub const SNAPSHOT_STRETCH: Duration = Duration::from_micros(500);

/// Length of the pause, as a multiple of the work before it. A quarter of one of two cores is what writers can spare; nothing waits for the
/// end of a snapshot.
pub const SNAPSHOT_RESTS: u32 = 3;

/// Maximum number of invalidations that wait for one watched reader. More are merged into one that reports a loss.
pub const LIVE_NOTICES_MAX: usize = 256;

/// Maximum number of invalidations of posts that the actor of a watched reader remembers during a look-up in the archive. With more, the
/// look-up is repeated.
pub const LIVE_LOOKUP_NOTICES_MAX: usize = 64;

/// Maximum number of live connections of one reader.
pub const LIVE_CONNECTIONS_PER_READER_MAX: usize = 32;

/// Maximum bytes that wait for one live connection. Beyond it the connection is closed.
pub const LIVE_QUEUE_BYTES_MAX: usize = 1 << 20;

/// Maximum time that a live connection may receive nothing of the data that waits for it. After it the connection is closed.
pub const LIVE_BEHIND_MAX: Duration = Duration::from_secs(10);

/// Maximum bytes of messages that are written to a live connection with one call.
pub const LIVE_WRITE_BYTES: usize = 16 * 1024;

/// Maximum bytes of a frame that a live client may send: it only has to authenticate and to answer heartbeats.
pub const LIVE_FRAME_BYTES_MAX: usize = 4 * 1024;

/// Burst of bytes that a live client may send: far more than the answers to heartbeats need.
pub const LIVE_RECEIVED_BYTES_AT_ONCE: usize = 128 * 1024;

/// Bytes that a live client may send per second after that burst.
pub const LIVE_RECEIVED_BYTES_PER_SECOND: usize = 8 * 1024;

/// Bytes that a frame counts in addition to its payload.
pub const LIVE_FRAME_COST_BYTES: usize = 256;

/// Maximum number of replies to a previously unknown post whose watched readers are notified one by one once the post is known. With more,
/// all watched readers read again.
pub const LIVE_ANSWERS_MAX: usize = 64;

/// Maximum number of sources of the reposts of one post that are looked up to find the watched readers to notify. With more, all watched
/// readers are notified.
pub const LIVE_REPOSTERS_MAX: usize = 1_024;

/// Maximum time that a shutdown waits for fan-outs in progress.
pub const FANOUT_DRAIN_MAX: Duration = Duration::from_secs(5);

/// Maximum number of inboxes that a sample of a shard examines: some fifty microseconds.
pub const SAMPLED_INBOXES_MAX: usize = 512;

/// Maximum number of slots that are probed for these inboxes, some of which may be empty.
pub const SAMPLED_PLACES_MAX: usize = 8 * SAMPLED_INBOXES_MAX;

/// Interval between two samples of a shard's inboxes.
pub const SAMPLE_PERIOD: Duration = Duration::from_secs(1);

/// Number of sources that are sampled to estimate the bytes of all of them.
pub const SOURCES_SAMPLE_MAX: usize = 512;

/// Number of posts whose reposts are sampled to estimate the bytes of all reposts.
pub const REPOSTS_SAMPLE_MAX: usize = 256;
