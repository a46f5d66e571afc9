//! The cluster part of the command processor: applying events that are read back from a shared log.
//!
//! An event takes effect when it is read back, whichever node has appended it. The node that validated the command
//! applies the event with the results of the validation, and then answers the caller.

use std::collections::VecDeque;
use std::thread;
use std::time::{Duration, Instant};

use actix::dev::SendError;
use crossbeam_channel::RecvTimeoutError;
use tracing::{error, info, warn};

use crate::error::Error;
use crate::feed::event::Event;
use crate::id::{PostId, SourceSlot};
use crate::limits::ERASURES_MAX;
use crate::runtime::message::{Command, Sleep};
use crate::runtime::processor::queue::Received;
use crate::runtime::processor::{CommandProcessor, Completion, PendingEvent};
use crate::state::tiering::changed_post;
use crate::storage::journal::{Journal, LogOutcome, SharedJournal};
use crate::storage::log::LogError;
use crate::storage::sequence::Sequence;

/// Maximum interval between two calls of `tend`.
const TEND_PERIOD: Duration = Duration::from_millis(50);

/// Delay before a full fan-out queue is checked again.
const FANOUT_RETRY: Duration = Duration::from_millis(1);

/// The records of a shared log that were received together and not read yet.
pub(super) struct Unapplied<R> {
    records: VecDeque<R>,
    /// The end of the message: its error, if it has one.
    end: Option<Result<(), LogError>>,
}

impl<R> Default for Unapplied<R> {
    fn default() -> Self {
        Self { records: VecDeque::new(), end: None }
    }
}

impl<R> Unapplied<R> {
    fn is_empty(&self) -> bool {
        self.end.is_none()
    }

    fn add(&mut self, received: Result<Vec<R>, LogError>) {
        self.end = Some(received.map(|records| self.records.extend(records)));
    }
}

impl<J: Journal> CommandProcessor<J> {
    /// Waits for a command or for records of the log. Returns None after applying records, or after `TEND_PERIOD`.
    pub(super) fn next_in_cluster(&mut self) -> Result<Option<Command>, RecvTimeoutError> {
        self.tend();
        self.apply_received();
        if !self.unapplied.is_empty() {
            return match self.commands.recv_timeout(FANOUT_RETRY) {
                Err(RecvTimeoutError::Timeout) => Ok(None),
                received => received.map(Some),
            };
        }
        let Some(shared) = self.journal.shared() else { return Ok(None) };
        match self.commands.recv_or(shared.incoming(), TEND_PERIOD)? {
            Some(Received::Command(command)) => Ok(Some(command)),
            Some(Received::Other(records)) => {
                self.read_back(records);
                Ok(None)
            }
            None => Ok(None),
        }
    }

    /// Commits the group and waits until all of it is applied. Returns false if this takes too long or the events will
    /// never take effect; their callers are answered in both cases.
    pub(super) fn settle(&mut self) -> bool {
        self.commit();
        while !self.group.is_empty() {
            let Some(incoming) = self.journal.shared().map(|shared| shared.incoming().clone()) else { return true };
            if self.unapplied.is_empty() {
                match incoming.recv_timeout(TEND_PERIOD) {
                    Ok(records) => self.read_back(records),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return false,
                }
            } else {
                thread::park_timeout(FANOUT_RETRY);
                self.apply_received();
            }
            self.tend();
            if !self.may_judge() {
                self.give_up();
                return false;
            }
        }
        true
    }

    fn may_judge(&mut self) -> bool {
        self.journal.shared().is_none_or(|shared| shared.may_judge())
    }

    /// Returns the refusal of a command that only the sequencer may judge, if this node is not the sequencer.
    pub(super) fn refused_by_cluster(&mut self, command: &Command) -> Option<Error> {
        let shared = self.journal.shared()?;
        match command {
            // Requests that only remove edges add no data.
            Command::ChangeEdges { follows, .. } if follows.is_empty() => {
                (!shared.may_judge()).then_some(Error::NotSequencer)
            }
            Command::Publish { .. } | Command::ChangeEdges { .. } if shared.may_judge() && shared.outruns_members() => {
                self.shared.counters.shed.count("replication");
                Some(Error::NodeBehind)
            }
            Command::Publish { .. }
            | Command::Edit { .. }
            | Command::Delete { .. }
            | Command::ChangeEdges { .. }
            | Command::SetPreference { .. }
            | Command::Erase { .. }
            | Command::EraseStep { .. }
            | Command::RevokeTokens { .. } => (!shared.may_judge()).then_some(Error::NotSequencer),
            Command::Resolved { command, .. } => self.refused_by_cluster(command),
            Command::RegisterUser { .. }
            | Command::Mark { .. }
            | Command::TieringWritten(_)
            | Command::IdsListed { .. }
            | Command::Leave
            | Command::Many(_)
            | Command::Stop => None,
        }
    }

