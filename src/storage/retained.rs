//! Retained segments: segments of the journal that no snapshot needs, kept for consumers of changes.
//!
//! A recovery never reads them, so an erasure can remove data from them without a change of the state. The name of a file contains its
//! first and its last event, and the instant from which it is retained, in microseconds. A rewritten segment gets another name, because
//! offsets in it differ: its instant is one microsecond later. Of several files with the same events, the latest is valid.

use std::time::Duration;

use crate::clock::UnixMicros;
use crate::storage::error::StorageError;
use crate::storage::files::{Files, UNFINISHED, replace};
use crate::storage::frame::{self, FrameKind};
use crate::storage::journal::reader::segments;
use crate::storage::segment::{self, End, FoundEvent, Segment};
use crate::storage::sequence::Sequence;

/// A file with events.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct EventFile {
    /// The first event in it.
    pub first: Sequence,
    /// The last event in it. For the segment that is being written, the largest possible sequence.
    pub last: Sequence,
    /// The instant from which it is retained, or none if it belongs to the journal.
    pub retained_since: Option<UnixMicros>,
}

impl EventFile {
    /// Returns the segment of the journal that begins with this event and has no known end.
    pub fn written(first: Sequence) -> Self {
        Self { first, last: Sequence(u64::MAX), retained_since: None }
    }

    /// Returns the name of the file.
    pub fn name(self) -> String {
        let Self { first, last, retained_since } = self;
        match retained_since {
            None => segment::name(first),
            Some(since) => format!("changes-{:020}-{:020}-{:020}.log", first.0, last.0, since.0.max(0)),
        }
    }

    /// Returns true if it is a retained segment, and not one of the journal.
    pub fn is_retained(&self) -> bool {
        self.retained_since.is_some()
    }

    /// Returns true if both have the same events.
    fn has_events_of(self, other: &Self) -> bool {
        (self.first, self.last) == (other.first, other.last)
    }
}

/// Parses the name of a retained segment. Returns none for another name.
pub fn parse_name(name: &str) -> Option<EventFile> {
    let parts = name.strip_prefix("changes-")?.strip_suffix(".log")?;
    let is_number = |text: &&str| text.len() == 20 && text.bytes().all(|byte| byte.is_ascii_digit());
    let mut numbers = parts.split('-').map(|part| Some(part).filter(is_number));
    let (first, last, since) = (numbers.next()??, numbers.next()??, numbers.next()??);
    let (first, last) = (Sequence(first.parse().ok()?), Sequence(last.parse().ok()?));
    let file = EventFile { first, last, retained_since: Some(UnixMicros(since.parse().ok()?)) };
    (numbers.next().is_none() && first <= last).then_some(file)
}

/// All files with events in a directory.
#[derive(Debug, Default)]
pub struct EventFiles {
    /// The segments of the journal, in their order.
    pub journal: Vec<EventFile>,
    /// The retained segments, in order and without a gap up to the journal. Of several files with the same events, only the latest is
    /// listed. During an erasure, some have the same events as a segment of the journal.
    pub retained: Vec<EventFile>,
    /// The names of all other files of retained segments: replaced by a rewrite, before a gap, or unfinished.
    pub obsolete: Vec<String>,
}

impl EventFiles {
    /// Lists the files of a directory.
    ///
    /// # Errors
    /// Fails if the directory cannot be read.
    pub fn list(files: &dyn Files) -> Result<Self, StorageError> {
        // The journal is listed first. So a segment that becomes retained meanwhile is in the second list, or in both.
        let mut journal: Vec<EventFile> =
            segments(files)?.iter().map(|(_, first)| EventFile::written(*first)).collect();
        for nth in 1..journal.len() {
            journal[nth - 1].last = Sequence(journal[nth].first.0.saturating_sub(1));
        }
        let names = files.list().map_err(StorageError::io("read the directory", files.place("")))?;
        let mut all: Vec<EventFile> = names.iter().filter_map(|name| parse_name(name)).collect();
        all.sort_unstable();
        let is_unfinished = |name: &String| name.strip_suffix(UNFINISHED).and_then(parse_name).is_some();
        let mut obsolete: Vec<String> = names.into_iter().filter(is_unfinished).collect();
        let (mut retained, mut next) = (Vec::<EventFile>::new(), journal.first().map(|file| file.first));
        for file in all.into_iter().rev() {
            let is_of_journal = journal.iter().any(|segment| segment.has_events_of(&file));
            let is_older = retained.last().is_some_and(|later| later.has_events_of(&file));
            if !is_older && (is_of_journal || Some(file.last.next()) == next) {
                next = next.min(Some(file.first));
                retained.push(file);
            } else {
                obsolete.push(file.name());
            }
        }
        retained.reverse();
        Ok(Self { journal, retained, obsolete })
    }

