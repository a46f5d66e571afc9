//! The scribe: the one writer.
//!
//! Responsible for:
//! - judging commands against the state, journaling what is accepted, applying it, answering, handing posts on;
//! - doing so in groups: commands that wait are journaled together and answered after one commit.
//!
//! Not responsible for:
//! - JSON, HTTP, fan-out, looking anything up in the archive (`runtime::background::resolver`).
//!
//! An event is applied after it is committed, so nobody reads what a crash could take back. Each command of a group is judged
//! against the state before the group: a command that reads what the group already changes waits for the next group.
//!
//! Nothing here waits for the archive. A command comes with what was looked up for it, and is judged by that and by memory. If
//! it needs more by then, since posts left memory meanwhile, it goes back to be looked up again.

mod erase;
mod follow;
mod group;
mod notify;
mod post;
mod preferences;
mod publish;
pub mod queue;
mod tick;
mod tier;
mod users;

use std::collections::HashSet;
use std::sync::Arc;

use crossbeam_channel::{RecvTimeoutError, Sender};
use tracing::{error, warn};

use crate::config::EngineConfig;
use crate::error::Error;
use crate::feed::event::Event;
use crate::feed::post::Post;
use crate::id::SourceId;
use crate::limits::{SCRIBE_BATCH_BYTES_MAX, SCRIBE_BATCH_MAX, SOURCES_MAX};
use crate::runtime::abort_on_exit::AbortOnExit;
use crate::runtime::background::archiver::Task;
use crate::runtime::background::resolver::{Resolver, needs};
use crate::runtime::fanout::FanoutQueue;
use crate::runtime::message::{Command, Erasing, Followed, Published, Reply};
use crate::runtime::monotonic_clock::MonotonicClock;
use crate::state::resolved::Resolved;
use crate::state::world::{Applied, Writer};
use crate::storage::journal::{Journal, JournalError};
use crate::throttle::Throttle;
use group::Group;
use queue::CommandReceiver;
use tier::Archiver;

/// The one writer.
pub struct Scribe<J> {
    writer: Writer,
    journal: J,
    monotonic_clock: MonotonicClock,
    fanout: FanoutQueue,
    config: Arc<EngineConfig>,
    commands: CommandReceiver,
    group: Group,
    /// What was looked up for the command that is being judged.
    resolved: Resolved,
    failed: Option<Error>,
    /// The lead of instants over times shown that the journal knows, if it is known what it knows.
    kept_lead_us: Option<i64>,
    archiver: Option<Archiver>,
    resolver: Option<Resolver>,
    /// Anybody who writes causes refusals.
    refusals_logged: Throttle,
    _abort_on_exit: AbortOnExit,
}

/// A journaled event, and whom to answer once it is committed and applied.
struct Accepted {
    event: Event,
    /// The post that it changes, as it was found: it may be in the archive.
    found: Option<Arc<Post>>,
    then: Then,
}

enum Then {
    Publish { wait: bool, reply: Reply<Published> },
    Edit(Reply<Arc<Post>>),
    Follow(Reply<Followed>, Followed),
    Answer(Reply<()>),
    Chosen(Reply<bool>),
    Erase(Reply<Erasing>),
    Nothing,
}

impl<J: Journal> Scribe<J> {
    /// A scribe that writes through `writer` and takes its orders from `commands`. Waits for a disk, once.
    pub fn new(
        writer: Writer,
        journal: J,
        monotonic_clock: MonotonicClock,
        fanout: FanoutQueue,
        config: Arc<EngineConfig>,
        commands: CommandReceiver,
        archive: Option<(Sender<Task>, Resolver)>,
    ) -> Self {
        let (archiver, resolver) = archive.unzip();
        let kept_lead_us = Some(monotonic_clock.kept_lead_us());
        let mut scribe = Self {
            writer,
            journal,
            monotonic_clock,
            fanout,
            config,
            commands,
            group: Group::default(),
            resolved: Resolved::default(),
            failed: None,
            kept_lead_us,
            archiver: archiver.map(Archiver::new),
            resolver,
            refusals_logged: Throttle::default(),
            _abort_on_exit: AbortOnExit("scribe"),
        };
        scribe.list_first_ids();
        scribe
    }