    /// Lets other nodes take over, after all accepted commands are applied.
    pub(super) fn leave_cluster(&mut self) {
        self.settle();
        if let Some(Err(cause)) = self.journal.shared().map(|shared| shared.leave()) {
            warn!("could not announce shutdown; other nodes take over after the member timeout: {cause}");
        }
    }

    /// Performs due work of the cluster, and answers callers that have waited too long.
    fn tend(&mut self) {
        let sent_at = self.group.sent_at();
        let Some(shared) = self.journal.shared() else { return };
        shared.tend();
        if sent_at.is_some_and(|at| at.elapsed() > shared.patience()) {
            self.give_up();
        }
        self.end_erased_readers();
    }

    /// Ends the actors of readers whose erasure another node has begun. The next call retries actors with a full
    /// mailbox.
    fn end_erased_readers(&mut self) {
        let is_full =
            |reader: &SourceSlot| matches!(self.shared.directory.send(*reader, Sleep), Err(SendError::Full(_)));
        self.erased_readers.retain(is_full);
    }

    /// Answers the callers of events that were not read back yet: the outcome is unknown. Events that are read back
    /// later are still applied.
    fn give_up(&mut self) {
        self.group.take_answers().for_each(|then| then.refuse(Error::OutcomeUnknown));
    }

    fn read_back(&mut self, received: Result<Vec<J::Received>, LogError>) {
        self.unapplied.add(received);
        self.apply_received();
    }

    /// Reads and applies the received records. Stops at a post for which fan-out has no capacity: the node that accepted it
    /// has checked only its own queue.
    fn apply_received(&mut self) {
        if self.unapplied.is_empty() {
            return;
        }
        while let Some(record) = self.unapplied.records.pop_front() {
            let Some(shared) = self.journal.shared() else { return };
            if shared.needs_fanout(&record) && !self.fanout.has_capacity_for(1) {
                self.unapplied.records.push_front(record);
                break;
            }
            let outcome = shared.read(record);
            outcome.into_iter().for_each(|outcome| self.apply_outcome(outcome));
        }
        if self.unapplied.records.is_empty()
            && let Some(end) = self.unapplied.end.take()
        {
            let outcome = self.journal.shared().and_then(|shared| shared.end_message(end));
            outcome.into_iter().for_each(|outcome| self.apply_outcome(outcome));
        }
        if let Some(archive) = self.machine.world().replicated_archive() {
            archive.note_applied(self.journal.last());
        }
        // Last, so that a thread that sees this sequence also sees its effect.
        self.journal.shared().into_iter().for_each(SharedJournal::note_applied);
    }

    fn apply_outcome(&mut self, outcome: LogOutcome) {
        let at = self.journal.last();
        match outcome {
            LogOutcome::Local => {
                if let Some(accepted) = self.group.take_sent(Instant::now()) {
                    let changed = changed_post(&accepted.event);
                    self.note_taken(&accepted.event);
                    self.apply(accepted);
                    self.note_changed(at, changed);
                }
            }
            LogOutcome::Remote(event) => {
                let changed = changed_post(&event);
                self.apply_other(event);
                self.note_changed(at, changed);
            }
            LogOutcome::Fenced { is_promoted } => {
                let void = self.group.take();
                void.into_iter().for_each(|accepted| accepted.then.refuse(Error::NotSequencer));
                if is_promoted {
                    info!("this node now accepts writes");
                    self.logical_clock.resume(self.last_taken);
                    self.kept_drift_us = Some(self.last_taken.drift_us);
                }
            }
            LogOutcome::Failed(cause) => {
                error!("cannot follow the log any further; this node has stopped: {cause}");
                self.give_up();
                self.failed = Some(Error::JournalFailed(cause));
            }
        }
    }

    /// Records for the archive of the cluster that a post has changed.
    fn note_changed(&self, at: Sequence, changed: Option<PostId>) {
        if let (Some(archive), Some(id)) = (self.machine.world().replicated_archive(), changed) {
            archive.note_change(at, id);
        }
    }

    /// Applies an event that another node has accepted.
    fn apply_other(&mut self, event: Event) {
        self.note_taken(&event);
        let erased_at = if let Event::Erased { at, .. } = event { Some(at) } else { None };
        self.apply(PendingEvent { event, found: None, then: Completion::Nothing });
        let erasure = erased_at.and_then(|at| self.machine.world().sources.erasures().at(at));
        // Done here, since the erasure may have ended before this node's eraser looks for it.
        self.erased_readers.extend(erasure.map(|erasure| erasure.source.slot));
        self.end_erased_readers();
        // The list may contain ended erasures, so it is cut to the maximum number of erasures at a time.
        self.erased_readers.truncate(ERASURES_MAX);
    }

    /// Records the last logical instant of the log, where the next sequencer continues.
    fn note_taken(&mut self, event: &Event) {
        if let Some(taken) = event.taken(self.last_taken.drift_us) {
            self.last_taken = taken;
        }
    }
}
