//! The initial state of a new cluster: `tidewire cluster init --from-snapshot`.

use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidewire::clock::{Clock as _, SystemClock};
use tidewire::cluster::record::ClusterId;
use tidewire::config::EngineConfig;
use tidewire::feed::followers::Sharding;
use tidewire::recovery::rebuilt::Rebuilt;
use tidewire::state::world::World;
use tidewire::storage::error::StorageError;
use tidewire::storage::files::Files;
use tidewire::storage::files::disk::DiskFiles;
use tidewire::storage::lock::DirectoryLock;
use tidewire::storage::log::LogRecord;

/// The entries that an empty directory may have.
const OF_EMPTY: [&str; 2] = ["LOCK", "lost+found"];

/// A loaded state, and the directory for the first node of the new cluster. Both directories stay locked.
pub(super) struct FoundedState {
    state: Rebuilt,
    directory: PathBuf,
    files: Arc<dyn Files>,
    _locks: [DirectoryLock; 2],
}

impl FoundedState {
    /// Loads the state from a directory, and prepares another one, which must be empty.
    pub(super) fn load(from: &Path, directory: &Path) -> Result<Self, Box<dyn Error>> {
        // Check this first, because opening a directory creates it.
        if !from.is_dir() {
            return Err(format!("{} is not a directory", from.display()).into());
        }
        let open = |path: &Path| {
            let files =
                DiskFiles::open(path).map_err(StorageError::io("use the directory", path.display().to_string()))?;
            Ok::<_, StorageError>((files, DirectoryLock::take(path)?))
        };
        let (source, lock) = open(from)?;
        let make_world = || World::create(EngineConfig::default().celebrity, Sharding::new(1));
        let state = Rebuilt::from_snapshot(&source, &make_world)?;
        let (files, lock_of_new) = open(directory)?;
        let there = files.list().map_err(StorageError::io("read the directory", directory.display().to_string()))?;
        if let Some(file) = there.into_iter().find(|name| !OF_EMPTY.contains(&&**name)) {
            return Err(format!("the directory {} is not empty: it has {file}", directory.display()).into());
        }
        Ok(Self { state, directory: directory.to_owned(), files: Arc::new(files), _locks: [lock, lock_of_new] })
    }

    /// Writes the data directory of the first node, and returns the first record of the log.
    pub(super) fn write(&self, cluster: ClusterId, partitions: u32, archive: bool) -> Result<LogRecord, StorageError> {
        self.state.found(Arc::clone(&self.files), cluster, partitions, archive, SystemClock.now())
    }
}

impl fmt::Display for FoundedState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (before, directory) = (&self.state.followed, self.directory.display());
        let (cluster, world) = (before.membership.cluster(), &self.state.state.world);
        writeln!(f, "it begins with the state of cluster {cluster} after record {}", before.sequence)?;
        writeln!(f, "digest:   {}", world.digest())?;
        writeln!(f, "posts:    {}, edges: {}", world.posts.len(), world.edges())?;
        write!(f, "start the first node with --data-dir {directory}, then the others with empty directories")
    }
}
