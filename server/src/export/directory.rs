//! Data directories of exports and imports: reads the state of one, or creates one from the lines.

use std::error::Error;
use std::io::{self, BufRead, Write};
#[cfg(any(feature = "cluster", test))]
use std::io::{BufReader, BufWriter, Seek as _};
use std::path::Path;
use std::sync::Arc;

use crate::backup::manifest::read_readable;
use crate::backup::new_directory::{self, NewDirectory, world_beside};
use crate::backup::restore::{Moment, Wanted, restore};
use crate::backup::store::Store;
use crate::backup::url::BackupUrl;
use crate::export::line::Counts;
use crate::export::read::{Reading, hash_of};
#[cfg(any(feature = "cluster", test))]
use crate::export::write::WriteError;
use crate::export::write::{AtRest, write};
#[cfg(any(feature = "cluster", test))]
use tidewire::cluster::record::ClusterId;
use tidewire::config::EngineConfig;
use tidewire::limits::ARCHIVE_CACHE_BYTES;
use tidewire::recovery::RecoveryProgress;
#[cfg(any(feature = "cluster", test))]
use tidewire::recovery::rebuilt::InitialState;
use tidewire::recovery::rebuilt::Rebuilt;
use tidewire::storage::archive::{self, Archive, ArchiveError, LocalArchive, RedbArchive};
use tidewire::storage::directory_identity;
use tidewire::storage::directory_identity::Identified;
use tidewire::storage::error::StorageError;
use tidewire::storage::files::Files;
use tidewire::storage::files::disk::DiskFiles;
#[cfg(any(feature = "cluster", test))]
use tidewire::storage::identity::Identity;
use tidewire::storage::lock::DirectoryLock;

/// Maximum bytes of a line that an error shows.
const LINE_SHOWN_BYTES: usize = 300;

/// The state of a data directory, and its lock.
type Loaded = (AtRest, DirectoryLock);

/// Loads the state of a data directory as a start does. A node of a cluster has part of its state in the log, so its newest snapshot must
/// be the whole state, except for old posts in a copy of the archive beside it.
///
/// # Errors
/// Fails if the directory is not a data directory, is in use or damaged, or if the snapshot of a node lacks a part of the state.
pub(crate) fn load(directory: &Path) -> Result<Loaded, Box<dyn Error>> {
    // Each data directory has an identity from its creation. Without this check, a wrong path would become an empty data directory.
    if !directory.join(directory_identity::FILE).is_file() {
        let why =
            format!("{} is not a data directory: it has no file {}", directory.display(), directory_identity::FILE);
        return Err(why.into());
    }
    let lock = DirectoryLock::take(directory)?;
    let files = DiskFiles::open(directory).map_err(StorageError::io("use", directory.display().to_string()))?;
    let path = directory.join(archive::FILE);
    let of_archive = archive::identity_in(&path)?;
    if let Some(of_archive) = of_archive {
        directory_identity::compare(&files, path.display().to_string(), of_archive)?;
    }
    // Do not create a missing archive: it may be elsewhere, and a new one would keep a server from starting on the directory.
    let archive = if path.exists() { Some(open_archive(directory)?) } else { None };
    archive.as_ref().map_or(Ok(()), |archive| LocalArchive::check(&**archive))?;
    if directory_identity::find(&files)?.is_some_and(|identity| identity.cluster().is_some()) {
        // A copy gets its identity at the end.
        if archive.is_some() && of_archive.is_none() {
            return Err(format!("{} is not a whole copy: repeat `tidewire archive copy`", path.display()).into());
        }
        let archive = archive.map(|archive| archive as Arc<dyn Archive>);
        let Rebuilt { state, followed } =
            Rebuilt::from_snapshot(&files, &|| world_beside(archive.clone(), usize::MAX))?;
        let mut state = AtRest::of(state)?;
        state.sequence = followed.sequence;
        return Ok((state, lock));
    }
    let recovered =
        new_directory::load(directory, archive, &RecoveryProgress::default()).map_err(|cause| match cause {
            StorageError::NoArchive { place } => {
                format!("{place} relies on an archive that is not archive.redb beside it: copy it there first (tidewire archive copy)")
                    .into()
            }
            StorageError::BehindArchive { place, archive, has, needs } => format!(
                "{archive} ends at event {has}, and {place} needs event {needs}: repeat `tidewire archive copy`, or use an earlier state"
            )
            .into(),
            cause => Box::<dyn Error>::from(cause),
        })?;
    Ok((AtRest::of(recovered)?, lock))
}

