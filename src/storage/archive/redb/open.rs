//! Opens the archive's file: creates it, rejects a file that is not an archive, and sets a damaged one aside for a repair.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use redb::backends::FileBackend;
use redb::{
    Builder, Database, DatabaseError, Error, ReadTransaction, ReadableDatabase, ReadableTable, ReadableTableMetadata,
    StorageBackend, StorageError,
};

use super::buffered_file::BufferedFile;
use super::sums::ChecksummedFile;
use super::{RedbArchive, cannot, guarded, layout};
use crate::id::PostId;
use crate::storage::archive::{Archive as _, ArchiveError, LARGEST_IDS_MAX, LargestIds};
use crate::storage::files::guard;

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

/// Opens the database in the file `path`, checks that this version knows its format, and returns the database and the file.
pub(super) fn database(path: &Path, cache_bytes: usize) -> Result<(Database, ChecksummedFile), ArchiveError> {
    let failed = |error| cannot("open", path, error);
    // A new file has another name until it is complete. So a process that dies meanwhile leaves no file that the operator must remove.
    let is_new = !path.exists();
    let unfinished = path.with_extension("unfinished");
    if is_new && unfinished.exists() {
        std::fs::remove_file(&unfinished).map_err(|error| failed(error.into()))?;
    }
    let file = file(if is_new { &unfinished } else { path }, path)?;
    let file = ChecksummedFile::new(BufferedFile::new(file, format!("the archive {}", path.display())));
    let sums_path = path.with_extension("sums");
    let has_sums = !is_new && sums_path.exists();
    if has_sums {
        file.compare_with(sums(&sums_path, false)?, path, &sums_path)?;
        file.mark_open().map_err(|error| cannot("write", &sums_path, error.into()))?;
    }
    let mut database = open(file.clone(), path, cache_bytes)?;
    if !is_new {
        // This is after the open, when it is certain that no other process has the archive and may be rewriting it.
        remove_leftovers(path).map_err(|error| failed(error.into()))?;
    }
    if is_blank(&database).map_err(failed)? {
        initialise(&database).map_err(failed)?;
    }
    check_format(&database, path)?;
    if !has_sums {
        if !is_new {
            check_whole(&mut database, path)?;
        }
        write_checksums(&database, &file, &sums_path).map_err(|error| cannot("write the checksums of", path, error))?;
    }
    if is_new {
        std::fs::rename(&unfinished, path).map_err(|error| failed(error.into()))?;
    }
    // The directory is synced for an existing file, too: the process that created it may have died just before its sync.
    sync_directory(path).map_err(|error| failed(error.into()))?;
    Ok((database, file))
}

/// Opens the checksum file `path`. If `is_new`, the file is created, or truncated if it exists.
pub(super) fn sums(path: &Path, is_new: bool) -> Result<BufferedFile, ArchiveError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(is_new).truncate(is_new);
    let backend = guard::open(&mut options, path).map_err(Error::from);
    let backend = backend.and_then(|file| FileBackend::new(file).map_err(Error::from));
    let backend = backend.map_err(|error| cannot("open", path, error))?;
    Ok(BufferedFile::new(backend, format!("the checksums {}", path.display())))
}

/// Reads all of an archive that has no checksum file, as earlier versions leave it, and verifies its pages with the checksums that redb
/// stores inside them. Afterwards each page is verified when it is read.
fn check_whole(database: &mut Database, path: &Path) -> Result<(), ArchiveError> {
    tracing::info!("reading the whole archive {} once, since it has no checksum file", path.display());
    let failed = |error| not_an_archive(path, error);
    let before = totals(database).map_err(failed)?;
    database.check_integrity().map_err(|error| refused(error, path))?;
    // On a mismatch `check_integrity` repairs the database with an older state if there is one. So the totals show whether data was lost.
    if totals(database).map_err(failed)? == before {
        return Ok(());
    }
    let what = "its content does not match its checksums".to_owned();
    Err(ArchiveError::Damaged { place: path.display().to_string(), what })
}

