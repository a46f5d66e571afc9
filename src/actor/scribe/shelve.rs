//! The scribe's side of snapshots and of the archive: marks, and rounds of shelving.

use std::time::Instant;

use crossbeam_channel::{RecvTimeoutError, Sender};

use crate::actor::archivist::Task;
use crate::actor::message::{Command, Mark, Reply};
use crate::actor::scribe::{Scribe, refuse};
use crate::id::SourceId;
use crate::limits::{JOURNAL_IDLE, SHELVING_RETRY, SHELVINGS_PER_PERSIST};
use crate::state::shelving::Written;
use crate::storage::journal::Journal;

/// The scribe's side of the archivist.
pub(super) struct Archivist {
    tasks: Sender<Task>,
    /// A round of shelving is on its way: the next waits for it.
    is_busy: bool,
    /// When it last could not write, unless it could since. Everything stays in memory, up to the limit.
    failed_at: Option<Instant>,
    /// How often it could not.
    failures: u64,
    rounds: u32,
}

impl Archivist {
    pub(super) fn new(tasks: Sender<Task>) -> Self {
        Self { tasks, is_busy: false, failed_at: None, failures: 0, rounds: 0 }
    }
}

impl<J: Journal> Scribe<J> {
    /// Waits for the next command, but not for long while something waits to be shelved once more.
    pub(super) fn next(&self) -> Result<Command, RecvTimeoutError> {
        match self.archivist.as_ref().and_then(|archivist| archivist.failed_at) {
            Some(_) => self.commands.recv_timeout(SHELVING_RETRY),
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
        let mark = Mark { last: self.journal.last(), sources, last_instant: self.ticker.last(), has_archived: false };
        match &mut self.archivist {
            // What the archive is to be told by then it is told before the mark is answered.
            Some(archivist) if sync => {
                let shelving = self.writer.collect_shelving();
                archivist.is_busy = true;
                // Refused only by an archivist that has ended.
                let failures_known = archivist.failures;
                let _ = archivist.tasks.send(Task {
                    shelving,
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
        let Some(archivist) = &mut self.archivist else { return drop(reply.send(Ok(()))) };
        let shelving = self.writer.collect_shelving();
        archivist.is_busy = true;
        let (persist, failures_known) = (Some(self.journal.last()), archivist.failures);
        // Refused only by an archivist that has ended.
        let task = Task { shelving, persist, failures_known, then: None, rewrite: Some((users, reply)) };
        let _ = archivist.tasks.send(task);
    }

    /// Gives the archivist a round of shelving, if one is due.
    pub(super) fn shelve(&mut self) {
        let Some(archivist) = &mut self.archivist else { return };
        let is_due = match archivist.failed_at {
            // Whatever there is: it was due before.
            Some(failed_at) => failed_at.elapsed() >= SHELVING_RETRY,
            None => self.writer.is_shelving_due(),
        };
        if archivist.is_busy || !is_due {
            return;
        }
        archivist.rounds += 1;
        // Now and then, so that what the archive has superseded can be used again.
        let persist = archivist.rounds.is_multiple_of(SHELVINGS_PER_PERSIST).then(|| self.journal.last());
        if persist.is_some() && self.journal.sync().is_err() {
            // The next commit says so.
            return;
        }
        let shelving = self.writer.collect_shelving();
        if shelving.is_empty() {
            archivist.failed_at = None;
            return;
        }
        archivist.is_busy = true;
        let _ = archivist.tasks.send(Task {
            shelving,
            persist,
            failures_known: archivist.failures,
            then: None,
            rewrite: None,
        });
    }

    pub(super) fn shelved(&mut self, written: Written) {
        let Some(archivist) = &mut self.archivist else { return };
        archivist.is_busy = false;
        let has_failed = self.writer.shelved(written).is_err();
        archivist.failed_at = has_failed.then(Instant::now);
        archivist.failures += u64::from(has_failed);
    }
}
