//! An archive's file, to be looked into: never written, not even repaired.
//!
//! Responsible for:
//! - every post and tombstone, and outboxes with their counts, while no engine has the file open.
//!
//! Not responsible for:
//! - what the bytes of a post say.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use redb::{
    Builder, Database, DatabaseError, Error, ReadTransaction, ReadableDatabase, ReadableTable, ReadableTableMetadata,
    StorageBackend as _,
};

use super::overlay::OverlaidFile;
use super::room::RoomyFile;
use super::sums::SummedFile;
use super::{cannot, guarded, layout, open, read};
use crate::feed::outbox::Ask;
use crate::feed::position::Position;
use crate::id::{PostId, SourceId};
use crate::storage::archive::{ArchiveError, Kept, Shelf};
use crate::storage::files::guard;
use crate::storage::identity::Identity;
use crate::storage::journal::Sequence;

/// Memory for pages while one row is read.
const IDENTITY_CACHE_BYTES: usize = 1 << 20;

/// An archive that is only read. As long as it is open, no engine can open it.
pub struct ReadOnlyArchive {
    database: Database,
    path: PathBuf,
    has_checksums: bool,
}

/// How much there is of everything, as the archive itself counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Totals {
    /// The format of its rows.
    pub format: u64,
    /// The event it was persisted with last.
    pub through: Sequence,
    /// Posts and tombstones.
    pub posts: u64,
    /// Entries in outboxes.
    pub entries: u64,
}

impl ReadOnlyArchive {
    /// Opens the archive in the file `path`. `cache_bytes` is how much memory may hold pages of the file.
    ///
    /// # Errors
    /// When the file is no archive, of a newer format, damaged, in use, or would have to be repaired first.
    pub fn open(path: &Path, cache_bytes: usize) -> Result<Self, ArchiveError> {
        guarded(path, || {
            let refused = |error| match error {
                DatabaseError::RepairAborted => ArchiveError::Failed {
                    action: "read",
                    path: path.to_owned(),
                    source: "it was not closed in order; the next start of a server on it repairs it".into(),
                },
                error => open::refused(error, path),
            };
            let file = guard::open_named(path).map_err(|error| cannot("open", path, error.into()))?;
            let file = SummedFile::new(overlaid(file, path)?);
            let read = |error: io::Error| cannot("read", path, error.into());
            let ((_, is_open), is_empty) = (file.database_header().map_err(read)?, file.len().map_err(read)? == 0);
            if is_empty {
                return Err(ArchiveError::NotAnArchive { path: path.to_owned(), why: "it is empty" });
            }
            let mut builder = Builder::new();
            builder.set_cache_size(cache_bytes).set_repair_callback(redb::RepairSession::abort);
            if is_open {
                // Fails if a server has it open, or there is no archive at all. Otherwise one had it open until it was killed.
                drop(builder.create_with_backend(file).map_err(refused)?);
                return Err(refused(DatabaseError::RepairAborted));
            }
            let has_checksums = compare(&file, path)?;
            let database = builder.create_with_backend(file).map_err(refused)?;
            open::check_format(&database, path)?;
            open::check_tables(&database, path)?;
            Ok(Self { database, path: path.to_owned(), has_checksums })
        })
    }

    /// Whether checksums of its pages are beside it, and compared with what is read.
    pub fn has_checksums(&self) -> bool {
        self.has_checksums
    }

    /// The identity of the data directory that it belongs to, if it has one.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn identity(&self) -> Result<Option<Identity>, ArchiveError> {
        self.read(read::identity)
    }

    /// How much there is.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn totals(&self) -> Result<Totals, ArchiveError> {
        self.read(|snapshot| {
            let meta = snapshot.open_table(layout::META)?;
            let number = |key: &'static [u8]| Ok::<_, Error>(meta.get(key)?.map_or(0, |number| number.value()));
            Ok(Totals {
                format: number(layout::META_FORMAT)?,
                through: Sequence(number(layout::META_THROUGH)?),
                posts: snapshot.open_table(layout::POSTS)?.len()?,
                entries: snapshot.open_table(layout::OUTBOXES)?.len()?,
            })
        })
    }

    /// What there is of every outbox in which anything was ever placed, by source id.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn shelves(&self) -> Result<Vec<(SourceId, Shelf)>, ArchiveError> {
        self.read(read::shelves)
    }

    /// What is asked of an outbox, nearest first.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn copy(&self, source: &SourceId, ask: Ask) -> Result<Vec<Position>, ArchiveError> {
        self.read(|snapshot| read::copy(snapshot, source, ask))
    }

    fn read<T>(&self, read: impl FnOnce(&ReadTransaction) -> Result<T, Error>) -> Result<T, ArchiveError> {
        let run = || read(&self.database.begin_read()?);
        guarded(&self.path, || run().map_err(|error| cannot("read", &self.path, error)))
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

/// The identity of the data directory that the archive in the file `path` belongs to. None if there is no such file, it has none yet, or it
/// is damaged where that is: whoever opens it says so. Unlike [`ReadOnlyArchive::open`] it reads also an archive that was not closed in order,
/// which is repaired in memory for that.
///
/// # Errors
/// When the file is no archive, of a newer format, or in use, or the system refuses.
pub fn identity_in(path: &Path) -> Result<Option<Identity>, ArchiveError> {
    // A dangling link is there, and is refused.
    if std::fs::symlink_metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        return Ok(None);
    }
    let found = guarded(path, || {
        let file = guard::open(OpenOptions::new().read(true), path);
        let file = file.map_err(|error| cannot("open", path, error.into()))?;
        let file = SummedFile::new(overlaid(file, path)?);
        if file.len().map_err(|error| cannot("read", path, error.into()))? == 0 {
            return Err(ArchiveError::NotAnArchive { path: path.to_owned(), why: "it is empty" });
        }
        compare(&file, path)?;
        let database = open::open(file, path, IDENTITY_CACHE_BYTES)?;
        if open::is_blank(&database).map_err(|error| cannot("read", path, error))? {
            return Ok(None);
        }
        open::check_format(&database, path)?;
        let read = || read::identity(&database.begin_read()?);
        read().map_err(|error| cannot("read", path, error))
    });
    match found {
        Err(ArchiveError::Damaged { .. }) => Ok(None),
        found => found,
    }
}

/// Compares pages with the checksums beside the archive `path`, and returns whether there are any.
fn compare(file: &SummedFile, path: &Path) -> Result<bool, ArchiveError> {
    let sums_path = path.with_extension("sums");
    match guard::open(OpenOptions::new().read(true), &sums_path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(cannot("open", &sums_path, error.into())),
        Ok(sums) => file.compare_with(overlaid(sums, &sums_path)?, path, &sums_path).map(|()| true),
    }
}

/// A file, whatever is written to it staying in memory.
fn overlaid(file: File, path: &Path) -> Result<RoomyFile, ArchiveError> {
    let file = OverlaidFile::new(file).map_err(|error| cannot("open", path, error.into()))?;
    Ok(RoomyFile::new(file, path.display().to_string()))
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

    #[cfg(unix)]
    #[test]
    fn what_is_no_regular_file_is_refused_and_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("archive");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        // Whoever opens the pipe to read it need not wait for a writer then, even if it is opened as a file would be.
        let _both_ends = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        for refusal in [ReadOnlyArchive::open(&path, CACHE_BYTES).map(drop), identity_in(&path).map(drop)] {
            let refusal = refusal.unwrap_err().with_sources();
            assert!(refusal.contains("it is not a regular file"), "{refusal}");
        }
    }
}
