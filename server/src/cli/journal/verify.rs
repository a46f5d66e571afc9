//! `tidewire journal verify`: checks by the rules of recovery that a server could start from a journal.

use std::io::ErrorKind;
use std::path::Path;
use std::process::ExitCode;

use serde_json::json;

use crate::cli::read_only::ReadOnly;
use crate::cli::{Outcome, terminal};
use tidewire::feed::event::Event;
use tidewire::storage::error::StorageError;
use tidewire::storage::frame::unpack;
use tidewire::storage::journal::reader::{self, JournalRead, Reading};
use tidewire::storage::sequence::Sequence;
use tidewire::storage::{directory_identity, segment, snapshot};

/// Maximum number of attempts to read a journal while a running server deletes segments.
const ATTEMPTS_MAX: u32 = 5;

pub(super) fn run(path: &Path, files: &ReadOnly, json: bool) -> Outcome {
    let mut attempt = 1;
    let (first, segments, read) = loop {
        match verify(path, files) {
            Err(cause) if attempt < ATTEMPTS_MAX && may_be_dropped(&*cause) => attempt += 1,
            read => break read?,
        }
    };
    let last = read.tail.last;
    if json {
        let torn = read.torn.as_ref();
        terminal::print_json(&json!({
            "good": true,
            "path": path.display().to_string(),
            "first": first.0,
            "last": last.0,
            "events": (last.0 + 1).saturating_sub(first.0),
            "segments": segments,
            "bytes": read.bytes,
            "torn": torn.map(|torn| json!({"segment": torn.place, "after_byte": torn.good_bytes, "bytes": torn.torn_bytes})),
        }));
        return Ok(ExitCode::SUCCESS);
    }
    let events = if last < first { "no events".to_owned() } else { format!("events {first} to {last}") };
    terminal::print_line(&format!("good: {}: {events}, segments: {segments}, bytes: {}", path.display(), read.bytes));
    if let Some(torn) = read.torn {
        terminal::print_line(&format!(
            "torn tail of {} bytes in {} after byte {}: not known to be synced, or being written right now; the next start \
             cuts it off",
            torn.torn_bytes, torn.place, torn.good_bytes
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns true if the error can be caused by a server that deleted segments between two reads.
fn may_be_dropped(cause: &(dyn std::error::Error + 'static)) -> bool {
    match cause.downcast_ref::<StorageError>() {
        Some(StorageError::Io { source, .. }) => source.kind() == ErrorKind::NotFound,
        Some(StorageError::Missing { .. }) => true,
        _ => false,
    }
}

type VerifiedJournal = (Sequence, usize, JournalRead);

fn verify(path: &Path, files: &ReadOnly) -> Result<VerifiedJournal, Box<dyn std::error::Error>> {
    // List the snapshots first: every event in them is already in the journal by the time the segments are listed.
    directory_identity::find(files)?;
    let newest = snapshot::snapshots(files)?.into_iter().next();
    let segments = reader::segments(files)?;
    let Some((_, first)) = segments.first() else {
        return Err(format!("{} has no journal segment", path.display()).into());
    };
    let is_alone = segment::parse_name(files.name()).is_some();
    let through = newest.as_ref().map_or(Sequence(0), |(_, sequence)| *sequence);
    // Events before the first segment count as missing unless a snapshot includes them.
    let before_first = Sequence(first.0.saturating_sub(1));
    let after = if is_alone || before_first <= through { before_first } else { through };
    let check = |found: segment::FoundEvent<'_>| unpack::<Event>(found.payload).map(drop);
    let read = reader::read(files, Reading { after, repair: false }, check)?;
    if let Some((name, sequence)) = newest
        && read.tail.last < sequence
    {
        let (place, last) = (format!("the snapshot {name}"), read.tail.last);
        return Err(StorageError::BehindSnapshot { place, last, through: sequence }.into());
    }
    Ok((*first, segments.len(), read))
}
