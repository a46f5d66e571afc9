//! Read-only access to an archive's file: the file is never written, not even for a repair.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use redb::{
    Builder, Database, DatabaseError, Error, ReadTransaction, ReadableDatabase, ReadableTable, ReadableTableMetadata,
    StorageBackend as _,
};

use super::buffered_file::BufferedFile;
use super::overlay::OverlaidFile;
use super::sums::ChecksummedFile;
use super::{cannot, guarded, layout, open, read};
use crate::feed::outbox::OutboxQuery;
use crate::feed::position::Position;
use crate::id::{PostId, SourceId};
use crate::storage::archive::{ArchiveError, ArchivedCounts, ArchivedRecord};
use crate::storage::files::guard;
use crate::storage::identity::Identity;
use crate::storage::sequence::Sequence;

/// Maximum memory for pages while only the identity is read.
const IDENTITY_CACHE_BYTES: usize = 1 << 20;

/// The first bytes of each file of redb.
const MAGIC: &[u8; 9] = b"redb\x1a\x0a\xa9\x0d\x0a";

/// An archive that is only read. While it is open, no engine can open it.
pub struct ReadOnlyArchive {
    database: Database,
    path: PathBuf,
    has_checksums: bool,
}

/// The totals of an archive, from the row counts of the database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Totals {
    /// The format of the rows.
    pub format: u64,
    /// The journal event with which the archive was persisted last.
    pub through: Sequence,
    /// The number of posts and tombstones.
    pub posts: u64,
    /// The number of entries in all outboxes.
    pub entries: u64,
}

