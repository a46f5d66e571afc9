//! The archive copier: the thread of a node that copies changed posts to the archive of the cluster, behind the log.
//!
//! Responsible for:
//! - writing what changed while this node is the one to write, and storing how far the archive has come;
//! - writing around sources whose outboxes are damaged in the archive (`around`), and writing their entries once that is repaired;
//! - reading how far it has come while another node writes.

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

/// Time between two looks at what is due.
const LOOK_PERIOD: Duration = Duration::from_millis(20);

/// Time between two times that the archive is asked how far it has come, while nothing waits for that.
const IDLE_PERIOD: Duration = Duration::from_millis(500);

/// Time until a failed write or read is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Maximum number of sources named in one line of the log; the others are counted.
const NAMED_MAX: usize = 20;

/// Copies changed posts to the archive of a cluster.
pub struct ArchiveCopier {
    /// The world of this node.
    pub(crate) world: Arc<World>,
    /// Returns true while this node is the one to write.
    pub(crate) is_writer: Box<dyn Fn() -> bool + Send>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Set when the engine is about to end.
    pub(crate) stopping: Arc<AtomicBool>,
}

/// What the copier knows while its node is the one to write.
#[derive(Default)]
struct Turn {
    /// The copy of all of memory that is under way: a failure does not begin it anew.
    everything: Option<Everything>,
    /// True once the entries of sources that an earlier writer held back were tried.
    has_tried_held_back: bool,
}

/// A copy of all posts and tombstones that were in memory when it began.
struct Everything {
    /// The archive has everything up to this record once it is done.
    through: Sequence,
    /// Those that are not copied yet, the next one last.
    left: Vec<PostId>,
    /// The sources of which entries were left out.
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

    /// Returns true if this thread must not go on: the engine ends, or another node is the one to write.
    fn is_ending(&self) -> bool {
        self.stopping.load(Ordering::Relaxed) || !(self.is_writer)()
    }

    fn begin_everything(&self, through: Sequence) -> Everything {
        let mut left = self.world.all_to_copy();
        info!("copying {} posts in memory to the archive, which does not have record {through}", left.len());
        left.reverse();
        Everything { through, left, left_out: BTreeSet::new() }
    }

    /// Copies what is left. Returns false if the copy ends before all of it was copied.
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

    /// Stores that the archive has everything up to a record, except entries of these sources. A node that was the one to write before may have
    /// changed the list of them meanwhile, so it is stored again if this progress relies on it.
    fn advance(
        &self,
        archive: &ReplicatedArchive,
        through: Sequence,
        left_out: &BTreeSet<SourceId>,
    ) -> Result<(), ArchiveError> {
        if !left_out.is_empty() {
            archive.hold_back(&(&archive.held_back()? | left_out))?;
        }
        // The progress of a deposed node is true, too, but is no longer its task.
        if self.is_ending() { Ok(()) } else { archive.advance(through) }
    }

    /// Writes changed posts. Adds to `left_out` the sources of which entries were left out: those that are held back or in `left_out` already, and
    /// those whose outboxes turn out to be damaged.
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
        let known = &archive.held_back()? | left_out;
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

    /// Tries to write the entries of sources that an earlier writer held back: what was damaged may be repaired.
    fn try_held_back(&self, archive: &ReplicatedArchive, turn: &mut Turn) -> Result<(), ArchiveError> {
        if turn.has_tried_held_back {
            return Ok(());
        }
        let as_of = archive.applied();
        let held_back = archive.learn_held_back()?;
        // Until this node has applied all that the archive lacks of them, its memory does not have all of their entries.
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
            info!("the archive takes the posts of {} again", named(&written));
        }
        turn.has_tried_held_back = true;
        Ok(())
    }

    fn report(&self, archive: &ReplicatedArchive, sources: &[SourceId]) {
        for source in sources.iter().filter_map(|id| self.world.sources.get(id)) {
            self.world.held_back.insert(source.slot);
        }
        error!(
            "the outboxes of {} are damaged in the archive {}; their posts are kept in memory by all nodes, and posts of other sources are still archived",
            named(sources),
            archive.shared().place()
        );
    }
}

/// Learns what another node may have written, and returns the beginning of a turn. It may have come further, and have written more than its
/// progress says. Edits of what it has written count.
fn begin_turn(archive: &ReplicatedArchive) -> Result<Turn, ArchiveError> {
    archive.shared().forget_all();
    archive.shared().learn_ids()?;
    archive.refresh()?;
    Ok(Turn::default())
}

/// Returns the ids of some sources, and the number of the others.
fn named(sources: &[SourceId]) -> String {
    let names: Vec<&str> = sources.iter().take(NAMED_MAX).map(SourceId::as_str).collect();
    match sources.len() - names.len() {
        0 => names.join(", "),
        others => format!("{} and {others} others", names.join(", ")),
    }
}
