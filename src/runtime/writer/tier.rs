//! The scribe's side of snapshots and of the archive: marks, and rounds of tiering.

use std::time::Instant;

use crossbeam_channel::{RecvTimeoutError, Sender};

use crate::id::SourceId;
use crate::limits::{JOURNAL_IDLE, TIERING_RETRY, TIERINGS_PER_PERSIST};
use crate::runtime::background::archiver::Task;
use crate::runtime::message::{Command, Mark, Reply};
use crate::runtime::writer::{Scribe, refuse};
use crate::state::tiering::Written;
use crate::storage::journal::Journal;

/// The scribe's side of the archiver.
pub(super) struct Archiver {
    tasks: Sender<Task>,
    /// A round of tiering is on its way: the next waits for it.
    is_busy: bool,
    /// When it last could not write, unless it could since. Everything stays in memory, up to the limit.
    failed_at: Option<Instant>,
    /// How often it could not.
    failures: u64,
    rounds: u32,
}

impl Archiver {
    pub(super) fn new(tasks: Sender<Task>) -> Self {
        Self { tasks, is_busy: false, failed_at: None, failures: 0, rounds: 0 }
    }
}

impl<J: Journal> Scribe<J> {
    /// Waits for the next command, but not for long while something waits to be shelved once more.
    pub(super) fn next(&self) -> Result<Command, RecvTimeoutError> {
        match self.archiver.as_ref().and_then(|archiver| archiver.failed_at) {
            Some(_) => self.commands.recv_timeout(TIERING_RETRY),
            None if self.journal.wants_mark() => self.commands.recv_timeout(JOURNAL_IDLE),
            None => self.commands.recv(),
        }
    }

    pub(super) fn mark(&mut self, sync: bool, reply: Reply<Mark>) {
        self.commit();
        if sync && let Err(cause) = self.journal.sync() {
            let refusal = self.refusal(cause);
            return refuse(reply, refusal);
        }
        let sources = self.writer.world().sources.len();
        let mark =
            Mark { last: self.journal.last(), sources, last_instant: self.monotonic_clock.last(), has_archived: false };
        match &mut self.archiver {
            // What the archive is to be told by then it is told before the mark is answered.
            Some(archiver) if sync => {
                let tiering = self.writer.collect_tiering();
                archiver.is_busy = true;
                // Refused only by an archiver that has ended.
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

    /// Has the archive written anew without these users, once it has all that it is to have by now.
    pub(super) fn rewrite_archive(&mut self, users: Vec<SourceId>, reply: Reply<()>) {
        if let Err(cause) = self.journal.sync() {
            let refusal = self.refusal(cause);
            return refuse(reply, refusal);
        }
        let Some(archiver) = &mut self.archiver else { return drop(reply.send(Ok(()))) };
        let tiering = self.writer.collect_tiering();
        archiver.is_busy = true;
        let (persist, failures_known) = (Some(self.journal.last()), archiver.failures);
        // Refused only by an archiver that has ended.
        let task = Task { tiering, persist, failures_known, then: None, rewrite: Some((users, reply)) };
        let _ = archiver.tasks.send(task);
    }

    /// Gives the archiver a round of tiering, if one is due.
    pub(super) fn shelve(&mut self) {
        let Some(archiver) = &mut self.archiver else { return };
        let is_due = match archiver.failed_at {
            // Whatever there is: it was due before.
            Some(failed_at) => failed_at.elapsed() >= TIERING_RETRY,
            None => self.writer.is_tiering_due(),
        };
        if archiver.is_busy || !is_due {
            return;
        }
        archiver.rounds += 1;
        // Now and then, so that what the archive has superseded can be used again.
        let persist = archiver.rounds.is_multiple_of(TIERINGS_PER_PERSIST).then(|| self.journal.last());
        if persist.is_some() && self.journal.sync().is_err() {
            // The next commit says so.
            return;
        }
        let tiering = self.writer.collect_tiering();
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

    pub(super) fn shelved(&mut self, written: Written) {
        let Some(archiver) = &mut self.archiver else { return };
        archiver.is_busy = false;
        let has_failed = self.writer.shelved(written).is_err();
        archiver.failed_at = has_failed.then(Instant::now);
        archiver.failures += u64::from(has_failed);
    }
}
