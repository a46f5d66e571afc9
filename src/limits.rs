//! Every fixed limit, in one place. What an operator may want to change is in `config` instead.

mod access;
mod connections;
mod erasures;

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::clock::UnixMicros;

pub use access::*;
pub use connections::*;
pub use erasures::*;

/// Longest source id.
pub const SOURCE_ID_BYTES_MAX: usize = 128;

/// Most sources one process can know: slots are 32 bits wide, and the last is kept free.
pub const SOURCES_MAX: usize = u32::MAX as usize - 1;

/// Longest `body` of a post, as JSON text.
pub const POST_BODY_BYTES_MAX: usize = 64 * 1024;

/// Deepest nesting of arrays and objects in a `body`: what common JSON readers take without a setting.
pub const POST_BODY_DEPTH_MAX: usize = 64;

/// Characters of a number in a post's body. An exact double takes 24 at most, and some parsers refuse numbers that are much longer.
pub const POST_NUMBER_BYTES_MAX: usize = 64;

/// Most tags on one post.
pub const POST_TAGS_MAX: usize = 16;

/// Most sources one post can belong to: its author, its tags and its topic.
pub const POST_SOURCES_MAX: usize = 1 + POST_TAGS_MAX + 1;

/// How far ahead of the server's clock a post may be dated.
pub const PUBLISH_AHEAD_MAX: Duration = Duration::from_secs(5 * 60);

/// By how much the clock may be off before that is a jump: ahead of the monotonic clock, or behind times that were shown. Within it, new
/// posts wait for a clock that stepped back, so that their times increase; a post may be dated ahead by as much.
pub const CLOCK_STEP_MAX: Duration = PUBLISH_AHEAD_MAX;

/// The earliest instant a clock is believed that showed a later one before: 2020. Machines without a battery start long before.
pub const CLOCK_EARLIEST: UnixMicros = UnixMicros(1_577_836_800_000_000);

/// By how much the clock may be ahead, at a start, of all that is kept without a word in the log: longer than most are stopped.
pub const CLOCK_GAP_REPORTED: Duration = Duration::from_secs(30 * 24 * 3_600);

/// Entries of a page when the request names no limit.
pub const PAGE_POSTS_DEFAULT: usize = 20;

/// Most entries of a page.
pub const PAGE_POSTS_MAX: usize = 100;

/// Work on one page on a thread that others wait for, in units of about ten nanoseconds: some four milliseconds. A page of a reader
/// who follows 5,000 sources that are all pulled takes a third of it. What needs more is built elsewhere.
pub const PAGE_WORK_ON_SHARD_MAX: u64 = 400_000;

/// Work on one page elsewhere: twenty thousand candidates. Past it the page ends early, with a `next` cursor from where to go on.
pub const PAGE_WORK_MAX: u64 = 4_000_000;

/// Work between two looks at the clock: some fifty microseconds.
pub const PAGE_WORK_PER_CLOCK_LOOK: u64 = 5_000;

/// Work on a page for which no time is left before any of it is known: a hundred candidates, so that it shows something.
pub const PAGE_WORK_GRACE: u64 = 20_000;

/// Sources that a page names of those it could not read. Of more it says how many.
pub const PARTIAL_NAMES_MAX: usize = 100;

/// Most edges in one bulk follow.
pub const FOLLOWS_PER_REQUEST_MAX: usize = 10_000;

/// Largest request body of a single write: a post body, its escapes around it, and the other fields.
pub const REQUEST_BYTES_MAX: usize = POST_BODY_BYTES_MAX + 16 * 1024;

/// Largest request body of a bulk follow: its edges with the longest ids.
pub const BULK_REQUEST_BYTES_MAX: usize = FOLLOWS_PER_REQUEST_MAX * (2 * SOURCE_ID_BYTES_MAX + 96);

/// Reads under way at the same time: what two cores answer in some 30 ms.
pub const READS_MAX: usize = 1_024;

/// Of these, reads that have to wake their reader first.
pub const WAKE_UPS_MAX: usize = READS_MAX / 2;

/// Writes under way at the same time: as many as the scribe journals together.
pub const WRITES_MAX: usize = SCRIBE_BATCH_MAX;

/// Bytes of the bodies of writes under way, as far as these say how long they are.
pub const WRITE_BYTES_MAX: usize = 256 << 20;

