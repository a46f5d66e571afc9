//! All messages between actors, in one file.
//!
//! | message | from | to | may be repeated? |
//! |---|---|---|---|
//! | [`Command`] | engine, snapshotter, archiver, resolver, eraser | command processor | yes, except a publish without id |
//! | [`crate::runtime::background::archiver::Task`] | command processor | archiver | yes |
//! | [`FanoutOrder`] | command processor | fan-out supervisor | yes: deliveries are idempotent |
//! | [`OrdersPending`] | command processor | fan-out supervisor | yes: it only asks the supervisor to read its queue |
//! | [`crate::runtime::fanout::RegisterCouriers`] | engine | fan-out supervisor | no, once at start |
//! | [`Deliver`] | fan-out supervisor | courier | yes: the same post delivered twice is stored once |
//! | [`SlicesDelivered`] | courier | fan-out supervisor | no: it returns the shard's credit |
//! | [`CollectStatistics`] | engine | courier | yes |
//! | [`CopyInboxes`] | snapshotter | courier | yes |
//! | [`Restore`] | engine | activator | no, once at start |
//! | [`Wake`] | read scheduler | activator | yes: a reader that is awake only gets the request |
//! | [`WakingRequest`] | engine, read scheduler, activator | user actor | yes |
//! | [`Detach`] | live connection | user actor | yes |
//! | [`InvalidationsPending`] | courier, activator | user actor | yes: it only asks the actor to read its invalidations |
//! | [`Fetched`] | archive thread | user actor | yes: the event shows the state at that moment |
//! | [`Sleep`] | activator, eraser, command processor | user actor | yes |
//!
//! Answers are sent through one-shot channels inside the messages, so that a sender gets an error at once if a queue is
//! full.

use std::sync::Arc;

use actix::Message;
use tokio::sync::oneshot;

use crate::clock::{Timestamp, UnixMicros};
use crate::error::Error;
use crate::feed::event::{Event, MuteOrBlock, NewEdge, OldEdge};
use crate::feed::inbox::Inbox;
use crate::feed::lookups::Asked;
use crate::feed::page::Page;
use crate::feed::post::{Body, Draft, Post};
use crate::feed::preferences::Marker;
use crate::feed::rules::RulesPatch;
use crate::feed::schedule::{FanoutRoute, JobId};
use crate::feed::slice_queue::JobSize;
use crate::feed::stream::{Invalidation, StreamPosition};
use crate::id::{ListName, PostId, SourceId, SourceSlot};
use crate::live::subscriber_queue::SubscriberQueue;
use crate::runtime::fanout::records::RecordId;
use crate::runtime::reader::read_permit::{ReadPermit, Waking};
use crate::state::feed_filter::{Entry, PostLookup};
use crate::state::reader::PageRequest;
use crate::state::records::InboxRecord;
use crate::state::resolved::Resolved;
use crate::state::sources::Source;
use crate::state::tiering::RoundOutcome;
use crate::state::verify::Verdict;
use crate::storage::archive::ArchiveSnapshot;
use crate::storage::sequence::Sequence;

/// The sending half of the channel for an answer.
pub type Reply<T> = oneshot::Sender<Result<T, Error>>;