/// The number of rows per table, and the event with which the archive was persisted last.
fn totals(database: &Database) -> Result<(u64, u64, u64, Option<u64>), Error> {
    let snapshot = database.begin_read()?;
    let through = snapshot.open_table(layout::META)?.get(layout::META_THROUGH)?.map(|through| through.value());
    let (posts, outboxes) = (snapshot.open_table(layout::POSTS)?, snapshot.open_table(layout::OUTBOXES)?);
    Ok((posts.len()?, outboxes.len()?, snapshot.open_table(layout::OUTBOX_COUNTS)?.len()?, through))
}

/// Writes the checksums of all pages to a new file `sums_path`. The file gets this name only after the archive has the format that requires
/// it: then an earlier version rejects the archive, and does not write pages without checksums.
fn write_checksums(database: &Database, file: &ChecksummedFile, sums_path: &Path) -> Result<(), Error> {
    let unfinished = sums_path.with_extension("sums.unfinished");
    let sums = sums(&unfinished, true).map_err(|error| Error::from(io::Error::other(error.with_sources())))?;
    file.checksum_all(sums)?;
    let mut transaction = database.begin_write()?;
    transaction.set_quick_repair(true);
    transaction.open_table(layout::META)?.insert(layout::META_FORMAT, layout::FORMAT)?;
    transaction.commit()?;
    Ok(std::fs::rename(&unfinished, sums_path)?)
}

/// Checks that all tables exist, so that no later operation has to. Returns the largest ids of posts and
/// tombstones.
pub(super) fn check_tables(database: &impl ReadableDatabase, path: &Path) -> Result<LargestIds, ArchiveError> {
    let check = || {
        let snapshot = database.begin_read()?;
        snapshot.open_table(layout::OUTBOXES)?;
        snapshot.open_table(layout::OUTBOX_COUNTS)?;
        let largest = snapshot.open_table(layout::POSTS)?.last()?.map(|(id, _)| PostId(id.value()));
        Ok((snapshot, largest))
    };
    let (snapshot, largest) = check().map_err(|error| not_an_archive(path, error))?;
    let list = || largest_ids(&snapshot).map_err(|error| cannot("read", path, error));
    // If a page of them is damaged, one bound is known, and the reads that need the page fail.
    Ok(guarded(path, list).unwrap_or_else(|_| LargestIds::restored([], largest)))
}

fn largest_ids(snapshot: &ReadTransaction) -> Result<LargestIds, Error> {
    let posts = snapshot.open_table(layout::POSTS)?;
    let mut largest = posts.iter()?.rev().map(|row| row.map(|(id, _)| PostId(id.value())));
    let known = largest.by_ref().take(LARGEST_IDS_MAX).collect::<Result<Vec<_>, _>>()?;
    Ok(LargestIds::restored(known, largest.next().transpose()?))
}

/// Opens `file`, or creates it. Errors name `path`.
pub(super) fn file(file: &Path, path: &Path) -> Result<FileBackend, ArchiveError> {
    let failed = |error: io::Error| cannot("open", path, error.into());
    let made = guard::open(OpenOptions::new().read(true).write(true).create_new(true), file);
    let file = match made {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let file = guard::open(OpenOptions::new().read(true).write(true), file).map_err(failed)?;
            // redb would initialise an empty file as a new database. But an archive that lost its content must not be treated as a new one.
            if file.metadata().is_ok_and(|file| file.len() == 0) {
                return Err(ArchiveError::NotAnArchive { place: path.display().to_string(), why: "it is empty" });
            }
            file
        }
        made => made.map_err(failed)?,
    };
    FileBackend::new(file).map_err(|error| cannot("open", path, error.into()))
}

/// Opens the database in `file`, or creates it if the file is empty. Errors name `path`.
pub(super) fn open(file: impl StorageBackend, path: &Path, cache_bytes: usize) -> Result<Database, ArchiveError> {
    let mut builder = Builder::new();
    builder.set_cache_size(cache_bytes);
    builder.set_repair_callback({
        let path = path.display().to_string();
        move |repair| tracing::warn!("checking the archive {path} after a crash: {:.0} %", repair.progress() * 100.0)
    });
    builder.create_with_backend(file).map_err(|error| refused(error, path))
}

