//! `tidewire journal`: inspects the journal of a data directory or a single segment. It does not write, and a server may be running on the
//! same directory.

mod event_line;
mod inspect;
mod verify;

use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::Subcommand;

use crate::cli::read_only::ReadOnly;
use crate::cli::{Outcome, terminal};
use tidewire::storage::error::StorageError;
use tidewire::storage::files::Files as _;
use tidewire::storage::segment::{self, SEGMENT_HEADER_BYTES_MAX};

/// Subcommands of `tidewire journal`.
#[derive(Debug, Subcommand)]
pub(crate) enum JournalTool {
    /// Show the content of a journal: segments, sequences, kinds of events, the end of each segment
    Inspect(inspect::Inspect),
    /// Read all of a journal and report any damage with its place
    Verify(JournalPath),
}

/// Path of the journal to inspect.
#[derive(Debug, clap::Args)]
pub(crate) struct JournalPath {
    /// A data directory, or one segment file
    path: PathBuf,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

impl JournalTool {
    pub(crate) fn run(self) -> Outcome {
        match self {
            Self::Inspect(inspect) => inspect.run(),
            Self::Verify(JournalPath { path, json }) => terminal::verdict(
                json,
                open(&path).map_err(Into::into).and_then(|files| verify::run(&path, &files, json)),
            ),
        }
    }
}

/// Opens the segments at `path`. A single segment file may have any name.
fn open(path: &Path) -> Result<ReadOnly, StorageError> {
    let failed = |cause| StorageError::io("read", path.display().to_string())(cause);
    if path.metadata().map_err(failed)?.is_dir() {
        return Ok(ReadOnly::directory(path));
    }
    let file = ReadOnly::file(path)?;
    if segment::parse_name(file.name()).is_some() {
        return Ok(file);
    }
    let mut header = Vec::with_capacity(SEGMENT_HEADER_BYTES_MAX);
    let (reader, _) = file.read(file.name()).map_err(failed)?;
    reader.take(SEGMENT_HEADER_BYTES_MAX as u64).read_to_end(&mut header).map_err(failed)?;
    let foreign = || StorageError::Foreign { place: path.display().to_string(), what: "journal segment" };
    let first = segment::parse_header(&header).ok_or_else(foreign)?;
    Ok(file.called(segment::name(first)))
}
