//! Removal of the files that a snapshot makes superfluous.

use std::sync::atomic::Ordering;

use tracing::warn;

use crate::limits::{JOURNAL_KEPT_FOR_BACKUP_BYTES_MAX, SNAPSHOTS_KEPT};
use crate::runtime::background::snapshotter::Snapshotter;
use crate::storage::archive;
use crate::storage::error::StorageError;
use crate::storage::files::UNFINISHED;
use crate::storage::journal::space::WriteRefusal;
use crate::storage::retained::{self, EventFile, EventFiles};
use crate::storage::segment;
use crate::storage::sequence::Sequence;
use crate::storage::snapshot::{self, SnapshotReader};

impl Snapshotter {
    /// Keeps the newest snapshots, and the segments with events after the oldest of them. Retains older segments as
    /// long as consumers of changes may need them. With `journal_from`, keeps only the snapshot that was just taken,
    /// the segments with events from `journal_from` on, and the segments that the erasure has rewritten.
    pub(super) fn drop_superfluous(&self, taken: Sequence, journal_from: Option<Sequence>) -> Result<(), StorageError> {
        let (files, alone) = (&*self.files, journal_from.is_some());
        if alone {
            // From here on no older snapshot is available as a fallback.
            self.read_through(taken)?;
        }
        let kept = if alone { 1 } else { SNAPSHOTS_KEPT };
        let snapshots = snapshot::snapshots(files)?;
        for (name, _) in snapshots.iter().skip(kept) {
            self.remove(name)?;
        }
        let Some((_, oldest)) = snapshots.get(kept - 1) else { return Ok(()) };
        // The directory entries of the snapshots must be durable before the files they replace are removed.
        files.sync_directory().map_err(StorageError::io("sync the directory", files.place("")))?;
        let listed = EventFiles::list(files)?;
        let count = self.superfluous_segments(&listed.journal, *oldest, journal_from)?;
        self.retire(listed, count, alone)?;
        if alone { self.remove_damaged() } else { Ok(()) }
    }

    /// Returns how many segments, from the oldest on, can be removed because no snapshot from `oldest` on needs them.
    /// Keeps segments with events from `journal_from` on, or, without it, the newest segments that no backup has.
    fn superfluous_segments(
        &self,
        segments: &[EventFile],
        oldest: Sequence,
        journal_from: Option<Sequence>,
    ) -> Result<usize, StorageError> {
        let kept_from = journal_from.map_or(oldest.next(), |from| from.min(oldest.next()));
        let backed_up = Sequence(self.shared.backed_up.load(Ordering::Relaxed));
        let count = segments.iter().take_while(|file| file.last < kept_from).count();
        // The segment with the last backed-up event stays as well. It shows the next start that the backup has the
        // history of this directory.
        let needed = segments.iter().take(count).filter(|file| file.last >= backed_up).count();
        let needed = if journal_from.is_some() { 0 } else { needed };
        let mut bytes = Vec::with_capacity(needed);
        for name in segments[..count].iter().rev().take(needed).map(|file| file.name()) {
            bytes.push(self.files.bytes_of(&name).map_err(StorageError::io("read", self.files.place(&name)))?);
        }
        let kept = kept_for_backup(&bytes);
        if kept < needed {
            warn!("removing {} journal segments that no backup has", needed - kept);
        }
        Ok(count - kept)
    }

    /// Removes retained segments that consumers no longer need.
    pub(super) fn drop_retained(&self) -> Result<(), StorageError> {
        // An erasure may be writing them. The next check tries again.
        let Some(_no_erasure_step) = self.shared.world.sources.erasures().try_hold_snapshots() else { return Ok(()) };
        self.retire(EventFiles::list(&*self.files)?, 0, false)
    }