/// A requested change.
#[derive(Debug)]
pub enum Command {
    /// Publish a post. With `wait`, answer after it is in the inbox of every active follower.
    Publish {
        /// The post to publish.
        draft: Box<Draft>,
        /// True to answer after delivery instead of after the commit to the journal.
        wait: bool,
        /// The channel for the answer.
        reply: Reply<Published>,
    },
    /// Change the body or the visibility of a post.
    Edit {
        /// The id of the post.
        id: PostId,
        /// The new body, if it changes.
        body: Option<Body>,
        /// True to hide the post from feeds, false to show it, None for no change.
        hidden: Option<bool>,
        /// The channel for the answer.
        reply: Reply<Arc<Post>>,
    },
    /// Delete a post permanently.
    Delete {
        /// The id of the post.
        id: PostId,
        /// The channel for the answer.
        reply: Reply<()>,
    },
    /// Create follow edges, and then remove others: either all of it or nothing.
    ChangeEdges {
        /// The edges to create.
        follows: Vec<NewEdge>,
        /// The edges to remove.
        unfollows: Vec<OldEdge>,
        /// True to keep the posts that the removed edge has brought into the feed so far. Only for a single edge.
        keep: bool,
        /// The channel for the answer.
        reply: Reply<FollowResult>,
    },
    /// Register a user id that no event has named so far.
    RegisterUser {
        /// The id of the user.
        user: SourceId,
        /// The channel for the answer.
        reply: Reply<Arc<Source>>,
    },
    /// Execute commands that came together, in this order. They are committed together as far as they do not depend on each other.
    Many(Vec<Command>),
    /// Change the preferences of a reader.
    SetPreference {
        /// The id of the reader.
        reader: SourceId,
        /// The change to make.
        choice: PreferenceChange,
        /// The channel for the answer: false if nothing changed.
        reply: Reply<bool>,
    },
    /// Revoke tokens of a user.
    RevokeTokens {
        /// The id of the user.
        user: SourceId,
        /// Tokens issued before this instant are revoked.
        not_before: UnixMicros,
        /// Revocations before this instant may be forgotten.
        forget_before: Option<UnixMicros>,
        /// The channel for the answer.
        reply: Reply<()>,
    },
    /// Erase a user permanently.
    Erase {
        /// The id of the user.
        user: SourceId,
        /// The channel for the answer, which is sent once no reader sees any data of the user.
        reply: Reply<Erasing>,
    },
    /// Perform a step of the erasures in progress. Only the eraser sends it.
    EraseStep {
        /// The step to perform.
        step: EraseStep,
        /// The channel for the answer, which is sent when the step is done.
        reply: Reply<()>,
    },
    /// Report the position of the journal. A snapshot begins with a mark without sync and ends with a mark with sync.
    /// In between no post leaves memory for the archive.
    Mark {
        /// True to sync the journal and the archive first.
        sync: bool,
        /// The channel for the answer.
        reply: Reply<Mark>,
    },
    /// Drop the posts from memory that are in the archive now, or keep them if they could not be written.
    TieringWritten(Box<RoundOutcome>),
    /// Execute a command with the records that were looked up for it in the archive, in addition to those in memory.
    Resolved {
        /// The command to execute.
        command: Box<Command>,
        /// The records that were found.
        resolved: Box<Resolved>,
        /// The number of lookups so far.
        attempts: u32,
    },
    /// Store the next ids that the archive contains.
    IdsListed {
        /// The ids in ascending order. Fewer than requested if there are no more. None if the archive has no list.
        listed: Result<Option<Vec<PostId>>, Error>,
    },
    /// Finish the accepted commands, then leave the cluster.
    Leave,
    /// Finish the accepted commands, then end.
    Stop,
}

impl Command {
    /// Returns the bytes that the command holds on the heap. Zero for commands that callers cannot send in large
    /// numbers.
    pub fn bytes(&self) -> usize {
        let edge = |edge: &NewEdge| size_of::<NewEdge>() + edge.follower.as_str().len() + edge.source.as_str().len();
        match self {
            Self::Publish { draft, .. } => size_of::<Draft>() + draft.body.as_str().len(),
            Self::Edit { body, .. } => body.as_ref().map_or(0, |body| body.as_str().len()),
            // Callers may always remove an edge, as they may delete a post.
            Self::ChangeEdges { follows, unfollows, .. } if follows.is_empty() && unfollows.len() == 1 => 0,
            Self::ChangeEdges { follows, unfollows, .. } => {
                let ids = |edge: &OldEdge| edge.follower.as_str().len() + edge.source.as_str().len();
                let unfollow = |edge| size_of::<OldEdge>() + ids(edge);
                follows.iter().map(edge).sum::<usize>() + unfollows.iter().map(unfollow).sum::<usize>()
            }
            Self::Many(commands) => commands.iter().map(Self::bytes).sum(),
            Self::Resolved { command, resolved, .. } => command.bytes() + resolved.bytes(),
            Self::Delete { .. }
            | Self::IdsListed { .. }
            | Self::RegisterUser { .. }
            | Self::SetPreference { .. }
            | Self::RevokeTokens { .. }
            | Self::Erase { .. }
            | Self::EraseStep { .. }
            | Self::Mark { .. }
            | Self::TieringWritten(_)
            | Self::Leave
            | Self::Stop => 0,
        }
    }

    /// Answers with a refusal. A caller that has disconnected gets no answer.
    pub fn refuse(self, cause: Error) {
        fn answer<T>(reply: Reply<T>, cause: Error) {
            let _ = reply.send(Err(cause));
        }
        match self {
            Self::Publish { reply, .. } => answer(reply, cause),
            Self::Edit { reply, .. } => answer(reply, cause),
            Self::Delete { reply, .. } | Self::RevokeTokens { reply, .. } => answer(reply, cause),
            Self::ChangeEdges { reply, .. } => answer(reply, cause),
            Self::Many(commands) => commands.into_iter().for_each(|command| command.refuse(cause.clone())),
            Self::RegisterUser { reply, .. } => answer(reply, cause),
            Self::SetPreference { reply, .. } => answer(reply, cause),
            Self::Erase { reply, .. } => answer(reply, cause),
            Self::EraseStep { reply, .. } => answer(reply, cause),
            Self::Mark { reply, .. } => answer(reply, cause),
            Self::Resolved { command, .. } => command.refuse(cause),
            Self::TieringWritten(_) | Self::IdsListed { .. } | Self::Leave | Self::Stop => {}
        }
    }
}

