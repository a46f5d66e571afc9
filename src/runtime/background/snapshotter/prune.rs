//! Removal of the files that a snapshot makes superfluous.

use std::sync::atomic::Ordering;

use tracing::warn;

use crate::limits::{JOURNAL_KEPT_FOR_BACKUP_BYTES_MAX, SNAPSHOTS_KEPT};
use crate::runtime::background::snapshotter::Snapshotter;
use crate::storage::archive;
use crate::storage::error::StorageError;
use crate::storage::journal::{Sequence, reader};
use crate::storage::segment;
use crate::storage::snapshot::{self, SnapshotReader, UNFINISHED};

impl Snapshotter {
    /// Keeps the newest snapshots, and the segments with events after the oldest of them. With `journal_from`, keeps of all snapshots only the
    /// one that was just taken, and the segments with events from that one on.
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
        for name in self.superfluous_segments(*oldest, journal_from)? {
            self.remove(&name)?;
        }
        if alone { self.remove_damaged() } else { Ok(()) }
    }

    /// Returns the segments that no snapshot from `oldest` on needs. Of these, the ones with events from `journal_from` on are kept; without
    /// it, the newest ones that no backup has.
    fn superfluous_segments(
        &self,
        oldest: Sequence,
        journal_from: Option<Sequence>,
    ) -> Result<Vec<String>, StorageError> {
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
        segments.truncate(count - kept);
        Ok(segments.into_iter().map(|(name, _)| name).collect())
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
        let is_of_events = |stem: &str| snapshot::parse_name(stem).is_some() || segment::parse_name(stem).is_some();
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
    fn segments_that_wait_for_a_backup_take_a_limited_space() {
        const MAX: u64 = JOURNAL_KEPT_FOR_BACKUP_BYTES_MAX;
        for (bytes, expected) in
            [(&[][..], 0), (&[1, 2], 2), (&[MAX], 1), (&[MAX, 1], 1), (&[MAX + 1], 0), (&[MAX - 1, 1, 1], 2)]
        {
            assert_eq!(kept_for_backup(bytes), expected, "{bytes:?}");
        }
    }
}
