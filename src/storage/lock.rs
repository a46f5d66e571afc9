//! The lock on a data directory: only one process at a time may use the directory.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::Path;

use crate::storage::error::StorageError;
use crate::storage::files::guard;

/// A lock that is held while the process uses the directory. The operating system releases it when the process ends for any reason.
#[derive(Debug)]
pub struct DirectoryLock {
    file: File,
}

impl DirectoryLock {
    /// Acquires the lock, without waiting.
    ///
    /// # Errors
    /// Fails if another process holds the lock.
    pub fn take(directory: &Path) -> Result<Self, StorageError> {
        let path = directory.join("LOCK");
        let place = path.display().to_string();
        let mut options = OpenOptions::new();
        let open = guard::open(options.read(true).write(true).create(true).truncate(false), &path);
        let mut file = open.map_err(StorageError::io("open", &*place))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut process = String::new();
                // This is only for the message, which does not name the process if the read fails.
                let _ = (&file).take(20).read_to_string(&mut process);
                let process = process.trim();
                let holder = if process.is_empty() { String::new() } else { format!(" by process {process}") };
                return Err(StorageError::Locked { directory: directory.display().to_string(), holder });
            }
            Err(TryLockError::Error(cause)) => return Err(StorageError::io("lock", place)(cause)),
        }
        let process = format!("{}\n", std::process::id());
        // This is only for the message, too. On a full disk the write fails, and the lock is held nevertheless.
        let _ = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(process.as_bytes()));
        Ok(Self { file })
    }
}

impl Drop for DirectoryLock {
    /// Unlocks explicitly. Closing the file is not enough: a child process that is being started still has the file open until it executes
    /// its program.
    fn drop(&mut self) {
        // If this fails, the lock is released when the file is closed.
        let _ = self.file.unlock();
    }
}
