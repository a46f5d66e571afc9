//! Going on after damage, where the operator asked for it.
//!
//! Responsible for:
//! - which of the archive's files get other names, so that a start is possible.
//!
//! Not responsible for:
//! - finding damage (`open`, `sums`).

use std::io;
use std::path::{Path, PathBuf};

use super::{RedbArchive, cannot, open};
use crate::storage::archive::{Archive as _, ArchiveError};

impl RedbArchive {
    /// As [`Self::open`], but one that is so damaged that it cannot be opened or says nothing of its outboxes gets other names, and a new one is
    /// made.
    ///
    /// # Errors
    /// As [`Self::open`], and when it cannot be renamed.
    pub fn open_or_set_aside(path: &Path, cache_bytes: usize) -> Result<Self, ArchiveError> {
        let opened = Self::open(path, cache_bytes).and_then(|archive| {
            let shelves = archive.shelves().and_then(|_| archive.through());
            shelves.map(|_| archive)
        });
        match opened {
            Err(cause @ ArchiveError::Damaged { .. }) => Self::open_without_sums(path, cache_bytes, &cause),
            opened => opened,
        }
    }

    /// The damage may be in the checksums alone, or they are those of another copy of the archive: then it is read as a whole, once, and
    /// gets others. Otherwise it is set aside.
    fn open_without_sums(path: &Path, cache_bytes: usize, damage: &ArchiveError) -> Result<Self, ArchiveError> {
        let failed = |error: io::Error| cannot("set aside", path, error.into());
        if set_aside(&path.with_extension("sums")).map_err(failed)? {
            tracing::error!("{damage}; its checksums end with .damaged now, and it is read as a whole");
            match Self::open(path, cache_bytes) {
                Err(ArchiveError::Damaged { .. }) => {}
                opened => return opened,
            }
        }
        tracing::error!("{damage}; going on without it: its files end with .damaged now");
        set_aside(path).map_err(failed)?;
        Self::open(path, cache_bytes)
    }
}

/// Gives a damaged file a name that nothing has. False if there is none.
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
