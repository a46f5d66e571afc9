//! The scribe: the one writer.
//!
//! Responsible for:
//! - judging commands against the state, journaling what is accepted, applying it, answering, handing posts on;
//! - doing so in groups: commands that wait are journaled together and answered after one commit.
//!
//! Not responsible for:
//! - JSON, HTTP, fan-out.
//!
//! An event is applied after it is committed, so nobody reads what a crash could take back. Commands of one group must not
//! depend on each other, since each is judged against the state before the group: a command about a post or a follower
//! that the group already changes waits for the next group.

mod choose;
mod follow;
pub mod queue;
mod shelve;
mod tell;

use std::collections::HashSet;
use std::sync::Arc;

use crossbeam_channel::{RecvTimeoutError, Sender};
use rustc_hash::FxHashMap;
use tracing::{error, warn};

use crate::actor::archivist::{Task, archive_failed};
use crate::actor::fanout::FanoutQueue;
use crate::actor::message::{Choice, Command, FanoutOrder, Followed, Published, Reply};
use crate::actor::open_fanouts::Backlog;
use crate::actor::ticker::Ticker;
use crate::actor::vital::Vital;
use crate::clock::UnixMicros;
use crate::config::EngineConfig;
use crate::error::Error;
use crate::feed::event::{Event, Silencing};
use crate::feed::position::Position;
use crate::feed::post::{Body, Draft, Post};
use crate::feed::schedule::Leg;
use crate::feed::stream::Notice;
use crate::id::{PostId, SourceId, SourceSlot};
use crate::limits::{
    FOLLOWS_PER_REQUEST_MAX, PUBLISH_AHEAD_MAX, SCRIBE_BATCH_BYTES_MAX, SCRIBE_BATCH_MAX, SOURCES_MAX,
};
use crate::state::posts::Stored;
use crate::state::world::{Applied, Writer};
use crate::storage::journal::{Journal, JournalError};
use queue::CommandReceiver;
use shelve::Archivist;

/// The one writer.
pub struct Scribe<J> {
    writer: Writer,
    journal: J,
    ticker: Ticker,
    fanout: FanoutQueue,
    config: Arc<EngineConfig>,
    commands: CommandReceiver,
    group: Vec<Accepted>,
    /// The posts of the group, in all and by author.
    accepted: Backlog,
    accepted_of: FxHashMap<SourceSlot, Backlog>,
    /// Posts and followers that the group changes.
    touched: HashSet<Key>,
    failed: Option<Error>,
    archivist: Option<Archivist>,
    _vital: Vital,
}

/// What a command reads and changes: commands that share no key do not depend on each other.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Key {
    Post(PostId),
    Follower(SourceId),
}

/// A journaled event, and whom to answer once it is committed and applied.
struct Accepted {
    event: Event,
    then: Then,
}

enum Then {
    Publish { wait: bool, reply: Reply<Published> },
    Edit(Reply<Arc<Post>>),
    Follow(Reply<Followed>, Followed),
    Answer(Reply<()>),
    Chosen(Reply<bool>),
}

impl<J: Journal> Scribe<J> {
    /// A scribe that writes through `writer` and takes its orders from `commands`.
    pub fn new(
        writer: Writer,
        journal: J,
        ticker: Ticker,
        fanout: FanoutQueue,
        config: Arc<EngineConfig>,
        commands: CommandReceiver,
        archivist: Option<Sender<Task>>,
    ) -> Self {
        Self {
            writer,
            journal,
            ticker,
            fanout,
            config,
            commands,
            group: Vec::new(),
            accepted: Backlog::default(),
            accepted_of: FxHashMap::default(),
            touched: HashSet::new(),
            failed: None,
            archivist: archivist.map(Archivist::new),
            _vital: Vital("scribe"),
        }
    }

    /// Works until it is told to stop or nobody is left to ask.
    pub fn run(mut self) {
        loop {
            let mut next = match self.next() {
                Ok(first) => Some(first),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return self.stop(),
            };
            while let Some(command) = next {
                if matches!(command, Command::Stop) {
                    return self.stop();
                }
                self.take(command);
                let is_full =
                    self.group.len() >= SCRIBE_BATCH_MAX || self.journal.pending_bytes() >= SCRIBE_BATCH_BYTES_MAX;
                next = if is_full { None } else { self.commands.try_recv() };
            }
            self.commit();
            self.shelve();
        }
    }

    fn stop(&mut self) {
        self.commit();
        if self.failed.is_none()
            && let Err(cause) = self.journal.close()
        {
            error!("the journal could not be closed: {cause}");
        }
    }

