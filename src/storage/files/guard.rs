//! How files of a data directory are opened: for their owner alone, and only if they are files.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::path::Path;

/// Opens `path` as `options` say. What is made can be read by its owner only.
///
/// # Errors
/// When it cannot be opened, or there is something else than a regular file: a pipe would wait for ever, a device never end, and a
/// link lead out of the directory.
pub(crate) fn open(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    if fs::symlink_metadata(path).is_ok_and(|found| !found.is_file()) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options.open(path)
}

/// Makes a directory for its owner alone, and those above it that are missing.
///
/// # Errors
/// When it cannot be made.
pub(super) fn create_directories(directory: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(directory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn what_is_made_is_its_owners_alone() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("a/b");
        create_directories(&directory).unwrap();
        open(OpenOptions::new().append(true).create_new(true), &directory.join("c")).unwrap();
        let modes = [place.path().join("a"), directory.clone(), directory.join("c")].map(|path| mode(&path));
        assert_eq!(modes, [0o700, 0o700, 0o600]);
    }

    #[test]
    fn pipes_directories_and_links_are_refused_without_waiting_for_them() {
        let place = tempfile::tempdir().unwrap();
        let path = |name| place.path().join(name);
        fs::write(path("file"), "1").unwrap();
        fs::create_dir(path("directory")).unwrap();
        symlink(path("file"), path("link")).unwrap();
        symlink("/dev/zero", path("device")).unwrap();
        symlink(path("nothing"), path("dangling")).unwrap();
        let made = std::process::Command::new("mkfifo").arg(path("pipe")).status();
        assert!(made.unwrap().success());
        for name in ["directory", "link", "device", "dangling", "pipe"] {
            let mut options = OpenOptions::new();
            let refused = open(options.read(true).write(true).create(true), &path(name)).unwrap_err();
            assert_eq!(refused.to_string(), "it is not a regular file", "{name}");
        }
        assert!(open(OpenOptions::new().read(true), &path("file")).is_ok());
        assert!(!path("nothing").exists());
    }
}
