//! The journal on disk, as it is read: segments in their order.
//!
//! Responsible for:
//! - giving out every event after a given one, once, in order;
//! - refusing damage and gaps, cutting a torn tail, and on request going on behind what is gone and listing it.
//!
//! Not responsible for:
//! - frames of one segment (`storage::segment`), what events do (`storage::recovery`).

use crate::storage::error::StorageError;
use crate::storage::files::Files;
use crate::storage::journal::Sequence;
use crate::storage::journal::writer::Tail;
use crate::storage::segment::{self, End, Found, SEGMENT_HEADER_BYTES, Segment, Walk};

/// What to read.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// Events up to and including this one are known.
    pub after: Sequence,
    /// Go on behind damage and gaps.
    pub repair: bool,
}

/// What was read.
#[derive(Clone, Debug, Default)]
pub struct Read {
    /// Events given out.
    pub events: u64,
    /// Bytes of all segments that were read.
    pub bytes: u64,
    /// Where to go on writing: behind the last event there is, even if that comes before what was known already.
    pub tail: Tail,
    /// What is cut off the last segment, if anything.
    pub torn: Option<Torn>,
    /// What is gone, if reading went on behind damage.
    pub lost: Vec<Lost>,
}

/// A tail that was not synced when writing stopped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Torn {
    /// The segment.
    pub place: String,
    /// Its good bytes.
    pub good_bytes: u64,
    /// The bytes behind them.
    pub torn_bytes: u64,
    /// Events among these that are whole. A power loss may leave them, so they prove nothing, but one that was none makes them
    /// suspicious.
    pub whole_behind: u64,
}

/// Events that are gone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lost {
    /// The first.
    pub from: Sequence,
    /// The first that is there again; none if nothing followed.
    pub until: Option<Sequence>,
    /// Where.
    pub place: String,
    /// Why.
    pub reason: String,
}

/// All segments, in order: names with the sequences they start with.
///
/// # Errors
/// When the directory cannot be read.
pub fn segments(files: &dyn Files) -> Result<Vec<(String, Sequence)>, StorageError> {
    let names = files.list().map_err(StorageError::io("read the directory", files.place("")))?;
    let with_first = |name: String| segment::parse_name(&name).map(|first| (name, first));
    let mut segments: Vec<_> = names.into_iter().filter_map(with_first).collect();
    segments.sort_unstable_by_key(|segment| segment.1);
    Ok(segments)
}

/// Gives every event after `reading.after` to `each`.
///
/// # Errors
/// Names the segment, offset and sequence where the journal is not whole, unless told to go on; or what `each` refused.
pub fn read(
    files: &dyn Files,
    reading: Reading,
    mut each: impl FnMut(Found<'_>) -> Result<(), String>,
) -> Result<Read, StorageError> {
    let segments = segments(files)?;
    let start = segments.partition_point(|segment| segment.1 <= reading.after.next()).saturating_sub(1);
    let mut pass = Pass { reading, next: reading.after.next(), end: Sequence::default(), read: Read::default() };
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
    /// The next event to give out.
    next: Sequence,
    /// The one after the last there is, given out or known before.
    end: Sequence,
    read: Read,
}

impl Pass {
    fn gap_before(&mut self, segment: &Segment) -> Result<(), StorageError> {
        let (from, until, place) = (self.next, segment.first, segment.place.clone());
        if until <= from {
            // What was damaged at the end of the last one was no event.
            self.read.lost.pop_if(|lost| lost.until.is_none() && lost.from >= until);
            return Ok(());
        }
        if !self.reading.repair {
            return Err(StorageError::Missing { place, from, until });
        }
        let already_told = self.read.lost.last_mut().filter(|lost| lost.until.is_none());
        match already_told {
            Some(lost) => lost.until = Some(until),
            None => {
                let reason = "no segment has them".to_owned();
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
        each: &mut impl FnMut(Found<'_>) -> Result<(), String>,
    ) -> Result<(), StorageError> {
        let mut walk = segment.walk(|found| self.take(segment, found, each))?;
        self.read.bytes += walk.good_bytes + walk.rest_bytes;
        loop {
            // Between segments everything was synced, so a tail that is torn there is damage.
            let torn = walk.end == End::Torn && is_last;
            if torn || walk.end == End::Whole {
                break;
            }
            self.damaged(segment, &walk)?;
            let Some((found, further)) = segment.walk_on(&walk, |found| self.take(segment, found, each))? else {
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

    fn take(
        &mut self,
        segment: &Segment,
        found: Found<'_>,
        each: &mut impl FnMut(Found<'_>) -> Result<(), String>,
    ) -> Result<(), StorageError> {
        if found.sequence < self.next {
            return Ok(());
        }
        self.next = found.sequence.next();
        let Err(reason) = each(found) else {
            self.read.events += 1;
            return Ok(());
        };
        let Found { offset_bytes, sequence, .. } = found;
        let place = segment.place.clone();
        if !self.reading.repair {
            return Err(StorageError::Damaged { place, offset_bytes, sequence, reason });
        }
        self.read.lost.push(Lost { from: sequence, until: Some(sequence.next()), place, reason });
        Ok(())
    }

    fn damaged(&mut self, segment: &Segment, walk: &Walk) -> Result<(), StorageError> {
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

    fn end(&mut self, segment: &Segment, walk: &Walk) {
        if walk.end == End::Torn && self.read.lost.is_empty() {
            let (place, good_bytes, torn_bytes) = (segment.place.clone(), walk.good_bytes, walk.rest_bytes);
            let whole_behind = segment.events_behind(walk);
            self.read.torn = Some(Torn { place, good_bytes, torn_bytes, whole_behind });
        }
        // What was damaged stays as it is, for whoever wants to look at it.
        let begun = walk.good_bytes >= SEGMENT_HEADER_BYTES as u64 || walk.end == End::Torn;
        if self.read.lost.is_empty() && begun && walk.next == self.end {
            self.read.tail.segment = Some((segment.first, walk.good_bytes));
        }
    }
}
