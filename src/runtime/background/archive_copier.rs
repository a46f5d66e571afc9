//! The archive copier: the thread of a node that copies changed posts to the archive of the cluster, behind the log.
//!
//! Responsible for:
//! - writing what changed while this node is the one to write, and storing how far the archive has come;
//! - reading how far it has come while another node writes.
//!
//! Not responsible for:
//! - the design, and what the archive lacks (`storage::archive::behind_log`), what leaves memory (`state::tiering`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tracing::{info, warn};

use crate::id::PostId;
use crate::runtime::abort_on_exit::AbortOnExit;
use crate::state::world::World;
use crate::storage::archive::{ArchiveBehindLog, ArchiveError, Due};
use crate::storage::journal::Sequence;
use crate::throttle::Throttle;

/// Maximum number of changes in one batch.
const CHANGES_PER_BATCH: usize = 2_048;

/// Time between two looks at what is due.
const LOOK_PERIOD: Duration = Duration::from_millis(20);

/// Time between two times that the archive is asked how far it has come, while nothing waits for that.
const IDLE_PERIOD: Duration = Duration::from_millis(500);

/// Time until a failed write or read is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Copies changed posts to the archive of a cluster.
pub struct ArchiveCopier {
    /// The world of this node.
    pub(crate) world: Arc<World>,
    /// Returns true while this node is the one to write.
    pub(crate) is_writer: Box<dyn Fn() -> bool + Send>,
    /// Set when the engine is about to end.
    pub(crate) stopping: Arc<AtomicBool>,
}

impl ArchiveCopier {
    /// Starts the thread. It ends soon after `stopping` is set.
    pub(crate) fn start(self) -> std::io::Result<JoinHandle<()>> {
        let thread = thread::Builder::new().name("tidewire-copier".to_owned());
        thread.spawn(move || {
            let _abort_on_exit = AbortOnExit("archive copier");
            if let Some(archive) = self.world.behind_log() {
                self.run(archive);
            }
        })
    }

    fn run(&self, archive: &ArchiveBehindLog) {
        let (mut was_writer, mut looked_at) = (false, Instant::now());
        let failures = Throttle::default();
        while !self.stopping.load(Ordering::Relaxed) {
            let is_writer = (self.is_writer)();
            let is_idle = looked_at.elapsed() < IDLE_PERIOD && !archive.is_awaited();
            let done = match is_writer {
                // Another node may have come further, and may have written more than its progress says.
                true if !was_writer => {
                    archive.shared().forget_all();
                    archive.refresh()
                }
                true => self.copy(archive, is_idle),
                false if is_idle => Ok(()),
                false => archive.refresh(),
            };
            if !is_idle {
                looked_at = Instant::now();
            }
            was_writer = is_writer && (was_writer || done.is_ok());
            let wait = match done {
                Ok(()) => LOOK_PERIOD,
                Err(cause) => {
                    if let Some(left_out) = failures.due() {
                        warn!(
                            more_since_last = left_out,
                            "{}; posts stay in memory until it works",
                            cause.with_sources()
                        );
                    }
                    RETRY
                }
            };
            thread::park_timeout(wait);
        }
    }

    /// Writes all that is due. If that is only the progress, it can wait while the archive `is_idle`.
    fn copy(&self, archive: &ArchiveBehindLog, is_idle: bool) -> Result<(), ArchiveError> {
        while let Some(due) = archive.due(CHANGES_PER_BATCH) {
            if self.stopping.load(Ordering::Relaxed) || !(self.is_writer)() {
                break;
            }
            match due {
                Due::Changed(ids, _) if ids.is_empty() && is_idle => break,
                Due::Changed(ids, through) => {
                    self.write(archive, &ids, through)?;
                    archive.advance(through)?;
                }
                Due::Everything(through) => {
                    let ids = self.world.all_to_copy();
                    info!("copying {} posts in memory to the archive, which does not have record {through}", ids.len());
                    for ids in ids.chunks(CHANGES_PER_BATCH) {
                        self.write(archive, ids, through)?;
                        if self.stopping.load(Ordering::Relaxed) {
                            return Ok(());
                        }
                    }
                    archive.advance(through)?;
                }
            }
        }
        Ok(())
    }

    fn write(&self, archive: &ArchiveBehindLog, ids: &[PostId], as_of: Sequence) -> Result<(), ArchiveError> {
        if ids.is_empty() {
            return Ok(());
        }
        let _writing = archive.writing();
        let copied = self.world.copied(ids, as_of)?;
        if !copied.removed.removed.is_empty() {
            archive.shared().write(&copied.removed)?;
        }
        archive.shared().write(&copied.rest)
    }
}
