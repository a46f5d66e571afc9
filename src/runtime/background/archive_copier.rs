//! The archive copier: the thread of a node that copies changed posts to the archive of the cluster, behind the log.
//!
//! Responsible for:
//! - writing changed posts and storing the progress of the archive, while this node is the writer of the archive;
//! - leaving out entries of sources whose outboxes are damaged in the archive (`around`), and writing them after the
//!   repair;
//! - reading the progress while another node is the writer.

mod around;
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tracing::{error, info, warn};

use crate::clock::Clock;
use crate::id::{PostId, SourceId};
use crate::runtime::abort_on_exit::AbortOnExit;
use crate::state::world::World;
use crate::storage::archive::{ArchiveError, Due, ReplicatedArchive};
use crate::storage::sequence::Sequence;
use crate::throttle::Throttle;
use around::write_around;

/// Maximum number of changes in one batch.
const CHANGES_PER_BATCH: usize = 2_048;

/// Interval between two checks for due work.
const LOOK_PERIOD: Duration = Duration::from_millis(20);

/// Interval between two reads of the archive's progress, while nothing waits for it.
const IDLE_PERIOD: Duration = Duration::from_millis(500);

/// Delay before a failed write or read is retried.
const RETRY: Duration = Duration::from_secs(1);

/// Maximum number of sources named in one log line; the line gives the number of the others.
const NAMED_MAX: usize = 20;

/// Copies changed posts to the archive of a cluster.
pub struct ArchiveCopier {
    /// The world of this node.
    pub(crate) world: Arc<World>,
    /// Returns true while this node is the writer of the archive.
    pub(crate) is_writer: Box<dyn Fn() -> bool + Send>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Set when the engine is about to end.
    pub(crate) stopping: Arc<AtomicBool>,
}

/// The state of the copier while its node is the writer.
#[derive(Default)]
struct Turn {
    /// The full copy of memory in progress. It continues after a failure.
    everything: Option<Everything>,
    /// True once the copier has tried the entries of sources that an earlier writer held back.
    has_tried_held_back: bool,
}

/// A copy of all posts and tombstones that were in memory when it began.
struct Everything {
    /// The archive has everything up to this record after the copy.
    through: Sequence,
    /// The posts that are not copied yet, the next one last.
    left: Vec<PostId>,
    /// The sources whose entries were left out.
    left_out: BTreeSet<SourceId>,
}

impl ArchiveCopier {
    /// Starts the thread. It ends soon after `stopping` is set.
    pub(crate) fn start(self) -> std::io::Result<JoinHandle<()>> {
        let thread = thread::Builder::new().name("tidewire-copier".to_owned());
        thread.spawn(move || {
            let _abort_on_exit = AbortOnExit("archive copier");
            if let Some(archive) = self.world.replicated_archive() {
                self.run(archive);
            }
        })
    }

    fn run(&self, archive: &ReplicatedArchive) {
        let (mut turn, mut looked_at) = (None, self.clock.monotonic());
        let failures = Throttle::default();
        while !self.stopping.load(Ordering::Relaxed) {
            let is_writer = (self.is_writer)();
            let is_idle = self.clock.monotonic().saturating_sub(looked_at) < IDLE_PERIOD && !archive.is_awaited();
            let done = match (is_writer, &mut turn) {
                (true, None) => begin_turn(archive).map(|begun| turn = Some(begun)),
                (true, Some(turn)) => self.copy(archive, turn, is_idle),
                (false, _) if is_idle => Ok(()),
                (false, _) => archive.refresh(),
            };
            if !is_idle {
                looked_at = self.clock.monotonic();
            }
            if !is_writer {
                turn = None;
            }
            let wait = match done {
                Ok(()) => LOOK_PERIOD,
                Err(cause) => {
                    if let Some(left_out) = failures.due() {
                        warn!(
                            more_since_last = left_out,
                            "{}; posts stay in memory until a retry succeeds",
                            cause.with_sources()
                        );
                    }
                    RETRY
                }
            };
            thread::park_timeout(wait);
        }
    }

    /// Writes everything that is due. Progress without changed posts can wait while the archive `is_idle`.
    fn copy(&self, archive: &ReplicatedArchive, turn: &mut Turn, is_idle: bool) -> Result<(), ArchiveError> {
        self.try_held_back(archive, turn)?;
        while let Some(due) = archive.due(CHANGES_PER_BATCH) {
            if self.is_ending() {
                break;
            }
            match due {
                Due::Changed(ids, _) if ids.is_empty() && is_idle => break,
                Due::Changed(ids, through) => {
                    let mut left_out = BTreeSet::new();
                    self.write(archive, &ids, through, &mut left_out)?;
                    self.advance(archive, through, &left_out)?;
                }
                Due::Everything(through) => {
                    let everything = turn.everything.get_or_insert_with(|| self.begin_everything(through));
                    if !self.copy_everything(archive, everything)? {
                        break;
                    }
                    self.advance(archive, everything.through, &everything.left_out)?;
                    turn.everything = None;
                }
            }
        }
        Ok(())
    }

