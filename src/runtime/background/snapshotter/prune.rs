//! Removal of the files that a snapshot makes superfluous.

use std::sync::atomic::Ordering;

use tracing::warn;

use crate::limits::{JOURNAL_KEPT_FOR_BACKUP_BYTES_MAX, SNAPSHOTS_KEPT};
use crate::runtime::background::snapshotter::Snapshotter;
use crate::storage::archive;
use crate::storage::error::StorageError;
use crate::storage::files::UNFINISHED;
use crate::storage::journal::{Sequence, reader};
use crate::storage::retained::{self, Candidate, EventFile, Retained};
use crate::storage::segment;
use crate::storage::snapshot::{self, SnapshotReader};

impl Snapshotter {
    /// Keeps the newest snapshots, and the segments with events after the oldest of them; older segments are retained as long as consumers of
    /// changes may need them. With `journal_from`, keeps of all snapshots only the one that was just taken, and the segments with events from
    /// that one on; of the older ones it keeps what the erasure has rewritten.
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
        self.retire(&self.superfluous_segments(*oldest, journal_from)?, alone)?;
        if alone { self.remove_damaged() } else { Ok(()) }
    }

    /// Returns the segments that no snapshot from `oldest` on needs, and the first event after them. Of these, the ones with events from
    /// `journal_from` on are kept; without it, the newest ones that no backup has.
    fn superfluous_segments(
        &self,
        oldest: Sequence,
        journal_from: Option<Sequence>,
    ) -> Result<Superfluous, StorageError> {
        let mut segments = reader::segments(&*self.files)?;
        let kept_from = journal_from.map_or(oldest.next(), |from| from.min(oldest.next()));
        let is_superfluous = |pair: &[(String, Sequence)]| pair[1].1 <= kept_from;
        let backed_up = Sequence(self.shared.backed_up.load(Ordering::Relaxed));
        let count = segments.windows(2).filter(|pair| is_superfluous(pair)).count();
        // The one with the last copied event stays as well: by it the next start knows that the backup has the history of this directory.
        let needed = segments.windows(2).take(count).filter(|pair| pair[1].1 > backed_up).count();
        segments.truncate(count);
        let needed = if journal_from.is_some() { 0 } else { needed };
        let mut bytes = Vec::with_capacity(needed);
        for (name, _) in segments.iter().rev().take(needed) {
            bytes.push(self.files.read(name).map_err(StorageError::io("read", self.files.place(name)))?.1);
        }
        let kept = kept_for_backup(&bytes);
        if kept < needed {
            warn!("{} segments of the journal are removed before any backup has them", needed - kept);
        }
        let next = segments.get(count - kept).map_or(kept_from, |(_, first)| *first);
        segments.truncate(count - kept);
        Ok(Superfluous { segments: segments.into_iter().map(|(_, first)| first).collect(), next })
    }

    /// Retains segments that the journal needs no longer, and removes them and older ones where that is not wanted. With `removes_all`, these
    /// are not retained: what may be read of them was written before.
    fn retire(&self, Superfluous { segments, next }: &Superfluous, removes_all: bool) -> Result<(), StorageError> {
        let files = &*self.files;
        let Retained { current, obsolete } = retained::list(files)?;
        let of_journal = |first: &Sequence| EventFile { first: *first, retained_since: None };
        // Of a segment that an erasure has rewritten, the rewritten one stays.
        let (gone, candidates): (Vec<Sequence>, Vec<Sequence>) = segments
            .iter()
            .copied()
            .partition(|first| removes_all || current.binary_search_by_key(first, |file| file.first).is_ok());
        let mut all = current;
        all.extend(candidates.iter().map(of_journal));
        all.sort_unstable_by_key(|file| file.first);
        let now = self.shared.clock.now();
        let mut newest_first = Vec::with_capacity(all.len());
        let mut after = *next;
        for file in all.iter().rev() {
            let bytes = files.bytes_of(&file.name()).map_err(StorageError::io("read", files.place(&file.name())))?;
            let last = Sequence(after.0.saturating_sub(1));
            newest_first.push(Candidate { last, since: file.retained_since.unwrap_or(now), bytes });
            after = file.first;
        }
        let retention = self.shared.changes_retention();
        let kept = retention.map_or(0, |retention| retention.kept(newest_first, now));
        let (removed, kept) = all.split_at(all.len() - kept);
        // The oldest first, so that there is no gap between those that are left if this is interrupted.
        removed.iter().map(|file| file.name()).chain(obsolete).try_for_each(|name| self.remove(&name))?;
        for file in kept.iter().filter(|file| file.retained_since.is_none()) {
            let (name, retained) = (file.name(), EventFile { retained_since: Some(now), ..*file }.name());
            files.rename(&name, &retained).map_err(StorageError::io("rename", files.place(&name)))?;
        }
        gone.iter().map(of_journal).try_for_each(|file| self.remove(&file.name()))?;
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

/// Segments of the journal that no snapshot needs.
struct Superfluous {
    /// The first event of each.
    segments: Vec<Sequence>,
    /// The first event after them.
    next: Sequence,
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
    fn segments_that_wait_for_a_backup_take_a_limited_space() {
        const MAX: u64 = JOURNAL_KEPT_FOR_BACKUP_BYTES_MAX;
        for (bytes, expected) in
            [(&[][..], 0), (&[1, 2], 2), (&[MAX], 1), (&[MAX, 1], 1), (&[MAX + 1], 0), (&[MAX - 1, 1, 1], 2)]
        {
            assert_eq!(kept_for_backup(bytes), expected, "{bytes:?}");
        }
    }
}
