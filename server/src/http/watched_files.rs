//! Files that are read again when they change: the access file, and the certificate with its key.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The modification time and the length of a file, by which changes are detected. `None` if the file does not exist.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stamp(Option<(SystemTime, u64)>);

impl Stamp {
    fn of(file: &Path) -> Self {
        let metadata = fs::metadata(file).ok();
        Self(metadata.and_then(|metadata| Some((metadata.modified().ok()?, metadata.len()))))
    }
}

/// Files that are checked periodically, and read together.
#[derive(Clone, Debug)]
pub struct WatchedFiles<const N: usize> {
    files: [PathBuf; N],
    /// The stamps when the files were last read.
    read: [Stamp; N],
    /// The stamps at the last check.
    seen: [Stamp; N],
    /// The error of the last read and the stamps at that time. `None` if the last read succeeded.
    failure: Option<([Stamp; N], String)>,
    /// True from a call of [`Self::ask`] until the next read.
    is_asked: bool,
}

impl<const N: usize> WatchedFiles<N> {
    /// Watches files that the caller reads after this call, so that the next check detects a change in between.
    pub fn new(files: [PathBuf; N]) -> Self {
        let read = stamps(&files);
        Self { files, read, seen: read, failure: None, is_asked: false }
    }

    /// Returns the paths of the files.
    pub fn files(&self) -> &[PathBuf; N] {
        &self.files
    }

    /// Returns true if the files must be read now: they have changed or the last read failed, and they are unchanged since the last
    /// check. Files that are still changing may be incomplete. After a failed read every check returns true, because a repair may leave
    /// the stamps unchanged: `chown`, for example.
    pub fn is_read_due(&mut self) -> bool {
        let now = stamps(&self.files);
        let is_still = std::mem::replace(&mut self.seen, now) == now;
        let is_due = self.is_asked || is_still && (self.read != now || self.failure.is_some());
        if is_due {
            self.read = now;
        }
        is_due
    }

    /// Makes the next check read the files even if they have not changed, and log a failure even if it was logged before.
    pub fn ask(&mut self) {
        self.is_asked = true;
    }

    /// Returns true if the files are unchanged since [`Self::is_read_due`] returned true. If they have changed, a later call to
    /// [`Self::is_read_due`] reports that.
    pub fn is_as_read(&self) -> bool {
        stamps(&self.files) == self.read
    }

    /// Notes that the files were read. Returns true if the previous read had failed.
    pub fn note_success(&mut self) -> bool {
        self.is_asked = false;
        self.failure.take().is_some()
    }

    /// Notes that the files could not be read. Returns true if the failure must be logged: its cause is new, or the files have changed
    /// since the previous failure.
    pub fn note_failure(&mut self, cause: String) -> bool {
        let failure = Some((self.read, cause));
        let is_new = std::mem::take(&mut self.is_asked) || self.failure != failure;
        self.failure = failure;
        is_new
    }
}

fn stamps<const N: usize>(files: &[PathBuf; N]) -> [Stamp; N] {
    std::array::from_fn(|nth| Stamp::of(&files[nth]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_file_is_read_again_when_it_is_stable() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("access.toml");
        let write = |text: &str| fs::write(&file, text).unwrap();
        write("first");
        let mut watched = WatchedFiles::new([file.clone()]);
        assert!(!watched.is_read_due());
        write("first half, ");
        assert!(!watched.is_read_due(), "somebody may be writing");
        write("first half, second half");
        assert!(!watched.is_read_due(), "somebody was");
        assert!(watched.is_read_due() && watched.is_as_read());
        assert!(!watched.is_read_due(), "it was read");
        write("again, and while it is read");
        assert!(!watched.is_as_read());
        assert!(!watched.is_read_due());
        fs::remove_file(&file).unwrap();
        assert!(!watched.is_read_due());
        write("first half, second half, third");
        assert!(!watched.is_read_due());
        assert!(watched.is_read_due());
    }

    #[test]
    fn a_file_is_read_again_on_request() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("access.toml");
        fs::write(&file, "first").unwrap();
        let mut watched = WatchedFiles::new([file.clone()]);
        watched.ask();
        assert!(watched.is_read_due() && !watched.note_success(), "no read had failed");
        assert!(!watched.is_read_due());
        fs::write(&file, "the second").unwrap();
        watched.ask();
        assert!(watched.is_read_due() && watched.note_failure("invalid".to_owned()));
        watched.ask();
        assert!(watched.is_read_due() && watched.note_failure("invalid".to_owned()), "whoever asks gets an answer");
        watched.ask();
        assert!(watched.is_read_due() && watched.note_success(), "the read before had failed");
    }

    #[test]
    fn a_failed_read_is_retried_and_logged_once() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("access.toml");
        fs::write(&file, "first").unwrap();
        let mut watched = WatchedFiles::new([file.clone()]);
        fs::write(&file, "the second").unwrap();
        assert!(!watched.is_read_due());
        let mut fails = |cause: &str| watched.is_read_due() && watched.note_failure(cause.to_owned());
        assert!(fails("permission denied"));
        assert!(!fails("permission denied"));
        assert!(fails("too many open files"), "another failure");
        fs::write(&file, "and the third").unwrap();
        assert!(!fails("too many open files"), "somebody may be writing");
        assert!(fails("too many open files"), "the same failure of other content");
        assert!(watched.is_read_due() && watched.note_success());
        assert!(!watched.is_read_due() && !watched.note_success());
    }
}