impl ReadOnlyArchive {
    /// Opens the archive in the file `path`. `cache_bytes` is the maximum memory for pages of the file.
    ///
    /// # Errors
    /// Fails if the file is not an archive, has a newer format, is damaged or in use, or needs a repair first.
    pub fn open(path: &Path, cache_bytes: usize) -> Result<Self, ArchiveError> {
        guarded(path, || {
            let refused = |error| match error {
                DatabaseError::RepairAborted => ArchiveError::Failed {
                    action: "read",
                    place: path.display().to_string(),
                    source: "it was not closed properly; the next start of a server repairs it".into(),
                },
                error => open::refused(error, path),
            };
            let file = guard::open_named(path).map_err(|error| cannot("open", path, error.into()))?;
            let file = ChecksummedFile::new(overlaid(file, path)?);
            let read = |error: io::Error| cannot("read", path, error.into());
            let ((_, is_open), is_empty) = (file.database_header().map_err(read)?, file.len().map_err(read)? == 0);
            if is_empty {
                return Err(ArchiveError::NotAnArchive { place: path.display().to_string(), why: "it is empty" });
            }
            let mut builder = Builder::new();
            builder.set_cache_size(cache_bytes).set_repair_callback(redb::RepairSession::abort);
            if is_open {
                // This fails if a server has the archive open, or the file is not an archive. Otherwise the last server was killed while it
                // was open.
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

    /// Returns the path of the archive.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns true if there is a checksum file, with which every page is compared when it is read.
    pub fn has_checksums(&self) -> bool {
        self.has_checksums
    }

    /// Returns the identity of the data directory that the archive belongs to, if it has one.
    ///
    /// # Errors
    /// Fails if the archive cannot be read.
    pub fn identity(&self) -> Result<Option<Identity>, ArchiveError> {
        self.read(read::identity)
    }

    /// Returns the totals of the archive.
    ///
    /// # Errors
    /// Fails if the archive cannot be read.
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

    /// Returns a summary of every outbox that ever had an archived entry, by source id.
    ///
    /// # Errors
    /// Fails if the archive cannot be read.
    pub fn archived_counts(&self) -> Result<Vec<(SourceId, ArchivedCounts)>, ArchiveError> {
        self.read(|snapshot| read::outboxes_after(snapshot, None, usize::MAX))
    }

    /// Returns the requested positions of an outbox, nearest first.
    ///
    /// # Errors
    /// Fails if the archive cannot be read.
    pub fn positions(&self, source: &SourceId, query: OutboxQuery) -> Result<Vec<Position>, ArchiveError> {
        self.read(|snapshot| read::positions(&snapshot.open_table(layout::OUTBOXES)?, source, query))
    }

    fn read<T>(&self, read: impl FnOnce(&ReadTransaction) -> Result<T, Error>) -> Result<T, ArchiveError> {
        let run = || read(&self.database.begin_read()?);
        guarded(&self.path, || run().map_err(|error| cannot("read", &self.path, error)))
    }

    /// Returns the post or tombstone that is stored under an id.
    ///
    /// # Errors
    /// Fails if the archive cannot be read.
    pub fn post(&self, id: PostId) -> Result<Option<ArchivedRecord>, ArchiveError> {
        let read = || {
            let found = self.database.begin_read()?.open_table(layout::POSTS)?.get(id.0)?;
            found.map(|value| layout::kept(value.value())).transpose()
        };
        guarded(&self.path, || read().map_err(|error| cannot("read", &self.path, error)))
    }

    /// Calls `each` with every post and tombstone, by ascending id.
    ///
    /// # Errors
    /// Fails if the archive cannot be read, or `each` rejects a post.
    pub fn each(&self, mut each: impl FnMut(PostId, ArchivedRecord) -> Result<(), String>) -> Result<(), ArchiveError> {
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

/// Returns the identity of the data directory that the archive in the file `path` belongs to. Returns none if the file does not exist, has
/// no identity yet, or is damaged: the next open of the archive reports the damage. Unlike [`ReadOnlyArchive::open`], this also reads an
/// archive that was not closed in order, and repairs it in memory for that.
///
/// # Errors
/// Fails if the file is not an archive, has a newer format or is in use, or if an operation of the system fails.
pub fn identity_in(path: &Path) -> Result<Option<Identity>, ArchiveError> {
    // A dangling link exists, and is rejected below.
    if std::fs::symlink_metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        return Ok(None);
    }
    let found = guarded(path, || {
        let file = guard::open(OpenOptions::new().read(true), path);
        let file = file.map_err(|error| cannot("open", path, error.into()))?;
        let file = ChecksummedFile::new(overlaid(file, path)?);
        if file.len().map_err(|error| cannot("read", path, error.into()))? == 0 {
            return Err(ArchiveError::NotAnArchive { place: path.display().to_string(), why: "it is empty" });
        }
        compare(&file, path)?;
        stored_identity(&open::open(file, path, IDENTITY_CACHE_BYTES)?, path)
    });
    match found {
        Err(ArchiveError::Damaged { .. }) => Ok(None),
        found => found,
    }
}

/// Returns the identity of the data directory that the archive in the file `path` belongs to, without a lock. A server that has the
/// archive open, or opens it meanwhile, is not affected. Returns none in the cases of [`identity_in`], and also if the archive is open or
/// was not closed in order.
///
/// # Errors
/// Fails if the file is not an archive or has a newer format, or if an operation of the system fails.
pub fn identity_without_lock(path: &Path) -> Result<Option<Identity>, ArchiveError> {
    if std::fs::symlink_metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        return Ok(None);
    }
    let cannot_read = |error: io::Error| cannot("read", path, error.into());
    let file = guard::open(OpenOptions::new().read(true), path);
    let file = file.map_err(|error| cannot("open", path, error.into()))?;
    // A second overlay, which does not show the writes of redb.
    let raw = ChecksummedFile::new(overlaid_without_lock(file.try_clone().map_err(cannot_read)?, path)?);
    let (mut magic, bytes) = ([0; MAGIC.len()], raw.len().map_err(cannot_read)?);
    if bytes >= MAGIC.len() as u64 {
        raw.read(0, &mut magic).map_err(cannot_read)?;
    }
    if magic != *MAGIC {
        let why = if bytes == 0 { "it is empty" } else { "it has bad magic bytes" };
        return Err(ArchiveError::NotAnArchive { place: path.display().to_string(), why });
    }
    let (before, is_open) = raw.database_header().map_err(cannot_read)?;
    if is_open {
        return Ok(None);
    }
    let found = guarded(path, || identity_of_closed(file, path));
    let (after, _) = raw.database_header().map_err(cannot_read)?;
    match found {
        // A server has opened it meanwhile, so the pages that were read need not belong together.
        _ if after != before => Ok(None),
        Err(ArchiveError::Damaged { .. }) => Ok(None),
        found => found,
    }
}

/// Reads the identity without a lock from an archive that was closed in order. Returns none if it needs a repair nevertheless.
fn identity_of_closed(file: File, path: &Path) -> Result<Option<Identity>, ArchiveError> {
    let file = ChecksummedFile::new(overlaid_without_lock(file, path)?);
    compare(&file, path)?;
    let mut builder = Builder::new();
    builder.set_cache_size(IDENTITY_CACHE_BYTES).set_repair_callback(redb::RepairSession::abort);
    let database = match builder.create_with_backend(file) {
        Err(DatabaseError::RepairAborted) => return Ok(None),
        opened => opened.map_err(|error| open::refused(error, path))?,
    };
    stored_identity(&database, path)
}

/// Returns the identity in an open archive; none if it has no tables yet.
fn stored_identity(database: &Database, path: &Path) -> Result<Option<Identity>, ArchiveError> {
    if open::is_blank(database).map_err(|error| cannot("read", path, error))? {
        return Ok(None);
    }
    open::check_format(database, path)?;
    let read = || read::identity(&database.begin_read()?);
    read().map_err(|error| cannot("read", path, error))
}

/// Enables the comparison of pages with the checksum file of the archive `path`. Returns true if there is such a file.
fn compare(file: &ChecksummedFile, path: &Path) -> Result<bool, ArchiveError> {
    let sums_path = path.with_extension("sums");
    match guard::open(OpenOptions::new().read(true), &sums_path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(cannot("open", &sums_path, error.into())),
        Ok(sums) => file.compare_with(overlaid(sums, &sums_path)?, path, &sums_path).map(|()| true),
    }
}

/// As [`overlaid`], without locks.
fn overlaid_without_lock(file: File, path: &Path) -> Result<BufferedFile, ArchiveError> {
    let file = OverlaidFile::without_lock(file).map_err(|error| cannot("open", path, error.into()))?;
    Ok(BufferedFile::new(file, path.display().to_string()))
}

/// Wraps a file so that all writes to it stay in memory.
fn overlaid(file: File, path: &Path) -> Result<BufferedFile, ArchiveError> {
    let file = OverlaidFile::new(file).map_err(|error| cannot("open", path, error.into()))?;
    Ok(BufferedFile::new(file, path.display().to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::archive::samples::{CACHE_BYTES, post};
    use crate::storage::archive::{Archive as _, Batch, RedbArchive};
    use redb::backends::FileBackend;
    use std::fs;
    use std::ops::Bound;

    #[test]
    fn a_read_only_archive_reads_all_posts_by_id_and_writes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("archive");
        let kept = [(2, ArchivedRecord::Deleted), (3, post("three")), (u64::MAX, post("last"))]
            .map(|(id, kept)| (PostId(id), kept));
        let archive = RedbArchive::open(&path, CACHE_BYTES).unwrap();
        archive.write(&Batch { posts: kept.iter().rev().cloned().collect(), ..Batch::default() }).unwrap();
        let refusal = ReadOnlyArchive::open(&path, CACHE_BYTES).err().unwrap();
        assert!(matches!(refusal, ArchiveError::Locked { .. }), "{refusal}");
        // A copy of the open file: this is the state that a killed process leaves.
        let killed = directory.path().join("killed");
        fs::copy(&path, &killed).unwrap();
        let refusal = ReadOnlyArchive::open(&killed, CACHE_BYTES).err().unwrap();
        assert!(std::error::Error::source(&refusal).unwrap().to_string().contains("not closed properly"), "{refusal}");
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
    fn the_identity_of_a_closed_archive_is_read_without_its_lock() {
        let directory = tempfile::tempdir().unwrap();
        let (path, killed) = (directory.path().join("archive"), directory.path().join("killed"));
        assert_eq!(identity_without_lock(&path).unwrap(), None, "there is none");
        let archive = RedbArchive::open(&path, CACHE_BYTES).unwrap();
        archive.set_identity(Identity([7; 16])).unwrap();
        assert_eq!(identity_without_lock(&path).unwrap(), None, "a server has it open");
        fs::copy(&path, &killed).unwrap();
        assert_eq!(identity_in(&killed).unwrap(), Some(Identity([7; 16])));
        assert_eq!(identity_without_lock(&killed).unwrap(), None, "it needs a repair");
        archive.close();
        let before = fs::read(&path).unwrap();
        let held = FileBackend::new(OpenOptions::new().read(true).write(true).open(&path).unwrap()).unwrap();
        assert!(held.try_lock_range(Bound::Unbounded, Bound::Unbounded).unwrap());
        assert!(matches!(identity_in(&path), Err(ArchiveError::Locked { .. })));
        assert_eq!(identity_without_lock(&path).unwrap(), Some(Identity([7; 16])));
        assert_eq!(fs::read(&path).unwrap(), before);
        // The next start rejects a damaged checksum file.
        fs::write(path.with_extension("sums"), "damaged").unwrap();
        assert_eq!(identity_without_lock(&path).unwrap(), None);
    }

    #[test]
    fn files_that_are_not_archives_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("archive");
        let refusal = |content: &[u8]| {
            fs::write(&path, content).unwrap();
            assert!(matches!(identity_without_lock(&path), Err(ArchiveError::NotAnArchive { .. })));
            ReadOnlyArchive::open(&path, CACHE_BYTES).err().unwrap().to_string()
        };
        assert!(refusal(b"a letter").contains("is not an archive: it has bad magic bytes"));
        assert!(!refusal(b"").is_empty());
        assert!(ReadOnlyArchive::open(&directory.path().join("none"), CACHE_BYTES).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn special_files_are_refused_without_blocking() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("archive");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        // The test holds both ends of the pipe open. So opening it for reading does not block even if the code opens it like a file.
        let _both_ends = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        for refusal in [
            ReadOnlyArchive::open(&path, CACHE_BYTES).map(drop),
            identity_in(&path).map(drop),
            identity_without_lock(&path).map(drop),
        ] {
            let refusal = refusal.unwrap_err().with_sources();
            assert!(refusal.contains("it is not a regular file"), "{refusal}");
        }
    }
}
