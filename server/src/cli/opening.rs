//! Opens the engine of a data directory with the configured archive, for a server or an import.

use std::error::Error;
use std::sync::Arc;

use crate::cli::settings::OldPosts;
use tidewire::clock::SystemClock;
use tidewire::config::EngineConfig;
use tidewire::engine::{Engine, LockedDataDir, StorageConfig};
use tidewire::recovery::{RecoveryProgress, RecoveryReport};
#[cfg(feature = "cassandra")]
use tidewire::storage::archive::Archive;
#[cfg(feature = "cassandra")]
use tidewire_cassandra::CassandraArchive;

/// Recovers the state of a directory.
///
/// # Errors
/// Fails if the directory or the archive is damaged, belongs to another server, or cannot be reached.
pub(super) fn engine(
    config: EngineConfig,
    storage: &StorageConfig,
    directory: LockedDataDir,
    old_posts: &OldPosts,
    progress: &RecoveryProgress,
) -> Result<(Engine, RecoveryReport), Box<dyn Error + Send + Sync>> {
    let clock = Arc::new(SystemClock);
    Ok(match old_posts {
        OldPosts::Directory => Engine::open_claimed(config, storage, directory, clock, progress)?,
        #[cfg(feature = "cassandra")]
        OldPosts::Cassandra(options) => {
            let archive: Arc<dyn Archive> = Arc::new(CassandraArchive::open(options)?);
            Engine::open_claimed_with(config, storage, directory, &archive, clock, progress)?
        }
    })
}