/// Bytes of answers that clients have yet to take: some forty of the largest pages.
pub const RESPONSE_BYTES_MAX: usize = 256 << 20;

/// Bytes of an answer that a connection is handed at once. Larger answers are counted until their last piece is handed over;
/// others leave no more with a connection than its buffers.
pub const RESPONSE_PIECE_BYTES: usize = 64 * 1024;

/// Bytes of a large answer that a client has to take in a second, after the time in which nothing may be taken: what a poor
/// connection to a phone does. Slower ones would hold its room for long.
pub const RESPONSE_BYTES_PER_SECOND_MIN: usize = 64 * 1024;

/// Clients that it takes to fill what bounds bytes: one has at most this part of it. Few, so that one alone does well.
pub const CLIENTS_PER_GATE: usize = 16;

/// How long any body may take: lost packets are sent again by then, on networks however bad.
pub const BODY_TIME: Duration = Duration::from_secs(5);

/// Bytes of a body that earn it a second more: what the slowest phones' networks do.
pub const BODY_BYTES_PER_SECOND_MIN: usize = 4 * 1024;

/// How long a body may take, however large. Those of users are through by then at the rate above; larger ones are servers'.
pub const BODY_TIME_MAX: Duration = Duration::from_secs(30);

/// How long what is sent may wait for a client to take [`RESPONSE_STALL_BYTES_MIN`] of it, before the connection ends.
pub const RESPONSE_STALL_MAX: Duration = Duration::from_secs(30);

/// What a client has to take in that time while more waits for it: about what the system keeps for it, so that an answer that
/// fits there may be taken however slowly.
pub const RESPONSE_STALL_BYTES_MIN: usize = 256 * 1024;

/// Bulk writes under way at the same time.
pub const BULK_WRITES_MAX: usize = 16;

/// Live connections being let in at the same time.
pub const JOINS_MAX: usize = 2_048;

/// Operators' requests under way at the same time.
pub const OPERATIONS_MAX: usize = 64;

/// Requests for metrics under way at the same time: a few that collect them, and nothing else takes their room.
pub const METRICS_MAX: usize = 8;

/// After how many seconds those may come back that there was no room for: each is told one of them.
pub const RETRY_SECONDS: RangeInclusive<u64> = 1..=3;

/// Commands waiting for the scribe.
pub const SCRIBE_QUEUE_MAX: usize = 16 * 1024;

/// Bytes of posts and edges in these commands: what a good disk takes in a fraction of a second.
pub const SCRIBE_QUEUE_BYTES_MAX: usize = 128 << 20;

/// Commands the scribe journals and answers together.
pub const SCRIBE_BATCH_MAX: usize = 4 * 1024;

/// Posts handed to the fan-out supervisor and not yet taken up. Beyond it publishing is refused.
pub const FANOUT_QUEUE_MAX: usize = 16 * 1024;

/// Posts being fanned out at the same time.
pub const FANOUT_JOBS_MAX: usize = 16 * 1024;

/// Posts of one author that may wait for their delivery. Beyond it the author is refused, and nobody else.
pub const FANOUTS_PER_AUTHOR_MAX: usize = 4 * 1024;

/// Deliveries that posts being fanned out may need yet, for each shard: what one makes in half a second to a second. Beyond it
/// publishing is refused, since what is accepted then would be seen later than people wait for it.
pub const FANOUT_BACKLOG_PER_SHARD_MAX: usize = 2 << 20;

/// One in so many of these may be of one author's posts.
pub const FANOUT_BACKLOG_AUTHORS: usize = 4;

/// Fan-outs are timed over the last one to two of these.
pub const FANOUT_LATENCY_WINDOW: Duration = Duration::from_secs(10);

/// Longest time of a fan-out that is told; one that takes longer counts as this.
pub const FANOUT_LATENCY_MAX: Duration = Duration::from_secs(3_600);

/// Recipients in one slice of a fan-out, the unit in which jobs take turns.
pub const SLICE_RECIPIENTS_MAX: usize = 500;

/// Followers looked at for one slice, active or not.
pub const SLICE_SCAN_MAX: usize = 64 * 1024;

/// Recipients a shard may have in its hands at once before it gets another slice: two full slices, so that it never
/// waits for the next, and a small post never waits for more than those.
pub const RECIPIENTS_IN_FLIGHT_MAX: usize = 2 * SLICE_RECIPIENTS_MAX;

