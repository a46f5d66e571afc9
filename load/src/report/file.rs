//! Writes reports to files.

use std::fs::Permissions;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// The error for a report that could not be written.
#[derive(Debug, thiserror::Error)]
#[error("failed to write {}: {source}", path.display())]
pub struct WriteError {
    /// The path of the file.
    pub path: PathBuf,
    /// The I/O error.
    pub source: io::Error,
}

/// Writes a text to a file and replaces an existing one.
///
/// # Errors
/// If the directory does not exist, is not writable, or is full. An existing file is then unchanged.
pub fn replace(path: &Path, text: &str) -> Result<(), WriteError> {
    write(path, text).map_err(|source| WriteError { path: path.to_owned(), source })
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Temporary files are private by default. A report has the permissions of the process's umask.
    let readable = Permissions::from_mode(0o666);
    let mut file = tempfile::Builder::new().prefix(".tidewire-load-").permissions(readable).tempfile_in(directory)?;
    file.write_all(text.as_bytes())?;
    file.persist(path).map_err(|failed| failed.error)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_file_is_replaced_atomically_and_leaves_no_temporary_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("report.json");
        replace(&path, "a longer text than the next").unwrap();
        replace(&path, "short").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "short");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_failure_names_the_file_and_leaves_no_temporary_file() {
        let directory = tempfile::tempdir().unwrap();
        let missing = directory.path().join("no/such/report.json");
        let failure = replace(&missing, "text").unwrap_err().to_string();
        assert!(failure.starts_with(&format!("failed to write {}: No such file", missing.display())), "{failure}");
        // A directory cannot be replaced by a file.
        let taken = directory.path().join("taken");
        fs::create_dir(&taken).unwrap();
        replace(&taken, "text").unwrap_err();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
