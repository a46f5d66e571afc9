//! Opening an engine with the fewest settings, for programs that embed it.

use std::path::PathBuf;
use std::sync::Arc;

use crate::clock::SystemClock;
use crate::config::EngineConfig;
use crate::engine::{Engine, StorageConfig};
use crate::recovery::RecoveryProgress;
use crate::storage::error::StorageError;

impl Engine {
    /// Opens a durable engine on a data directory, which is created if it does not exist, with the default
    /// [`StorageConfig`]: every write is synced before it is answered. Blocks the thread until the state is recovered.
    /// [`Engine::open`] accepts all settings and reports the recovery.
    ///
    /// # Errors
    /// Fails if another process uses the directory, or if its files are damaged: the error names the problem, the place
    /// and the remedy.
    pub fn open_directory(config: EngineConfig, directory: impl Into<PathBuf>) -> Result<Self, StorageError> {
        let storage = StorageConfig { directory: directory.into(), ..StorageConfig::default() };
        Self::open(config, &storage, Arc::new(SystemClock), &RecoveryProgress::default()).map(|(engine, _)| engine)
    }
}
