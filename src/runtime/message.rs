//! Every message between actors, on one page.
//!
//! | message | from | to | twice? |
//! |---|---|---|---|
//! | [`Command`] | engine, snapshotter, archiver, resolver, eraser | scribe | yes for all but a publish without id |
//! | [`crate::runtime::background::archiver::Task`] | scribe | archiver | yes |
//! | [`FanoutOrder`] | scribe | fan-out supervisor | yes: deliveries are idempotent |
//! | [`Ring`] | scribe | fan-out supervisor | yes: it only says "look at your queue" |
//! | [`RegisterCouriers`] | engine | fan-out supervisor | no, once at start |
//! | [`Deliver`] | fan-out supervisor | courier | yes: the same post twice appears once |
//! | [`SliceDelivered`] | courier | fan-out supervisor | no: it returns the shard's credit |
//! | [`CollectStatistics`] | engine | courier | yes |
//! | [`CopyInboxes`] | snapshotter | courier | yes |
//! | [`Restore`] | engine | activator | no, once at start |
//! | [`Wake`] | read scheduler | activator | yes: a reader that is awake is just asked |
//! | [`Ask`] | read scheduler, activator | user actor | yes |
//! | [`Detach`] | live connection | user actor | yes |
//! | [`Bell`] | courier | user actor | yes: it only says "look at your notices" |
//! | [`Fetched`] | archive thread | user actor | yes: it is told as it stands by then |
//! | [`Verify`] | engine | user actor | yes |
//! | [`Sleep`] | activator | user actor | yes |
//!
//! Answers go through one-shot channels inside the messages, so that a queue's limit is felt by its sender at once.

use std::sync::Arc;

use actix::{Addr, Message};
use tokio::sync::oneshot;

use crate::clock::{Taken, UnixMicros};
use crate::error::Error;
use crate::feed::event::{Event, MuteOrBlock, NewEdge};
use crate::feed::inbox::Inbox;
use crate::feed::lookups::Asked;
use crate::feed::page::Page;
use crate::feed::post::{Body, Draft, Post};
use crate::feed::preferences::Marker;
use crate::feed::rules::RulesPatch;
use crate::feed::schedule::{FanoutRoute, JobId};
use crate::feed::stream::{Invalidation, Place};
use crate::id::{ListName, PostId, SourceId, SourceSlot};
use crate::live::subscriber_queue::SubscriberQueue;
use crate::runtime::fanout::courier::Courier;
use crate::runtime::reader::read_scheduler::{Turn, Waking};
use crate::state::reader::PageRequest;
use crate::state::records::InboxRecord;
use crate::state::resolved::Resolved;
use crate::state::sources::Source;
use crate::state::tiering::Written;
use crate::state::verify::Verdict;
use crate::state::view::{Entry, Found};
use crate::storage::journal::Sequence;

/// Where an answer goes.
pub type Reply<T> = oneshot::Sender<Result<T, Error>>;

/// A change that is asked for.
#[derive(Debug)]
pub enum Command {
    /// Publish a post; with `wait`, answer once it is in every active follower's inbox.
    Publish {
        /// The post.
        draft: Box<Draft>,
        /// Answer after delivery instead of after the journal.
        wait: bool,
        /// The answer.
        reply: Reply<Published>,
    },
    /// Change a post.
    Edit {
        /// The post.
        id: PostId,
        /// Its new body.
        body: Option<Body>,
        /// Whether to keep it out of feeds.
        hidden: Option<bool>,
        /// The answer.
        reply: Reply<Arc<Post>>,
    },
    /// Delete a post for good.
    Delete {
        /// The post.
        id: PostId,
        /// The answer.
        reply: Reply<()>,
    },
    /// Make edges, all or none.
    Follow {
        /// The edges.
        edges: Vec<NewEdge>,
        /// The answer.
        reply: Reply<Followed>,
    },
    /// Make a user known that nothing named so far.
    Meet {
        /// The user.
        user: SourceId,
        /// The answer.
        reply: Reply<Arc<Source>>,
    },
    /// Remove an edge.
    Unfollow {
        /// Who follows.
        follower: SourceId,
        /// Whom.
        source: SourceId,
        /// What it has brought so far stays.
        keep: bool,
        /// The answer.
        reply: Reply<()>,
    },
    /// Change what a reader has decided.
    Choose {
        /// The reader.
        reader: SourceId,
        /// What is different from now on.
        choice: Choice,
        /// The answer: false if nothing is.
        reply: Reply<bool>,
    },
    /// Revoke tokens of a user.
    RevokeTokens {
        /// The user.
        user: SourceId,
        /// Those made before it.
        not_before: UnixMicros,
        /// Revocations before it may be forgotten.
        forget_before: Option<UnixMicros>,
        /// The answer.
        reply: Reply<()>,
    },
    /// Erase a user for good.
    Erase {
        /// The user.
        user: SourceId,
        /// The answer, once nobody sees anything of the user any more.
        reply: Reply<Erasing>,
    },
    /// Bring erasures on by a step. Only the eraser sends it.
    EraseStep {
        /// Which.
        step: EraseStep,
        /// The answer, once it is done.
        reply: Reply<()>,
    },
    /// Say where the journal stands. A snapshot begins with one without sync and ends with one with it; in between nothing goes
    /// from memory to the archive.
    Mark {
        /// Sync it first, and the archive.
        sync: bool,
        /// The answer.
        reply: Reply<Mark>,
    },
    /// Take out of memory what is in the archive now, or keep it if it could not be written.
    Shelved(Box<Written>),
    /// Judge a command by what was found for it in the archive beside what is in memory.
    Resolved {
        /// The command.
        command: Box<Command>,
        /// What was found.
        resolved: Box<Resolved>,
        /// How often it was looked up.
        attempts: u32,
    },
    /// Take note of the next ids that the archive has.
    IdsListed {
        /// The ids, ascending; fewer than were asked for if there are no more.
        listed: Result<Vec<PostId>, Error>,
    },
    /// Finish what was taken, then end.
    Stop,
}

