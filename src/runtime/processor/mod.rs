//! The command processor: the single writer.
//!
//! Responsible for:
//! - validating commands against the state, journaling accepted ones, applying and answering them, and queueing posts
//!   for fan-out;
//! - processing commands in groups: waiting commands are journaled together and answered after one commit.
//!
//! An event is applied after it is committed, so no reader sees a change that a crash could undo. Each command of a
//! group is validated against the state before the group: a command that reads anything that the group changes waits
//! for the next group.
//!
//! The command processor never waits for the archive while it runs. A command is queued with the records that were looked up for
//! it, and is validated with them and with memory. If posts have left memory in the meantime, so that it needs more
//! records, they are looked up again.

mod cluster;
mod erase;
mod follow;
mod group;
mod notify;
mod posts;
pub mod queue;
mod refusal_log;
mod tier;
mod users;

use std::borrow::Borrow;
use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Instant;

use crossbeam_channel::{RecvTimeoutError, Sender};
use tracing::error;

use crate::clock::Timestamp;
use crate::error::Error;
use crate::feed::event::Event;
use crate::feed::post::Post;
use crate::id::{SourceId, SourceSlot};
use crate::limits::COMMAND_BATCH_MAX;
use crate::runtime::abort_on_exit::AbortOnExit;
use crate::runtime::background::archiver::Task;
use crate::runtime::background::resolver::{Resolver, needs};
use crate::runtime::fanout::FanoutQueue;
use crate::runtime::hybrid_logical_clock::HybridLogicalClock;
use crate::runtime::message::{Command, Erasing, FollowResult, Published, Reply};
use crate::runtime::shared::Shared;
use crate::state::resolved::Resolved;
use crate::state::world::{Applied, StateMachine};
use crate::storage::journal::{Committed, Journal, JournalError};
use cluster::Unapplied;
use group::Group;
use queue::CommandReceiver;
use refusal_log::RefusalLog;
use tier::Archiver;

/// Maximum bytes of encoded events that the command processor commits in one batch.
const COMMAND_BATCH_BYTES_MAX: usize = 256 * 1024;

/// Maximum number of sources of one process, and one less for each shard: slots have 32 bits, and the last one is
/// reserved.
const SOURCES_MAX: usize = u32::MAX as usize - 1;

/// Bytes counted for an edge that is accepted and not applied yet.
const NEW_EDGE_BYTES: usize = 32;

/// Bytes counted for a source that is accepted and not applied yet, with the longest id.
const NEW_SOURCE_BYTES: usize = 320;

/// The single writer of the world and of the journal.
pub struct CommandProcessor<J: Journal> {
    machine: StateMachine,
    journal: J,
    logical_clock: HybridLogicalClock,
    fanout: FanoutQueue,
    shared: Arc<Shared>,
    commands: CommandReceiver,
    group: Group,
    /// The records that were looked up for the current command, or for all commands that came together.
    resolved: Resolved,
    failed: Option<Error>,
    /// The temporary refusal of a post among commands that came together. All commands after it are refused as well.
    refused_for_now: Option<Error>,
    /// The last logical instant of the events that were read from a shared log.
    last_taken: Timestamp,
    /// The records of a shared log that were received and not applied yet.
    unapplied: Unapplied<J::Received>,
    /// The readers whose erasure another node has begun and whose actors must still end, at most one for each erasure.
    erased_readers: Vec<SourceSlot>,
    /// The drift that the journal contains. None if this is unknown.
    kept_drift_us: Option<i64>,
    archiver: Option<Archiver>,
    resolver: Option<Resolver>,
    refusal_log: RefusalLog,
    _abort_on_exit: AbortOnExit,
}

/// A journaled event, and the answer to send after it is committed and applied.
struct PendingEvent {
    event: Event,
    /// The post that it changes, as it was found; it may be only in the archive.
    found: Option<Arc<Post>>,
    then: Completion,
}

enum Completion {
    Publish { wait: bool, reply: Reply<Published> },
    Edit(Reply<Arc<Post>>),
    Follow(Reply<FollowResult>, FollowResult),
    Answer(Reply<()>),
    Chosen(Reply<bool>),
    Erase(Reply<Erasing>),
    Nothing,
}

