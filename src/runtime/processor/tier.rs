//! The archive part of the command processor: marks for snapshots, and rounds of tiering.

use std::time::Duration;

use crossbeam_channel::{RecvTimeoutError, Sender};

use crate::id::SourceId;
use crate::runtime::background::archiver::Task;
use crate::runtime::message::{Command, Mark, Reply};
use crate::runtime::processor::refusal_log::PROBE_PERIOD;
use crate::runtime::processor::{CommandProcessor, refuse};
use crate::state::tiering::RoundOutcome;
use crate::storage::journal::Journal;

/// Number of rounds of tiering between two that sync the archive, so that it survives a power loss.
const TIERINGS_PER_PERSIST: u32 = 32;

/// Delay between a failed round of tiering and the next attempt.
const TIERING_RETRY: Duration = Duration::from_secs(1);

/// Time without a write after which the journal itself records that it is synced.
const JOURNAL_IDLE: Duration = Duration::from_secs(1);

/// The command processor's state of the archiver.
pub(super) struct Archiver {
    tasks: Sender<Task>,
    /// True while a task is in progress: the next round of tiering waits for it.
    is_busy: bool,
    /// The monotonic time of the last failure, unless a later task succeeded. All posts then stay in memory, up to the limit.
    failed_at: Option<Duration>,
    /// The number of failed tasks.
    failures: u64,
    rounds: u32,
}

impl Archiver {
    pub(super) fn new(tasks: Sender<Task>) -> Self {
        Self { tasks, is_busy: false, failed_at: None, failures: 0, rounds: 0 }
    }
}

impl<J: Journal> CommandProcessor<J> {
    /// Waits for the next command. Wakes after a limited time to repeat a failed tiering, to probe a journal that
    /// refuses events, or to mark it as synced, and when records of a shared log were read.
    pub(super) fn next(&mut self) -> Result<Option<Command>, RecvTimeoutError> {
        if self.journal.shared().is_some() {
            return self.next_in_cluster();
        }
        let next = match self.archiver.as_ref().and_then(|archiver| archiver.failed_at) {
            Some(_) => self.commands.recv_timeout(TIERING_RETRY),
            None if self.journal.is_refusing() => self.commands.recv_timeout(PROBE_PERIOD),
            None if self.journal.wants_mark() => self.commands.recv_timeout(JOURNAL_IDLE),
            None => self.commands.recv(),
        };
        next.map(Some)
    }

    pub(super) fn mark(&mut self, sync: bool, reply: Reply<Mark>) {
        self.settle();
        if sync && let Err(cause) = self.journal.sync() {
            let refusal = self.refusal(&cause);
            return refuse(reply, refusal);
        }
        let sources = self.machine.world().sources.len();
        let followed = self.journal.shared().map(|shared| shared.followed().into());
        let last_instant = if followed.is_some() { self.last_taken } else { self.logical_clock.last() };
        let last = self.journal.last();
        let mark = Mark { last, sources, last_instant, followed, has_archived: false, archive: None };
        match &mut self.archiver {
            // The mark is answered after the archive contains everything that it has to contain at this point.
            Some(archiver) if sync => {
                let tiering = self.machine.collect_tiering(self.journal.last());
                archiver.is_busy = true;
                // Sending fails only if the archiver has ended.
                let failures_known = archiver.failures;
                let _ = archiver.tasks.send(Task {
                    tiering,
                    persist: Some(mark.last),
                    failures_known,
                    then: Some((reply, mark)),
                    rewrite: None,
                });
            }
            _ => drop(reply.send(Ok(mark))),
        }
    }

    /// Rewrites the archive without these users, after it contains everything that it has to contain at this point.
    pub(super) fn rewrite_archive(&mut self, users: Vec<SourceId>, reply: Reply<()>) {
        if let Err(cause) = self.journal.sync() {
            let refusal = self.refusal(&cause);
            return refuse(reply, refusal);
        }
        let Some(archiver) = &mut self.archiver else { return drop(reply.send(Ok(()))) };
        let tiering = self.machine.collect_tiering(self.journal.last());
        archiver.is_busy = true;
        let (persist, failures_known) = (Some(self.journal.last()), archiver.failures);
        // Sending fails only if the archiver has ended.
        let task = Task { tiering, persist, failures_known, then: None, rewrite: Some((users, reply)) };
        let _ = archiver.tasks.send(task);
    }

    /// Starts a round of tiering, if one is due.
    pub(super) fn start_tiering(&mut self) {
        let Some(archiver) = &mut self.archiver else { return };
        let is_due = match archiver.failed_at {
            // A retry does not depend on the amount, since the failed round was due.
            Some(failed_at) => self.shared.clock.monotonic().saturating_sub(failed_at) >= TIERING_RETRY,
            None => self.machine.is_tiering_due(),
        };
        if archiver.is_busy || !is_due {
            return;
        }
        archiver.rounds += 1;
        // The archive is persisted regularly, so that it can reuse the space of superseded data.
        let persist = archiver.rounds.is_multiple_of(TIERINGS_PER_PERSIST).then(|| self.journal.last());
        // A power loss undoes writes that a local archive has not persisted, but not writes that were sent to another
        // machine.
        let is_remote = self.machine.world().archive().is_some_and(|archive| archive.is_remote());
        if (persist.is_some() || is_remote) && self.journal.sync().is_err() {
            // The next commit reports the error.
            return;
        }
        let tiering = self.machine.collect_tiering(self.journal.last());
        if tiering.is_empty() {
            archiver.failed_at = None;
            return;
        }
        archiver.is_busy = true;
        let _ = archiver.tasks.send(Task {
            tiering,
            persist,
            failures_known: archiver.failures,
            then: None,
            rewrite: None,
        });
    }

    pub(super) fn finish_tiering(&mut self, written: RoundOutcome) {
        let Some(archiver) = &mut self.archiver else { return };
        archiver.is_busy = false;
        let has_failed = self.machine.finish_round(written).is_err();
        archiver.failed_at = has_failed.then(|| self.shared.clock.monotonic());
        archiver.failures += u64::from(has_failed);
    }
}
