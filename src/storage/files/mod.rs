//! The file operations that storage needs, as a trait, so that tests can replace the disk.
//!
//! Responsible for:
//! - the operations, and the guarantee of each for a power loss.

pub mod disk;
pub mod faulty;
pub mod guard;
pub mod memory;

use std::io::{self, Read};
use std::sync::Arc;

use crate::storage::identity::Identity;

/// One flat directory of files.
pub trait Files: Send + Sync + 'static {
    /// Returns the names of all files.
    ///
    /// # Errors
    /// Fails if the directory cannot be read.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Creates a new, empty file. Its name survives a power loss after [`Files::sync_directory`].
    ///
    /// # Errors
    /// Fails if a file of this name exists, or the file cannot be created.
    fn create(&self, name: &str) -> io::Result<Arc<dyn AppendFile>>;

    /// Opens an existing file for appending, and truncates it to its first `keep_bytes` bytes.
    ///
    /// # Errors
    /// Fails if the file does not exist or cannot be written.
    fn reopen(&self, name: &str, keep_bytes: u64) -> io::Result<Arc<dyn AppendFile>>;

    /// Returns a reader of the file's content from its start, and its length in bytes.
    ///
    /// # Errors
    /// Fails if the file does not exist or cannot be read.
    fn read(&self, name: &str) -> io::Result<(Box<dyn Read + Send>, u64)>;

    /// Returns a reader of the file's content from byte `offset_bytes` on. It is at its end at once if the file is shorter.
    ///
    /// # Errors
    /// Fails if the file does not exist or cannot be read.
    fn read_from(&self, name: &str, offset_bytes: u64) -> io::Result<Box<dyn Read + Send>> {
        let (mut reader, _) = self.read(name)?;
        io::copy(&mut (&mut reader).take(offset_bytes), &mut io::sink())?;
        Ok(reader)
    }

    /// Returns the length of a file in bytes.
    ///
    /// # Errors
    /// Fails if the file does not exist or cannot be read.
    fn bytes_of(&self, name: &str) -> io::Result<u64> {
        self.read(name).map(|(_, bytes)| bytes)
    }

    /// Renames a file. A file that has the new name is replaced.
    ///
    /// # Errors
    /// Fails if the file does not exist, or the directory cannot be written.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file of the directory.
    ///
    /// # Errors
    /// Fails if the file does not exist, or the directory cannot be written.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes all current names survive a power loss.
    ///
    /// # Errors
    /// Fails if it is not certain that the names are durable.
    fn sync_directory(&self) -> io::Result<()>;

    /// Returns the bytes that this user may still write to the disk, or none if that is unknown.
    ///
    /// # Errors
    /// Fails if the disk does not report them.
    fn free_bytes(&self) -> io::Result<Option<u64>> {
        Ok(None)
    }

    /// The identity of the directory, if it is known. New segments and snapshots contain it.
    fn identity(&self) -> Option<Identity> {
        None
    }

    /// Returns the path of a file, for messages.
    fn place(&self, name: &str) -> String;
}

/// The end of the name of a file that is not complete.
pub const UNFINISHED: &str = ".unfinished";

/// Writes a whole file, and replaces any file with this name. It survives a power loss. A power loss during the write leaves the old or
/// the new content.
///
/// # Errors
/// Fails if it is not certain that the file is durable. An unfinished file may remain then.
pub fn replace(files: &dyn Files, name: &str, content: &[u8]) -> io::Result<()> {
    let unfinished = format!("{name}{UNFINISHED}");
    // A process that died before the rename may have left this file.
    let _ = files.remove(&unfinished);
    let file = files.create(&unfinished)?;
    file.append(content)?;
    file.sync()?;
    files.rename(&unfinished, name)?;
    files.sync_directory()
}

/// A file that is open for appending.
pub trait AppendFile: Send + Sync + 'static {
    /// Appends all of `bytes` to the file.
    ///
    /// # Errors
    /// After an error any part of `bytes` may have been written.
    fn append(&self, bytes: &[u8]) -> io::Result<()>;

    /// Truncates the file to its first `keep_bytes` bytes.
    ///
    /// # Errors
    /// If this fails, the file is presumably unchanged.
    fn cut(&self, keep_bytes: u64) -> io::Result<()>;

    /// Makes the current content survive a power loss.
    ///
    /// # Errors
    /// After an error it is unknown which unsynced data is durable, even if a later call succeeds.
    fn sync(&self) -> io::Result<()>;
}

/// Returns true if the disk or the quota of this user was full: the operation may succeed once there is space.
pub fn is_full(cause: &io::Error) -> bool {
    matches!(cause.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// EMFILE and ENFILE, which have the same numbers on all Unix systems: this process or the whole system has reached its limit of open
/// files.
const TOO_MANY_OPEN: [i32; 2] = [24, 23];

/// Returns true if the system could not open another file because it has no free descriptors or memory. Nothing was done, and the operation
/// may succeed once other files are closed.
pub fn is_out_of_files(cause: &io::Error) -> bool {
    let is_too_many = cfg!(unix) && cause.raw_os_error().is_some_and(|error| TOO_MANY_OPEN.contains(&error));
    is_too_many || cause.kind() == io::ErrorKind::OutOfMemory
}
