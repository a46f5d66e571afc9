//! The reason why a journal stores no events now, and the probe that detects when it can store them again.

use std::io;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::storage::files::Files;
use crate::storage::journal::JournalError;

/// The name of the file that a probe writes.
const FILE: &str = "space.probe";

/// Minimum bytes that a probe writes: the size of a group of many small events.
const PROBE_BYTES_MIN: usize = 256 * 1024;

/// The reason why the journal of this process stores no events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteRefusal {
    /// The disk is full. Events are stored again once there is space.
    DiskFull,
    /// The system cannot open another file. Events are stored again once other files are closed.
    OutOfFiles,
    /// The content on disk is unknown. No events are stored until a restart.
    JournalFailed,
}

impl WriteRefusal {
    /// All reasons, as metrics list them.
    pub const ALL: [Self; 3] = [Self::DiskFull, Self::OutOfFiles, Self::JournalFailed];

    /// Returns the code of the error that callers get.
    pub fn code(self) -> &'static str {
        match self {
            Self::DiskFull => "disk_full",
            Self::OutOfFiles => "out_of_files",
            Self::JournalFailed => "journal_failed",
        }
    }
}

/// The reason why the last write was refused, which other threads may read. It ends with the next write or probe that succeeds.
#[derive(Debug, Default)]
pub(super) struct LastRefusal(AtomicU8);

impl LastRefusal {
    /// Records the outcome of a write or of a probe. A failure of the journal is recorded elsewhere, since it never ends.
    pub(super) fn note(&self, outcome: &Result<(), JournalError>) {
        let refusal = match outcome {
            Err(JournalError::DiskFull { .. }) => 1,
            Err(JournalError::OutOfFiles { .. }) => 2,
            Ok(()) | Err(JournalError::Unavailable(_) | JournalError::Failed(_)) => 0,
        };
        self.0.store(refusal, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> Option<WriteRefusal> {
        match self.0.load(Ordering::Relaxed) {
            1 => Some(WriteRefusal::DiskFull),
            2 => Some(WriteRefusal::OutOfFiles),
            _ => None,
        }
    }
}

/// Writes a file of `bytes` bytes, or more, and removes it.
///
/// # Errors
/// Fails if it could not be created, written and synced.
pub(super) fn probe(files: &dyn Files, bytes: usize) -> io::Result<()> {
    remove_left(files);
    let file = files.create(FILE)?;
    // Random, since a file system that compresses would find room for zeros.
    let content: Vec<u8> = std::iter::repeat_with(|| fastrand::u8(..)).take(bytes.max(PROBE_BYTES_MIN)).collect();
    let written = file.append(&content).and_then(|()| file.sync());
    drop(file);
    files.remove(FILE).and(written)
}

/// Removes the file of a probe that a killed process left. If that fails, it only occupies disk space.
pub(super) fn remove_left(files: &dyn Files) {
    if files.list().is_ok_and(|names| names.iter().any(|name| name == FILE)) {
        let _ = files.remove(FILE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::files::memory::MemoryFiles;

    #[test]
    fn a_probe_checks_for_the_requested_bytes_and_leaves_no_file() {
        let files = MemoryFiles::default();
        files.put("other", vec![7; 10]);
        for (bytes, most, is_found) in [
            (0, 10 + PROBE_BYTES_MIN, true),
            (0, 9 + PROBE_BYTES_MIN, false),
            (300_000, 300_010, true),
            (300_000, 300_009, false),
        ] {
            // A process that is killed during a probe leaves this file.
            files.put(FILE, vec![7; 1000]);
            files.limit(Some(most as u64));
            let found = probe(&files, bytes);
            assert_eq!(found.is_ok(), is_found, "{bytes} bytes where {most} fit: {found:?}");
            assert_eq!(files.list().unwrap(), ["other"]);
        }
    }
}
