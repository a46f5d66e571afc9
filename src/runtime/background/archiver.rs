//! The archiver: the threads that wait for the archive's disk, so that no actor and not the scribe has to.
//!
//! Responsible for:
//! - writing what the scribe shelves, in order, and telling it when that is done;
//! - building pages that reach into the archive.
//!
//! Not responsible for:
//! - what is shelved (`state::tiering`), when (`runtime::writer`).

use std::collections::HashSet;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use crossbeam_channel::{Receiver, Sender};
use tracing::{error, info};

use crate::error::Error;
use crate::id::SourceId;
use crate::limits::{ARCHIVE_QUEUE_MAX, ARCHIVE_READERS};
use crate::runtime::abort_on_exit::AbortOnExit;
use crate::runtime::message::{Command, Mark, Reply};
use crate::runtime::writer::queue::CommandSender;
use crate::state::pruning::fate;
use crate::state::tiering::{Tiering, Written};
use crate::state::world::World;
use crate::storage::archive::{Archive, ArchiveError, Rewrite};
use crate::storage::journal::Sequence;

/// What the scribe wants written.
pub struct Task {
    /// What is to be shelved.
    pub tiering: Tiering,
    /// Make it survive power loss. The journal was synced up to this event before: the archive must not know more than it does.
    pub persist: Option<Sequence>,
    /// How many tasks had failed when this one was made: what those were to write is in this one, or in none.
    pub failures_known: u64,
    /// Whom to tell then.
    pub then: Option<(Reply<Mark>, Mark)>,
    /// Write the archive anew afterwards, without these users, and whom to answer then.
    pub rewrite: Option<(Vec<SourceId>, Reply<()>)>,
}

/// Tasks that wait: a round of tiering, and the marks of snapshots.
const TASKS_MAX: usize = 8;

/// Starts the thread that writes, until the scribe lets go of its end. Done tasks go back to the scribe by `commands`.
pub fn start_writer(
    world: Arc<World>,
    archive: Arc<dyn Archive>,
    commands: CommandSender,
) -> std::io::Result<(Sender<Task>, JoinHandle<()>)> {
    let (tasks, receiver) = crossbeam_channel::bounded(TASKS_MAX);
    let thread = thread::Builder::new().name("tidewire-archive".to_owned());
    let thread = thread.spawn(move || {
        let _abort_on_exit = AbortOnExit("archiver");
        let mut failures = Failures::default();
        for Task { tiering, persist, failures_known, then, rewrite: without } in receiver {
            let written = write(&world, &*archive, tiering, persist);
            failures.note(written.failed.as_ref().map(|(_, cause)| cause));
            if let Some((reply, mark)) = then {
                // Asked here, where nothing is written meanwhile: what comes after this task is not persisted with it.
                let has_archived = !archive.is_empty();
                let _ = reply.send(failures.since(failures_known).map(|()| Mark { has_archived, ..mark }));
            }
            if let Some((users, reply)) = without {
                // Only whole: what an earlier task could not write is not in it.
                let rewritten = failures.since(failures_known).and_then(|()| rewrite(&*archive, &users));
                let _ = reply.send(rewritten);
            }
            // Refused only by a scribe that has ended; what is archived but still in memory does no harm.
            let _ = commands.send(Command::Shelved(Box::new(written)));
        }
    })?;
    Ok((tasks, thread))
}

/// The tasks that failed.
#[derive(Default)]
struct Failures {
    count: u64,
    last: Option<Error>,
    /// The last task was one of them.
    is_failing: bool,
}

impl Failures {
    /// Takes note of what became of a task.
    fn note(&mut self, failure: Option<&ArchiveError>) {
        let was_failing = std::mem::replace(&mut self.is_failing, failure.is_some());
        match failure {
            None if was_failing => info!("the archive takes posts again"),
            None => {}
            Some(cause) => {
                let cause = archive_failed(cause);
                if !was_failing {
                    error!("{cause}; posts stay in memory, and it is tried again");
                }
                self.count += 1;
                self.last = Some(cause);
            }
        }
    }

    /// Whether all went well since there were `known` failures.
    fn since(&self, known: u64) -> Result<(), Error> {
        match &self.last {
            Some(cause) if self.count > known => Err(cause.clone()),
            _ => Ok(()),
        }
    }
}

fn write(world: &World, archive: &dyn Archive, tiering: Tiering, persist: Option<Sequence>) -> Written {
    let written = tiering.write(world, archive);
    match persist.filter(|_| written.failed.is_none()).map(|through| archive.persist(through)) {
        Some(Err(cause)) => written.not_persisted(cause),
        _ => written,
    }
}

/// Writes the archive anew without these users.
fn rewrite(archive: &dyn Archive, users: &[SourceId]) -> Result<(), Error> {
    let of_all: HashSet<SourceId> = users.iter().cloned().collect();
    let rewritten = archive.rewrite(&Rewrite { without: users, fate: &|post| fate(&of_all, post) });
    rewritten.map_err(|cause| archive_failed(&cause))
}

/// An archive's error, as callers get it.
pub fn archive_failed(cause: &ArchiveError) -> Error {
    match cause.is_full() {
        true => Error::DiskFull(cause.with_sources()),
        false => Error::ArchiveFailed(cause.with_sources()),
    }
}

type Job = Box<dyn FnOnce(&World) + Send>;

/// The threads that read. They end when this is dropped.
pub struct ArchiveReaders {
    jobs: Sender<Job>,
}

impl ArchiveReaders {
    /// Starts them.
    pub fn start(world: &Arc<World>) -> std::io::Result<Self> {
        let (jobs, receiver) = crossbeam_channel::bounded::<Job>(ARCHIVE_QUEUE_MAX);
        for nth in 0..ARCHIVE_READERS {
            let (receiver, world): (Receiver<Job>, _) = (receiver.clone(), Arc::clone(world));
            let thread = thread::Builder::new().name(format!("tidewire-cold-{nth}"));
            thread.spawn(move || receiver.into_iter().for_each(|job| job(&world)))?;
        }
        Ok(Self { jobs })
    }

    /// Lets one of them do `job`, which must not panic; false if too much is waiting already.
    pub fn ask(&self, job: impl FnOnce(&World) + Send + 'static) -> bool {
        self.jobs.try_send(Box::new(job)).is_ok()
    }

    /// How many jobs wait.
    pub fn waiting(&self) -> usize {
        self.jobs.len()
    }
}