    /// Works until it is told to stop or nobody is left to ask.
    pub fn run(mut self) {
        loop {
            let mut next = match self.next() {
                Ok(first) => Some(first),
                Err(RecvTimeoutError::Timeout) => {
                    self.journal.mark_synced();
                    None
                }
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
        if self.group.decides_about(&command) {
            self.commit();
        }
        let (command, resolved, attempts) = match command {
            Command::Resolved { command, resolved, attempts } => (*command, *resolved, attempts),
            command => (command, Resolved::default(), 0),
        };
        if let Some(refused) = self.names_erased(&command) {
            return command.refuse(refused);
        }
        if let Some(resolver) = &self.resolver {
            let needs = needs(&command, self.writer.world(), &resolved);
            if !needs.is_empty() {
                return resolver.resolve(command, resolved, attempts, needs);
            }
        }
        self.resolved = resolved;
        self.judge(command);
        // What was looked up may leave memory again.
        self.resolved = Resolved::default();
    }

    fn judge(&mut self, command: Command) {
        match command {
            Command::Publish { draft, wait, reply } => self.publish(*draft, wait, reply),
            Command::Edit { id, body, hidden, reply } => self.edit(id, body, hidden, reply),
            Command::Delete { id, reply } => self.delete(id, reply),
            Command::Follow { edges, reply } => self.follow(edges, reply),
            Command::Meet { user, reply } => self.meet(user, reply),
            Command::Unfollow { follower, source, keep, reply } => self.unfollow(follower, source, keep, reply),
            Command::Choose { reader, choice, reply } => self.choose(reader, choice, reply),
            Command::RevokeTokens { user, not_before, forget_before, reply } => {
                self.revoke(user, not_before, forget_before, reply);
            }
            Command::Erase { user, reply } => self.erase(user, reply),
            Command::EraseStep { step, reply } => self.erase_step(step, reply),
            Command::Mark { sync, reply } => self.mark(sync, reply),
            Command::Shelved(written) => self.shelved(*written),
            Command::IdsListed { listed } => self.ids_listed(listed),
            Command::Resolved { .. } | Command::Stop => {}
        }
    }

    /// Whether those of `ids` that are not known yet may become known, beside those that the group makes known.
    fn room_for_sources<'a>(&mut self, ids: impl Iterator<Item = &'a SourceId> + Clone) -> Result<(), Error> {
        let sources = &self.writer.world().sources;
        let limit = self.config.sources_max.min(SOURCES_MAX);
        let known = sources.len();
        if known + self.group.named() + ids.clone().count() <= limit {
            // Room even if all of them are new.
            return Ok(());
        }
        let of_group = self.group.unknown(sources);
        let is_new = |id: &&SourceId| sources.get(id).is_none() && !of_group.contains(*id);
        let new: HashSet<&SourceId> = ids.filter(is_new).collect();
        let is_full = !new.is_empty() && known + of_group.len() + new.len() > limit;
        if is_full { Err(Error::Full { what: "source", limit }) } else { Ok(()) }
    }

    /// Journals an event; it is applied and answered when the group is committed. False if that failed.
    fn accept(&mut self, event: Event, then: Then) -> bool {
        self.accept_change(event, None, then)
    }

    /// The same for an event that changes a post, which was `found` in memory or in the archive.
    fn accept_change(&mut self, event: Event, found: Option<Arc<Post>>, then: Then) -> bool {
        if self.failed.is_none()
            && let Err(cause) = self.journal.append(&event)
        {
            let refusal = self.refusal(cause);
            then.refuse(refusal);
            return false;
        }
        self.group.push(Accepted { event, found, then }, &self.writer.world().sources);
        true
    }

    fn commit(&mut self) {
        let group = self.group.take();
        if group.is_empty() {
            return;
        }
        let mut refusal = self.failed.clone();
        if refusal.is_none()
            && let Err(cause) = self.journal.commit()
        {
            refusal = Some(self.refusal(cause));
        }
        for Accepted { event, found, then } in group {
            match &refusal {
                Some(cause) => then.refuse(cause.clone()),
                None => {
                    let applied = self.writer.apply_judged(&event, found.as_ref());
                    self.tell(&event, &applied);
                    self.note_applied(&event);
                    self.answer(applied, then);
                }
            }
        }
    }

    /// Counts an event as applied. A post counts once it is handed on.
    fn note_applied(&self, event: &Event) {
        let arrivals = &self.writer.world().arrivals;
        if let (Some(taken), false) = (event.taken(arrivals.ahead_us()), matches!(event, Event::Published { .. })) {
            arrivals.set_applied(taken.instant);
        }
    }

    fn answer(&mut self, applied: Applied, then: Then) {
        // Callers that went away need no answer.
        match (then, applied) {
            (Then::Publish { wait, reply }, Applied::Published { post, push, answers }) => {
                self.hand_on(post, &push, wait, reply);
                self.tell_of_answers(answers.as_deref());
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
            (Then::Erase(reply), _) => {
                let _ = reply.send(Ok(Erasing::UnderWay));
            }
            (Then::Nothing, _) => {}
            (Then::Publish { .. } | Then::Edit(_), applied) => {
                unreachable!("the scribe accepted an event that did {applied:?}")
            }
        }
    }

    fn warn_of(&self, cause: &JournalError, until: &str) {
        let Some(left_out) = self.refusals_logged.due() else { return };
        warn!(more_since_last = left_out, "{cause}; writes are refused {until}");
    }

    /// What callers are answered when the journal did not keep an event. After anything but a full disk or a file that could not be
    /// opened it keeps none until a restart, since what is on disk is unknown.
    fn refusal(&mut self, cause: JournalError) -> Error {
        self.kept_lead_us = None;
        match cause {
            JournalError::DiskFull { .. } => {
                self.warn_of(&cause, "until there is space");
                Error::DiskFull(cause.to_string())
            }
            JournalError::OutOfFiles { .. } => {
                self.warn_of(&cause, "until other files are closed");
                Error::OutOfFiles(cause.to_string())
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
            Self::Erase(reply) => refuse(reply, cause),
            Self::Nothing => {}
        }
    }
}

fn refuse<T>(reply: Reply<T>, cause: Error) {
    let _ = reply.send(Err(cause));
}
