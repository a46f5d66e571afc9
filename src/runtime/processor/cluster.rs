//! The cluster part of the command processor: applying what was read back from a shared log.
//!
//! One way of applying: an event counts when it is read back, whichever node has appended it. The node that has judged it applies it with
//! what the judgement found, and answers the caller then.

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
use crate::storage::log::{LogError, LogRecord};
use crate::storage::sequence::Sequence;

/// Maximum time between two looks at what is due.
const TEND_PERIOD: Duration = Duration::from_millis(50);

/// Time after which a full fan-out queue is looked at again.
const FANOUT_RETRY: Duration = Duration::from_millis(1);

impl<J: Journal> CommandProcessor<J> {
    /// Waits for a command or for records of the log. Returns none if there were records, or nothing for a while.
    pub(super) fn next_in_cluster(&mut self) -> Result<Option<Command>, RecvTimeoutError> {
        self.tend();
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

    /// Commits the group, and waits until all of it is applied. Returns false if that takes too long, or the events will never count:
    /// their callers are answered then.
    pub(super) fn settle(&mut self) -> bool {
        self.commit();
        while !self.group.is_empty() {
            let Some(incoming) = self.journal.shared().map(|shared| shared.incoming().clone()) else { return true };
            match incoming.recv_timeout(TEND_PERIOD) {
                Ok(records) => self.read_back(records),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return false,
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
            // Only removing edges adds nothing.
            Command::Follow { edges, .. } if edges.is_empty() => (!shared.may_judge()).then_some(Error::NotSequencer),
            Command::Publish { .. } | Command::Follow { .. } if shared.may_judge() && shared.outruns_members() => {
                self.shared.counters.shed.count("replication");
                Some(Error::NodeBehind)
            }
            Command::Publish { .. }
            | Command::Edit { .. }
            | Command::Delete { .. }
            | Command::Follow { .. }
            | Command::Unfollow { .. }
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

    /// Lets other nodes take over, after all that was accepted is applied.
    pub(super) fn leave_cluster(&mut self) {
        self.settle();
        if let Some(Err(cause)) = self.journal.shared().map(|shared| shared.leave()) {
            warn!("the log did not take that this node leaves, so others take over only after a session: {cause}");
        }
    }

    /// Does what is due: for the cluster, and for callers that have waited too long.
    fn tend(&mut self) {
        let sent_at = self.group.sent_at();
        let Some(shared) = self.journal.shared() else { return };
        shared.tend();
        if sent_at.is_some_and(|at| at.elapsed() > shared.patience()) {
            self.give_up();
        }
        self.end_erased_readers();
    }

    /// Ends the actors of readers whose erasure another node has begun. One whose mailbox is full is tried again.
    fn end_erased_readers(&mut self) {
        let is_full =
            |reader: &SourceSlot| matches!(self.shared.directory.send(*reader, Sleep), Err(SendError::Full(_)));
        self.erased_readers.retain(is_full);
    }

    /// Answers those whose events are on their way that the outcome is unknown. The events are applied if they are read back.
    fn give_up(&mut self) {
        self.group.take_answers().for_each(|then| then.refuse(Error::OutcomeUnknown));
    }

    fn read_back(&mut self, records: Result<Vec<LogRecord>, LogError>) {
        let mut read = Vec::new();
        if let Some(shared) = self.journal.shared() {
            shared.read(records, &mut |at, back| read.push((at, back)));
        }
        for (at, back) in read {
            match back {
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
                LogOutcome::Promoted => {
                    info!("this node takes writes from now on");
                    self.logical_clock.resume(self.last_taken);
                    self.kept_drift_us = Some(self.last_taken.drift_us);
                }
                LogOutcome::Fenced => {
                    let void = self.group.take();
                    void.into_iter().for_each(|accepted| accepted.then.refuse(Error::NotSequencer));
                }
                LogOutcome::Failed(cause) => {
                    error!("the log cannot be followed any further, and this node has stopped: {cause}");
                    self.give_up();
                    self.failed = Some(Error::JournalFailed(cause));
                }
            }
        }
        if let Some(archive) = self.machine.world().replicated_archive() {
            archive.note_applied(self.journal.last());
        }
        // Last, so that who sees this sequence also sees its effect.
        self.journal.shared().into_iter().for_each(SharedJournal::note_applied);
    }

    /// Notes a post that is changed now, for the archive of the cluster.
    fn note_changed(&self, at: Sequence, changed: Option<PostId>) {
        if let (Some(archive), Some(id)) = (self.machine.world().replicated_archive(), changed) {
            archive.note_change(at, id);
        }
    }

    /// Applies an event that another node has accepted.
    fn apply_other(&mut self, event: Event) {
        self.note_taken(&event);
        // The node that has accepted it has checked its own queue only.
        while !self.fanout.has_capacity_for(1) {
            thread::park_timeout(FANOUT_RETRY);
            // The others must not take this node for dead.
            self.tend();
        }
        let erased_at = if let Event::Erased { at, .. } = event { Some(at) } else { None };
        self.apply(PendingEvent { event, found: None, then: Completion::Nothing });
        let erasure = erased_at.and_then(|at| self.machine.world().sources.erasures().at(at));
        // At once, since the erasure may have ended when this node's eraser looks for it.
        self.erased_readers.extend(erasure.map(|erasure| erasure.source.slot));
        self.end_erased_readers();
        // Erasures that have ended may still be in it, but no more readers than are under erasure at once.
        self.erased_readers.truncate(ERASURES_MAX);
    }

    /// Records the last logical instant of the log, where the next sequencer continues.
    fn note_taken(&mut self, event: &Event) {
        if let Some(taken) = event.taken(self.last_taken.drift_us) {
            self.last_taken = taken;
        }
    }
}