/// Slices a shard may have in its hands at once, however small.
pub const SLICES_IN_FLIGHT_MAX: usize = 16;

/// Deliveries a courier makes before it lets the other actors of its shard have a turn.
pub const DELIVERIES_PER_TURN_MAX: usize = 512;

/// Messages waiting for one user actor.
pub const USER_MAILBOX_MAX: usize = 128;

/// Readers of one shard waiting to be woken.
pub const WAKE_QUEUE_MAX: usize = 4 * 1024;

/// Reads that a shard's actors have in hand at the same time: a fraction of a millisecond's work, and enough that none waits for the
/// next.
pub const READS_TOGETHER_MAX: usize = 16;

/// Reads of one shard that wait for their turn: what takes a second or two.
pub const READS_WAITING_PER_SHARD_MAX: usize = 64 * 1024;

/// Posts of a source that readers pull without a lock, the newest: at most 512 bytes for each source that has any to pull. A page of 20
/// entries asks for at most 21 of each to begin with.
pub const NEWEST_PULLED_MAX: usize = 32;

/// A post that stands further below the moment of its acceptance is noted as late with its sources. A page that a client resumes from
/// looks at all entries of this last while again, and services date posts back by milliseconds to seconds, for the time in their queues.
pub const LATE_AFTER: Duration = Duration::from_secs(5);

/// Late posts that are noted with one source: 24 bytes each. Clients that come back after more have to read the feed again.
pub const LATE_POSTS_PER_SOURCE_MAX: usize = 64;

/// Late posts that are looked at for one page.
pub const LATE_POSTS_PER_PAGE_MAX: usize = 1_024;

/// Posts that are answered before they are known, whose answers are remembered until they are: 64 bytes each and more. Of more, those
/// that wait longest are forgotten: a client that polls may miss answers to them that show only once they come.
pub const AWAITED_POSTS_MAX: usize = 65_536;

/// Answers to one such post that are remembered. With more, all clients have to read their feeds again once it is known.
pub const AWAITED_ANSWERS_MAX: usize = 1_024;

/// Answers to all such posts that are remembered, eight bytes each.
pub const AWAITED_ANSWERS_IN_ALL_MAX: usize = 4 * AWAITED_POSTS_MAX;

/// Reposts of a post that comes to be seen which are noted as late with their sources. With more, the post is noted instead, and each page
/// that a client resumes from looks for those of its reader.
pub const LATE_REPOSTS_MAX: usize = 1_024;

/// Posts with more reposts than that which are noted, 16 bytes each. Of more, the first to come are forgotten: clients that come back after
/// them have to read their feeds again.
pub const REVEALED_ORIGINS_MAX: usize = 256;

/// Of the sources that a reader follows, those that are looked at to tell with which crowd it comes: all of them by default.
pub const CROWD_SOURCES_MAX: usize = 5_000;

/// Times a read is tried while its user actor keeps falling asleep under it. With far more readers than may be awake
/// several times in a row is not rare.
pub const READ_ATTEMPTS_MAX: usize = 32;

/// Further crashes of its user actor, after a first try went without an answer, at which a read is given up. Together
/// fewer than [`USER_PANICS_MAX`]: one bad question alone must not bring a reader into quarantine.
pub const READ_CRASHES_MAX: u32 = 2;

/// Crashes of one user actor after which it is quarantined.
pub const USER_PANICS_MAX: u32 = 5;

/// How long a quarantined user actor is left alone.
pub const QUARANTINE: Duration = Duration::from_secs(60);

/// Shards at most.
pub const SHARDS_MAX: usize = 256;

/// Bytes of encoded events that the scribe commits together.
pub const SCRIBE_BATCH_BYTES_MAX: usize = 256 * 1024;

/// How long nothing is written before the journal says of itself what is synced.
pub const JOURNAL_IDLE: Duration = Duration::from_secs(1);

/// Bytes after which the next journal segment is started.
pub const SEGMENT_BYTES: u64 = 64 << 20;

/// Largest payload of one frame: the largest event is a bulk of follow edges with the longest ids.
pub const FRAME_PAYLOAD_BYTES_MAX: usize = 16 << 20;

/// Largest file that is read as a segment: a full one, and a group beyond.
pub const SEGMENT_READ_BYTES_MAX: usize = 1 << 30;