/// Loads the state of a data directory into memory, archived posts included. It goes through a temporary file in `beside`, which has the
/// size of an export.
///
/// # Errors
/// As [`load`]. Fails also if old posts are in an archive elsewhere, if a user is being erased, or if the file cannot be written.
#[cfg(any(feature = "cluster", test))]
pub(crate) fn load_into_memory(
    directory: &Path,
    beside: &Path,
) -> Result<(InitialState, DirectoryLock), Box<dyn Error>> {
    let failed = |cause| StorageError::io("write a temporary file in", beside.display().to_string())(cause);
    let mut lines = tempfile::tempfile_in(beside).map_err(failed)?;
    let (state, lock) = load(directory)?;
    write(&state, BufWriter::new(&lines), &mut |_| {}).map_err(|cause| match cause {
        WriteError::Out(cause) => failed(cause).into(),
        cause @ WriteError::Erasing => format!("{}: {cause}", directory.display()).into(),
        cause => Box::<dyn Error>::from(cause),
    })?;
    drop(state);
    lines.rewind().map_err(failed)?;
    let mut reading = Reading::new(world_beside(None, usize::MAX), None);
    reading.read(BufReader::new(lines), &mut |_| {})?;
    let files = DiskFiles::open(directory).map_err(StorageError::io("use", directory.display().to_string()))?;
    let cluster = directory_identity::find(&files)?.and_then(Identity::cluster).map(ClusterId);
    Ok((InitialState { cluster, ..reading.built()? }, lock))
}

/// Restores the newest backup of a store into an empty directory, and loads its state.
///
/// # Errors
/// Fails if the store has no backup, if the newest one cannot be restored, or if its old posts are in an archive elsewhere.
pub(crate) fn load_backup(from: &BackupUrl, directory: &Path) -> Result<Loaded, Box<dyn Error>> {
    let store = Store::open(from, false)?;
    let newest = Wanted { moment: Moment::Newest, backup: None };
    let restored = restore(&store, read_readable(&store)?, &newest, directory)?;
    if restored.archived.is_none() {
        return Err("old posts of this backup are in Cassandra: restore it (tidewire restore), copy the archive into that directory (tidewire \
                    archive copy), and export the directory".into());
    }
    load(directory)
}

/// Creates a data directory from the lines of an export. `note` is called with the counts so far.
///
/// # Errors
/// Fails if the directory has files, a line is invalid, or the files cannot be written. The directory is empty then.
pub(crate) fn create(
    directory: &Path,
    from: impl BufRead,
    note: &mut dyn FnMut(Counts),
) -> Result<Counts, Box<dyn Error>> {
    let new = NewDirectory::begin(directory)?;
    let (counts, lines) = build(new.unfinished(), from, note)?;
    let archive = open_archive(new.unfinished())?;
    let recovered = new_directory::load(new.unfinished(), Some(Arc::clone(&archive)), &RecoveryProgress::default())?;
    let mut compared = Compared { lines: &lines, written: 0, other: None };
    write(&AtRest::of(recovered)?, &mut compared, &mut |_| {})?;
    archive.close();
    if let Some((line, text)) = compared.other {
        return Err(format!("line {line}: the created state has another line here: {text}").into());
    }
    new.publish()?;
    Ok(counts)
}

/// Compares the lines of an export with those of another one, by their hashes.
struct Compared<'a> {
    lines: &'a [u64],
    written: usize,
    /// The first line that differs: its number and the beginning of its text.
    other: Option<(usize, String)>,
}

impl Write for Compared<'_> {
    /// Compares a whole line.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.other.is_none() && self.lines.get(self.written) != Some(&hash_of(line)) {
            let text = String::from_utf8_lossy(&line[..line.len().min(LINE_SHOWN_BYTES)]);
            self.other = Some((self.written + 1, text.trim_end().to_owned()));
        }
        self.written += 1;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Builds the state of these lines, and writes it into a new directory. Returns the hash of each line.
fn build(
    directory: &Path,
    from: impl BufRead,
    note: &mut dyn FnMut(Counts),
) -> Result<(Counts, Vec<u64>), Box<dyn Error>> {
    let disk = DiskFiles::open(directory).map_err(StorageError::io("create", directory.display().to_string()))?;
    let disk = Arc::new(disk);
    let identity = directory_identity::establish(&*disk, None)?;
    let redb = open_archive(directory)?;
    redb.set_identity(identity)?;
    redb.stop_waiting();
    let archive = Arc::clone(&redb) as Arc<dyn Archive>;
    let outbox_posts = EngineConfig::default().outbox_posts.get();
    let mut reading = Reading::new(world_beside(Some(Arc::clone(&archive)), outbox_posts), Some(archive));
    let read = reading.read(from, note)?;
    let last = reading.finish(&Identified::new(Arc::clone(&disk) as Arc<dyn Files>, identity))?;
    redb.close();
    new_directory::begin_journal(&disk, last)?;
    Ok(read)
}

fn open_archive(directory: &Path) -> Result<Arc<RedbArchive>, ArchiveError> {
    let archive = RedbArchive::open(&directory.join(archive::FILE), ARCHIVE_CACHE_BYTES)?;
    // A full disk is an error: this command does not wait for space.
    archive.stop_waiting();
    Ok(Arc::new(archive))
}
