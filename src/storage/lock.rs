//! The lock on a data directory: one process at a time.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::Path;

use crate::storage::error::StorageError;
use crate::storage::files::guard;

/// Held for as long as the process works on the directory. The system gives it up when the process ends, however that is.
#[derive(Debug)]
pub struct DirectoryLock {
    file: File,
}

impl DirectoryLock {
    /// Takes the lock.
    ///
    /// # Errors
    /// When another process has it.
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
                // Only for the message: without it the message says less.
                let _ = (&file).take(20).read_to_string(&mut process);
                let process = process.trim();
                let holder = if process.is_empty() { String::new() } else { format!(" by process {process}") };
                return Err(StorageError::Locked { directory: directory.display().to_string(), holder });
            }
            Err(TryLockError::Error(cause)) => return Err(StorageError::io("lock", place)(cause)),
        }
        let process = format!("{}\n", std::process::id());
        // Only for the message, too: on a full disk there is no room for it, and the lock is held nevertheless.
        let _ = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(process.as_bytes()));
        Ok(Self { file })
    }
}

impl Drop for DirectoryLock {
    /// To close the file is not enough: a process that this one is just starting has it open as well until it runs.
    fn drop(&mut self) {
        // If that fails, the lock ends with the file.
        let _ = self.file.unlock();
    }
}
