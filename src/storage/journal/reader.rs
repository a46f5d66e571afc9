//! Reads the journal on disk: all segments in order.

use crate::storage::error::StorageError;
use crate::storage::files::Files;
use crate::storage::journal::writer::Tail;
use crate::storage::segment::{self, End, FoundEvent, SEGMENT_HEADER_BYTES, Segment, SegmentRead};
use crate::storage::sequence::Sequence;

/// The part of the journal to read.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// Events up to and including this one are already known and are skipped.
    pub after: Sequence,
    /// True to continue after damage and gaps.
    pub repair: bool,
}

/// The result of reading the journal.
#[derive(Clone, Debug, Default)]
pub struct JournalRead {
    /// The number of events that were delivered.
    pub events: u64,
    /// Bytes of all segments that were read.
    pub bytes: u64,
    /// The position where writing continues: after the last event of the journal, even if that is before the last known event.
    pub tail: Tail,
    /// The torn tail of the last segment, if there is one.
    pub torn: Option<Torn>,
    /// The lost events, if reading continued after damage.
    pub lost: Vec<Lost>,
}

/// A tail that was not synced when writing stopped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Torn {
    /// Path of the segment.
    pub place: String,
    /// Valid bytes before the tail.
    pub good_bytes: u64,
    /// Bytes of the torn tail.
    pub torn_bytes: u64,
    /// The number of complete events in the tail. A power loss may leave such events, so they do not prove damage. If there was no power
    /// loss, they are suspicious.
    pub whole_behind: u64,
}

/// Events that are lost.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lost {
    /// The first lost event.
    pub from: Sequence,
    /// The first event after the loss, or none if no event follows.
    pub until: Option<Sequence>,
    /// Path of the affected file.
    pub place: String,
    /// Description of the damage.
    pub reason: String,
}

/// Returns all segments in order, as file names with the sequences of their first events.
///
/// # Errors
/// Fails if the directory cannot be read.
pub fn segments(files: &dyn Files) -> Result<Vec<(String, Sequence)>, StorageError> {
    let names = files.list().map_err(StorageError::io("read the directory", files.place("")))?;
    let with_first = |name: String| segment::parse_name(&name).map(|first| (name, first));
    let mut segments: Vec<_> = names.into_iter().filter_map(with_first).collect();
    segments.sort_unstable_by_key(|segment| segment.1);
    Ok(segments)
}

/// Calls `each` with every event after `reading.after`.
///
/// # Errors
/// If the journal is damaged or incomplete and `repair` is not set, the error names the segment, the offset and the sequence. Fails also if
/// `each` rejects an event.
pub fn read(
    files: &dyn Files,
    reading: Reading,
    mut each: impl FnMut(FoundEvent<'_>) -> Result<(), String>,
) -> Result<JournalRead, StorageError> {
    let segments = segments(files)?;
    let start = segments.partition_point(|segment| segment.1 <= reading.after.next()).saturating_sub(1);
    let mut pass = Pass { reading, next: reading.after.next(), end: Sequence::default(), read: JournalRead::default() };
    for (nth, (name, first)) in segments.iter().enumerate().skip(start) {
        let segment = Segment::read(files, name, *first)?;
        pass.gap_before(&segment)?;
        pass.segment(&segment, nth + 1 == segments.len(), &mut each)?;
    }
    pass.read.tail.last = Sequence(pass.end.0.saturating_sub(1));
    Ok(pass.read)
}

struct Pass {
    reading: Reading,
    /// The next event to deliver.
    next: Sequence,
    /// The sequence after the last event found, including events that were already known.
    end: Sequence,
    read: JournalRead,
}

impl Pass {
    fn gap_before(&mut self, segment: &Segment) -> Result<(), StorageError> {
        let (from, until, place) = (self.next, segment.first, segment.place.clone());
        if until <= from {
            // The damage at the end of the previous segment did not contain an event.
            self.read.lost.pop_if(|lost| lost.until.is_none() && lost.from >= until);
            return Ok(());
        }
        if !self.reading.repair {
            return Err(StorageError::Missing { place, from, until });
        }
        let open_loss = self.read.lost.last_mut().filter(|lost| lost.until.is_none());
        match open_loss {
            Some(lost) => lost.until = Some(until),
            None => {
                let reason = "no segment contains them".to_owned();
                self.read.lost.push(Lost { from, until: Some(until), place, reason });
            }
        }
        self.next = until;
        Ok(())
    }

    fn segment(
        &mut self,
        segment: &Segment,
        is_last: bool,
        each: &mut impl FnMut(FoundEvent<'_>) -> Result<(), String>,
    ) -> Result<(), StorageError> {
        let mut walk = segment.walk(|found| self.deliver(segment, found, each))?;
        self.read.bytes += walk.good_bytes + walk.rest_bytes;
        loop {
            // All previous segments were synced before the next one was started. So a torn tail is damage unless the segment is the last
            // one.
            let torn = walk.end == End::Torn && is_last;
            if torn || walk.end == End::Whole {
                break;
            }
            self.damaged(segment, &walk)?;
            let Some((found, further)) =
                segment.resume_after_damage(&walk, |found| self.deliver(segment, found, each))?
            else {
                break;
            };
            if let Some(lost) = self.read.lost.last_mut() {
                lost.until = Some(found);
            }
            walk = further;
        }
        self.end = self.end.max(walk.next);
        if is_last {
            self.end(segment, &walk);
        }
        Ok(())
    }

    fn deliver(
        &mut self,
        segment: &Segment,
        found: FoundEvent<'_>,
        each: &mut impl FnMut(FoundEvent<'_>) -> Result<(), String>,
    ) -> Result<(), StorageError> {
        if found.sequence < self.next {
            return Ok(());
        }
        self.next = found.sequence.next();
        let Err(reason) = each(found) else {
            self.read.events += 1;
            return Ok(());
        };
        let FoundEvent { offset_bytes, sequence, .. } = found;
        let place = segment.place.clone();
        if !self.reading.repair {
            return Err(StorageError::Damaged { place, offset_bytes, sequence, reason });
        }
        self.read.lost.push(Lost { from: sequence, until: Some(sequence.next()), place, reason });
        Ok(())
    }

    fn damaged(&mut self, segment: &Segment, walk: &SegmentRead) -> Result<(), StorageError> {
        let reason = match &walk.end {
            End::Damaged { reason } => reason.clone(),
            End::Torn | End::Whole => "the segment ends in the middle of a frame, but another follows it".to_owned(),
        };
        let (place, sequence) = (segment.place.clone(), walk.next);
        if self.reading.repair {
            self.read.lost.push(Lost { from: sequence, until: None, place, reason });
            return Ok(());
        }
        Err(StorageError::Damaged { place, offset_bytes: walk.good_bytes, sequence, reason })
    }

    fn end(&mut self, segment: &Segment, walk: &SegmentRead) {
        if walk.end == End::Torn && self.read.lost.is_empty() {
            let (place, good_bytes, torn_bytes) = (segment.place.clone(), walk.good_bytes, walk.rest_bytes);
            let whole_behind = segment.count_events_after(walk);
            self.read.torn = Some(Torn { place, good_bytes, torn_bytes, whole_behind });
        }
        // A damaged segment is not changed, so that it can be inspected.
        let begun = walk.good_bytes >= SEGMENT_HEADER_BYTES as u64 || walk.end == End::Torn;
        if self.read.lost.is_empty() && begun && walk.next == self.end {
            self.read.tail.segment = Some((segment.first, walk.good_bytes));
        }
    }
}
