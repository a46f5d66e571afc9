//! The archiver: the threads that wait for the archive's disk, so that neither actors nor the command processor wait
//! for it.

use std::collections::HashSet;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use crossbeam_channel::{Receiver, Sender};
use tracing::{error, info};

use crate::error::Error;
use crate::id::SourceId;
use crate::limits::ARCHIVE_QUEUE_MAX;
use crate::runtime::abort_on_exit::AbortOnExit;
use crate::runtime::message::{Command, Mark, Reply};
use crate::runtime::processor::queue::CommandSender;
use crate::state::tiering::{RoundOutcome, Tiering, fate};
use crate::state::world::World;
use crate::storage::archive::{Archive, ArchiveError, LocalArchive, Rewrite};
use crate::storage::sequence::Sequence;

/// Number of threads that read the archive.
const ARCHIVE_READERS: usize = 4;

/// A task of the command processor for the archive.
pub struct Task {
    /// The records to move to the archive.
    pub tiering: Tiering,
    /// Persist the archive, so that it survives a power loss. The journal was synced up to this event before: the
    /// archive must not contain anything that the journal lacks.
    pub persist: Option<Sequence>,
    /// The number of failed tasks that were known when this one was made. The records of those tasks are in this one,
    /// or were dropped.
    pub failures_known: u64,
    /// The mark to send afterwards, and the channel for it.
    pub then: Option<(Reply<Mark>, Mark)>,
    /// The users without whom the archive is rewritten afterwards, and the channel for the answer.
    pub rewrite: Option<(Vec<SourceId>, Reply<()>)>,
}

/// The capacity of the queue of tasks: a round of tiering, and the marks of snapshots.
const TASKS_MAX: usize = 8;

/// Starts the thread that writes, until the command processor drops its sender. Results are sent to the command processor through
/// `commands`.
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
                let _ = reply.send(failures.since(failures_known).and_then(|()| at_end(&*archive, &mark)));
            }
            if let Some((users, reply)) = without {
                // An archive that lacks the records of a failed earlier task is not rewritten.
                let as_of = persist.unwrap_or_default();
                let rewritten = failures.since(failures_known).and_then(|()| rewrite(&*archive, &users, as_of));
                let _ = reply.send(rewritten);
            }
            // This fails only if the command processor has ended. Records that are archived but still in memory do no harm.
            let _ = commands.send(Command::TieringWritten(Box::new(written)));
        }
    })?;
    Ok((tasks, thread))
}

/// Completes the mark at the end of a snapshot. It runs on the writing thread while nothing else is written: records of
/// later tasks are neither persisted with this mark nor in its archive snapshot.
fn at_end(archive: &dyn Archive, mark: &Mark) -> Result<Mark, Error> {
    let snapshot = archive.local().map_or(Ok(None), LocalArchive::snapshot).map_err(|cause| archive_failed(&cause))?;
    Ok(Mark { has_archived: !archive.is_empty(), archive: snapshot, ..mark.clone() })
}

/// The failed tasks of the writing thread.
#[derive(Default)]
struct Failures {
    count: u64,
    last: Option<Error>,
    /// True if the last task failed.
    is_failing: bool,
}

impl Failures {
    /// Records the result of a task.
    fn note(&mut self, failure: Option<&ArchiveError>) {
        let was_failing = std::mem::replace(&mut self.is_failing, failure.is_some());
        match failure {
            None if was_failing => info!("writes to the archive succeed again"),
            None => {}
            Some(cause) => {
                let cause = archive_failed(cause);
                if !was_failing {
                    error!("{cause}; posts stay in memory; retrying");
                }
                self.count += 1;
                self.last = Some(cause);
            }
        }
    }

    /// Returns the last error if a task has failed since there were `known` failures.
    fn since(&self, known: u64) -> Result<(), Error> {
        match &self.last {
            Some(cause) if self.count > known => Err(cause.clone()),
            _ => Ok(()),
        }
    }
}

fn write(world: &World, archive: &dyn Archive, tiering: Tiering, persist: Option<Sequence>) -> RoundOutcome {
    let written = tiering.write(world, archive);
    match persist.filter(|_| written.failed.is_none()).map(|through| archive.persist(through)) {
        Some(Err(cause)) => written.not_persisted(cause),
        _ => written,
    }
}

/// Rewrites the archive, which has everything up to this event, without these users.
fn rewrite(archive: &dyn Archive, users: &[SourceId], as_of: Sequence) -> Result<(), Error> {
    let of_all: HashSet<SourceId> = users.iter().cloned().collect();
    let rewritten = archive.rewrite(&Rewrite { without: users, fate: &|post| fate(&of_all, post), as_of });
    rewritten.map_err(|cause| archive_failed(&cause))
}

/// Converts an error of the archive into an error for callers.
pub fn archive_failed(cause: &ArchiveError) -> Error {
    match cause {
        cause if cause.is_full() => Error::DiskFull(cause.with_sources()),
        ArchiveError::Unavailable { .. } => Error::ArchiveUnavailable(cause.to_string()),
        cause => Error::ArchiveFailed(cause.with_sources()),
    }
}

type Job = Box<dyn FnOnce(&World) + Send>;

/// The threads that read the archive. They end when this is dropped.
pub struct ArchiveReaders {
    jobs: Sender<Job>,
}

impl ArchiveReaders {
    /// Starts [`ARCHIVE_READERS`] threads.
    pub fn start(world: &Arc<World>) -> std::io::Result<Self> {
        let (jobs, receiver) = crossbeam_channel::bounded::<Job>(ARCHIVE_QUEUE_MAX);
        for nth in 0..ARCHIVE_READERS {
            let (receiver, world): (Receiver<Job>, _) = (receiver.clone(), Arc::clone(world));
            let thread = thread::Builder::new().name(format!("tidewire-cold-{nth}"));
            thread.spawn(move || receiver.into_iter().for_each(|job| job(&world)))?;
        }
        Ok(Self { jobs })
    }

    /// Starts no threads: every job is refused.
    #[cfg(test)]
    pub fn none() -> Self {
        Self { jobs: crossbeam_channel::bounded(0).0 }
    }

    /// Queues `job`, which must not panic. Returns false if the queue is full.
    pub fn ask(&self, job: impl FnOnce(&World) + Send + 'static) -> bool {
        self.jobs.try_send(Box::new(job)).is_ok()
    }

    /// Returns the number of queued jobs.
    pub fn waiting(&self) -> usize {
        self.jobs.len()
    }
}