impl<J: Journal> CommandProcessor<J> {
    /// Creates a command processor that writes through `machine` and receives commands from `commands`. Blocks on disk reads,
    /// only here.
    pub fn new(
        machine: StateMachine,
        journal: J,
        logical_clock: HybridLogicalClock,
        fanout: FanoutQueue,
        shared: Arc<Shared>,
        commands: CommandReceiver,
        archive: Option<(Sender<Task>, Resolver)>,
    ) -> Self {
        let (archiver, resolver) = archive.unzip();
        let (kept_drift_us, monotonic_clock_last) = (Some(logical_clock.kept_drift_us()), logical_clock.last());
        let mut processor = Self {
            machine,
            journal,
            logical_clock,
            fanout,
            shared,
            commands,
            group: Group::default(),
            resolved: Resolved::default(),
            failed: None,
            last_taken: monotonic_clock_last,
            unapplied: Unapplied::default(),
            erased_readers: Vec::new(),
            kept_drift_us,
            archiver: archiver.map(Archiver::new),
            resolver,
            refused_for_now: None,
            refusal_log: RefusalLog::default(),
            _abort_on_exit: AbortOnExit("command processor"),
        };
        processor.list_first_ids();
        processor
    }

    /// Processes commands until it receives a stop, or all senders are dropped.
    pub fn run(mut self) {
        loop {
            // Before the first command, too: a replay may have left a backlog.
            self.start_tiering();
            let mut next = match self.next() {
                Ok(first) => first,
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
                    self.group.len() >= COMMAND_BATCH_MAX || self.journal.pending_bytes() >= COMMAND_BATCH_BYTES_MAX;
                next = if is_full { None } else { self.commands.try_recv() };
            }
            self.commit();
            if self.group.is_long() {
                self.settle();
            }
            self.probe();
        }
    }

    /// Checks from time to time whether a journal that refuses events would store them again, since there may be no
    /// writes to find out.
    fn probe(&mut self) {
        if !self.journal.is_refusing() || !self.refusal_log.is_probe_due(self.shared.clock.monotonic()) {
            return;
        }
        match self.journal.probe() {
            Ok(()) => self.refusal_log.stored(),
            // The journal may have failed while it was idle, before any write was refused.
            Err(cause) => drop(self.refusal(&cause)),
        }
    }

    fn stop(&mut self) {
        self.settle();
        if self.failed.is_none()
            && let Err(cause) = self.journal.close()
        {
            error!("could not close the journal: {cause}");
        }
    }

    fn take(&mut self, command: Command) {
        let (command, resolved, attempts) = match command {
            Command::Resolved { command, resolved, attempts } => (*command, *resolved, attempts),
            command => (command, Resolved::default(), 0),
        };
        self.resolved = resolved;
        if let Some(lacking) = self.take_with_resolved(command)
            && let Some(resolver) = &self.resolver
        {
            let mut needs = needs(&lacking, self.machine.world(), &self.resolved);
            let resolver = resolver.clone();
            self.add_ids(&lacking, &mut needs);
            resolver.resolve(lacking, std::mem::take(&mut self.resolved), attempts, needs);
        }
        // The records may be needed no longer, so their memory is released.
        self.resolved = Resolved::default();
    }

    /// Executes or refuses a command. Returns the part that must wait for more records from the archive. Of many
    /// commands, this part starts with the first command that lacks records, since later ones may depend on it. For the
    /// same reason, a temporary refusal of a post refuses all commands after it: callers send the post again, and it
    /// would then come after these.
    fn take_with_resolved(&mut self, command: Command) -> Option<Command> {
        let Command::Many(commands) = command else { return self.take_one(command) };
        self.refused_for_now = None;
        let mut commands = commands.into_iter();
        let lacking = commands.by_ref().find_map(|command| match self.refused_for_now.clone() {
            Some(cause) => {
                command.refuse(cause);
                None
            }
            None => self.take_one(command),
        })?;
        Some(Command::Many(std::iter::once(lacking).chain(commands).collect()))
    }

    fn take_one(&mut self, command: Command) -> Option<Command> {
        let mut refused = self.refused_by_cluster(&command);
        if refused.is_none() && self.group.conflicts_with(&command, &self.machine.world().reposts) && !self.settle() {
            refused = Some(Error::NotSequencer);
        }
        if let Some(refused) = refused.or_else(|| self.names_erased(&command)) {
            command.refuse(refused);
            return None;
        }
        let lacks = |command: &Command| {
            self.lacks_id(command) || !needs(command, self.machine.world(), &self.resolved).is_empty()
        };
        if self.resolver.is_some() && lacks(&command) {
            return Some(command);
        }
        self.execute(command);
        None
    }

