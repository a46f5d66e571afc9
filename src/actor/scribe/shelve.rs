//! The scribe's side of snapshots and of the archive: marks, and rounds of shelving.

use crossbeam_channel::Sender;

use crate::actor::archivist::Task;
use crate::actor::message::{Mark, Reply};
use crate::actor::scribe::{Scribe, refuse};
use crate::limits::SHELVINGS_PER_PERSIST;
use crate::state::shelving::Shelving;
use crate::storage::journal::Journal;

/// The scribe's side of the archivist.
pub(super) struct Archivist {
    tasks: Sender<Task>,
    /// A round of shelving is on its way: the next waits for it.
    is_busy: bool,
    /// A snapshot is being walked, which must not miss what goes from memory: that waits.
    is_paused: bool,
    /// What was written meanwhile, and is still in memory.
    held: Option<Shelving>,
    /// It could not write. Everything stays in memory, up to the limit.
    has_failed: bool,
    rounds: u32,
}

impl Archivist {
    pub(super) fn new(tasks: Sender<Task>) -> Self {
        Self { tasks, is_busy: false, is_paused: false, held: None, has_failed: false, rounds: 0 }
    }
}

impl<J: Journal> Scribe<J> {
    pub(super) fn mark(&mut self, sync: bool, reply: Reply<Mark>) {
        self.commit();
        if sync && let Err(cause) = self.journal.sync() {
            let refusal = self.refusal(cause);
            return refuse(reply, refusal);
        }
        let sources = self.writer.world().sources.len();
        let mark = Mark { last: self.journal.last(), sources, last_instant: self.ticker.last() };
        match &mut self.archivist {
            // What the archive is to be told by then it is told before the mark is answered.
            Some(archivist) if sync => {
                archivist.is_paused = false;
                if let Some(held) = archivist.held.take() {
                    self.writer.finish_shelving(held);
                }
                let shelving = self.writer.collect_shelving();
                archivist.is_busy = true;
                // Refused only by an archivist that has ended.
                let _ = archivist.tasks.send(Task { shelving, persist: true, then: Some((reply, mark)) });
            }
            archivist => {
                archivist.iter_mut().for_each(|archivist| archivist.is_paused = true);
                let _ = reply.send(Ok(mark));
            }
        }
    }

    /// Gives the archivist a round of shelving, if one is due.
    pub(super) fn shelve(&mut self) {
        let Some(archivist) = &mut self.archivist else { return };
        if archivist.is_busy || archivist.is_paused || archivist.has_failed || !self.writer.is_shelving_due() {
            return;
        }
        archivist.rounds += 1;
        // Now and then, so that what the archive has superseded can be used again.
        let persist = archivist.rounds.is_multiple_of(SHELVINGS_PER_PERSIST);
        if persist && self.journal.sync().is_err() {
            // The next commit says so.
            return;
        }
        let shelving = self.writer.collect_shelving();
        if !shelving.is_empty() {
            archivist.is_busy = true;
            let _ = archivist.tasks.send(Task { shelving, persist, then: None });
        }
    }

    pub(super) fn shelved(&mut self, shelving: Shelving, written: bool) {
        let Some(archivist) = &mut self.archivist else { return };
        archivist.is_busy = false;
        archivist.has_failed = !written;
        if !written {
            self.writer.give_up_shelving(shelving);
        } else if archivist.is_paused {
            archivist.held = Some(shelving);
        } else {
            self.writer.finish_shelving(shelving);
        }
    }
}
