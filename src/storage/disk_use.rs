//! The disk usage of the data directory and the free space, as last measured.
//!
//! A query to the disk may block for as long as the disk does not answer. So one background thread measures, and all others read its last
//! result.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::storage::files::Files;
use crate::storage::{archive, retained, segment, snapshot};

/// Bytes of the files in a data directory, by kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StoredBytes {
    /// All segments of the journal.
    pub journal: u64,
    /// Segments that are retained for consumers of changes.
    pub changes: u64,
    /// All complete snapshots.
    pub snapshots: u64,
    /// The archive on this disk, with its checksums.
    pub archive: u64,
    /// All other files, such as damaged ones that were set aside.
    pub other: u64,
}

impl StoredBytes {
    fn of(files: &dyn Files) -> io::Result<Self> {
        let mut stored = Self::default();
        for name in files.list()? {
            let kind = if segment::parse_name(&name).is_some() {
                &mut stored.journal
            } else if retained::parse_name(&name).is_some() {
                &mut stored.changes
            } else if snapshot::parse_name(&name).is_some() {
                &mut stored.snapshots
            } else if [archive::FILE, archive::SUMS_FILE].contains(&&*name) {
                &mut stored.archive
            } else {
                &mut stored.other
            };
            // A listed file may have been removed meanwhile.
            *kind += files.bytes_of(&name).unwrap_or(0);
        }
        Ok(stored)
    }
}

/// The last measurement of the disk.
#[derive(Clone, Debug, Default)]
pub struct DiskUse(Arc<Mutex<(Option<u64>, StoredBytes)>>);

impl DiskUse {
    /// Measures the disk, and stores the result.
    pub fn measure(&self, files: &dyn Files) {
        // Measured without the lock: otherwise readers would wait for the disk.
        let (free, stored) = (files.free_bytes().ok().flatten(), StoredBytes::of(files));
        let mut last = self.0.lock();
        last.0 = free;
        // Without free file descriptors the directory cannot be listed, though it is not empty.
        last.1 = stored.unwrap_or(last.1);
    }

    /// Returns the bytes that were free, or none if that is unknown.
    pub fn free_bytes(&self) -> Option<u64> {
        self.0.lock().0
    }

    /// Returns the bytes of the files.
    pub fn stored_bytes(&self) -> StoredBytes {
        self.0.lock().1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::files::memory::MemoryFiles;
    use crate::storage::sequence::Sequence;

    #[test]
    fn each_file_is_counted_by_the_kind_of_its_name() {
        let files = MemoryFiles::default();
        let disk = DiskUse::default();
        disk.measure(&files);
        assert_eq!((disk.free_bytes(), disk.stored_bytes()), (None, StoredBytes::default()));
        let names = [
            (segment::name(Sequence(1)), 1),
            (segment::name(Sequence(900)), 10),
            (snapshot::name(Sequence(899)), 100),
            (archive::FILE.to_owned(), 1_000),
            (archive::SUMS_FILE.to_owned(), 10_000),
            (snapshot::name(Sequence(3)) + ".damaged", 100_000),
            ("identity".to_owned(), 1_000_000),
            ("changes-00000000000000000001-00000000000000000009-00000000000000000002.log".to_owned(), 3),
        ];
        names.iter().for_each(|(name, bytes)| files.put(name, vec![7; *bytes]));
        files.limit(Some(1_111_114 + 5));
        disk.measure(&files);
        let stored = StoredBytes { journal: 11, changes: 3, snapshots: 100, archive: 11_000, other: 1_100_000 };
        assert_eq!((disk.free_bytes(), disk.stored_bytes()), (Some(5), stored));
    }
}