    fn execute(&mut self, command: Command) {
        match command {
            Command::Publish { draft, wait, reply } => self.publish(*draft, wait, reply),
            Command::Edit { id, body, hidden, reply } => self.edit(id, body, hidden, reply),
            Command::Delete { id, reply } => self.delete(id, reply),
            Command::ChangeEdges { follows, unfollows, keep, reply } => {
                self.change_edges(follows, unfollows, keep, reply);
            }
            Command::RegisterUser { user, reply } => self.register_user(user, reply),
            Command::SetPreference { reader, choice, reply } => self.choose(reader, choice, reply),
            Command::RevokeTokens { user, not_before, forget_before, reply } => {
                self.revoke(user, not_before, forget_before, reply);
            }
            Command::Erase { user, reply } => self.erase(user, reply),
            Command::EraseStep { step, reply } => self.erase_step(step, reply),
            Command::Mark { sync, reply } => self.mark(sync, reply),
            Command::TieringWritten(written) => self.finish_tiering(*written),
            Command::IdsListed { listed } => self.ids_listed(listed),
            Command::Leave => self.leave_cluster(),
            // The callers have already unpacked or handled these.
            Command::Many(_) | Command::Resolved { .. } | Command::Stop => {}
        }
    }

    /// Checks that the unknown ones among `ids` fit within the limit of sources, together with the sources that the
    /// group adds.
    fn check_sources_limit<S: Borrow<SourceId> + Eq + Hash>(
        &mut self,
        ids: impl Iterator<Item = S> + Clone,
    ) -> Result<(), Error> {
        let sources = &self.machine.world().sources;
        let limit = self.shared.config.sources_max.min(SOURCES_MAX - self.machine.world().sharding.shards());
        let known = sources.len();
        let named = self.group.named() + ids.clone().count();
        let edges = self.group.added().edges;
        if known + named <= limit && self.check_graph_bytes(edges, named).is_ok() {
            // The limits are met even if all of them are new.
            return Ok(());
        }
        let of_group = self.group.unknown(sources);
        let is_new = |id: &S| sources.get(id.borrow()).is_none() && !of_group.contains(id.borrow());
        let new: HashSet<S> = ids.filter(is_new).collect();
        if new.is_empty() {
            return Ok(());
        }
        let added = of_group.len() + new.len();
        if known + added > limit {
            return Err(Error::Full { what: "source", limit });
        }
        self.check_graph_bytes(edges, added)
    }

    /// Checks that this many more edges and sources fit into the memory for them. Their size is known only after they
    /// are applied, so the budget is exceeded by at most the additions of one group.
    fn check_graph_bytes(&self, edges: usize, sources: usize) -> Result<(), Error> {
        let limit = self.shared.config.graph_bytes_max;
        let added = edges * NEW_EDGE_BYTES + sources * NEW_SOURCE_BYTES;
        let is_full = self.machine.world().sources.graph_bytes() + added > limit;
        if is_full { Err(Error::Full { what: "source and follow edge (bytes)", limit }) } else { Ok(()) }
    }

    /// Issues `count` consecutive instants for the event that is accepted next, and returns the first.
    fn tick(&mut self, count: usize) -> Timestamp {
        let taken = self.logical_clock.take(count);
        if self.kept_drift_us != Some(taken.drift_us) && self.failed.is_none() {
            // Events before this one are applied before it, so with the earlier drift: an edit contains the time to
            // show to people.
            let jumped = Event::ClockJumped { at: taken.instant, drift_us: taken.drift_us };
            // If the journal refuses this event, it also refuses the one that follows.
            self.kept_drift_us = self.accept(jumped, Completion::Nothing).then_some(taken.drift_us);
        }
        taken
    }

    /// Journals an event, which is applied and answered when the group is committed. Returns false if that failed.
    fn accept(&mut self, event: Event, then: Completion) -> bool {
        self.accept_change(event, None, then)
    }

    /// The same for an event that changes a post, which was `found` in memory or in the archive.
    fn accept_change(&mut self, event: Event, found: Option<Arc<Post>>, then: Completion) -> bool {
        if self.failed.is_none()
            && let Err(cause) = self.journal.append(&event)
        {
            let refusal = self.refusal(&cause);
            then.refuse(refusal);
            return false;
        }
        self.group.push(PendingEvent { event, found, then }, &self.machine.world().sources);
        true
    }

