//! Opens files of a data directory: with access only for their owner, and only regular files.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::path::Path;

/// Opens `path` with `options`. Only the owner can read a file that this creates.
///
/// # Errors
/// Fails if the file cannot be opened or is not a regular file: opening a pipe could block forever, a device may return bytes without end,
/// and a link could point outside the directory.
pub fn open(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let opened = guarded(options).open(path).and_then(regular);
    // This only selects the error text and does not decide anything: the system returns other errors for links, sockets and directories.
    let is_other = || fs::symlink_metadata(path).is_ok_and(|found| !found.is_file());
    opened.map_err(|cause| if is_other() { not_a_file() } else { cause })
}

/// Adds the guards that the system checks while it opens a file: between a check of ours and the opening, a link could take the place of
/// the file.
fn guarded(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.mode(0o600).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    }
    options
}

/// Opens a file that a user named, for reading. It may be a link, but only to a regular file.
///
/// # Errors
/// Fails if the file cannot be opened, or is not a regular file.
pub fn open_named(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NONBLOCK);
    options.read(true).open(path).and_then(regular)
}

/// Rejects an open file that is not a regular file. The check follows the opening, because another file may replace the one at the path at
/// any moment. For the same reason the opening never blocks.
fn regular(file: File) -> io::Result<File> {
    let kind = file.metadata()?.file_type();
    match kind.is_file() {
        true => Ok(file),
        false if kind.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        false => Err(not_a_file()),
    }
}

/// The error for everything that is not a regular file.
fn not_a_file() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")
}

/// Creates a directory with access only for its owner, and its missing parent directories.
///
/// # Errors
/// Fails if the directory cannot be created.
pub(super) fn create_directories(directory: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(directory)
}

/// Removes the permissions of the group and of other users from the files of a data directory: earlier versions created files that everyone
/// could read. Returns one warning for each permission that remains.
///
/// The directory itself is not changed. It may contain other files that the operator shares on purpose. The Tidewire files are protected
/// without it, unless other users may write to the directory. A group that may list the directory cannot read these files: backups are made
/// by the owner or by root (`docs/operations.md`).
#[cfg(unix)]
pub fn tighten(directory: &Path) -> io::Result<Vec<String>> {
    use std::os::unix::fs::PermissionsExt as _;
    let others = |found: &fs::Metadata| found.permissions().mode() & 0o077;
    let mut warnings = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        // `DirEntry::metadata` does not follow a link, so links are skipped below.
        let Ok(found) = entry.metadata() else { continue };
        let is_ours = entry.file_name().to_str().is_some_and(is_ours);
        if !is_ours || !found.is_file() || others(&found) == 0 {
            continue;
        }
        let close = || {
            // Uses the opened file, not the name: the name may refer to a link by now.
            let file = open(OpenOptions::new().read(true), &entry.path())?;
            let mode = file.metadata()?.permissions().mode() & 0o700;
            file.set_permissions(fs::Permissions::from_mode(mode))
        };
        if let Err(cause) = close() {
            warnings.push(format!(
                "other users can read {}, and its mode cannot be changed: {cause}",
                entry.path().display()
            ));
        }
    }
    let found = fs::metadata(directory)?;
    if others(&found) != 0 {
        let (directory, mode) = (directory.display(), found.permissions().mode() & 0o777);
        let may = if mode & 0o022 != 0 { "modify" } else { "list" };
        warnings.push(format!(
            "other users can {may} the data directory {directory} (mode {mode:o}): run chmod 700 {directory}"
        ));
    }
    Ok(warnings)
}

/// Permissions are unknown on these systems, so nothing is changed.
#[cfg(not(unix))]
pub fn tighten(_: &Path) -> io::Result<Vec<String>> {
    Ok(Vec::new())
}

/// Returns true if the name is one of a file that a server creates.
#[cfg(unix)]
fn is_ours(name: &str) -> bool {
    let is_numbered = |prefix: &str| {
        let rest = name.strip_prefix(prefix).unwrap_or_default();
        rest.starts_with(|first: char| first.is_ascii_digit())
    };
    ["LOCK", "identity"].contains(&name)
        || name.starts_with("archive.")
        || name.starts_with("consumers.json")
        || is_numbered("changes-")
        || is_numbered("journal-")
        || is_numbered("snapshot-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn created_files_and_directories_are_private() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("a/b");
        create_directories(&directory).unwrap();
        open(OpenOptions::new().append(true).create_new(true), &directory.join("c")).unwrap();
        let modes = [place.path().join("a"), directory.clone(), directory.join("c")].map(|path| mode(&path));
        assert_eq!(modes, [0o700, 0o700, 0o600]);
    }

    #[test]
    fn readable_files_are_made_private_and_the_directory_mode_causes_a_warning() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        let ours = [
            "LOCK",
            "journal-00000000000000000001.log",
            "snapshot-00000000000000000001.tide.damaged",
            "archive.redb",
            "consumers.json",
            "changes-00000000000000000001-00000000000000000002.log",
        ];
        for name in ours.into_iter().chain(["notes.txt", "journal-of-mine"]) {
            fs::write(path(name), "").unwrap();
            fs::set_permissions(path(name), fs::Permissions::from_mode(0o664)).unwrap();
        }
        symlink(path("notes.txt"), path("archive.link")).unwrap();
        let warnings = |directory: u32| {
            fs::set_permissions(place.path(), fs::Permissions::from_mode(directory)).unwrap();
            let warnings = tighten(place.path()).unwrap();
            assert_eq!(mode(place.path()), directory);
            warnings.join("; ").replace(&place.path().display().to_string(), "HERE")
        };
        assert_eq!(warnings(0o700), "");
        assert_eq!(ours.map(|name| mode(&path(name))), [0o600; 6]);
        assert_eq!(["notes.txt", "journal-of-mine"].map(|name| mode(&path(name))), [0o664; 2]);
        assert_eq!(warnings(0o750), "other users can list the data directory HERE (mode 750): run chmod 700 HERE");
        assert_eq!(warnings(0o777), "other users can modify the data directory HERE (mode 777): run chmod 700 HERE");
    }

    #[test]
    fn pipes_directories_and_links_are_refused_without_blocking() {
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

    #[test]
    fn a_symbolic_link_is_refused_atomically_when_it_is_opened() {
        let place = tempfile::tempdir().unwrap();
        let path = |name| place.path().join(name);
        fs::write(path("secret"), "secret").unwrap();
        symlink(path("secret"), path("link")).unwrap();
        let refused = guarded(OpenOptions::new().read(true)).open(path("link")).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::ELOOP), "{refused}");
        assert!(guarded(OpenOptions::new().read(true)).open(path("secret")).is_ok());
    }
}
