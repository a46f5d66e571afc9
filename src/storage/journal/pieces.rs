//! Copies the journal in pieces: each contains consecutive events of one segment, as a segment of its own.

use std::convert::Infallible;

use crate::storage::error::StorageError;
use crate::storage::files::Files;
use crate::storage::frame::FRAME_HEADER_BYTES;
use crate::storage::journal::reader::segments;
use crate::storage::segment::{self, End, Segment};
use crate::storage::sequence::Sequence;

/// Consecutive events of one segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Piece {
    /// The first event in it.
    pub first: Sequence,
    /// The last event in it.
    pub last: Sequence,
    /// Content of the segment file that begins with `first` and ends with `last`.
    pub bytes: Vec<u8>,
}

/// Calls `each` with pieces that contain all events after `after`, up to and including `through`. The journal may be written meanwhile.
///
/// # Errors
/// Fails if one of these events is missing or damaged, and returns the error of `each`.
pub fn copy<E: From<StorageError>>(
    files: &dyn Files,
    after: Sequence,
    through: Sequence,
    mut each: impl FnMut(Piece) -> Result<(), E>,
) -> Result<(), E> {
    let segments = segments(files)?;
    let start = segments.partition_point(|segment| segment.1 <= after.next()).saturating_sub(1);
    let mut next = after.next();
    for (name, first) in segments.iter().skip(start).take_while(|segment| segment.1 <= through) {
        let segment = Segment::read(files, name, *first)?;
        let Some(piece) = cut(&segment, Sequence(next.0 - 1), through)? else { continue };
        missing(&segment.place, next, piece.first)?;
        next = piece.last.next();
        each(piece)?;
    }
    Ok(missing(&files.place(""), next, through.next())?)
}

/// Returns the part of a segment that has the events after `after`, up to and including `through`, or none if it has none of them.
///
/// # Errors
/// Fails if the segment is damaged.
pub fn cut(segment: &Segment, after: Sequence, through: Sequence) -> Result<Option<Piece>, StorageError> {
    let mut found: Option<(Sequence, Sequence, usize, usize)> = None;
    let Ok(read) = segment.walk::<Infallible>(|event| {
        if event.sequence > after && event.sequence <= through {
            let start = event.offset_bytes as usize;
            let (_, last, _, end) = found.get_or_insert((event.sequence, event.sequence, start, start));
            (*last, *end) = (event.sequence, start + FRAME_HEADER_BYTES + event.payload.len());
        }
        Ok(())
    });
    if let End::Damaged { reason } = read.end {
        let (place, offset_bytes, sequence) = (segment.place.clone(), read.good_bytes, read.next);
        return Err(StorageError::Damaged { place, offset_bytes, sequence, reason });
    }
    Ok(found.map(|(first, last, start, end)| {
        let mut bytes = segment::header_with(first, segment.identity());
        bytes.extend_from_slice(&segment.bytes()[start..end]);
        Piece { first, last, bytes }
    }))
}

fn missing(place: &str, expected: Sequence, found: Sequence) -> Result<(), StorageError> {
    if found == expected {
        return Ok(());
    }
    Err(StorageError::Missing { place: place.to_owned(), from: expected, until: found })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::clock::SystemClock;
    use crate::feed::event::Event;
    use crate::id::PostId;
    use crate::storage::files::memory::MemoryFiles;
    use crate::storage::journal::Journal;
    use crate::storage::journal::reader::{Reading, read};
    use crate::storage::journal::writer::{JournalOptions, SegmentJournal, Tail};

    /// Returns a journal of 20 events in several segments.
    fn journal() -> MemoryFiles {
        let files = MemoryFiles::default();
        let options = JournalOptions { segment_bytes: 250, ..JournalOptions::default() };
        let mut journal =
            SegmentJournal::open(Arc::new(files.clone()), &Tail::default(), options, Arc::new(SystemClock)).unwrap();
        for id in 1..=20 {
            journal.append(&Event::Deleted { id: PostId(id), repost_of: None, post: None }).unwrap();
            journal.commit().unwrap();
            journal.mark_synced();
        }
        files
    }

    fn pieces(files: &MemoryFiles, after: u64, through: u64) -> Result<Vec<Piece>, StorageError> {
        let mut pieces = Vec::new();
        copy(files, Sequence(after), Sequence(through), |piece| {
            pieces.push(piece);
            Ok::<_, StorageError>(())
        })?;
        Ok(pieces)
    }

    /// Returns the number of events and the last event of a journal that consists of these pieces.
    fn read_back(pieces: &[Piece], after: u64) -> (u64, u64) {
        let files = MemoryFiles::default();
        for piece in pieces {
            files.create(&segment::name(piece.first)).unwrap().append(&piece.bytes).unwrap();
        }
        let read = read(&files, Reading { after: Sequence(after), repair: false }, |_| Ok(())).unwrap();
        assert_eq!(read.torn, None);
        (read.events, read.tail.last.0)
    }

    #[test]
    fn any_range_of_a_journal_is_a_valid_journal() {
        let files = journal();
        assert!(segments(&files).unwrap().len() > 2);
        for after in 0..20 {
            for through in after + 1..=20 {
                let part = pieces(&files, after, through).unwrap();
                assert_eq!((part[0].first.0, part.last().unwrap().last.0), (after + 1, through));
                assert_eq!(read_back(&part, after), (through - after, through));
            }
        }
        assert_eq!(pieces(&files, 7, 7).unwrap(), []);
    }

    #[test]
    fn equal_events_have_equal_bytes_in_any_segment() {
        let files = journal();
        let all = pieces(&files, 0, 20).unwrap();
        let copied = MemoryFiles::default();
        for piece in &all {
            copied.create(&segment::name(piece.first)).unwrap().append(&piece.bytes).unwrap();
        }
        for piece in &all {
            let (after, through) = (piece.first.0 - 1, piece.last.0);
            assert_eq!(pieces(&copied, after, through).unwrap(), pieces(&files, after, through).unwrap());
        }
    }

    #[test]
    fn missing_and_damaged_events_are_named() {
        let refused = |files: &MemoryFiles| pieces(files, 3, 20).unwrap_err().to_string();
        let names: Vec<_> = segments(&journal()).unwrap();
        let files = journal();
        files.remove(&names[1].0).unwrap();
        assert!(refused(&files).contains(&format!("contains events {} to {};", names[1].1, names[2].1.0 - 1)));
        let files = journal();
        files.remove(&names.last().unwrap().0).unwrap();
        assert!(refused(&files).contains("to 20;"), "{}", refused(&files));
        let files = journal();
        files.tamper(&names[1].0, |bytes| bytes[60] ^= 1);
        assert!(refused(&files).contains("is damaged at byte"), "{}", refused(&files));
    }
}
