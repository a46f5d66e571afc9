//! Opens a damaged archive, if the operator requested a repair.

use std::io;
use std::path::{Path, PathBuf};

use super::{RedbArchive, cannot, open};
use crate::storage::archive::{Archive as _, ArchiveError};

impl RedbArchive {
    /// As [`Self::open`]. If the archive is too damaged to open it or to list its outboxes, renames its files and creates a new archive.
    ///
    /// # Errors
    /// As [`Self::open`]. Fails also if a file cannot be renamed.
    pub fn open_or_set_aside(path: &Path, cache_bytes: usize) -> Result<Self, ArchiveError> {
        let opened = Self::open(path, cache_bytes).and_then(|archive| {
            let listed = archive.each_outbox(&mut |_, _| Ok(())).and_then(|()| archive.through());
            listed.map(|_| archive)
        });
        match opened {
            Err(cause @ ArchiveError::Damaged { .. }) => Self::open_without_sums(path, cache_bytes, &cause),
            opened => opened,
        }
    }

    /// Tries to open the archive without its checksum file: the damage may be in that file alone, or the file may belong to another copy of
    /// the archive. Then the whole archive is read once, and new checksums are written. If the archive itself is damaged, it is set aside,
    /// too.
    fn open_without_sums(path: &Path, cache_bytes: usize, damage: &ArchiveError) -> Result<Self, ArchiveError> {
        let failed = |error: io::Error| cannot("set aside", path, error.into());
        if set_aside(&path.with_extension("sums")).map_err(failed)? {
            tracing::error!("{damage}; renamed its checksum file with the suffix .damaged; reading the whole archive");
            match Self::open(path, cache_bytes) {
                Err(ArchiveError::Damaged { .. }) => {}
                opened => return opened,
            }
        }
        tracing::error!("{damage}; renamed its files with the suffix .damaged; continuing without them");
        set_aside(path).map_err(failed)?;
        Self::open(path, cache_bytes)
    }
}

/// Renames a damaged file to an unused name. Returns false if the file does not exist.
fn set_aside(file: &Path) -> io::Result<bool> {
    let named = |nth: u32| if nth == 0 { ".damaged".to_owned() } else { format!(".damaged-{nth}") };
    let mut names = (0..).map(|nth| PathBuf::from(format!("{}{}", file.display(), named(nth))));
    let Some(aside) = names.find(|aside| !aside.exists()) else { return Ok(false) };
    match std::fs::rename(file, aside) {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(false),
        renamed => renamed?,
    }
    open::sync_directory(file)?;
    Ok(true)
}
