//! A segment: one file of the journal, which contains a header and frames.
//!
//! A header is 40 bytes: magic, format version (2 bytes), 2 zero bytes, sequence of the first event (8 bytes; all numbers are
//! little-endian), identity of the data directory (16 bytes), CRC-32C of the 36 bytes before. In format 1 the header is 24 bytes, without
//! the identity.

use std::io::Read;
use std::ops::RangeInclusive;

use crate::limits::SEGMENT_READ_BYTES_MAX;
use crate::storage::error::StorageError;
use crate::storage::files::Files;
use crate::storage::frame::{self, FRAME_HEADER_BYTES, Frame, FrameError, FrameKind, MARK};
use crate::storage::identity::{IDENTITY_BYTES, Identity};
use crate::storage::sequence::Sequence;

/// The format that is written, and the latest format that can be read.
pub const SEGMENT_FORMAT: u16 = 2;

/// Bytes of the header in format 1.
pub const SEGMENT_HEADER_BYTES: usize = 24;

/// Bytes of the header in format 2, the longest one.
pub const SEGMENT_HEADER_BYTES_MAX: usize = SEGMENT_HEADER_BYTES + IDENTITY_BYTES;

const MAGIC: &[u8; 8] = b"TIDEJRNL";

/// Returns the file name of the segment whose first event is `first`.
pub fn name(first: Sequence) -> String {
    format!("journal-{:020}.log", first.0)
}

/// Parses the name of a segment file, and returns the sequence of its first event. Returns none for another name.
pub fn parse_name(name: &str) -> Option<Sequence> {
    let digits = name.strip_prefix("journal-")?.strip_suffix(".log")?;
    let all_digits = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    if all_digits { digits.parse().ok().map(Sequence) } else { None }
}

/// Returns the header of the segment whose first event is `first`, for a directory without an identity.
pub fn header(first: Sequence) -> Vec<u8> {
    header_with(first, None)
}

/// Returns the header of the segment whose first event is `first`. Without an identity it has format 1.
pub fn header_with(first: Sequence, identity: Option<Identity>) -> Vec<u8> {
    let mut header = Vec::with_capacity(SEGMENT_HEADER_BYTES_MAX);
    header.extend(MAGIC);
    header.extend(if identity.is_some() { SEGMENT_FORMAT } else { 1 }.to_le_bytes());
    header.extend([0, 0]);
    header.extend(first.0.to_le_bytes());
    header.extend(identity.iter().flat_map(|identity| identity.0));
    header.extend(crc32c::crc32c(&header).to_le_bytes());
    header
}

/// Returns the sequence of the first event if `bytes` begins with a valid segment header.
pub fn parse_header(bytes: &[u8]) -> Option<Sequence> {
    let first = bytes.get(12..20)?.try_into().expect("eight bytes were taken");
    whole_header(bytes).map(|_| Sequence(u64::from_le_bytes(first)))
}

/// Returns the length of the header of the segment whose first event is `first`, if `bytes` begins with it.
pub fn header_bytes(bytes: &[u8], first: Sequence) -> Option<usize> {
    let header = whole_header(bytes).filter(|_| parse_header(bytes) == Some(first))?;
    let format = u16::from_le_bytes([header[8], header[9]]);
    (format <= SEGMENT_FORMAT).then_some(header.len())
}

/// Returns the identity if `bytes` begins with a valid segment header that contains one.
pub fn parse_identity(bytes: &[u8]) -> Option<Identity> {
    let header = whole_header(bytes).filter(|header| header.len() == SEGMENT_HEADER_BYTES_MAX)?;
    header[20..20 + IDENTITY_BYTES].try_into().ok().map(Identity)
}

/// A segment that was read into memory.
pub struct Segment {
    /// Path of the file.
    pub place: String,
    /// The sequence of the first event, from the file name.
    pub first: Sequence,
    bytes: Vec<u8>,
}

/// An event that was read from a segment.
#[derive(Clone, Copy, Debug)]
pub struct FoundEvent<'a> {
    /// Offset of its frame in the file, in bytes.
    pub offset_bytes: u64,
    /// The sequence of the event.
    pub sequence: Sequence,
    /// The event, encoded as MessagePack.
    pub payload: &'a [u8],
}

