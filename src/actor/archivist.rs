//! The archivist: the threads that wait for the archive's disk, so that no actor and not the scribe has to.
//!
//! Responsible for:
//! - writing what the scribe shelves, in order, and telling it when that is done;
//! - building pages that reach into the archive.
//!
//! Not responsible for:
//! - what is shelved (`state::shelving`), when (`actor::scribe`).

use std::sync::Arc;
use std::thread::{self, JoinHandle};

use crossbeam_channel::{Receiver, Sender};
use tracing::error;

use crate::actor::message::{Command, Mark, Reply};
use crate::actor::vital::Vital;
use crate::error::Error;
use crate::limits::{ARCHIVE_QUEUE_MAX, ARCHIVE_READERS};
use crate::state::shelving::Shelving;
use crate::state::world::World;
use crate::storage::archive::{Archive, ArchiveError};

/// What the scribe wants written.
pub struct Task {
    /// What is to be shelved.
    pub shelving: Shelving,
    /// Make it survive power loss. The journal was synced before: the archive must not know more than it does.
    pub persist: bool,
    /// Whom to tell then.
    pub then: Option<(Reply<Mark>, Mark)>,
}

/// Tasks that wait: a round of shelving, and the marks of snapshots.
const TASKS_MAX: usize = 8;

/// Starts the thread that writes, until the scribe lets go of its end. Done tasks go back to the scribe by `commands`.
pub fn start_writer(
    world: Arc<World>,
    archive: Arc<dyn Archive>,
    commands: Sender<Command>,
) -> std::io::Result<(Sender<Task>, JoinHandle<()>)> {
    let (tasks, receiver) = crossbeam_channel::bounded(TASKS_MAX);
    let thread = thread::Builder::new().name("tidewire-archive".to_owned());
    let thread = thread.spawn(move || {
        let _vital = Vital("archivist");
        for Task { shelving, persist, then } in receiver {
            let outcome = write(&world, &*archive, &shelving, persist);
            if let Err(cause) = &outcome {
                error!("{}", describe(cause));
            }
            if let Some((reply, mark)) = then {
                let answer = outcome.as_ref().map(|()| mark).map_err(archive_failed);
                let _ = reply.send(answer);
            }
            // Refused only by a scribe that has ended; what is archived but still in memory does no harm.
            let _ = commands.send(Command::Shelved { shelving: Box::new(shelving), written: outcome.is_ok() });
        }
    })?;
    Ok((tasks, thread))
}

fn write(world: &World, archive: &dyn Archive, shelving: &Shelving, persist: bool) -> Result<(), ArchiveError> {
    if !shelving.is_empty() {
        archive.write(&shelving.batch(world))?;
    }
    if persist { archive.persist() } else { Ok(()) }
}

/// An archive's error, as a caller is told.
pub fn archive_failed(cause: &ArchiveError) -> Error {
    Error::ArchiveFailed(describe(cause))
}

fn describe(cause: &dyn std::error::Error) -> String {
    let mut text = cause.to_string();
    let mut source = cause.source();
    while let Some(cause) = source {
        text += &format!(": {cause}");
        source = cause.source();
    }
    text
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
