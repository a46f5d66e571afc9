//! `tidewire journal verify`: whether a server could start from a journal, read by the same rules.

use std::io::ErrorKind;
use std::path::Path;
use std::process::ExitCode;

use crate::cli::read_only::ReadOnly;
use crate::cli::{Outcome, terminal};
use tidewire::feed::event::Event;
use tidewire::storage::error::StorageError;
use tidewire::storage::frame::unpack;
use tidewire::storage::journal::Sequence;
use tidewire::storage::journal::reader::{self, Read, Reading};
use tidewire::storage::{identity, segment, snapshot};

/// Times a journal is read whose segments a running server drops meanwhile.
const ATTEMPTS_MAX: u32 = 5;

pub(super) fn run(path: &Path, files: &ReadOnly) -> Outcome {
    let mut attempt = 1;
    let (first, segments, read) = loop {
        match verify(path, files) {
            Err(cause) if attempt < ATTEMPTS_MAX && may_be_dropped(&*cause) => attempt += 1,
            read => break read?,
        }
    };
    let last = read.tail.last;
    let events = if last < first { "no events".to_owned() } else { format!("events {first} to {last}") };
    terminal::say(&format!("good: {}: {events}, segments: {segments}, bytes: {}", path.display(), read.bytes));
    if let Some(torn) = read.torn {
        terminal::say(&format!(
            "torn tail of {} bytes in {} after byte {}: not known to be synced, or being written right now; the next start \
             cuts it off",
            torn.torn_bytes, torn.place, torn.good_bytes
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether what is wrong may come of a server that dropped segments between two looks.
fn may_be_dropped(cause: &(dyn std::error::Error + 'static)) -> bool {
    match cause.downcast_ref::<StorageError>() {
        Some(StorageError::Io { source, .. }) => source.kind() == ErrorKind::NotFound,
        Some(StorageError::Missing { .. }) => true,
        _ => false,
    }
}

type Verified = (Sequence, usize, Read);

fn verify(path: &Path, files: &ReadOnly) -> Result<Verified, Box<dyn std::error::Error>> {
    // The snapshots first: what they saw is in the journal since before.
    identity::find(files)?;
    let newest = snapshot::snapshots(files)?.into_iter().next();
    let segments = reader::segments(files)?;
    let Some((_, first)) = segments.first() else {
        return Err(format!("{} has no journal segment", path.display()).into());
    };
    let is_alone = segment::parse_name(files.name()).is_some();
    let through = newest.as_ref().map_or(Sequence(0), |(_, sequence)| *sequence);
    // Events before the first segment are missing, unless there is a snapshot of them.
    let before_first = Sequence(first.0.saturating_sub(1));
    let after = if is_alone || before_first <= through { before_first } else { through };
    let check = |found: segment::Found<'_>| unpack::<Event>(found.payload).map(drop);
    let read = reader::read(files, Reading { after, repair: false }, check)?;
    if let Some((name, sequence)) = newest
        && read.tail.last < sequence
    {
        let (place, last) = (format!("the snapshot {name}"), read.tail.last);
        return Err(StorageError::BehindSnapshot { place, last, through: sequence }.into());
    }
    Ok((*first, segments.len(), read))
}
