//! Opening an engine with as little as an embedding program has to say.

use std::path::PathBuf;
use std::sync::Arc;

use crate::clock::SystemClock;
use crate::config::EngineConfig;
use crate::engine::{Engine, StorageConfig};
use crate::feed::page::Range;
use crate::feed::position::Position;
use crate::feed::resume::Resume;
use crate::recovery::RecoveryProgress;
use crate::state::reader::PageRequest;
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

impl PageRequest {
    /// The newest entries, at most `limit` of them.
    pub const fn newest(limit: usize) -> Self {
        Self { range: Range::Newest, limit }
    }

    /// The entries right below a position, as `next` of a page names it.
    pub const fn before(position: Position, limit: usize) -> Self {
        Self { range: Range::Before(position), limit }
    }

    /// The entries that came into the feed after a page, of which this is the `resume`.
    pub const fn since(page: Resume, limit: usize) -> Self {
        Self { range: Range::Resume(page), limit }
    }
}
