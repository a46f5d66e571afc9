//! A segment: one file of the journal, frames behind a header.
//!
//! Responsible for:
//! - names and headers of segment files;
//! - walking the frames of one segment, and saying how it ends: whole, torn, or damaged.
//!
//! Not responsible for:
//! - how segments follow each other (`storage::journal::reader`), writing (`storage::journal::writer`).
//!
//! A header is 40 bytes: magic, format version (2 bytes), 2 bytes zero, sequence of the first event (8 bytes, all numbers
//! little-endian), identity of the data directory (16 bytes), CRC-32C of the 36 bytes before. In format 1 it is 24 bytes, without the identity.

use std::io::Read;
use std::ops::RangeInclusive;

use crate::limits::SEGMENT_READ_BYTES_MAX;
use crate::storage::error::StorageError;
use crate::storage::files::Files;
use crate::storage::frame::{self, FRAME_HEADER_BYTES, Frame, FrameError, FrameKind, MARK};
use crate::storage::identity::{IDENTITY_BYTES, Identity};
use crate::storage::journal::Sequence;

/// The format that is written, and the last that is read.
pub const SEGMENT_FORMAT: u16 = 2;

/// Bytes before the first frame, in format 1.
pub const SEGMENT_HEADER_BYTES: usize = 24;

/// The same in format 2.
pub const SEGMENT_HEADER_BYTES_MAX: usize = SEGMENT_HEADER_BYTES + IDENTITY_BYTES;

const MAGIC: &[u8; 8] = b"TIDEJRNL";

/// The name of the segment that starts with `first`.
pub fn name(first: Sequence) -> String {
    format!("journal-{:020}.log", first.0)
}

/// The first sequence of the segment that has this name, if it is one's name.
pub fn parse_name(name: &str) -> Option<Sequence> {
    let digits = name.strip_prefix("journal-")?.strip_suffix(".log")?;
    let all_digits = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    if all_digits { digits.parse().ok().map(Sequence) } else { None }
}

/// The header of the segment that starts with `first`, in a directory without an identity.
pub fn header(first: Sequence) -> Vec<u8> {
    header_with(first, None)
}

/// The header of the segment that starts with `first`: of format 1 without an identity.
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

/// The sequence of the first event, if `bytes` begin with the header of a segment.
pub fn parse_header(bytes: &[u8]) -> Option<Sequence> {
    let first = bytes.get(12..20)?.try_into().expect("eight bytes were taken");
    whole_header(bytes).map(|_| Sequence(u64::from_le_bytes(first)))
}

/// The identity in the header of a segment, if `bytes` begin with one that has any.
pub fn parse_identity(bytes: &[u8]) -> Option<Identity> {
    let header = whole_header(bytes).filter(|header| header.len() == SEGMENT_HEADER_BYTES_MAX)?;
    header[20..20 + IDENTITY_BYTES].try_into().ok().map(Identity)
}

/// A segment in memory.
pub struct Segment {
    /// Where it is.
    pub place: String,
    /// The first sequence, by its name.
    pub first: Sequence,
    bytes: Vec<u8>,
}

/// An event met in a segment.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    /// Where its frame starts.
    pub offset_bytes: u64,
    /// Its number.
    pub sequence: Sequence,
    /// The event, as MessagePack.
    pub payload: &'a [u8],
}

/// How a segment ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    /// With a whole frame.
    Whole,
    /// With bytes that were not synced when writing stopped: they hold nothing that had to be kept.
    Torn,
    /// Something that was whole and synced once is not any more.
    Damaged {
        /// What is wrong.
        reason: String,
    },
}

/// What a walk through a segment came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Walk {
    /// The event after the last one met.
    pub next: Sequence,
    /// Bytes from the start of the file that are good.
    pub good_bytes: u64,
    /// Bytes behind them.
    pub rest_bytes: u64,
    /// How it ends.
    pub end: End,
    /// Whether it was closed in order, and nothing was appended since.
    pub closed: bool,
}

