//! `tidewire snapshot`: inspects a snapshot file. Only `export` writes files: its output.

mod export;
mod inspect;
mod outline;
mod verify;

use std::path::{Path, PathBuf};

use clap::Subcommand;

use crate::cli::read_only::ReadOnly;
use crate::cli::{Outcome, terminal};
use tidewire::recovery::{RecordBatch, decode};
use tidewire::storage::error::StorageError;
use tidewire::storage::files::Files as _;
use tidewire::storage::snapshot::{self, EndRecord, SnapshotReader};

/// Subcommands of `tidewire snapshot`.
#[derive(Debug, Subcommand)]
pub(crate) enum SnapshotTool {
    /// Show the content of a snapshot: its time, and the size of each section
    Inspect(SnapshotFile),
    /// Read and load all of a snapshot and report any damage with its place
    Verify(SnapshotFile),
    /// Write posts and follow edges of a snapshot and its archive as text for `tidewire import`
    Export(export::Export),
}

/// Path of the snapshot to inspect.
#[derive(Debug, clap::Args)]
pub(crate) struct SnapshotFile {
    /// Snapshot file to read, or a data directory to read its newest snapshot
    #[arg(value_name = "FILE|DIR")]
    file: PathBuf,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

impl SnapshotTool {
    pub(crate) fn run(self) -> Outcome {
        match self {
            Self::Inspect(SnapshotFile { file, json }) => inspect::run(&Snapshot::open(&file_at(&file)?)?, json),
            Self::Verify(SnapshotFile { file, json }) => {
                let verify = || verify::run(&Snapshot::open(&file_at(&file)?)?, json);
                terminal::verdict(json, verify())
            }
            Self::Export(export) => export.run(),
        }
    }
}

/// Returns the snapshot file at a path, or the newest one in a directory.
fn file_at(path: &Path) -> Result<PathBuf, String> {
    if !path.is_dir() {
        return Ok(path.to_owned());
    }
    let place = path.display();
    let names = ReadOnly::directory(path).list().map_err(|cause| format!("cannot read {place}: {cause}"))?;
    let newest = names.into_iter().filter(|name| snapshot::parse_name(name).is_some()).max();
    newest.map(|name| path.join(name)).ok_or_else(|| format!("{place} has no snapshot"))
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

/// Calls `each` with the records of every block.
///
/// # Errors
/// Names the block that is damaged, or whose records `each` rejected.
fn each_block(
    reader: &mut SnapshotReader,
    mut each: impl FnMut(RecordBatch) -> Result<(), String>,
) -> Result<EndRecord, StorageError> {
    while let Some(block) = reader.next_block()? {
        decode(&block).and_then(&mut each).map_err(|reason| reader.bad(reason))?;
    }
    Ok(reader.end().expect("all blocks were read"))
}

/// Calls `each` with every record, and names the record that it rejected in the error.
fn each_record<T, E: std::fmt::Display>(
    what: &str,
    records: &[T],
    mut each: impl FnMut(&T) -> Result<(), E>,
) -> Result<(), String> {
    for (nth, record) in records.iter().enumerate() {
        each(record).map_err(|cause| format!("record {} of this block of {what}: {cause}", nth + 1))?;
    }
    Ok(())
}