/// A change of a reader's preferences.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PreferenceChange {
    /// Mute or block a source, or end the mute or block.
    Silence {
        /// The id of the source.
        source: SourceId,
        /// Selects between mute and block.
        how: MuteOrBlock,
        /// True to mute or block, false to end it.
        on: bool,
    },
    /// Change some rules.
    Rules(RulesPatch),
    /// Move the read marker.
    Mark(Marker),
    /// Add a source to a list, or remove it.
    List {
        /// The name of the list.
        list: ListName,
        /// The id of the source.
        source: SourceId,
        /// True to add the source, false to remove it.
        on: bool,
    },
    /// Delete a list.
    DropList(ListName),
}

/// The result of a request to erase a user.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Erasing {
    /// The erasure is in progress.
    UnderWay,
    /// The user is unknown: the id was never used, or the user has been erased.
    Unknown,
}

/// A step of the erasures in progress.
#[derive(Debug)]
pub enum EraseStep {
    /// Journal and apply these events. All of them name a user who is being erased.
    Apply(Vec<Event>),
    /// Write all pending posts to the archive, and then rewrite the archive without these users.
    Rewrite(Vec<SourceId>),
    /// Begin a new segment of the journal.
    BeginSegment,
}

/// The answer to a publish.
#[derive(Clone, Debug)]
pub struct Published {
    /// The published post.
    pub post: Arc<Post>,
    /// False if the same post was published before.
    pub created: bool,
}

/// The result of creating and removing edges.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FollowResult {
    /// The number of new edges.
    pub created: usize,
    /// The number of edges that existed before.
    pub existing: usize,
    /// The number of removed edges.
    pub removed: usize,
}

/// An order for fan-out: a post for inboxes, or an invalidation for watched readers.
#[derive(Debug)]
pub struct FanoutOrder {
    /// The change to deliver.
    pub invalidation: Invalidation,
    /// The author of the post, or `SourceSlot::NONE` if the order is not a post.
    pub author: SourceSlot,
    /// The routes to the recipients, at least one; routes into inboxes come first.
    pub fanout_routes: Box<[FanoutRoute]>,
    /// The maximum number of deliveries that the post needs.
    pub deliveries: usize,
    /// The time at which the post was accepted. None if it was delivered before.
    pub accepted_at: Option<UnixMicros>,
    /// The record of the fan-out, if the post was not delivered before.
    pub record: Option<RecordId>,
    /// The caller that waits for the delivery, and its answer.
    pub waiting: Option<(Reply<Published>, Published)>,
}

/// Asks the supervisor to read its queue of orders.
#[derive(Message, Debug)]
#[rtype(result = "()")]
pub struct OrdersPending;

/// Deliver a post to inboxes, or only an invalidation to watched readers.
#[derive(Message, Debug)]
#[rtype(result = "()")]
pub struct Deliver {
    /// The job that this slice belongs to.
    pub job: JobId,
    /// The size of the job, which decides its turn.
    pub size: JobSize,
    /// The change to deliver.
    pub invalidation: Invalidation,
    /// True if the change is a post to put into inboxes.
    pub into_inboxes: bool,
    /// The recipients' numbers within the shard, in ascending order.
    pub recipients: Vec<u32>,
}

/// Reports that slices are delivered.
#[derive(Message, Debug)]
#[rtype(result = "()")]
pub struct SlicesDelivered {
    /// The number of the shard.
    pub shard: usize,
    /// The slices, in the order in which they were delivered.
    pub slices: Vec<DeliveredSlice>,
}

/// A slice that is delivered.
#[derive(Clone, Copy, Debug)]
pub struct DeliveredSlice {
    /// The job that it belongs to.
    pub job: JobId,
    /// The number of its recipients.
    pub recipients: usize,
    /// The number of inboxes to which its post was added; zero for an invalidation.
    pub added: u64,
    /// True if the slice was one of a post to put into inboxes.
    pub into_inboxes: bool,
}

/// Count the contents of the shard's inboxes.
#[derive(Message, Debug)]
#[rtype(result = "()")]
pub struct CollectStatistics(pub oneshot::Sender<InboxTotals>);

/// Copy some of the shard's inboxes, for a snapshot.
#[derive(Message, Debug)]
#[rtype(result = "()")]
pub struct CopyInboxes {
    /// The first reader to copy, by its number within the shard.
    pub from: u32,
    /// The channel for the copied inboxes, and for the next start if there are more.
    pub reply: oneshot::Sender<(Vec<InboxRecord>, Option<u32>)>,
}