/// The state of the end of a segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    /// The segment ends with a complete frame.
    Whole,
    /// The segment ends with bytes that were not synced when writing stopped. They contain no acknowledged event.
    Torn,
    /// A part that was once complete and synced is damaged.
    Damaged {
        /// Description of the damage.
        reason: String,
    },
}

/// The result of reading a segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SegmentRead {
    /// The event after the last one that was read.
    pub next: Sequence,
    /// Bytes from the start of the file that are valid.
    pub good_bytes: u64,
    /// Bytes after the valid ones.
    pub rest_bytes: u64,
    /// The state of the end.
    pub end: End,
    /// True if the journal was closed in order after the last event, and nothing was appended since.
    pub closed: bool,
}

impl Segment {
    /// Reads a segment into memory.
    ///
    /// # Errors
    /// Fails if the file cannot be read, is not a segment, or has a later format.
    pub fn read(files: &dyn Files, name: &str, first: Sequence) -> Result<Self, StorageError> {
        let place = files.place(name);
        let (reader, bytes_max) = files.read(name).map_err(StorageError::io("read", &*place))?;
        if bytes_max > SEGMENT_READ_BYTES_MAX as u64 {
            let (what, bytes_max) = ("journal segment", SEGMENT_READ_BYTES_MAX as u64);
            return Err(StorageError::TooLarge { place, what, bytes_max });
        }
        let mut bytes = Vec::with_capacity(bytes_max as usize);
        // The read is limited: a file with length 0 may be a device that returns bytes without end.
        reader.take(bytes_max).read_to_end(&mut bytes).map_err(StorageError::io("read", &*place))?;
        Self::of_bytes(place, first, bytes)
    }

    /// Creates a segment from the content of a file that was read before. Errors name `place`.
    ///
    /// # Errors
    /// Fails if this is not a segment, or has a later format.
    pub fn of_bytes(place: String, first: Sequence, bytes: Vec<u8>) -> Result<Self, StorageError> {
        let foreign = || StorageError::Foreign { place: place.clone(), what: "journal segment" };
        let magic_is = &bytes[..bytes.len().min(MAGIC.len())];
        // After a power loss an unsynced header may consist of zero bytes.
        if !MAGIC.starts_with(magic_is)
            && magic_is.iter().any(|byte| *byte != 0)
            && frame::find(&bytes, &reachable(first, &bytes)).is_none()
        {
            return Err(foreign());
        }
        if let Some(header) = whole_header(&bytes) {
            let found = u16::from_le_bytes([header[8], header[9]]);
            if found > SEGMENT_FORMAT {
                return Err(StorageError::NewerFormat { place, found, known: SEGMENT_FORMAT });
            }
        }
        Ok(Self { place, first, bytes })
    }

    /// Content of the file, with its header.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the identity in its header, or none in format 1.
    pub fn identity(&self) -> Option<Identity> {
        parse_identity(&self.bytes)
    }

