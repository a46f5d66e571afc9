//! `tidewire snapshot`: inspects a snapshot file. Only `export` writes anything: its output files.

mod content;
mod export;
mod inspect;
mod outline;
mod verify;

use std::path::{Path, PathBuf};

use clap::Subcommand;

use crate::cli::read_only::ReadOnly;
use crate::cli::{Outcome, terminal};
use tidewire::storage::error::StorageError;
use tidewire::storage::snapshot::SnapshotReader;

/// Subcommands of `tidewire snapshot`.
#[derive(Debug, Subcommand)]
pub(crate) enum SnapshotTool {
    /// Show what is in a snapshot: when it was taken, and the size of each section
    Inspect(SnapshotFile),
    /// Read and load all of a snapshot and report whether it is good, or where it is damaged
    Verify(SnapshotFile),
    /// Write posts and follow edges of a snapshot and its archive as text that `tidewire import` takes
    Export(export::Export),
}

/// Path of the snapshot to inspect.
#[derive(Debug, clap::Args)]
pub(crate) struct SnapshotFile {
    /// Snapshot file to read
    file: PathBuf,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

impl SnapshotTool {
    pub(crate) fn run(self) -> Outcome {
        match self {
            Self::Inspect(SnapshotFile { file, json }) => inspect::run(&Snapshot::open(&file)?, json),
            Self::Verify(SnapshotFile { file, json }) => terminal::verdict(
                json,
                Snapshot::open(&file).map_err(Into::into).and_then(|file| verify::run(&file, json)),
            ),
            Self::Export(export) => export.run(),
        }
    }
}

/// An open snapshot file. It can be read several times, even if a running server deletes it in the meantime.
struct Snapshot(ReadOnly);

impl Snapshot {
    fn open(file: &Path) -> Result<Self, StorageError> {
        ReadOnly::file(file).map(Self)
    }

    /// Returns the file name without the directory.
    fn name(&self) -> &str {
        self.0.name()
    }

    /// Opens a reader at the start of the file.
    fn reader(&self) -> Result<SnapshotReader, StorageError> {
        SnapshotReader::open(&self.0, self.name())
    }
}