    /// Returns the files from which events are read, in order. A rewritten file replaces the segment of the journal with the same events.
    pub fn readable(&self) -> Vec<EventFile> {
        let is_rewritten = |segment: &&EventFile| self.retained.iter().any(|file| file.has_events_of(segment));
        let mut all = self.retained.clone();
        all.extend(self.journal.iter().filter(|segment| !is_rewritten(segment)));
        all.sort_unstable();
        all
    }
}

/// Returns the content of a segment with the same events, whose payloads `payload` appends.
///
/// # Errors
/// Fails if the segment is damaged, or `payload` returns an error for an event.
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
/// Fails if the file cannot be written. An unfinished file may remain then.
pub fn write(files: &dyn Files, file: EventFile, bytes: &[u8]) -> Result<(), StorageError> {
    let name = file.name();
    replace(files, &name, bytes).map_err(StorageError::io("write", files.place(&name)))
}

/// The limits for retained segments.
#[derive(Clone, Copy, Debug)]
pub struct Retention {
    /// Time for which each segment is retained.
    pub time: Duration,
    /// Maximum bytes of all retained segments.
    pub bytes_max: u64,
    /// The last event that every registered consumer has processed. None without consumers.
    pub consumed: Option<Sequence>,
}

impl Retention {
    /// Returns the number of these segments to retain, counted from the end, so that they have no gaps. A segment of the journal counts
    /// as retained from `now` on.
    ///
    /// # Errors
    /// Fails if the size of a file cannot be read.
    pub fn kept(&self, files: &dyn Files, all: &[EventFile], now: UnixMicros) -> Result<usize, StorageError> {
        let mut bytes = 0_u64;
        for (nth, file) in all.iter().rev().enumerate() {
            let name = file.name();
            let of_file = files.bytes_of(&name).map_err(StorageError::io("read", files.place(&name)))?;
            bytes = bytes.saturating_add(of_file);
            if !self.wants(*file, now) || bytes > self.bytes_max {
                return Ok(nth);
            }
        }
        Ok(all.len())
    }

