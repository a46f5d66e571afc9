//! Removal of the files that a snapshot makes superfluous.

use crate::limits::SNAPSHOTS_KEPT;
use crate::runtime::background::snapshotter::Snapshotter;
use crate::storage::archive;
use crate::storage::error::StorageError;
use crate::storage::journal::{Sequence, reader};
use crate::storage::segment;
use crate::storage::snapshot::{self, SnapshotReader, UNFINISHED};

impl Snapshotter {
    /// Keeps the newest snapshots, and the segments with events after the oldest of them. If `alone`, keeps no file
    /// that is older than the snapshot that was just taken.
    pub(super) fn drop_superfluous(&self, taken: Sequence, alone: bool) -> Result<(), StorageError> {
        let files = &*self.files;
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
        let segments = reader::segments(files)?;
        for pair in segments.windows(2) {
            let next_first: Sequence = pair[1].1;
            if next_first <= oldest.next() {
                self.remove(&pair[0].0)?;
            }
        }
        if alone { self.remove_damaged() } else { Ok(()) }
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