    fn take(&mut self, command: Command) {
        let keys = keys(&command);
        if keys.iter().any(|key| self.touched.contains(key)) {
            self.commit();
        }
        let before = self.group.len();
        match command {
            Command::Publish { draft, wait, reply } => self.publish(*draft, wait, reply),
            Command::Edit { id, body, hidden, reply } => self.edit(id, body, hidden, reply),
            Command::Delete { id, reply } => self.delete(id, reply),
            Command::Follow { edges, reply } => self.follow(edges, reply),
            Command::Meet { user, reply } => self.meet(user, reply),
            Command::Unfollow { follower, source, keep, reply } => self.unfollow(follower, source, keep, reply),
            Command::Choose { reader, choice, reply } => self.choose(reader, choice, reply),
            Command::Mark { sync, reply } => self.mark(sync, reply),
            Command::Shelved { shelving, written } => self.shelved(*shelving, written),
            Command::Stop => {}
        }
        if self.group.len() > before {
            self.touched.extend(keys);
        }
    }

    fn publish(&mut self, draft: Draft, wait: bool, reply: Reply<Published>) {
        let judged = self.judge_publish(&draft);
        let resolved = match judged {
            Err(refused) => return refuse(reply, refused),
            Ok(Some(post)) => return self.published_before(&post, wait, reply),
            Ok(None) => self.resolve(draft),
        };
        match resolved {
            Err(refused) => refuse(reply, refused),
            Ok(draft) => {
                let now = self.ticker.take(1);
                let id = draft.id.unwrap_or_else(|| self.mint(now));
                // A later command of the group may name the id that was just minted.
                self.touched.insert(Key::Post(id));
                let position = Position { published_at: draft.published_at.unwrap_or(now), id };
                self.count_accepted(&draft);
                self.accept(Event::Published { position, draft, accepted_at: now }, Then::Publish { wait, reply });
            }
        }
    }

    /// The post, if the draft was published before; nothing, if it may be.
    fn judge_publish(&self, draft: &Draft) -> Result<Option<Arc<Post>>, Error> {
        if !draft.author.is_user() {
            return Err(Error::NotAUser { id: draft.author.clone(), action: "publish" });
        }
        draft.check().map_err(|what| Error::Misfit { what })?;
        let world = self.writer.world();
        if let Some(id) = draft.id {
            match world.find(id).map_err(|cause| archive_failed(&cause))? {
                None => {}
                Some(Stored::Deleted) => return Err(Error::PostDeleted(id)),
                Some(Stored::Live(post)) => {
                    let same_time = draft.published_at.is_none_or(|at| at == post.position.published_at);
                    let same = same_time && draft.fingerprint() == post.fingerprint;
                    return if same { Ok(Some(post)) } else { Err(Error::PostIdTaken(id)) };
                }
            }
            if [draft.repost_of, draft.reply_to].contains(&Some(id)) {
                return Err(Error::Misfit { what: "a post cannot repeat or answer itself".to_owned() });
            }
        }
        let now = self.ticker.now();
        if let Some(at) = draft.published_at
            && at > now.saturating_add(PUBLISH_AHEAD_MAX)
        {
            let ahead_seconds = (at.0.abs_diff(now.0)) / 1_000_000;
            return Err(Error::PublishedInFuture { ahead_seconds, limit_seconds: PUBLISH_AHEAD_MAX.as_secs() });
        }
        if !self.fanout.has_room_for(self.group.len() + 1) {
            return Err(self.fanout.overloaded());
        }
        let author = world.sources.get(&draft.author).map(|author| author.slot);
        let of_author = author.map(|author| self.accepted_of(author)).unwrap_or_default();
        self.fanout.refusal_if_behind(author, [self.accepted, of_author]).map_or(Ok(()), Err)?;
        let limit = self.config.store_bytes_max;
        if world.posts.bytes() >= limit {
            // With an archive there is room again as soon as it has taken what is too old.
            let full = Error::Full { what: "post (bytes)", limit };
            return Err(if self.archivist.is_some() { self.fanout.store_overloaded(limit) } else { full });
        }
        self.room_for_sources(draft.sources())?;
        Ok(None)
    }

    /// Counts what a post will have to be delivered, before it is handed on.
    fn count_accepted(&mut self, draft: &Draft) {
        let sources = &self.writer.world().sources;
        let pushed = draft.sources().filter_map(|id| sources.get(id)).filter(|source| !source.is_celebrity());
        let post = Backlog { posts: 1, deliveries: self.fanout.deliveries(pushed.map(|source| source.slot)) };
        self.accepted = self.accepted + post;
        if let Some(author) = sources.get(&draft.author) {
            let of_author = self.accepted_of.entry(author.slot).or_default();
            *of_author = *of_author + post;
        }
    }

