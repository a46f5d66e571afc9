//! Opens the engine of a data directory, and the archive if it is not in that directory.

use std::error::Error;
use std::sync::Arc;

use crate::cli::settings::OldPosts;
use crate::cli::waiting::AT_START;
use tidewire::clock::SystemClock;
use tidewire::config::EngineConfig;
use tidewire::engine::{Engine, LockedDataDir, StorageConfig};
use tidewire::recovery::{RecoveryProgress, RecoveryReport};
use tidewire::storage::archive::{Archive, ArchiveError, RemoteArchive};
#[cfg(feature = "cassandra")]
use tidewire_cassandra::CassandraArchive;

/// The phase of a recovery in which the archive is opened.
const CONNECTING: &str = "connecting to the archive";

/// Opens the archive, if it is across a network.
///
/// # Errors
/// Fails if the archive is damaged, lacks tables, or cannot be reached.
pub(super) fn remote_archive(old_posts: &OldPosts) -> Result<Option<Arc<dyn RemoteArchive>>, ArchiveError> {
    match old_posts {
        OldPosts::Directory => Ok(None),
        #[cfg(feature = "cassandra")]
        OldPosts::Cassandra(options) => Ok(Some(Arc::new(CassandraArchive::open(options)?))),
    }
}

/// As [`remote_archive`], for a server that starts: waits for nodes that do not answer yet.
///
/// # Errors
/// Fails for the same reasons.
pub(super) fn awaited_archive(
    old_posts: &OldPosts,
    progress: &RecoveryProgress,
) -> Result<Option<Arc<dyn RemoteArchive>>, ArchiveError> {
    if !matches!(old_posts, OldPosts::Directory) {
        progress.enter(CONNECTING);
    }
    AT_START.until_done(ArchiveError::is_unavailable, || remote_archive(old_posts))
}

/// Recovers the state of a directory, with this archive or with the one in the directory.
///
/// # Errors
/// Fails if the directory or the archive is damaged, belongs to another server, or cannot be reached.
pub(super) fn engine(
    config: EngineConfig,
    storage: &StorageConfig,
    directory: LockedDataDir,
    archive: Option<Arc<dyn RemoteArchive>>,
    progress: &RecoveryProgress,
) -> Result<(Engine, RecoveryReport), Box<dyn Error + Send + Sync>> {
    let clock = Arc::new(SystemClock);
    Ok(match archive.map(|archive| archive as Arc<dyn Archive>) {
        None => Engine::open_claimed(config, storage, directory, clock, progress)?,
        Some(archive) => Engine::open_claimed_with(config, storage, directory, &archive, clock, progress)?,
    })
}