    /// Returns true if this thread must stop writing: the engine ends, or another node is the writer.
    fn is_ending(&self) -> bool {
        self.stopping.load(Ordering::Relaxed) || !(self.is_writer)()
    }

    fn begin_everything(&self, through: Sequence) -> Everything {
        let mut left = self.world.all_to_copy();
        info!("copying {} posts in memory to the archive, which lacks record {through}", left.len());
        left.reverse();
        Everything { through, left, left_out: BTreeSet::new() }
    }

    /// Copies the remaining posts. Returns false if the copy is interrupted.
    fn copy_everything(&self, archive: &ReplicatedArchive, copy: &mut Everything) -> Result<bool, ArchiveError> {
        while !copy.left.is_empty() {
            if self.is_ending() {
                return Ok(false);
            }
            let rest = copy.left.len().saturating_sub(CHANGES_PER_BATCH);
            self.write(archive, &copy.left[rest..], copy.through, &mut copy.left_out)?;
            copy.left.truncate(rest);
        }
        Ok(true)
    }

    /// Stores that the archive has everything up to a record, except entries of these sources. If there are any, their
    /// list is stored again first: an earlier writer may have changed it meanwhile.
    fn advance(
        &self,
        archive: &ReplicatedArchive,
        through: Sequence,
        left_out: &BTreeSet<SourceId>,
    ) -> Result<(), ArchiveError> {
        if !left_out.is_empty() {
            archive.hold_back(&(&archive.known_held_back()? | left_out))?;
        }
        // The progress of a deposed node is correct as well, but the new writer stores it.
        if self.is_ending() { Ok(()) } else { archive.advance(through) }
    }

    /// Writes changed posts. Adds to `left_out` the sources whose entries were left out: sources that are held back or
    /// already in `left_out`, and sources whose outboxes turn out to be damaged.
    fn write(
        &self,
        archive: &ReplicatedArchive,
        ids: &[PostId],
        as_of: Sequence,
        left_out: &mut BTreeSet<SourceId>,
    ) -> Result<(), ArchiveError> {
        if ids.is_empty() {
            return Ok(());
        }
        let known = &archive.known_held_back()? | left_out;
        {
            let _writing = archive.writing();
            let copied = self.world.copied(ids, as_of)?;
            if !copied.removed.removed.is_empty() {
                write_around(&**archive.shared(), copied.removed, &known, left_out)?;
            }
            write_around(&**archive.shared(), copied.rest, &known, left_out)?;
        }
        let new: Vec<SourceId> = left_out.difference(&known).cloned().collect();
        if !new.is_empty() {
            self.report(archive, &new);
        }
        Ok(())
    }

    /// Retries the entries of sources that an earlier writer held back: the damage may be repaired.
    fn try_held_back(&self, archive: &ReplicatedArchive, turn: &mut Turn) -> Result<(), ArchiveError> {
        if turn.has_tried_held_back {
            return Ok(());
        }
        let as_of = archive.applied();
        let held_back = archive.learn_held_back()?;
        // This node's memory has all entries of these sources only after it has applied everything that the archive
        // has.
        if !held_back.is_empty() && archive.shared().through()? > as_of {
            return Ok(());
        }
        let mut remaining = held_back.clone();
        for source in &held_back {
            let entries = self.world.entries_in_memory(source, as_of);
            let _writing = archive.writing();
            match archive.shared().write(&entries) {
                Ok(()) => drop(remaining.remove(source)),
                Err(ArchiveError::Damaged { .. }) => {}
                Err(cause) => return Err(cause),
            }
        }
        if remaining.len() < held_back.len() {
            archive.hold_back(&remaining)?;
            let written: Vec<SourceId> = held_back.difference(&remaining).cloned().collect();
            info!("the archive accepts the posts of {} again", named(&written));
        }
        turn.has_tried_held_back = true;
        Ok(())
    }

    fn report(&self, archive: &ReplicatedArchive, sources: &[SourceId]) {
        for source in sources.iter().filter_map(|id| self.world.sources.get(id)) {
            self.world.held_back.insert(source.slot);
        }
        error!(
            "the outboxes of {} are damaged in the archive {}; all nodes keep their posts in memory, and posts of other sources are still archived",
            named(sources),
            archive.shared().place()
        );
    }
}

/// Reads the state that another writer may have left, and begins a turn. That node may have written more than its
/// progress says. Edits of those posts must be copied as well.
fn begin_turn(archive: &ReplicatedArchive) -> Result<Turn, ArchiveError> {
    archive.shared().invalidate_all();
    archive.shared().refresh_ids()?;
    archive.refresh()?;
    Ok(Turn::default())
}

/// Returns the ids of some of the sources, and the number of the others.
fn named(sources: &[SourceId]) -> String {
    let names: Vec<&str> = sources.iter().take(NAMED_MAX).map(SourceId::as_str).collect();
    match sources.len() - names.len() {
        0 => names.join(", "),
        others => format!("{} and {others} others", names.join(", ")),
    }
}