impl Command {
    /// Bytes that it holds apart from itself, of those that callers can make many.
    pub fn bytes(&self) -> usize {
        let edge = |edge: &NewEdge| size_of::<NewEdge>() + edge.follower.as_str().len() + edge.source.as_str().len();
        match self {
            Self::Publish { draft, .. } => size_of::<Draft>() + draft.body.as_str().len(),
            Self::Edit { body, .. } => body.as_ref().map_or(0, |body| body.as_str().len()),
            Self::Follow { edges, .. } => edges.iter().map(edge).sum(),
            Self::Resolved { command, resolved, .. } => command.bytes() + resolved.bytes(),
            Self::Delete { .. }
            | Self::IdsListed { .. }
            | Self::Meet { .. }
            | Self::Unfollow { .. }
            | Self::Choose { .. }
            | Self::RevokeTokens { .. }
            | Self::Erase { .. }
            | Self::EraseStep { .. }
            | Self::Mark { .. }
            | Self::Shelved(_)
            | Self::Stop => 0,
        }
    }
}

impl Command {
    /// Answers with a refusal. Whoever went away needs none.
    pub fn refuse(self, cause: Error) {
        fn answer<T>(reply: Reply<T>, cause: Error) {
            let _ = reply.send(Err(cause));
        }
        match self {
            Self::Publish { reply, .. } => answer(reply, cause),
            Self::Edit { reply, .. } => answer(reply, cause),
            Self::Delete { reply, .. } | Self::Unfollow { reply, .. } | Self::RevokeTokens { reply, .. } => {
                answer(reply, cause);
            }
            Self::Follow { reply, .. } => answer(reply, cause),
            Self::Meet { reply, .. } => answer(reply, cause),
            Self::Choose { reply, .. } => answer(reply, cause),
            Self::Erase { reply, .. } => answer(reply, cause),
            Self::EraseStep { reply, .. } => answer(reply, cause),
            Self::Mark { reply, .. } => answer(reply, cause),
            Self::Resolved { command, .. } => command.refuse(cause),
            Self::Shelved(_) | Self::IdsListed { .. } | Self::Stop => {}
        }
    }
}

/// Something a reader decides.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Choice {
    /// Mute or block a source, or not any more.
    Silence {
        /// The source.
        source: SourceId,
        /// Which of both.
        how: MuteOrBlock,
        /// Whether it is to be so.
        on: bool,
    },
    /// Change rules.
    Rules(RulesPatch),
    /// Move the read marker.
    Mark(Marker),
    /// Put a source on a list, or take it off.
    List {
        /// The list.
        list: ListName,
        /// The source.
        source: SourceId,
        /// Whether it is to be on it.
        on: bool,
    },
    /// Drop a list.
    Unlist(ListName),
}

/// What became of a request to erase a user.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Erasing {
    /// It is under way.
    UnderWay,
    /// Nothing is known of such a user: nothing ever was, or it was erased.
    Unknown,
}

/// A step of the erasures that are under way.
#[derive(Debug)]
pub enum EraseStep {
    /// Journal these events, all of which name a user who is being erased, and apply them.
    Apply(Vec<Event>),
    /// Write to the archive what it lacks, and then the archive anew without these users.
    Rewrite(Vec<SourceId>),
    /// Begin another segment of the journal.
    BeginSegment,
}

/// Where the journal stands, and the state with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    /// The last event that was applied.
    pub last: Sequence,
    /// How many sources there were.
    pub sources: usize,
    /// The last instant that was handed out.
    pub last_instant: Taken,
    /// At the end of a snapshot: the archive was persisted with this event, and has something.
    pub has_archived: bool,
}

/// The answer to a publish.
#[derive(Clone, Debug)]
pub struct Published {
    /// The post.
    pub post: Arc<Post>,
    /// False if the same post had been published before.
    pub created: bool,
}

/// The answer to a follow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Followed {
    /// Edges that are new.
    pub created: usize,
    /// Edges that were there.
    pub existing: usize,
}

