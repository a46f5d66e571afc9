//! Files in a directory on disk.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::storage::files::{AppendFile, Files, guard};

/// The files of one directory on disk.
#[derive(Debug, Clone)]
pub struct DiskFiles {
    directory: PathBuf,
    /// The directory is kept open, so that it can be synced even if the system cannot open more files. None on systems where a directory
    /// cannot be opened as a file.
    opened: Option<Arc<File>>,
}

impl DiskFiles {
    /// Opens `directory`, and creates it if it does not exist.
    ///
    /// # Errors
    /// Fails if the directory cannot be created or read.
    pub fn open(directory: &Path) -> io::Result<Self> {
        // The error of the system only reports that a file exists. This error names the file.
        if let Some(file) = directory.ancestors().find(|path| path.exists()).filter(|path| !path.is_dir()) {
            let what = format!("{} is not a directory", file.display());
            return Err(io::Error::new(io::ErrorKind::NotADirectory, what));
        }
        // New directories must survive a power loss. Otherwise files that are synced in them would be lost together with the directory
        // name.
        let missing = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
        let made: Vec<&Path> = directory.ancestors().take_while(missing).collect();
        guard::create_directories(directory)?;
        for parent in made.iter().filter_map(|made| made.parent()) {
            sync_directory(if parent.as_os_str().is_empty() { Path::new(".") } else { parent })?;
        }
        let opened = if cfg!(unix) { Some(Arc::new(File::open(directory)?)) } else { None };
        let files = Self { directory: directory.to_owned(), opened };
        files.list()?;
        Ok(files)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

/// Makes the names in a directory survive a power loss.
fn sync_directory(directory: &Path) -> io::Result<()> {
    // On other systems a directory cannot be opened as a file, and the journal of the file system protects the names.
    if cfg!(unix) { File::open(directory)?.sync_all() } else { Ok(()) }
}

impl Files for DiskFiles {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            // Names that are not UTF-8 are skipped: Tidewire does not create such names.
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn AppendFile>> {
        let file = guard::open(OpenOptions::new().append(true).create_new(true), &self.path(name))?;
        Ok(Arc::new(file))
    }

    fn reopen(&self, name: &str, keep_bytes: u64) -> io::Result<Arc<dyn AppendFile>> {
        let file = guard::open(OpenOptions::new().append(true), &self.path(name))?;
        file.set_len(keep_bytes)?;
        Ok(Arc::new(file))
    }

    fn read(&self, name: &str) -> io::Result<(Box<dyn Read + Send>, u64)> {
        let file = guard::open(OpenOptions::new().read(true), &self.path(name))?;
        let bytes = file.metadata()?.len();
        Ok((Box::new(file), bytes))
    }

    fn read_from(&self, name: &str, offset_bytes: u64) -> io::Result<Box<dyn Read + Send>> {
        let mut file = guard::open(OpenOptions::new().read(true), &self.path(name))?;
        file.seek(SeekFrom::Start(offset_bytes))?;
        Ok(Box::new(file))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path(from), self.path(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path(name))
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.opened.as_ref().map_or(Ok(()), |directory| directory.sync_all())
    }

    fn bytes_of(&self, name: &str) -> io::Result<u64> {
        Ok(fs::symlink_metadata(self.path(name))?.len())
    }

    #[cfg(unix)]
    fn free_bytes(&self) -> io::Result<Option<u64>> {
        let disk = rustix::fs::statvfs(&self.directory)?;
        // Excludes the blocks that are reserved for root.
        Ok(Some(disk.f_bavail.saturating_mul(disk.f_frsize)))
    }

    fn place(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }
}

impl AppendFile for File {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        let mut file = self;
        file.write_all(bytes)
    }

    fn cut(&self, keep_bytes: u64) -> io::Result<()> {
        self.set_len(keep_bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}