    /// Calls `each` with every event and its payload.
    ///
    /// # Errors
    /// Returns the error of `each`.
    pub fn walk<E>(&self, mut each: impl FnMut(FoundEvent<'_>) -> Result<(), E>) -> Result<SegmentRead, E> {
        let rest_bytes = self.bytes.len() as u64;
        let mut walk = SegmentRead { next: self.first, good_bytes: 0, rest_bytes, end: End::Whole, closed: false };
        let expected = header_with(self.first, parse_identity(&self.bytes));
        if !self.bytes.starts_with(&expected) {
            // The header was synced before the first frame was written. So a frame after it proves that the header was once valid.
            if frame::find(&self.bytes, &self.reachable(self.first)).is_some() {
                walk.end = End::Damaged { reason: "the segment's header is wrong".to_owned() };
            } else {
                walk.end = End::Torn;
            }
            return Ok(walk);
        }
        self.walk_from(expected.len(), &mut walk, &mut each)?;
        Ok(walk)
    }

    /// Continues after damage, with the next complete frame. Returns the sequence of the first event from there on, or none if there is no
    /// such frame.
    ///
    /// # Errors
    /// Returns the error of `each`.
    pub fn resume_after_damage<E>(
        &self,
        broken: &SegmentRead,
        mut each: impl FnMut(FoundEvent<'_>) -> Result<(), E>,
    ) -> Result<Option<(Sequence, SegmentRead)>, E> {
        let start = (broken.good_bytes as usize).saturating_add(1).min(self.bytes.len());
        let Some((offset, frame)) = frame::find(&self.bytes[start..], &self.reachable(broken.next)) else {
            return Ok(None);
        };
        // A frame of kind `Closed` has the sequence of the event before it.
        let found = if frame.kind == FrameKind::Closed { frame.sequence.next() } else { frame.sequence };
        let mut walk = SegmentRead { next: found, good_bytes: 0, rest_bytes: 0, end: End::Whole, closed: false };
        self.walk_from(start + offset, &mut walk, &mut each)?;
        Ok(Some((found, walk)))
    }

    /// Returns the number of complete events after the position where `walk` ended.
    pub fn count_events_after(&self, walk: &SegmentRead) -> u64 {
        let (mut from, mut count) = ((walk.good_bytes as usize).min(self.bytes.len()), 0);
        while let Some((offset, frame)) = frame::find(&self.bytes[from..], &self.reachable(walk.next)) {
            count += u64::from(frame.kind == FrameKind::Event);
            from += offset + frame.bytes();
        }
        count
    }

    fn walk_from<E>(
        &self,
        mut at: usize,
        walk: &mut SegmentRead,
        each: &mut impl FnMut(FoundEvent<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        while at < self.bytes.len() {
            let decoded = frame::decode(&self.bytes[at..]).map_err(|error| error.to_string());
            match decoded.and_then(|frame| expect(frame, walk.next)) {
                Ok(frame) => {
                    walk.closed = frame.kind == FrameKind::Closed && frame.payload != MARK;
                    if frame.kind == FrameKind::Event {
                        let (offset_bytes, sequence) = (at as u64, frame.sequence);
                        each(FoundEvent { offset_bytes, sequence, payload: frame.payload })?;
                        walk.next = walk.next.next();
                    }
                    at += frame.bytes();
                }
                Err(reason) => {
                    walk.end = self.torn_or_damaged(at, walk.next, reason);
                    walk.closed = false;
                    break;
                }
            }
        }
        walk.good_bytes = at as u64;
        walk.rest_bytes = (self.bytes.len() - at) as u64;
        Ok(())
    }

    fn reachable(&self, from: Sequence) -> RangeInclusive<Sequence> {
        from..=*reachable(self.first, &self.bytes).end()
    }

    /// Classifies a broken frame at `at`. If a later frame states that `expected` was synced, the broken frame is damaged, else the tail is
    /// torn.
    fn torn_or_damaged(&self, at: usize, expected: Sequence, reason: String) -> End {
        let mut from = (at + 1).min(self.bytes.len());
        while let Some((offset, frame)) = frame::find(&self.bytes[from..], &self.reachable(expected)) {
            if frame.synced >= expected {
                return End::Damaged { reason };
            }
            from += offset + frame.bytes();
        }
        End::Torn
    }
}

/// Returns the sequences that a segment of this length can contain. The smallest frame consists of a frame header only.
fn reachable(first: Sequence, bytes: &[u8]) -> RangeInclusive<Sequence> {
    first..=Sequence(first.0.saturating_add((bytes.len() / FRAME_HEADER_BYTES) as u64))
}

/// Returns the header at the start of `bytes` if its checksum is correct. In a later format it may have either of the known lengths.
fn whole_header(bytes: &[u8]) -> Option<&[u8]> {
    let format = bytes.get(8..10).filter(|_| bytes.starts_with(MAGIC))?;
    let lengths = match u16::from_le_bytes([format[0], format[1]]) {
        0 | 1 => &[SEGMENT_HEADER_BYTES][..],
        2 => &[SEGMENT_HEADER_BYTES_MAX],
        _ => &[SEGMENT_HEADER_BYTES_MAX, SEGMENT_HEADER_BYTES],
    };
    lengths.iter().filter_map(|length| bytes.get(..*length)).find(|header| {
        let (content, checksum) = header.split_at(header.len() - 4);
        crc32c::crc32c(content).to_le_bytes() == checksum
    })
}

/// Returns the frame if it belongs before or at the event `next`.
///
/// # Errors
/// Returns the reason if it does not.
pub fn expect(frame: Frame<'_>, next: Sequence) -> Result<Frame<'_>, String> {
    let right = match frame.kind {
        FrameKind::Event => frame.sequence == next,
        FrameKind::Closed => frame.sequence.next() == next,
    };
    if right { Ok(frame) } else { Err(format!("{}: event {}", FrameError::BadContent, frame.sequence)) }
}
