//! An archive's file, to be looked into: never written, not even repaired.
//!
//! Responsible for:
//! - every post and tombstone, while no engine has the file open.
//!
//! Not responsible for:
//! - outboxes, and what the bytes of a post say.

use std::path::{Path, PathBuf};

use redb::{Builder, DatabaseError, ReadOnlyDatabase, ReadableDatabase, ReadableTable};

use super::{cannot, guarded, layout, open};
use crate::id::PostId;
use crate::storage::archive::{ArchiveError, Kept};

/// An archive that is only read. As long as it is open, no engine can open it.
pub struct ReadOnlyArchive {
    database: ReadOnlyDatabase,
    path: PathBuf,
}

impl ReadOnlyArchive {
    /// Opens the archive in the file `path`. `cache_bytes` is how much memory may hold pages of the file.
    ///
    /// # Errors
    /// When the file is no archive, of a newer format, damaged, in use, or would have to be repaired first.
    pub fn open(path: &Path, cache_bytes: usize) -> Result<Self, ArchiveError> {
        guarded(path, || {
            let opened = Builder::new().set_cache_size(cache_bytes).open_read_only(path);
            let database = opened.map_err(|error| match error {
                DatabaseError::RepairAborted => ArchiveError::Failed {
                    action: "read",
                    path: path.to_owned(),
                    source: "it was not closed in order; the next start of a server on it repairs it".into(),
                },
                error => open::refused(error, path),
            })?;
            open::check_format(&database, path)?;
            open::check_tables(&database, path)?;
            Ok(Self { database, path: path.to_owned() })
        })
    }

    /// What is kept under an id.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn post(&self, id: PostId) -> Result<Option<Kept>, ArchiveError> {
        let read = || {
            let found = self.database.begin_read()?.open_table(layout::POSTS)?.get(id.0)?;
            found.map(|value| layout::kept(value.value())).transpose()
        };
        guarded(&self.path, || read().map_err(|error| cannot("read", &self.path, error)))
    }

    /// Gives everything that is kept to `each`, by ascending id.
    ///
    /// # Errors
    /// When it cannot be read, or `each` says that a post is not as it should be.
    pub fn each(&self, mut each: impl FnMut(PostId, Kept) -> Result<(), String>) -> Result<(), ArchiveError> {
        let mut read = || {
            let table = self.database.begin_read()?.open_table(layout::POSTS)?;
            for row in table.iter()? {
                let (id, value) = row?;
                let id = PostId(id.value());
                each(id, layout::kept(value.value())?).map_err(|why| layout::damaged(format!("post {id}: {why}")))?;
            }
            Ok(())
        };
        guarded(&self.path, || read().map_err(|error| cannot("read", &self.path, error)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::archive::contract::{CACHE_BYTES, post};
    use crate::storage::archive::{Archive as _, Batch, RedbArchive};
    use std::fs;

    #[test]
    fn everything_is_read_by_id_and_nothing_is_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("archive");
        let kept =
            [(2, Kept::Deleted), (3, post("three")), (u64::MAX, post("last"))].map(|(id, kept)| (PostId(id), kept));
        let archive = RedbArchive::open(&path, CACHE_BYTES).unwrap();
        archive.write(&Batch { posts: kept.iter().rev().cloned().collect(), ..Batch::default() }).unwrap();
        let refusal = ReadOnlyArchive::open(&path, CACHE_BYTES).err().unwrap();
        assert!(matches!(refusal, ArchiveError::Locked { .. }), "{refusal}");
        // As a process that was killed leaves it.
        let killed = directory.path().join("killed");
        fs::copy(&path, &killed).unwrap();
        let refusal = ReadOnlyArchive::open(&killed, CACHE_BYTES).err().unwrap();
        assert!(std::error::Error::source(&refusal).unwrap().to_string().contains("not closed in order"), "{refusal}");
        archive.close();
        let before = fs::read(&path).unwrap();
        let archive = ReadOnlyArchive::open(&path, CACHE_BYTES).unwrap();
        let mut found = Vec::new();
        archive
            .each(|id, kept| {
                found.push((id, kept));
                Ok(())
            })
            .unwrap();
        assert_eq!(found, kept);
        assert_eq!(archive.post(PostId(3)).unwrap(), Some(post("three")));
        assert_eq!(archive.post(PostId(4)).unwrap(), None);
        let refusal = archive.each(|id, _| if id.0 == 3 { Err("why".to_owned()) } else { Ok(()) }).unwrap_err();
        assert!(refusal.to_string().contains("is damaged: post 3: why"), "{refusal}");
        drop(archive);
        assert_eq!(fs::read(&path).unwrap(), before);
    }

    #[test]
    fn what_is_no_archive_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("archive");
        let refusal = |content: &[u8]| {
            fs::write(&path, content).unwrap();
            ReadOnlyArchive::open(&path, CACHE_BYTES).err().unwrap().to_string()
        };
        assert!(refusal(b"a letter").contains("is no archive: it does not start as one"));
        assert!(!refusal(b"").is_empty());
        assert!(ReadOnlyArchive::open(&directory.path().join("none"), CACHE_BYTES).is_err());
    }
}
