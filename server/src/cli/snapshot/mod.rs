//! `tidewire snapshot`: looking into a snapshot file. Nothing is written but what `export` is told to write.

mod content;
mod export;
mod inspect;
mod outline;
mod verify;

use std::path::{Path, PathBuf};

use clap::Subcommand;

use crate::cli::Outcome;
use crate::cli::read_only::ReadOnly;
use tidewire::storage::error::StorageError;
use tidewire::storage::snapshot::SnapshotReader;

/// What `tidewire snapshot` can do.
#[derive(Debug, Subcommand)]
pub(crate) enum SnapshotTool {
    /// Say what is in a snapshot: when it was taken, and how much each section holds
    Inspect(SnapshotFile),
    /// Read all of a snapshot, load it, and say whether it is good or where it is not
    Verify(SnapshotFile),
    /// Write posts and follow edges of a snapshot and its archive as text that `tidewire import` takes
    Export(export::Export),
}

/// The snapshot to look into.
#[derive(Debug, clap::Args)]
pub(crate) struct SnapshotFile {
    /// The snapshot
    file: PathBuf,
}

impl SnapshotTool {
    pub(crate) fn run(self) -> Outcome {
        match self {
            Self::Inspect(SnapshotFile { file }) => inspect::run(&Snapshot::open(&file)?),
            Self::Verify(SnapshotFile { file }) => verify::run(&Snapshot::open(&file)?),
            Self::Export(export) => export.run(),
        }
    }
}

/// A snapshot file, which can be read several times even if a server drops it meanwhile.
struct Snapshot(ReadOnly);

impl Snapshot {
    fn open(file: &Path) -> Result<Self, StorageError> {
        ReadOnly::file(file).map(Self)
    }

    /// Its name, without the directory.
    fn name(&self) -> &str {
        self.0.name()
    }

    /// Reads it from its start.
    fn reader(&self) -> Result<SnapshotReader, StorageError> {
        SnapshotReader::open(&self.0, self.name())
    }
}
