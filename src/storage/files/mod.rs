//! Files: the little that storage asks of a file system, so that tests can own the disk.
//!
//! Responsible for:
//! - naming the operations and what each promises about power loss.
//!
//! Not responsible for:
//! - what is in the files, in which order they are written (`storage::journal`, `storage::snapshot`).

pub mod disk;
pub mod faulty;
pub mod guard;
pub mod memory;

use std::io::{self, Read};
use std::sync::Arc;

use crate::storage::identity::Identity;

/// One flat directory of files.
pub trait Files: Send + Sync + 'static {
    /// The names of all files.
    ///
    /// # Errors
    /// When the directory cannot be read.
    fn list(&self) -> io::Result<Vec<String>>;

    /// A new, empty file. Its name survives power loss after [`Files::sync_directory`].
    ///
    /// # Errors
    /// When there is a file of this name, or none can be made.
    fn create(&self, name: &str) -> io::Result<Arc<dyn AppendFile>>;

    /// A file that is there, cut to its first `keep_bytes` bytes, to append to.
    ///
    /// # Errors
    /// When there is none, or it cannot be written.
    fn reopen(&self, name: &str, keep_bytes: u64) -> io::Result<Arc<dyn AppendFile>>;

    /// A file's content, from its start, and its length in bytes.
    ///
    /// # Errors
    /// When there is none, or it cannot be read.
    fn read(&self, name: &str) -> io::Result<(Box<dyn Read + Send>, u64)>;

    /// Gives a file another name; a file that had it is gone.
    ///
    /// # Errors
    /// When there is no such file, or the directory cannot be written.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Takes a file away.
    ///
    /// # Errors
    /// When there is none, or the directory cannot be written.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes all names as they are now survive power loss.
    ///
    /// # Errors
    /// When that cannot be known to have happened.
    fn sync_directory(&self) -> io::Result<()>;

    /// The identity of the directory, if it is known: what is made there carries it.
    fn identity(&self) -> Option<Identity> {
        None
    }

    /// Where a file is, for messages to people.
    fn place(&self, name: &str) -> String;
}

/// A file that is written at its end.
pub trait AppendFile: Send + Sync + 'static {
    /// Appends all of `bytes`.
    ///
    /// # Errors
    /// After an error any part of them may be there.
    fn append(&self, bytes: &[u8]) -> io::Result<()>;

    /// Drops everything after the first `keep_bytes` bytes.
    ///
    /// # Errors
    /// When the file is as it was, as far as is known.
    fn cut(&self, keep_bytes: u64) -> io::Result<()>;

    /// Makes the content as it is now survive power loss.
    ///
    /// # Errors
    /// After an error nothing is known of what was not synced before, whatever a later call says.
    fn sync(&self) -> io::Result<()>;
}

/// Whether there was no room, or none for this user: what was refused can be tried again once there is.
pub fn is_full(cause: &io::Error) -> bool {
    matches!(cause.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// EMFILE and ENFILE, the same number wherever there are such errors: this process, or the system, has as many files open as it may.
const TOO_MANY_OPEN: [i32; 2] = [24, 23];

/// Whether the system could not open one more file, for want of descriptors or of memory: nothing was done, and the same may
/// succeed once other files are closed.
pub fn is_out_of_files(cause: &io::Error) -> bool {
    let is_too_many = cfg!(unix) && cause.raw_os_error().is_some_and(|error| TOO_MANY_OPEN.contains(&error));
    is_too_many || cause.kind() == io::ErrorKind::OutOfMemory
}
