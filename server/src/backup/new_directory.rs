//! A data directory that is written atomically.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::backup::BackupError;
use crate::process_memory::{self, STORE_PART, part_of};
use tidewire::config::EngineConfig;
use tidewire::feed::followers::Sharding;
use tidewire::recovery::{Recovered, Recovery, RecoveryProgress};
use tidewire::state::unwritten::TieringLimits;
use tidewire::state::world::{StateMachine, World};
use tidewire::storage::archive::{Archive, ArchiveError, DetachedArchive, RedbArchive, ReplicatedArchive};
use tidewire::storage::error::StorageError;
use tidewire::storage::files::Files as _;
use tidewire::storage::files::disk::DiskFiles;
use tidewire::storage::lock::DirectoryLock;
use tidewire::storage::sequence::Sequence;
use tidewire::storage::{directory_identity, segment, snapshot};

/// The directory below the data directory to which files are written until all of them are complete.
pub(super) const UNFINISHED: &str = "restore.unfinished";

/// The entries that an empty directory may have: the lock and the files of an earlier, killed attempt, and the entry of a new file system.
const OF_EMPTY: [&str; 3] = ["LOCK", UNFINISHED, "lost+found"];

/// A data directory that is being written. Dropping it before it is published empties the directory again.
pub(crate) struct NewDirectory {
    directory: PathBuf,
    unfinished: PathBuf,
    files: DiskFiles,
    _lock: DirectoryLock,
}

impl NewDirectory {
    /// Locks the directory, which is created if it does not exist.
    ///
    /// # Errors
    /// Fails if it has files, or is in use.
    pub(crate) fn begin(directory: &Path) -> Result<Self, BackupError> {
        let files = DiskFiles::open(directory)
            .map_err(StorageError::io("use the directory", directory.display().to_string()))?;
        check_empty(&files, directory)?;
        let lock = DirectoryLock::take(directory)?;
        remove_unfinished(directory)?;
        let (directory, unfinished) = (directory.to_owned(), directory.join(UNFINISHED));
        Ok(Self { directory, unfinished, files, _lock: lock })
    }

    /// Returns the directory to which the files are written.
    pub(crate) fn unfinished(&self) -> &Path {
        &self.unfinished
    }

    /// Renames the files to their final names. If the process ends in between, the server refuses to start on the directory: without the
    /// beginning of the journal it needs the snapshot, which is renamed last.
    ///
    /// # Errors
    /// Fails if a file cannot be renamed.
    pub(crate) fn publish(self) -> Result<(), BackupError> {
        let Self { unfinished, files, directory, .. } = &self;
        let written = DiskFiles::open(unfinished).map_err(StorageError::io("use", unfinished.display().to_string()))?;
        directory_identity::establish(&written, None)?;
        let mut names = written.list().map_err(BackupError::file("read", unfinished.display().to_string()))?;
        names.sort_unstable_by_key(|name| {
            let is_snapshot = snapshot::parse_name(name).is_some();
            (is_snapshot, std::cmp::Reverse(segment::parse_name(name)))
        });
        for name in &names {
            let (from, to) = (PathBuf::from(written.place(name)), files.place(name));
            fs::rename(&from, &to).map_err(BackupError::file("create", to))?;
        }
        files.sync_directory().map_err(BackupError::file("sync the directory of", files.place("")))?;
        remove_unfinished(directory)
    }
}

impl Drop for NewDirectory {
    fn drop(&mut self) {
        // If this fails, the next attempt removes the files.
        let _ = fs::remove_dir_all(&self.unfinished);
    }
}

/// Refuses a directory in which a killed process has left unfinished files, because a server would start without them.
///
/// # Errors
/// Fails if there are such files, or if this cannot be determined.
pub(crate) fn refuse_unfinished(directory: &Path) -> Result<(), BackupError> {
    let unfinished = directory.join(UNFINISHED);
    match fs::read_dir(&unfinished).map(|mut files| files.next().is_some()) {
        Ok(false) => Ok(()),
        Ok(true) => Err(BackupError::Unfinished { directory: directory.to_owned() }),
        Err(cause) if cause.kind() == ErrorKind::NotFound => Ok(()),
        Err(cause) => Err(BackupError::file("read", unfinished.display().to_string())(cause)),
    }
}