/// Bytes of records after which a block of a snapshot is written.
pub const SNAPSHOT_BLOCK_BYTES: usize = 1 << 20;

/// Largest block of a snapshot: a full one, and the largest record.
pub const SNAPSHOT_BLOCK_BYTES_MAX: usize = 64 << 20;

/// Snapshots that are kept.
pub const SNAPSHOTS_KEPT: usize = 2;

/// One in so many bytes of the last snapshot have to be journaled before the next is due: what a start replays is that part of what
/// it loads, and takes about that part of the time.
pub const SNAPSHOT_JOURNAL_SHARE: u64 = 4;

/// Intervals between two snapshots after which the next is due if anything was journaled, however little.
pub const SNAPSHOT_INTERVALS_MAX: u32 = 16;

/// Snapshots up to this size are due whatever was journaled: half a second's work.
pub const SNAPSHOT_SMALL_BYTES: u64 = 64 << 20;

/// Inboxes that a courier copies for a snapshot in one turn.
pub const INBOXES_PER_COPY: usize = 64;

/// Inboxes that are restored together after a start.
pub const INBOXES_PER_RESTORE: usize = 4 * 1024;

/// Sources one reader may mute, and as many to block.
pub const SILENCED_MAX: usize = 10_000;

/// Lists one reader may have.
pub const LISTS_MAX: usize = 100;

/// Earlier posts that may be asked for with a new edge, other than all of them.
pub const BACKFILL_MAX: usize = 10_000;

/// The same for all edges of one request together: the one writer looks them up.
pub const BACKFILLS_PER_REQUEST_MAX: usize = 100_000;

/// Unread entries that are counted one by one.
pub const UNREAD_MAX: usize = 99;

/// Stretches of one source's posts that a feed keeps after the source was unfollowed again and again.
pub const KEPT_PER_SOURCE_MAX: usize = 8;

/// Edges one follower may be allowed: 12 bytes each, they are one record of a snapshot.
pub const FOLLOWING_MAX: usize = 4_000_000;

/// Requests for a snapshot that wait for the one being taken.
pub const SNAPSHOT_REQUESTS_MAX: usize = 16;

/// Posts that an outbox may have in memory beyond its limit before the oldest are shelved together.
pub const TIERING_SLACK: usize = 128;

/// Outbox entries that are shelved in one round.
pub const TIERING_ENTRIES_MAX: usize = 8 * 1024;

/// Outboxes looked at in one round when posts take too many bytes: about a millisecond of the scribe's time.
pub const BUDGET_SOURCES_PER_ROUND: usize = 8 * 1024;

/// Posts looked at to find out how old the oldest of all are.
pub const BUDGET_SAMPLE_POSTS: usize = 1_024;

/// Tombstones that stay in memory after the archive has them: pages meet these most.
pub const TOMBSTONES_IN_MEMORY_MAX: usize = 1 << 20;

/// How long after a failed round of tiering the next one is tried.
pub const TIERING_RETRY: Duration = Duration::from_secs(1);

/// Sources that a damaged page of the archive may hold back, of which nothing is written until a restart. Of more everything is tried again.
pub const HELD_BACK_SOURCES_MAX: usize = 1_024;

/// Writes by which one round of tiering finds out what meets a damaged page.
pub const SHELVING_WRITES_MAX: usize = 64;

/// Rounds of tiering between two that make the archive survive power loss.
pub const TIERINGS_PER_PERSIST: u32 = 32;

/// Reads that wait for a thread that may wait for a disk.
pub const ARCHIVE_QUEUE_MAX: usize = 1_024;

/// Times that a command is looked up in the archive, before it is refused: what it needs is held in memory from the first time
/// on, so that once more is enough.
pub const RESOLUTIONS_MAX: u32 = 8;

/// Archived ids of those to be minted next that are listed at once, and at most twice as many are remembered. Only ids that callers
/// gave are among them.
pub const ARCHIVED_IDS_LISTED_MAX: usize = 1_024;

/// Threads that read the archive.
pub const ARCHIVE_READERS: usize = 4;

/// Bytes of the archive that are cached in memory.
pub const ARCHIVE_CACHE_BYTES: usize = 64 << 20;

/// Sources of which it is remembered that reading them in the archive took long. Of more, those are forgotten that are due first.
pub const SLOW_SOURCES_MAX: usize = 1_024;

/// One in so many parts of a page's time makes a read of one source slow.
pub const SLOW_READ_SHARE: u32 = 4;