    /// What the group has of an author.
    fn accepted_of(&self, author: SourceSlot) -> Backlog {
        self.accepted_of.get(&author).copied().unwrap_or_default()
    }

    /// Finds out what a draft repeats in the end, and whom it answers.
    fn resolve(&self, mut draft: Draft) -> Result<Draft, Error> {
        if let Some(id) = draft.repost_of {
            draft.origin = self.find(id)?.and_then(|post| post.repost_of);
        }
        if draft.origin.is_some() && draft.origin == draft.id {
            return Err(Error::Misfit { what: "a post cannot repeat what repeats it".to_owned() });
        }
        if let Some(id) = draft.reply_to {
            draft.answered = self.find(id)?.map(|post| post.author().id.clone());
        }
        Ok(draft)
    }

    /// Answers a post that was published before. Whoever waits for its delivery gets it delivered again: that changes
    /// nothing where it already is.
    fn published_before(&self, post: &Arc<Post>, wait: bool, reply: Reply<Published>) {
        let published = Published { post: Arc::clone(post), created: false };
        let pushed = self.writer.world().pushed(post);
        if !wait || pushed.is_empty() {
            let _ = reply.send(Ok(published));
            return;
        }
        let author = post.author().slot;
        if !self.fanout.has_room_for(self.group.len() + 1) {
            return refuse(reply, self.fanout.overloaded());
        }
        if let Some(refusal) = self.fanout.refusal_if_behind(Some(author), [self.accepted, self.accepted_of(author)]) {
            return refuse(reply, refusal);
        }
        let waiting = Some((reply, published));
        let legs = pushed.iter().copied().map(Leg::Inboxes).collect();
        self.fanout.push(FanoutOrder { mail: Notice::Published(post.position), author, legs, waiting });
    }

    fn edit(&mut self, id: PostId, body: Option<Body>, hidden: Option<bool>, reply: Reply<Arc<Post>>) {
        let post = match self.find(id) {
            Ok(Some(post)) => post,
            Ok(None) => return refuse(reply, Error::UnknownPost(id)),
            Err(cause) => return refuse(reply, cause),
        };
        let body = body.filter(|body| body.as_str() != post.body());
        let hidden = hidden.filter(|hidden| *hidden != post.hidden);
        if body.is_none() && hidden.is_none() {
            let _ = reply.send(Ok(post));
            return;
        }
        let at = self.ticker.take(1);
        self.accept(Event::Edited { id, body, hidden, at }, Then::Edit(reply));
    }

    fn delete(&mut self, id: PostId, reply: Reply<()>) {
        match self.find(id) {
            Ok(Some(post)) => {
                self.accept(Event::Deleted { id, repost_of: post.repost_of }, Then::Answer(reply));
            }
            Ok(None) => {
                let _ = reply.send(Ok(()));
            }
            Err(cause) => refuse(reply, cause),
        }
    }

    /// The post with this id, wherever it is.
    fn find(&self, id: PostId) -> Result<Option<Arc<Post>>, Error> {
        let found = self.writer.world().find(id).map_err(|cause| archive_failed(&cause))?;
        Ok(found.and_then(Stored::live))
    }