    fn wants(&self, file: EventFile, now: UnixMicros) -> bool {
        // The absolute difference, since the clock may have been set back meanwhile.
        let age = now.0.abs_diff(file.retained_since.unwrap_or(now).0);
        let is_young = u128::from(age) < self.time.as_micros();
        is_young || self.consumed.is_some_and(|consumed| consumed < file.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::files::memory::MemoryFiles;

    fn retained(first: u64, last: u64, since: i64) -> EventFile {
        EventFile { first: Sequence(first), last: Sequence(last), retained_since: Some(UnixMicros(since)) }
    }

    fn journal(first: u64, last: u64) -> EventFile {
        EventFile { retained_since: None, ..retained(first, last, 0) }
    }

    fn directory(all: &[EventFile]) -> MemoryFiles {
        let files = MemoryFiles::default();
        all.iter().for_each(|file| files.put(&file.name(), vec![7; 10]));
        files
    }

    #[test]
    fn only_names_of_retained_files_are_parsed() {
        for file in [retained(1, 1, 0), retained(7, u64::MAX, i64::MAX)] {
            assert_eq!(parse_name(&file.name()), Some(file));
        }
        let name = retained(1, 9, 2).name();
        assert_eq!(name, "changes-00000000000000000001-00000000000000000009-00000000000000000002.log");
        for other in [
            "changes-1-9-2.log",
            "changes-00000000000000000001-00000000000000000009.log",
            "changes-00000000000000000001-00000000000000000009-0000000000000000000x.log",
            "changes-99999999999999999999-99999999999999999999-00000000000000000002.log",
            &retained(9, 1, 2).name(),
            &name.replace(".log", "-00000000000000000002.log"),
            &segment::name(Sequence(1)),
            &format!("{name}{UNFINISHED}"),
        ] {
            assert_eq!(parse_name(other), None, "{other}");
        }
    }

    #[test]
    fn the_latest_of_several_files_with_the_same_events_is_used() {
        let files =
            directory(&[retained(1, 4, 7), retained(1, 4, 8), retained(5, 8, 7), journal(5, 8), journal(9, 12)]);
        let unfinished = format!("{}{UNFINISHED}", retained(1, 4, 9).name());
        files.put(&unfinished, vec![7]);
        let found = EventFiles::list(&files).unwrap();
        assert_eq!(found.journal, [journal(5, 8), journal(9, u64::MAX)]);
        assert_eq!(found.retained, [retained(1, 4, 8), retained(5, 8, 7)]);
        assert_eq!(found.obsolete, [unfinished, retained(1, 4, 7).name()]);
        assert_eq!(found.readable(), [retained(1, 4, 8), retained(5, 8, 7), journal(9, u64::MAX)]);
    }

    #[test]
    fn files_behind_a_gap_or_not_adjacent_to_the_journal_are_obsolete() {
        let written = |first| journal(first, u64::MAX);
        for (all, expected) in [
            (vec![retained(1, 4, 7), retained(5, 8, 7), written(9)], vec![retained(1, 4, 7), retained(5, 8, 7)]),
            (vec![retained(1, 4, 7), retained(6, 8, 7), written(9)], vec![retained(6, 8, 7)]),
            (vec![retained(1, 4, 7), retained(5, 7, 7), written(9)], vec![]),
            (vec![retained(1, 4, 7), retained(5, 9, 7), written(9)], vec![]),
            (vec![retained(9, 12, 7), written(9)], vec![]),
            (vec![retained(20, 24, 7), retained(5, 8, 7), written(9)], vec![retained(5, 8, 7)]),
            (vec![retained(9, 12, 7), journal(9, 12), written(13)], vec![retained(9, 12, 7)]),
            (vec![retained(1, 4, 7)], vec![]),
        ] {
            let found = EventFiles::list(&directory(&all)).unwrap();
            assert_eq!(found.retained, expected, "{all:?}");
            let files = all.iter().filter(|file| file.is_retained()).count();
            assert_eq!(found.obsolete.len(), files - expected.len(), "{all:?}");
        }
    }

    #[test]
    fn segments_are_kept_for_a_time_and_for_consumers_and_never_past_the_limit() {
        let second = Duration::from_secs(1);
        let all = [retained(1, 10, 1_000_000), retained(11, 20, 5_000_000), retained(21, 30, 9_000_000)];
        let (files, now) = (directory(&all), UnixMicros(10_000_000));
        for (time, bytes_max, consumed, expected) in [
            (Duration::ZERO, 100, None, 0),
            (second, 100, None, 0),
            (second + Duration::from_micros(1), 100, None, 1),
            (10 * second, 100, None, 3),
            (10 * second, 29, None, 2),
            (10 * second, 0, None, 0),
            // Segments that a consumer has not processed are retained, whatever their age.
            (Duration::ZERO, 100, Some(0), 3),
            (Duration::ZERO, 100, Some(9), 3),
            (Duration::ZERO, 100, Some(10), 2),
            (Duration::ZERO, 100, Some(30), 0),
            (Duration::ZERO, 15, Some(0), 1),
            // A consumer that is up to date does not shorten the retention.
            (6 * second, 100, Some(30), 2),
            (Duration::MAX, u64::MAX, None, 3),
        ] {
            let retention = Retention { time, bytes_max, consumed: consumed.map(Sequence) };
            assert_eq!(retention.kept(&files, &all, now).unwrap(), expected, "{retention:?}");
        }
    }

    #[test]
    fn a_clock_set_back_at_most_doubles_the_retention_of_segments() {
        let retention = Retention { time: Duration::from_micros(10), bytes_max: u64::MAX, consumed: None };
        let kept = |now| retention.wants(retained(1, 10, 100), UnixMicros(now));
        assert_eq!([90, 91, 100, 109, 110].map(kept), [false, true, true, true, false]);
    }
}