/// No read that takes less is slow, however little time a page has left.
pub const SLOW_READ_MIN: Duration = Duration::from_millis(5);

/// Slow reads whose time is not counted against one page, since nothing was known of them before.
pub const SLOW_READS_EXCUSED_MAX: u32 = 2;

/// How many times as long as its last read took a source is left alone that is too slow for a page: probes of it take no more than this
/// part of one archive thread.
pub const SLOW_SOURCE_PROBE_RESTS: u32 = 8;

/// And at least so long.
pub const SLOW_SOURCE_PROBE_MIN: Duration = Duration::from_secs(1);

/// And at most so long: a source that is fast again is read as all others after this.
pub const SLOW_SOURCE_PROBE_MAX: Duration = Duration::from_secs(5 * 60);

/// Different causes told of what could not be read from the archive.
pub const READ_FAILURES_TOLD_MAX: usize = 1_000;

/// Posts named of each kind when an inbox is verified.
pub const VERDICT_POSTS_MAX: usize = 100;

/// Time after which an inbox that seems wrong is looked at again, before that is said. What is on its way arrives sooner.
pub const VERIFY_AGAIN_AFTER: Duration = Duration::from_millis(50);

/// Bytes of a snapshot that are written between two syncs.
pub const SNAPSHOT_SYNC_BYTES: usize = 8 << 20;

/// How long a snapshot is worked on at a stretch, before it rests.
pub const SNAPSHOT_STRETCH: Duration = Duration::from_micros(500);

/// How many times as long as it worked a snapshot rests. A quarter of one core of two is what writers can spare; nothing waits for
/// the end of a snapshot.
pub const SNAPSHOT_RESTS: u32 = 3;

/// Invalidations waiting for one watched reader; more become one, that some were missed.
pub const LIVE_NOTICES_MAX: usize = 256;

/// Invalidations of posts that a watched reader's actor remembers while the archive is read for it. With more, what was found is looked up again.
pub const LIVE_LOOKUP_NOTICES_MAX: usize = 64;

/// Live connections of one reader.
pub const LIVE_CONNECTIONS_PER_READER_MAX: usize = 32;

/// Bytes waiting for one live connection, past which it is cut off.
pub const LIVE_QUEUE_BYTES_MAX: usize = 1 << 20;

/// How long a live connection may take nothing of what waits for it, before it is cut off.
pub const LIVE_BEHIND_MAX: Duration = Duration::from_secs(10);

/// Bytes of messages that are written to a live connection with one call.
pub const LIVE_WRITE_BYTES: usize = 16 * 1024;

/// Largest frame that a live client may send: it has nothing to say but that it is alive.
pub const LIVE_FRAME_BYTES_MAX: usize = 4 * 1024;

/// Bytes that a live client may send at once, and again each second: far more than it needs to say that it is alive.
pub const LIVE_RECEIVED_BYTES_AT_ONCE: usize = 128 * 1024;

/// See there.
pub const LIVE_RECEIVED_BYTES_PER_SECOND: usize = 8 * 1024;

/// Bytes that a frame counts for beside those in it.
pub const LIVE_FRAME_COST_BYTES: usize = 256;

/// Answers to a post that was unknown whose watched readers are notified one by one once it is known. With more, all who watch read again.
pub const LIVE_ANSWERS_MAX: usize = 64;

/// Sources of the reposts of one post that are looked up, to tell who is watching of a change. With more, all who watch look.
pub const LIVE_REPOSTERS_MAX: usize = 1_024;

/// How long a shutdown waits for fan-outs that are under way.
pub const FANOUT_DRAIN_MAX: Duration = Duration::from_secs(5);

/// Inboxes that a sample of a shard looks at: some fifty microseconds.
pub const SAMPLED_INBOXES_MAX: usize = 512;

/// Places where it looks for them, some of which may be empty.
pub const SAMPLED_PLACES_MAX: usize = 8 * SAMPLED_INBOXES_MAX;

/// Time between two surveys of a shard's inboxes.
pub const SAMPLE_PERIOD: Duration = Duration::from_secs(1);

/// Sources that are looked at to tell what all of them take.
pub const SOURCES_SAMPLE_MAX: usize = 512;

/// Posts whose reposts are looked at to tell what all reposts take.
pub const REPOSTS_SAMPLE_MAX: usize = 256;
