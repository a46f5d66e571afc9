//! A directory on disk.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::storage::files::{AppendFile, Files, guard};

/// The files of one directory on disk.
#[derive(Debug, Clone)]
pub struct DiskFiles {
    directory: PathBuf,
    /// Kept open, so that names can be synced when the system opens no more files. None where directories cannot be opened.
    opened: Option<Arc<File>>,
}

impl DiskFiles {
    /// The files of `directory`, which is made if there is none.
    ///
    /// # Errors
    /// When the directory cannot be made or read.
    pub fn open(directory: &Path) -> io::Result<Self> {
        // Whatever is made must survive power loss, or all that is synced into it would be gone with its name.
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

/// Makes the names in a directory survive power loss.
fn sync_directory(directory: &Path) -> io::Result<()> {
    // Elsewhere a directory cannot be opened as a file, and names are kept by the file system's own journal.
    if cfg!(unix) { File::open(directory)?.sync_all() } else { Ok(()) }
}

impl Files for DiskFiles {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            // A name that is no UTF-8 is none of ours.
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

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path(from), self.path(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path(name))
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.opened.as_ref().map_or(Ok(()), |directory| directory.sync_all())
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
