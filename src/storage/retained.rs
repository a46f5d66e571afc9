//! Retained segments: segments of the journal that no snapshot needs, kept for consumers of changes.
//!
//! Responsible for:
//! - their names, listing them alone and together with the journal;
//! - how many of them are kept.
//!
//! Not responsible for:
//! - when a segment is retained (`runtime::background::snapshotter`), rewriting one for an erasure (`runtime::background::eraser`), reading
//!   events from them (`storage::log::segments`).
//!
//! A recovery never reads them, so what an erasure removes from them changes no state. A file is named by its first event and by the instant
//! from which it is retained, in microseconds. A rewritten segment has another name, because offsets in it differ: it is retained from a
//! microsecond later. Of several files with the same first event the latest is the right one.

use std::time::Duration;

use crate::clock::UnixMicros;
use crate::storage::error::StorageError;
use crate::storage::files::{Files, UNFINISHED, replace};
use crate::storage::frame::{self, FrameKind};
use crate::storage::journal::Sequence;
use crate::storage::journal::reader::segments;
use crate::storage::segment::{self, End, FoundEvent, Segment};

/// A file with events of the journal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct EventFile {
    /// The first event in it.
    pub first: Sequence,
    /// The instant from which it is retained, or none if it belongs to the journal.
    pub retained_since: Option<UnixMicros>,
}

impl EventFile {
    /// Returns the name of the file.
    pub fn name(self) -> String {
        match self.retained_since {
            None => segment::name(self.first),
            Some(since) => format!("changes-{:020}-{:020}.log", self.first.0, since.0.max(0)),
        }
    }
}

/// Parses the name of a retained segment. Returns none for another name.
pub fn parse_name(name: &str) -> Option<EventFile> {
    let (first, since) = name.strip_prefix("changes-")?.strip_suffix(".log")?.split_once('-')?;
    let is_number = |text: &str| text.len() == 20 && text.bytes().all(|byte| byte.is_ascii_digit());
    let numbers = (is_number(first) && is_number(since)).then(|| (first.parse().ok(), since.parse().ok()));
    let (Some(first), Some(since)) = numbers? else { return None };
    Some(EventFile { first: Sequence(first), retained_since: Some(UnixMicros(since)) })
}

/// The retained segments of a directory.
#[derive(Debug, Default)]
pub struct Retained {
    /// The right file for each first event, in the order of events.
    pub current: Vec<EventFile>,
    /// The names of files that were rewritten since, or never finished.
    pub obsolete: Vec<String>,
}

/// Lists the retained segments.
///
/// # Errors
/// Fails if the directory cannot be read.
pub fn list(files: &dyn Files) -> Result<Retained, StorageError> {
    let names = files.list().map_err(StorageError::io("read the directory", files.place("")))?;
    let mut all: Vec<EventFile> = names.iter().filter_map(|name| parse_name(name)).collect();
    all.sort_unstable();
    let is_unfinished = |name: &String| name.strip_suffix(UNFINISHED).and_then(parse_name).is_some();
    let mut retained = Retained { current: Vec::new(), obsolete: names.into_iter().filter(is_unfinished).collect() };
    for file in all {
        let older = retained.current.pop_if(|older| older.first == file.first);
        retained.obsolete.extend(older.map(EventFile::name));
        retained.current.push(file);
    }
    Ok(retained)
}

/// Lists all segments from which events can be read, in their order: retained ones, then those of the journal.
///
/// # Errors
/// Fails if the directory cannot be read.
pub fn list_with_journal(files: &dyn Files) -> Result<Vec<EventFile>, StorageError> {
    // First: a segment that is retained meanwhile is then in one of the lists, or in both.
    let journal = segments(files)?;
    let mut all = list(files)?.current;
    all.extend(journal.into_iter().map(|(_, first)| EventFile { first, retained_since: None }));
    // The retained one is first, where there are both.
    all.sort_by_key(|file| file.first);
    all.dedup_by_key(|file| file.first);
    Ok(all)
}

/// Returns the content of a segment with the same events, whose payloads `payload` appends.
///
/// # Errors
/// Fails if the segment is damaged, or `payload` returns what is wrong with an event.
pub fn rewritten(
    segment: &Segment,
    mut payload: impl FnMut(FoundEvent<'_>, &mut Vec<u8>) -> Result<(), String>,
) -> Result<Vec<u8>, StorageError> {
    let mut bytes = segment::header_with(segment.first, segment.identity());
    let damaged = |offset_bytes, sequence, reason| StorageError::Damaged {
        place: segment.place.clone(),
        offset_bytes,
        sequence,
        reason,
    };
    let read = segment.walk(|found| {
        let mut written = Ok(());
        // The events of a retained segment were synced long ago.
        frame::encode(&mut bytes, FrameKind::Event, found.sequence, found.sequence, |into| {
            written = payload(found, into);
        });
        written.map_err(|reason| damaged(found.offset_bytes, found.sequence, reason))
    })?;
    match read.end {
        End::Whole => Ok(bytes),
        End::Torn => Err(damaged(read.good_bytes, read.next, "it ends in the middle of a frame".to_owned())),
        End::Damaged { reason } => Err(damaged(read.good_bytes, read.next, reason)),
    }
}

/// Writes a retained segment, so that it survives a power loss.
///
/// # Errors
/// Fails if the file cannot be written. An unfinished one may then be left.
pub fn write(files: &dyn Files, file: EventFile, bytes: &[u8]) -> Result<(), StorageError> {
    let name = file.name();
    replace(files, &name, bytes).map_err(StorageError::io("write", files.place(&name)))
}

/// For how long segments are retained.
#[derive(Clone, Copy, Debug)]
pub struct Retention {
    /// Time for which each of them is kept.
    pub time: Duration,
    /// Maximum bytes of all of them.
    pub bytes_max: u64,
    /// The last event that every registered consumer has processed. None without consumers.
    pub consumed: Option<Sequence>,
}

/// A segment that may be retained.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// The last event in it.
    pub last: Sequence,
    /// The instant from which it is retained.
    pub since: UnixMicros,
    /// Bytes of the file.
    pub bytes: u64,
}