    /// Renames the first `count` segments of the journal to retained ones if consumers may need them. Removes the
    /// others, and retained segments that no consumer needs. With `alone` it renames none: the eraser has already
    /// written the segments that consumers may read.
    fn retire(&self, listed: EventFiles, count: usize, alone: bool) -> Result<(), StorageError> {
        let files = &*self.files;
        let EventFiles { mut journal, retained: mut all, obsolete } = listed;
        journal.truncate(count);
        let is_rewritten = |file: &EventFile| all.iter().any(|other| other.first == file.first);
        // After an erasure is scrubbed, a later process cannot know which segments name its user.
        let may_retain = !alone && !self.shared.world.sources.erasures().any_scrubbed();
        let (gone, candidates): (Vec<_>, Vec<_>) =
            journal.into_iter().partition(|file| !may_retain || is_rewritten(file));
        let gap = gone.iter().rfind(|file| !is_rewritten(file)).map(|file| file.last);
        all.extend(candidates);
        all.sort_unstable();
        // From here on, no consumer can register that needs the removed files.
        let _journal = self.shared.change_consumers.hold_journal();
        let now = self.shared.clock.now();
        let is_full = self.figures.refusal() == Some(WriteRefusal::DiskFull);
        let oldest = all.first().map_or(Sequence(u64::MAX), |file| file.first);
        let retention = self.shared.changes_retention(oldest).filter(|_| !is_full);
        let kept = retention.map_or(Ok(0), |retention| retention.kept(files, &all, now))?;
        let from = gap.map_or(0, |gap| all.partition_point(|file| file.last <= gap)).max(all.len() - kept);
        let (removed, kept) = all.split_at(from);
        if is_full && !removed.is_empty() {
            warn!("the disk is full; removing {} segments that consumers of changes may need", removed.len());
        }
        if removed.is_empty() && obsolete.is_empty() && gone.is_empty() && kept.iter().all(EventFile::is_retained) {
            return Ok(());
        }
        // Obsolete files first: without their later versions they would be valid again. Then the oldest first, so that
        // an interruption leaves no gap between the remaining ones.
        obsolete.into_iter().chain(removed.iter().map(|file| file.name())).try_for_each(|name| self.remove(&name))?;
        for file in kept.iter().filter(|file| !file.is_retained()) {
            let (name, retained) = (file.name(), EventFile { retained_since: Some(now), ..*file }.name());
            files.rename(&name, &retained).map_err(StorageError::io("rename", files.place(&name)))?;
        }
        gone.iter().try_for_each(|file| self.remove(&file.name()))?;
        files.sync_directory().map_err(StorageError::io("sync the directory", files.place("")))
    }

    /// Verifies that a snapshot can be read completely.
    fn read_through(&self, taken: Sequence) -> Result<(), StorageError> {
        let mut reader = SnapshotReader::open(&*self.files, &snapshot::name(taken))?;
        while reader.next_block()?.is_some() {}
        Ok(())
    }

    /// Removes files that were set aside or never finished, and syncs the directory, so that a power loss does not
    /// bring any back. An unfinished archive is not removed here: it may be a rewrite in progress, and it is removed
    /// by other means.
    fn remove_damaged(&self) -> Result<(), StorageError> {
        let files = &*self.files;
        let there = files.list().map_err(StorageError::io("read the directory", files.place("")))?;
        let is_of_events = |stem: &str| {
            let is_segment = segment::parse_name(stem).is_some() || retained::parse_name(stem).is_some();
            is_segment || snapshot::parse_name(stem).is_some()
        };
        let is_left = |name: &&String| match (name.strip_suffix(UNFINISHED), name.split_once(".damaged")) {
            (Some(stem), _) => is_of_events(stem),
            (None, Some((stem, _))) => is_of_events(stem) || [archive::FILE, archive::SUMS_FILE].contains(&stem),
            (None, None) => false,
        };
        there.iter().filter(is_left).try_for_each(|name| self.remove(name))?;
        files.sync_directory().map_err(StorageError::io("sync the directory", files.place("")))
    }

    fn remove(&self, name: &str) -> Result<(), StorageError> {
        self.files.remove(name).map_err(StorageError::io("remove", self.files.place(name)))
    }
}

/// Returns how many segments of these sizes, newest first, are kept for a backup.
fn kept_for_backup(bytes: &[u64]) -> usize {
    let mut all = 0;
    let is_kept = |bytes: &&u64| {
        all += **bytes;
        all <= JOURNAL_KEPT_FOR_BACKUP_BYTES_MAX
    };
    bytes.iter().take_while(is_kept).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_kept_for_a_backup_are_limited_in_bytes() {
        const MAX: u64 = JOURNAL_KEPT_FOR_BACKUP_BYTES_MAX;
        for (bytes, expected) in
            [(&[][..], 0), (&[1, 2], 2), (&[MAX], 1), (&[MAX, 1], 1), (&[MAX + 1], 0), (&[MAX - 1, 1, 1], 2)]
        {
            assert_eq!(kept_for_backup(bytes), expected, "{bytes:?}");
        }
    }
}