impl Segment {
    /// Reads a segment.
    ///
    /// # Errors
    /// When the file cannot be read, is no segment, or is of a later format.
    pub fn read(files: &dyn Files, name: &str, first: Sequence) -> Result<Self, StorageError> {
        let place = files.place(name);
        let (reader, bytes_max) = files.read(name).map_err(StorageError::io("read", &*place))?;
        let foreign = || StorageError::Foreign { place: place.clone(), what: "journal segment" };
        if bytes_max > SEGMENT_READ_BYTES_MAX as u64 {
            let (what, bytes_max) = ("journal segment", SEGMENT_READ_BYTES_MAX as u64);
            return Err(StorageError::TooLarge { place, what, bytes_max });
        }
        let mut bytes = Vec::with_capacity(bytes_max as usize);
        // What says that it is empty may be a device that never ends.
        reader.take(bytes_max).read_to_end(&mut bytes).map_err(StorageError::io("read", &*place))?;
        let magic_is = &bytes[..bytes.len().min(MAGIC.len())];
        // Zeros are what a power loss leaves of a header that was not synced.
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

    /// The identity in its header, if it has one.
    pub fn identity(&self) -> Option<Identity> {
        parse_identity(&self.bytes)
    }

    /// Gives every event, with its payload, to `each`.
    ///
    /// # Errors
    /// What `each` fails with.
    pub fn walk<E>(&self, mut each: impl FnMut(Found<'_>) -> Result<(), E>) -> Result<Walk, E> {
        let rest_bytes = self.bytes.len() as u64;
        let mut walk = Walk { next: self.first, good_bytes: 0, rest_bytes, end: End::Whole, closed: false };
        let expected = header_with(self.first, parse_identity(&self.bytes));
        if !self.bytes.starts_with(&expected) {
            // It was synced before the first frame was written, so a frame behind it proves that it was whole.
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

    /// Goes on behind damage, with the next whole frame there is.
    ///
    /// # Errors
    /// What `each` fails with.
    pub fn walk_on<E>(
        &self,
        broken: &Walk,
        mut each: impl FnMut(Found<'_>) -> Result<(), E>,
    ) -> Result<Option<(Sequence, Walk)>, E> {
        let start = (broken.good_bytes as usize).saturating_add(1).min(self.bytes.len());
        let Some((offset, frame)) = frame::find(&self.bytes[start..], &self.reachable(broken.next)) else {
            return Ok(None);
        };
        // A frame that closes stands behind the event it names.
        let found = if frame.kind == FrameKind::Closed { frame.sequence.next() } else { frame.sequence };
        let mut walk = Walk { next: found, good_bytes: 0, rest_bytes: 0, end: End::Whole, closed: false };
        self.walk_from(start + offset, &mut walk, &mut each)?;
        Ok(Some((found, walk)))
    }

    /// Whole events behind where a walk ended.
    pub fn events_behind(&self, walk: &Walk) -> u64 {
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
        walk: &mut Walk,
        each: &mut impl FnMut(Found<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        while at < self.bytes.len() {
            let decoded = frame::decode(&self.bytes[at..]).map_err(|error| error.to_string());
            match decoded.and_then(|frame| expect(frame, walk.next)) {
                Ok(frame) => {
                    walk.closed = frame.kind == FrameKind::Closed && frame.payload != MARK;
                    if frame.kind == FrameKind::Event {
                        let (offset_bytes, sequence) = (at as u64, frame.sequence);
                        each(Found { offset_bytes, sequence, payload: frame.payload })?;
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

    /// A frame further on that knows `expected` to be synced proves damage.
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

/// The sequences a segment may hold: no frame is smaller than its header.
fn reachable(first: Sequence, bytes: &[u8]) -> RangeInclusive<Sequence> {
    first..=Sequence(first.0.saturating_add((bytes.len() / FRAME_HEADER_BYTES) as u64))
}

/// The header that `bytes` begin with, if its checksum is right. Of a later format it is tried as either.
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

fn expect(frame: Frame<'_>, next: Sequence) -> Result<Frame<'_>, String> {
    let right = match frame.kind {
        FrameKind::Event => frame.sequence == next,
        FrameKind::Closed => frame.sequence.next() == next,
    };
    if right { Ok(frame) } else { Err(format!("{}: event {}", FrameError::BadContent, frame.sequence)) }
}