/// Something to be fanned out: a post into inboxes, a notice to those who are watched.
#[derive(Debug)]
pub struct FanoutOrder {
    /// What.
    pub mail: Invalidation,
    /// Whose post it is; nobody's if it is no post.
    pub author: SourceSlot,
    /// To whom, at least one; inboxes first.
    pub fanout_routes: Box<[FanoutRoute]>,
    /// When a post was accepted that is delivered for the first time.
    pub accepted_at: Option<UnixMicros>,
    /// Who waits for the delivery.
    pub waiting: Option<(Reply<Published>, Published)>,
}

/// There are orders in the queue.
#[derive(Message, Debug)]
#[rtype(result = "()")]
pub struct Ring;

/// The couriers are there, in the order of their shards.
#[derive(Message, Debug)]
#[rtype(result = "()")]
pub struct RegisterCouriers(pub Vec<Addr<Courier>>);

/// Put a post into inboxes, or just tell those who are watched.
#[derive(Message, Debug)]
#[rtype(result = "()")]
pub struct Deliver {
    /// The job this slice is of.
    pub job: JobId,
    /// What.
    pub mail: Invalidation,
    /// Whether it is a post for inboxes.
    pub into_inboxes: bool,
    /// Whose, by their numbers within the shard, ascending.
    pub recipients: Vec<u32>,
}

/// A slice is in its inboxes.
#[derive(Message, Debug)]
#[rtype(result = "()")]
pub struct SliceDelivered {
    /// The shard.
    pub shard: usize,
    /// The job.
    pub job: JobId,
    /// Recipients in the slice.
    pub recipients: usize,
}

/// Count what the shard's inboxes hold.
#[derive(Message, Debug)]
#[rtype(result = "()")]
pub struct CollectStatistics(pub oneshot::Sender<InboxTotals>);

/// Copy some of the shard's inboxes, for a snapshot.
#[derive(Message, Debug)]
#[rtype(result = "()")]
pub struct CopyInboxes {
    /// Those of readers from this number within the shard on.
    pub from: u32,
    /// The inboxes, and from where to go on if there are more.
    pub reply: oneshot::Sender<(Vec<InboxRecord>, Option<u32>)>,
}

/// Wake readers with the inboxes they had when the process ended.
#[derive(Message, Debug)]
#[rtype(result = "()")]
pub struct Restore {
    /// The readers and their inboxes.
    pub readers: Vec<(Arc<Source>, Inbox)>,
    /// Documentation when it is done.
    pub reply: std::sync::mpsc::Sender<()>,
}

/// A snapshot that was taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SnapshotTaken {
    /// The name of its file.
    pub file: String,
    /// Replay goes on after this event.
    pub sequence: Sequence,
    /// Its size.
    pub bytes: u64,
    /// When it was begun.
    pub taken_at: UnixMicros,
}

/// What inboxes hold, in total.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InboxTotals {
    /// Inboxes.
    pub inboxes: usize,
    /// Entries in them.
    pub entries: usize,
    /// Bytes they take, without the allocator's own.
    pub bytes: usize,
}

/// Wake a reader, if it sleeps, and ask it.
#[derive(Message, Debug)]
#[rtype(result = "()")]
pub struct Wake {
    /// The reader.
    pub reader: Arc<Source>,
    /// What to ask.
    pub ask: Ask,
    /// Counts it for as long as it waits.
    pub waking: Waking,
}

/// What a reader is woken for.
#[derive(Message, Debug)]
#[rtype(result = "()")]
pub enum Ask {
    /// Build a page.
    Read {
        /// Which.
        request: PageRequest,
        /// The answer.
        reply: Reply<Page<Entry>>,
        /// Ends with it.
        turn: Turn,
    },
    /// Tell a live connection what changes, first of all how it stands.
    Attach {
        /// Where it goes.
        subscriber: Arc<SubscriberQueue>,
        /// What the client has already.
        resume: Option<Place>,
        /// The answer.
        reply: Reply<()>,
    },
}

impl Ask {
    /// Answers with a refusal. Whoever went away needs none.
    pub fn refuse(self, cause: Error) {
        match self {
            Self::Read { reply, .. } => drop(reply.send(Err(cause))),
            Self::Attach { reply, .. } => drop(reply.send(Err(cause))),
        }
    }
}

/// A live connection has gone.
#[derive(Message, Debug)]
#[rtype(result = "()")]
pub struct Detach;

/// There are notices.
#[derive(Message, Debug)]
#[rtype(result = "()")]
pub struct Bell;

/// What was missing to tell of a change.
#[derive(Message, Debug)]
#[rtype(result = "()")]
pub struct Fetched {
    /// The change.
    pub invalidation: Invalidation,
    /// When it was asked for.
    pub asked: Asked,
    /// Whose entry it is about, with what was looked up for it; nothing if the archive could not be read.
    pub found: Option<(PostId, Vec<Found>)>,
}

/// Compare the inbox with one built anew, and replace it if told to.
#[derive(Message, Debug)]
#[rtype(result = "()")]
pub struct Verify {
    /// Whether the one built anew takes its place.
    pub rebuild: bool,
    /// The answer.
    pub reply: Reply<Verdict>,
}

/// Give up the inbox and end.
#[derive(Message, Debug)]
#[rtype(result = "()")]
pub struct Sleep;