/// Converts a redb error of opening a file.
pub(super) fn refused(error: DatabaseError, path: &Path) -> ArchiveError {
    match error {
        DatabaseError::DatabaseAlreadyOpen => ArchiveError::Locked { place: path.display().to_string() },
        DatabaseError::Storage(StorageError::Io(error)) if error.kind() == io::ErrorKind::InvalidData => {
            ArchiveError::NotAnArchive { place: path.display().to_string(), why: "it has bad magic bytes" }
        }
        DatabaseError::Storage(StorageError::Io(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
            ArchiveError::Damaged { place: path.display().to_string(), what: "its end is missing".into() }
        }
        error => cannot("open", path, error.into()),
    }
}

/// Returns true if there are no tables: the file is new, or a process died while it initialised the file.
pub(super) fn is_blank(database: &Database) -> Result<bool, Error> {
    let snapshot = database.begin_read()?;
    Ok(snapshot.list_tables()?.next().is_none() && snapshot.list_multimap_tables()?.next().is_none())
}

pub(super) fn initialise(database: &Database) -> Result<(), Error> {
    let mut transaction = database.begin_write()?;
    // With this setting the commit is two-phase, so a crash cannot leave a torn page in it.
    transaction.set_quick_repair(true);
    transaction.open_table(layout::POSTS)?;
    transaction.open_table(layout::OUTBOXES)?;
    transaction.open_table(layout::OUTBOX_COUNTS)?;
    transaction.open_table(layout::META)?.insert(layout::META_FORMAT, layout::FORMAT)?;
    Ok(transaction.commit()?)
}

/// Syncs the directory of `path`. A new file is durable only after that, and redb syncs only the file itself.
pub(super) fn sync_directory(path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // On other systems a directory cannot be opened as a file.
    if cfg!(unix) { File::open(directory)?.sync_all() } else { Ok(()) }
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
    sync_directory(file)?;
    Ok(true)
}

/// Path of the file to which the archive is rewritten.
pub(super) fn leftover(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".unfinished");
    name.into()
}

/// Path of the file to which its checksums are written.
pub(super) fn leftover_sums(path: &Path) -> PathBuf {
    path.with_extension("sums.unfinished")
}

/// Removes the files of a rewrite that a process did not finish.
pub(super) fn remove_leftovers(path: &Path) -> io::Result<()> {
    remove(&leftover(path))?;
    remove(&leftover_sums(path))
}

pub(super) fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Rejects a file that has no format number, or one that this version does not know.
pub(super) fn check_format(database: &impl ReadableDatabase, path: &Path) -> Result<(), ArchiveError> {
    let format = || {
        let meta = database.begin_read()?.open_table(layout::META)?;
        Ok(meta.get(layout::META_FORMAT)?.map(|format| format.value()))
    };
    match format().map_err(|error| not_an_archive(path, error))? {
        Some(1..=layout::FORMAT) => Ok(()),
        Some(found) if found > layout::FORMAT => {
            Err(ArchiveError::NewerFormat { place: path.display().to_string(), found, known: layout::FORMAT })
        }
        _ => Err(ArchiveError::NotAnArchive { place: path.display().to_string(), why: "it has no format number" }),
    }
}