/// Removes the unfinished files of a killed process from this directory, which is locked.
pub(crate) fn remove_unfinished(directory: &Path) -> Result<(), BackupError> {
    let unfinished = directory.join(UNFINISHED);
    match fs::remove_dir_all(&unfinished) {
        Err(cause) if cause.kind() != ErrorKind::NotFound => {
            Err(BackupError::file("remove", unfinished.display().to_string())(cause))
        }
        _ => Ok(()),
    }
}

fn check_empty(files: &DiskFiles, directory: &Path) -> Result<(), BackupError> {
    let there = files.list().map_err(BackupError::file("read the directory", directory.display().to_string()))?;
    match there.into_iter().find(|name| !OF_EMPTY.contains(&&**name)) {
        Some(file) => Err(BackupError::NotEmpty { directory: directory.to_owned(), file }),
        None => Ok(()),
    }
}

/// Writes the empty segment that continues the journal after `last`.
pub(crate) fn begin_journal(files: &DiskFiles, last: Sequence) -> Result<(), BackupError> {
    let first = last.next();
    write_segment(files, first, &segment::header_with(first, directory_identity::find(files)?))
}

/// Writes a segment of the journal, which begins with the event `first`.
pub(super) fn write_segment(files: &DiskFiles, first: Sequence, bytes: &[u8]) -> Result<(), BackupError> {
    let name = segment::name(first);
    let place = files.place(&name);
    let file = files.create(&name).map_err(BackupError::file("create", &*place))?;
    file.append(bytes).map_err(BackupError::file("write", &*place))?;
    file.sync().map_err(BackupError::file("sync", &*place))
}

/// Creates a world with an archive. Its state machine archives posts if an author has more than `outbox_posts`, or if the posts exceed the
/// memory limit.
pub(crate) fn world_beside(archive: Option<Arc<dyn Archive>>, outbox_posts: usize) -> (Arc<World>, StateMachine) {
    let config = EngineConfig::default();
    let of_memory = process_memory::limit().map(|memory| part_of(memory, STORE_PART));
    let store_bytes = usize::try_from(of_memory.unwrap_or(u64::MAX)).unwrap_or(usize::MAX).min(config.store_bytes_max);
    let limits = TieringLimits { outbox_posts, posts_bytes: store_bytes / 8 * 7 };
    World::create_with(config.celebrity, Sharding::new(1), archive.map(|archive| (archive, limits)))
}

/// Returns a function that creates worlds for states up to `event`, beside an archive that is not read. No post leaves their memory: the
/// archive may hold back sources.
pub(super) fn worlds_beside_detached_archive(
    event: u64,
) -> Result<impl Fn() -> (Arc<World>, StateMachine) + Sync, ArchiveError> {
    let archive = Arc::new(ReplicatedArchive::new(Arc::new(DetachedArchive::new(Sequence(event))))?);
    let limits = TieringLimits { outbox_posts: usize::MAX, posts_bytes: usize::MAX / 8 * 7 };
    Ok(move || {
        let policy = EngineConfig::default().celebrity;
        World::create_replicated(policy, Sharding::new(1), Arc::clone(&archive), limits)
    })
}

/// Loads the files of a directory as a start does, with its archive. Posts are archived only if they exceed the memory limit.
///
/// # Errors
/// Fails if a file is missing or damaged, or if the directory belongs to a node of a cluster.
pub(crate) fn load(
    directory: &Path,
    archive: Option<Arc<RedbArchive>>,
    progress: &RecoveryProgress,
) -> Result<Recovered, StorageError> {
    let files = DiskFiles::open(directory).map_err(StorageError::io("use", directory.display().to_string()))?;
    let archive = archive.map(|archive| archive as Arc<dyn Archive>);
    let make_world = || world_beside(archive.clone(), usize::MAX);
    Recovery { files: &files, make_world: &make_world, repair: false, progress }.run()
}