    /// Commits the group. It is applied and answered at once if the journal stores it at once, otherwise when it is
    /// read back.
    fn commit(&mut self) {
        if self.group.is_sent() {
            return;
        }
        let committed = match &self.failed {
            Some(failed) => Err(failed.clone()),
            None => self.journal.commit().map_err(|cause| self.refusal(&cause)),
        };
        match committed {
            Ok(Committed::Stored) => {
                let stored = self.group.take();
                if !stored.is_empty() {
                    self.refusal_log.stored();
                }
                stored.into_iter().for_each(|accepted| self.apply(accepted));
            }
            Ok(Committed::Sent) => {
                self.refusal_log.stored();
                self.group.note_sent(usize::MAX, Instant::now());
            }
            Ok(Committed::SentFirst(count, cause)) => {
                self.group.note_sent(count, Instant::now());
                let cause = self.refusal(&cause);
                self.refuse_unsent(&cause);
            }
            Err(cause) => self.refuse_unsent(&cause),
        }
    }

    fn refuse_unsent(&mut self, cause: &Error) {
        self.group.take_unsent().into_iter().for_each(|accepted| accepted.then.refuse(cause.clone()));
    }

    fn apply(&mut self, PendingEvent { event, found, then }: PendingEvent) {
        let applied = self.machine.apply_validated(&event, found.as_ref());
        self.notify_watched(&event, &applied);
        self.note_applied(&event);
        self.answer(applied, then);
    }

    /// Counts an event as applied. A post counts when it is queued for fan-out or has no inboxes to reach.
    fn note_applied(&self, event: &Event) {
        let delivery = &self.machine.world().delivery;
        if let (Some(taken), false) = (event.taken(delivery.ahead_us()), matches!(event, Event::Published { .. })) {
            delivery.set_applied(taken.instant);
        }
    }

    fn answer(&mut self, applied: Applied, then: Completion) {
        // Callers may have disconnected.
        match (then, applied) {
            (Completion::Publish { wait, reply }, Applied::Published { post, push, answers }) => {
                self.queue_fanout(post, &push, Some((wait, reply)));
                self.notify_of_replies(answers.as_deref());
            }
            (Completion::Nothing, Applied::Published { post, push, answers }) => {
                self.queue_fanout(post, &push, None);
                self.notify_of_replies(answers.as_deref());
            }
            (Completion::Edit(reply), Applied::Edited(post)) => {
                let _ = reply.send(Ok(post));
            }
            (Completion::Follow(reply, followed), _) => {
                let _ = reply.send(Ok(followed));
            }
            (Completion::Answer(reply), _) => {
                let _ = reply.send(Ok(()));
            }
            (Completion::Chosen(reply), _) => {
                let _ = reply.send(Ok(true));
            }
            (Completion::Erase(reply), _) => {
                let _ = reply.send(Ok(Erasing::UnderWay));
            }
            (Completion::Nothing, _) => {}
            (Completion::Publish { .. } | Completion::Edit(_), applied) => {
                unreachable!("the command processor accepted an event that did {applied:?}")
            }
        }
    }

    /// Returns the error for callers when the journal did not store an event. Except after a full disk or a file that
    /// could not be opened, it stores no more events until a restart, since the content of the disk is unknown.
    fn refusal(&mut self, cause: &JournalError) -> Error {
        self.kept_drift_us = None;
        match cause {
            JournalError::DiskFull { .. } => {
                self.refusal_log.refused(cause, "until there is space", "there is space again");
                Error::DiskFull(cause.to_string())
            }
            JournalError::OutOfFiles { .. } => {
                self.refusal_log.refused(cause, "until other files are closed", "files can be created again");
                Error::OutOfFiles(cause.to_string())
            }
            JournalError::Unavailable(text) => {
                self.refusal_log.refused(cause, "until the log is available", "the log is available again");
                Error::LogUnavailable(text.clone())
            }
            JournalError::Failed(cause) => {
                error!("the journal failed; refusing writes until a restart: {cause}");
                let failed = Error::JournalFailed(cause.clone());
                self.failed = Some(failed.clone());
                failed
            }
        }
    }
}

impl Completion {
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
