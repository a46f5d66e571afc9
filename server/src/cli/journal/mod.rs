//! `tidewire journal`: looking into a journal, a whole data directory's or one segment's. Nothing is written, and a server
//! may be running on it.

mod event_line;
mod inspect;
mod verify;

use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::Subcommand;

use crate::cli::Outcome;
use crate::cli::read_only::ReadOnly;
use tidewire::storage::error::StorageError;
use tidewire::storage::files::Files as _;
use tidewire::storage::segment::{self, SEGMENT_HEADER_BYTES_MAX};

/// What `tidewire journal` can do.
#[derive(Debug, Subcommand)]
pub(crate) enum JournalTool {
    /// Say what is in a journal: segments, sequences, kinds of events, how each segment ends
    Inspect(inspect::Inspect),
    /// Read all of a journal, and say whether it is good or where it is not
    Verify(JournalPath),
}

/// The journal to look into.
#[derive(Debug, clap::Args)]
pub(crate) struct JournalPath {
    /// A data directory, or one segment file
    path: PathBuf,
}

impl JournalTool {
    pub(crate) fn run(self) -> Outcome {
        match self {
            Self::Inspect(inspect) => inspect.run(),
            Self::Verify(JournalPath { path }) => verify::run(&path, &open(&path)?),
        }
    }
}

/// The segments at `path`. A single one may have any name.
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