    /// Whether those of `ids` that are not known yet may become known.
    fn room_for_sources<'a>(&self, ids: impl Iterator<Item = &'a SourceId>) -> Result<(), Error> {
        let sources = &self.writer.world().sources;
        let limit = self.config.sources_max.min(SOURCES_MAX);
        if sources.len() + FOLLOWS_PER_REQUEST_MAX * 2 <= limit {
            // Room for the largest request: no need to count.
            return Ok(());
        }
        let unknown: HashSet<&SourceId> = ids.filter(|id| sources.get(id).is_none()).collect();
        if sources.len() + unknown.len() > limit { Err(Error::Full { what: "source", limit }) } else { Ok(()) }
    }

    fn mint(&mut self, at: UnixMicros) -> PostId {
        loop {
            let id = self.ticker.mint(at);
            let taken_in_group = self.touched.contains(&Key::Post(id));
            if !taken_in_group && !matches!(self.writer.world().find(id), Ok(Some(_))) {
                return id;
            }
        }
    }

    /// Journals an event; it is applied and answered when the group is committed.
    fn accept(&mut self, event: Event, then: Then) {
        if self.failed.is_none()
            && let Err(cause) = self.journal.append(&event)
        {
            let refusal = self.refusal(cause);
            return then.refuse(refusal);
        }
        self.group.push(Accepted { event, then });
    }

    fn commit(&mut self) {
        self.touched.clear();
        self.accepted = Backlog::default();
        self.accepted_of.clear();
        if self.group.is_empty() {
            return;
        }
        let mut refusal = self.failed.clone();
        if refusal.is_none()
            && let Err(cause) = self.journal.commit()
        {
            refusal = Some(self.refusal(cause));
        }
        for Accepted { event, then } in std::mem::take(&mut self.group) {
            match &refusal {
                Some(cause) => then.refuse(cause.clone()),
                None => {
                    let applied = self.writer.apply(&event);
                    self.tell(&event, &applied);
                    self.answer(applied, then);
                }
            }
        }
    }

    fn answer(&mut self, applied: Applied, then: Then) {
        // Callers that went away need no answer.
        match (then, applied) {
            (Then::Publish { wait, reply }, Applied::Published { post, push }) => {
                self.hand_on(post, &push, wait, reply);
            }
            (Then::Edit(reply), Applied::Edited(post)) => {
                let _ = reply.send(Ok(post));
            }
            (Then::Follow(reply, followed), _) => {
                let _ = reply.send(Ok(followed));
            }
            (Then::Answer(reply), _) => {
                let _ = reply.send(Ok(()));
            }
            (Then::Chosen(reply), _) => {
                let _ = reply.send(Ok(true));
            }
            (Then::Publish { .. } | Then::Edit(_), applied) => {
                unreachable!("the scribe accepted an event that did {applied:?}")
            }
        }
    }

    /// Answers the author, now or once the post is delivered, and gives the post to the fan-out.
    fn hand_on(&self, post: Arc<Post>, push: &[SourceSlot], wait: bool, reply: Reply<Published>) {
        let (id, author) = (post.id(), post.author().slot);
        let (mail, legs) = (Notice::Published(post.position), self.legs(&post, push));
        let published = Published { post, created: true };
        self.fanout.count_published();
        let (now, later) =
            if wait && !push.is_empty() { (None, Some((reply, published))) } else { (Some((reply, published)), None) };
        if !push.is_empty() {
            self.fanout.push(FanoutOrder { mail, author, legs, waiting: later });
        } else if !legs.is_empty() {
            self.fanout.notify(mail, legs);
        }
        self.tell_of_repeated(id);
        if let Some((reply, published)) = now {
            let _ = reply.send(Ok(published));
        }
    }

    /// What callers are told when the journal did not keep an event. After anything but a full disk it keeps none until a
    /// restart, since what is on disk is unknown.
    fn refusal(&mut self, cause: JournalError) -> Error {
        match cause {
            JournalError::DiskFull { .. } => {
                warn!("{cause}; writes are refused until there is space");
                Error::DiskFull(cause.to_string())
            }
            JournalError::Failed(cause) => {
                error!("the journal failed, no more writes are taken until a restart: {cause}");
                let failed = Error::JournalFailed(cause);
                self.failed = Some(failed.clone());
                failed
            }
        }
    }
}

impl Then {
    fn refuse(self, cause: Error) {
        match self {
            Self::Publish { reply, .. } => refuse(reply, cause),
            Self::Edit(reply) => refuse(reply, cause),
            Self::Follow(reply, _) => refuse(reply, cause),
            Self::Answer(reply) => refuse(reply, cause),
            Self::Chosen(reply) => refuse(reply, cause),
        }
    }
}

fn refuse<T>(reply: Reply<T>, cause: Error) {
    let _ = reply.send(Err(cause));
}

fn keys(command: &Command) -> Vec<Key> {
    match command {
        Command::Publish { draft, .. } => {
            [draft.id, draft.repost_of, draft.reply_to].into_iter().flatten().map(Key::Post).collect()
        }
        Command::Edit { id, .. } | Command::Delete { id, .. } => vec![Key::Post(*id)],
        Command::Follow { edges, .. } => {
            // Bulk edges come grouped by follower more often than not.
            let mut keys: Vec<Key> = edges.iter().map(|edge| Key::Follower(edge.follower.clone())).collect();
            keys.dedup();
            keys
        }
        Command::Unfollow { follower, .. } => vec![Key::Follower(follower.clone())],
        Command::Choose { reader, choice, .. } => match choice {
            // A block takes edges away on both sides.
            Choice::Silence { source, how: Silencing::Block, .. } => {
                vec![Key::Follower(reader.clone()), Key::Follower(source.clone())]
            }
            _ => vec![Key::Follower(reader.clone())],
        },
        Command::Meet { .. } | Command::Mark { .. } | Command::Shelved { .. } | Command::Stop => Vec::new(),
    }
}