impl Retention {
    /// Returns how many of these segments are kept, newest first. All older ones are removed, so that what is kept has no gaps.
    pub fn kept(&self, newest_first: impl IntoIterator<Item = Candidate>, now: UnixMicros) -> usize {
        let mut all = 0_u64;
        let is_kept = |candidate: &Candidate| {
            all = all.saturating_add(candidate.bytes);
            let is_young = now < candidate.since.saturating_add(self.time);
            let is_wanted = self.consumed.is_some_and(|consumed| consumed < candidate.last);
            (is_young || is_wanted) && all <= self.bytes_max
        };
        newest_first.into_iter().take_while(is_kept).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::files::memory::MemoryFiles;

    fn retained(first: u64, since: i64) -> EventFile {
        EventFile { first: Sequence(first), retained_since: Some(UnixMicros(since)) }
    }

    #[test]
    fn names_are_parsed_as_they_are_written_and_others_are_not() {
        for file in [retained(1, 0), retained(u64::MAX, i64::MAX)] {
            assert_eq!(parse_name(&file.name()), Some(file));
        }
        let name = retained(1, 2).name();
        assert_eq!(name, "changes-00000000000000000001-00000000000000000002.log");
        for other in [
            "changes-1-2.log",
            "changes-00000000000000000001.log",
            "changes-00000000000000000001-0000000000000000000x.log",
            "changes-99999999999999999999-00000000000000000002.log",
            &segment::name(Sequence(1)),
            &format!("{name}{UNFINISHED}"),
        ] {
            assert_eq!(parse_name(other), None, "{other}");
        }
    }

    #[test]
    fn the_latest_file_of_the_same_events_is_the_right_one_also_beside_the_journal() {
        let files = MemoryFiles::default();
        for file in [retained(1, 7), retained(1, 8), retained(5, 7)] {
            write(&files, file, b"x").unwrap();
        }
        let journal = |first| EventFile { first: Sequence(first), retained_since: None };
        for file in [journal(5), journal(9)] {
            files.put(&file.name(), b"x".to_vec());
        }
        let unfinished = format!("{}{UNFINISHED}", retained(1, 9).name());
        files.put(&unfinished, b"x".to_vec());
        let found = list(&files).unwrap();
        assert_eq!(found.current, [retained(1, 8), retained(5, 7)]);
        assert_eq!(found.obsolete, [unfinished, retained(1, 7).name()]);
        assert_eq!(list_with_journal(&files).unwrap(), [retained(1, 8), retained(5, 7), journal(9)]);
    }

    #[test]
    fn segments_are_kept_for_a_time_and_for_consumers_and_never_past_the_limit() {
        let second = Duration::from_secs(1);
        let candidate = |last, since, bytes| Candidate { last: Sequence(last), since: UnixMicros(since), bytes };
        let newest_first = [candidate(30, 9_000_000, 10), candidate(20, 5_000_000, 10), candidate(10, 1_000_000, 10)];
        let now = UnixMicros(10_000_000);
        for (time, bytes_max, consumed, expected) in [
            (Duration::ZERO, 100, None, 0),
            (second, 100, None, 0),
            (second + Duration::from_micros(1), 100, None, 1),
            (10 * second, 100, None, 3),
            (10 * second, 29, None, 2),
            (10 * second, 0, None, 0),
            // What a consumer has not processed is kept, however old it is.
            (Duration::ZERO, 100, Some(0), 3),
            (Duration::ZERO, 100, Some(9), 3),
            (Duration::ZERO, 100, Some(10), 2),
            (Duration::ZERO, 100, Some(30), 0),
            (Duration::ZERO, 15, Some(0), 1),
            // One that is up to date takes nothing away from the others.
            (6 * second, 100, Some(30), 2),
            (Duration::MAX, u64::MAX, None, 3),
        ] {
            let retention = Retention { time, bytes_max, consumed: consumed.map(Sequence) };
            assert_eq!(retention.kept(newest_first, now), expected, "{retention:?}");
        }
    }
}
