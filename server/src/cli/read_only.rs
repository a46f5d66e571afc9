//! Read-only file access for command-line tools: a directory, or one file with any name.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidewire::storage::error::StorageError;
use tidewire::storage::files::{AppendFile, Files, guard};

/// A read-only implementation of [`Files`].
#[derive(Debug)]
pub(crate) struct ReadOnly {
    path: PathBuf,
    /// Set if the path is a file: its name in the listing, and the open file. It is opened once, because a running server may delete it in
    /// the meantime.
    only: Option<(String, File)>,
}

impl ReadOnly {
    /// Opens a directory with all its files.
    pub(crate) fn directory(path: &Path) -> Self {
        Self { path: path.to_owned(), only: None }
    }

    /// Opens a single file under its own name.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub(crate) fn file(path: &Path) -> Result<Self, StorageError> {
        let file = guard::open_named(path).map_err(StorageError::io("read", path.display().to_string()))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self { path: path.to_owned(), only: Some((name, file)) })
    }

    /// Changes the name of the file in the listing.
    #[must_use]
    pub(crate) fn called(mut self, name: String) -> Self {
        self.only = self.only.map(|(_, file)| (name, file));
        self
    }

    /// Returns the name of the file, or an empty string for a directory.
    pub(crate) fn name(&self) -> &str {
        self.only.as_ref().map_or("", |(name, _)| name)
    }
}

fn refused<T>() -> io::Result<T> {
    Err(io::Error::new(ErrorKind::ReadOnlyFilesystem, "this tool only reads"))
}

impl Files for ReadOnly {
    fn list(&self) -> io::Result<Vec<String>> {
        if let Some((name, _)) = &self.only {
            return Ok(vec![name.clone()]);
        }
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            // Names that are not UTF-8 are skipped: the engine never writes such names.
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }

    /// All readers of a single file share its read offset: use only one at a time.
    fn read(&self, name: &str) -> io::Result<(Box<dyn Read + Send>, u64)> {
        let file = match &self.only {
            Some((only, file)) if only == name => {
                let mut file = file.try_clone()?;
                file.rewind()?;
                file
            }
            Some(_) => return Err(ErrorKind::NotFound.into()),
            None => guard::open(OpenOptions::new().read(true), &self.path.join(name))?,
        };
        let bytes = file.metadata()?.len();
        Ok((Box::new(file), bytes))
    }

    fn place(&self, name: &str) -> String {
        let path = if self.only.is_some() { self.path.clone() } else { self.path.join(name) };
        path.display().to_string()
    }

    fn create(&self, _: &str) -> io::Result<Arc<dyn AppendFile>> {
        refused()
    }

    fn reopen(&self, _: &str, _: u64) -> io::Result<Arc<dyn AppendFile>> {
        refused()
    }

    fn rename(&self, _: &str, _: &str) -> io::Result<()> {
        refused()
    }

    fn remove(&self, _: &str) -> io::Result<()> {
        refused()
    }

    fn sync_directory(&self) -> io::Result<()> {
        refused()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_refused_and_an_open_file_survives_its_removal() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        fs::write(&path, "text").unwrap();
        let (all, one) = (ReadOnly::directory(directory.path()), ReadOnly::file(&path).unwrap().called("b".to_owned()));
        assert_eq!((all.list().unwrap(), one.list().unwrap()), (vec!["a".to_owned()], vec!["b".to_owned()]));
        assert!(all.create("c").is_err() && all.reopen("a", 0).is_err() && all.rename("a", "c").is_err());
        assert!(all.remove("a").is_err() && one.remove("b").is_err() && all.sync_directory().is_err());
        fs::remove_file(&path).unwrap();
        for _ in 0..2 {
            let (mut text, (mut file, bytes)) = (String::new(), one.read("b").unwrap());
            file.read_to_string(&mut text).unwrap();
            assert_eq!((text.as_str(), bytes), ("text", 4));
        }
        assert!(all.read("a").is_err() && one.read("a").is_err());
    }

    #[test]
    fn opening_a_directory_or_a_missing_file_fails() {
        let directory = tempfile::tempdir().unwrap();
        assert!(ReadOnly::file(directory.path()).is_err());
        assert!(ReadOnly::file(&directory.path().join("missing")).is_err());
    }
}
