//! Opening an engine with as little as an embedding program has to say.

use std::path::PathBuf;
use std::sync::Arc;

use crate::clock::SystemClock;
use crate::config::EngineConfig;
use crate::engine::{Engine, StorageConfig};
use crate::recovery::RecoveryProgress;
use crate::storage::error::StorageError;

impl Engine {
    /// Opens a durable engine on a data directory, which is created if it does not exist, with the default [`StorageConfig`]: every
    /// write is synced before it is answered. Blocks the thread until the state is recovered. [`Engine::open`] takes all settings
    /// and reports what was recovered.
    ///
    /// # Errors
    /// When another process uses the directory, or its files are damaged: the error names what is wrong, where, and what to do.
    pub fn open_directory(config: EngineConfig, directory: impl Into<PathBuf>) -> Result<Self, StorageError> {
        let storage = StorageConfig { directory: directory.into(), ..StorageConfig::default() };
        Self::open(config, &storage, Arc::new(SystemClock), &RecoveryProgress::default()).map(|(engine, _)| engine)
    }
}