/// Converts an error that occurred while a file was checked.
fn not_an_archive(path: &Path, error: Error) -> ArchiveError {
    match error {
        Error::TableDoesNotExist(_)
        | Error::TableTypeMismatch { .. }
        | Error::TableIsMultimap(_)
        | Error::TypeDefinitionChanged { .. } => ArchiveError::NotAnArchive {
            place: path.display().to_string(),
            why: "its tables are not those of an archive",
        },
        error => cannot("open", path, error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redb::{MultimapTableDefinition, TableDefinition};
    use std::fs;

    const CACHE_BYTES: usize = 1 << 20;

    /// Returns the error text for the file that `make` creates at the given path, with the path replaced by FILE.
    fn refusal(make: impl FnOnce(&Path)) -> String {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("archive");
        make(&path);
        let refusal = RedbArchive::open(&path, CACHE_BYTES).unwrap_err();
        refusal.to_string().replace(&path.display().to_string(), "FILE")
    }

    /// Creates a database and runs `fill` in a transaction. The database is closed afterwards.
    fn database(path: &Path, fill: impl FnOnce(&redb::WriteTransaction)) {
        // An earlier version leaves no checksum file.
        let _ = fs::remove_file(path.with_extension("sums"));
        let database = Database::create(path).unwrap();
        let transaction = database.begin_write().unwrap();
        fill(&transaction);
        transaction.commit().unwrap();
    }

    fn format(path: &Path, format: u64) {
        database(path, |transaction| {
            transaction.open_table(layout::META).unwrap().insert(layout::META_FORMAT, format).unwrap();
        });
    }

    #[test]
    fn a_foreign_file_is_refused() {
        let start = |why: &str| format!("FILE is not an archive: {why}; move it away or name another file");
        assert_eq!(refusal(|path| fs::write(path, "").unwrap()), start("it is empty"));
        for text in ["x", "a letter to grandmother", &"0".repeat(1 << 20)] {
            assert_eq!(refusal(|path| fs::write(path, text).unwrap()), start("it has bad magic bytes"));
        }
        let others = start("its tables are not those of an archive");
        let other = TableDefinition::<u64, u64>::new("accounts");
        assert_eq!(refusal(|path| database(path, |to| drop(to.open_table(other).unwrap()))), others);
        let other = MultimapTableDefinition::<u64, u64>::new("meta");
        assert_eq!(refusal(|path| database(path, |to| drop(to.open_multimap_table(other).unwrap()))), others);
        let other = TableDefinition::<u64, u64>::new("meta");
        assert_eq!(refusal(|path| database(path, |to| drop(to.open_table(other).unwrap()))), others);
        assert_eq!(refusal(|path| format(path, layout::FORMAT)), others);
        for name in ["posts", "outboxes", "shelves"] {
            let without = |path: &Path| {
                drop(RedbArchive::open(path, CACHE_BYTES).unwrap());
                let table = TableDefinition::<u64, u64>::new(name);
                database(path, |from| assert!(from.delete_table(table).unwrap()));
            };
            assert_eq!(refusal(without), others, "{name}");
        }
        let unnamed = start("it has no format number");
        assert_eq!(refusal(|path| database(path, |to| drop(to.open_table(layout::META).unwrap()))), unnamed);
        assert_eq!(refusal(|path| format(path, 0)), unnamed);
    }

    #[test]
    fn a_file_of_a_newer_format_is_refused() {
        assert_eq!(
            refusal(|path| format(path, layout::FORMAT + 1)),
            "the archive FILE has format 3, and this version reads formats up to 2; \
            open it with the version that wrote it or a newer one"
        );
    }

    #[test]
    fn a_file_in_use_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("archive");
        let first = RedbArchive::open(&path, CACHE_BYTES).unwrap();
        let refusal = RedbArchive::open(&path, CACHE_BYTES).unwrap_err().to_string();
        assert_eq!(
            refusal.replace(&path.display().to_string(), "FILE"),
            "the archive FILE is in use; stop the process that has it open or name another file"
        );
        drop(first);
        RedbArchive::open(&path, CACHE_BYTES).unwrap();
    }

    #[test]
    fn a_damaged_file_is_refused() {
        let cut = |length: u64| {
            refusal(|path| {
                drop(RedbArchive::open(path, CACHE_BYTES).unwrap());
                File::options().write(true).open(path).unwrap().set_len(length).unwrap();
            })
        };
        for length in [20, 4096, 100_000] {
            let refusal = cut(length);
            assert!(refusal.starts_with("the archive FILE is damaged: "), "{length}: {refusal}");
            // The remedy depends on the caller.
            assert!(!refusal.contains("--repair"), "{length}: {refusal}");
        }
    }

    #[test]
    fn a_directory_that_does_not_exist_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("none").join("archive");
        let refusal = RedbArchive::open(&path, CACHE_BYTES).unwrap_err();
        assert_eq!(refusal.to_string(), format!("failed to open the archive {}", path.display()));
        assert!(std::error::Error::source(&refusal).unwrap().to_string().contains("No such file"));
    }

    #[test]
    fn a_partly_created_file_is_completed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("archive");
        drop(Database::create(&path).unwrap());
        drop(RedbArchive::open(&path, CACHE_BYTES).unwrap());
        RedbArchive::open(&path, CACHE_BYTES).unwrap();
    }
}