/// Wake readers with the inboxes they had when the process ended.
#[derive(Message, Debug)]
#[rtype(result = "()")]
pub struct Restore {
    /// The readers and their inboxes.
    pub readers: Vec<(Arc<Source>, Inbox)>,
    /// The channel for the confirmation.
    pub reply: std::sync::mpsc::Sender<()>,
}

/// The total contents of inboxes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InboxTotals {
    /// The number of inboxes.
    pub inboxes: usize,
    /// The number of entries in all inboxes.
    pub entries: usize,
    /// Bytes of all inboxes, without the allocator's overhead.
    pub bytes: usize,
}

/// Wake a reader if it is asleep, and pass the request to its actor.
#[derive(Message, Debug)]
#[rtype(result = "()")]
pub struct Wake {
    /// The reader to wake.
    pub reader: Arc<Source>,
    /// The request for its actor.
    pub ask: WakingRequest,
    /// Counts the reader as waiting to be woken, until it is dropped.
    pub waking: Waking,
}

/// A request for which a sleeping reader is woken.
#[derive(Message, Debug)]
#[rtype(result = "()")]
pub enum WakingRequest {
    /// Build a page of the feed.
    Read {
        /// The requested page.
        request: PageRequest,
        /// The channel for the answer.
        reply: Reply<Page<Entry>>,
        /// The read permit, released when the read ends.
        permit: ReadPermit,
    },
    /// Attach a live connection. Its first event reports the state of the stream.
    Attach {
        /// The queue of the connection.
        subscriber: Arc<SubscriberQueue>,
        /// The position in the stream up to which the client has the events.
        resume: Option<StreamPosition>,
        /// The channel for the answer.
        reply: Reply<()>,
    },
    /// Compare the inbox with a newly built one, and replace it on request.
    Verify {
        /// True to replace the inbox with the new one.
        rebuild: bool,
        /// The channel for the answer.
        reply: Reply<Verdict>,
    },
}

impl WakingRequest {
    /// Answers with a refusal. A caller that has disconnected gets no answer.
    pub fn refuse(self, cause: Error) {
        match self {
            Self::Read { reply, .. } => drop(reply.send(Err(cause))),
            Self::Attach { reply, .. } => drop(reply.send(Err(cause))),
            Self::Verify { reply, .. } => drop(reply.send(Err(cause))),
        }
    }
}

/// Reports that a live connection has ended.
#[derive(Message, Debug)]
#[rtype(result = "()")]
pub struct Detach;

/// Asks a user actor to read the invalidations collected for it.
#[derive(Message, Debug)]
#[rtype(result = "()")]
pub struct InvalidationsPending;

/// The result of an archive lookup for an invalidation.
#[derive(Message, Debug)]
#[rtype(result = "()")]
pub struct Fetched {
    /// The invalidation that waits for the lookup.
    pub invalidation: Invalidation,
    /// The lookup, which shows whether its result is outdated.
    pub asked: Asked,
    /// The post whose entry is affected, with the posts that were looked up for it. None if the archive could not be
    /// read.
    pub found: Option<(PostId, Vec<PostLookup>)>,
}

/// Drop the inbox and end the actor.
#[derive(Message, Debug)]
#[rtype(result = "()")]
pub struct Sleep;

/// The position of the journal, and of the state at that moment.
#[derive(Clone, Debug)]
pub struct Mark {
    /// The sequence number of the last journaled event.
    pub last: Sequence,
    /// The number of sources at that moment.
    pub sources: usize,
    /// The last instant that the clock issued, or that was read from a shared log.
    pub last_instant: Timestamp,
    /// The checkpoint of a shared log, encoded as a record of the snapshot.
    pub followed: Option<Arc<[u8]>>,
    /// At the end of a snapshot: true if the archive, persisted up to `last`, contains any post.
    pub has_archived: bool,
    /// At the end of a snapshot: the archive as it was persisted up to `last`. Later writes do not change it.
    pub archive: Option<Arc<dyn ArchiveSnapshot>>,
}

/// A snapshot that was taken, and the position of the journal at its end.
#[derive(Clone, Debug)]
pub struct CompletedSnapshot {
    /// The snapshot file.
    pub taken: SnapshotTaken,
    /// The snapshot may contain effects of events up to this position.
    pub end: Mark,
}

/// A stored snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SnapshotTaken {
    /// The name of its file.
    pub file: String,
    /// The last event that it contains. Replay continues after it.
    pub sequence: Sequence,
    /// The size of the file in bytes.
    pub bytes: u64,
    /// The time at which it was begun.
    pub taken_at: UnixMicros,
}
