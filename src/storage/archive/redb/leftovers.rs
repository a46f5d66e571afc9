//! The unfinished files of a rewrite.

use std::io;
use std::path::{Path, PathBuf};

/// Path of the file to which the archive is rewritten.
pub(super) fn leftover(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".unfinished");
    name.into()
}

/// Path of the file to which its checksums are written.
pub(super) fn leftover_sums(path: &Path) -> PathBuf {
    path.with_extension("sums.unfinished")
}

/// Removes the files of a rewrite that a process did not finish.
pub(super) fn remove_leftovers(path: &Path) -> io::Result<()> {
    remove(&leftover(path))?;
    remove(&leftover_sums(path))
}

pub(super) fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
