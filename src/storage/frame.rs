//! A frame: one event on disk.
//!
//! Responsible for:
//! - the bytes of a frame, and telling a whole one from one that is cut short or damaged;
//! - finding the next whole frame after damage.
//!
//! Not responsible for:
//! - files (`storage::segment`), the order of events (`storage::journal`).
//!
//! | bytes | what (numbers little-endian) |
//! |---|---|
//! | 4 | length of the payload |
//! | 8 | sequence |
//! | 8 | the last sequence that was known to be synced when this frame was written |
//! | 1 | kind |
//! | 4 | CRC-32C of the payload |
//! | 4 | CRC-32C of the 25 bytes before |
//! | … | payload: for an event MessagePack, maps with named fields |
//!
//! The third field is what tells a torn tail from damage. After a power loss any part of what was not synced may be missing,
//! even in front of whole frames. But a frame that says "up to 7 all is synced" proves that a broken frame 5 was once
//! whole, and acknowledged. What was synced last has no frame behind it that could say so, until the journal is closed or has been
//! idle for a moment: then a frame without an event says it.

use std::ops::RangeInclusive;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::limits::FRAME_PAYLOAD_BYTES_MAX;
use crate::storage::journal::Sequence;

/// Bytes before the payload.
pub const FRAME_HEADER_BYTES: usize = 29;

/// The payload of a frame that only says what is synced, which is not the end.
pub const MARK: &[u8] = b"synced";

/// What a frame holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameKind {
    /// An event.
    Event,
    /// Nothing: the journal was closed in order, after the event of this sequence. Or [`MARK`]: nothing was written for a while, and it
    /// is synced up to there.
    Closed,
}

impl FrameKind {
    fn byte(self) -> u8 {
        match self {
            Self::Event => 1,
            Self::Closed => 2,
        }
    }

    fn of(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Event),
            2 => Some(Self::Closed),
            _ => None,
        }
    }
}

/// A frame, its checksums right.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame<'a> {
    /// What it holds.
    pub kind: FrameKind,
    /// Its number.
    pub sequence: Sequence,
    /// The last sequence that was known to be synced when it was written.
    pub synced: Sequence,
    /// Its content.
    pub payload: &'a [u8],
}

/// Why there is no frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameError {
    /// The bytes end within it.
    CutShort,
    /// Its first bytes are not what was written.
    BadHeader,
    /// Its payload is not what was written.
    BadPayload,
    /// Its checksums are right, but it says what no version has written.
    BadContent,
}

impl std::fmt::Display for FrameError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::CutShort => "the frame is cut short",
            Self::BadHeader => "the checksum of the frame's header is wrong",
            Self::BadPayload => "the checksum of the frame's payload is wrong",
            Self::BadContent => "the frame says what no version has written",
        })
    }
}

/// Appends a frame to `into`; `payload` appends the payload.
pub fn encode(
    into: &mut Vec<u8>,
    kind: FrameKind,
    sequence: Sequence,
    synced: Sequence,
    payload: impl FnOnce(&mut Vec<u8>),
) {
    let start = into.len();
    into.resize(start + FRAME_HEADER_BYTES, 0);
    payload(into);
    let (header, payload) = into[start..].split_at_mut(FRAME_HEADER_BYTES);
    header[..4].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    header[4..12].copy_from_slice(&sequence.0.to_le_bytes());
    header[12..20].copy_from_slice(&synced.0.to_le_bytes());
    header[20] = kind.byte();
    header[21..25].copy_from_slice(&crc32c::crc32c(payload).to_le_bytes());
    let checksum = crc32c::crc32c(&header[..25]);
    header[25..].copy_from_slice(&checksum.to_le_bytes());
}

/// The frame at the start of `bytes`.
///
/// # Errors
/// Why there is none.
pub fn decode(bytes: &[u8]) -> Result<Frame<'_>, FrameError> {
    let header = bytes.get(..FRAME_HEADER_BYTES).ok_or(FrameError::CutShort)?;
    if crc32c::crc32c(&header[..25]) != u32_at(header, 25) {
        return Err(FrameError::BadHeader);
    }
    let payload_bytes = u32_at(header, 0) as usize;
    let kind = FrameKind::of(header[20]).filter(|_| payload_bytes <= FRAME_PAYLOAD_BYTES_MAX);
    let kind = kind.ok_or(FrameError::BadContent)?;
    let payload = bytes[FRAME_HEADER_BYTES..].get(..payload_bytes).ok_or(FrameError::CutShort)?;
    if crc32c::crc32c(payload) != u32_at(header, 21) {
        return Err(FrameError::BadPayload);
    }
    let (sequence, synced) = (Sequence(u64_at(header, 4)), Sequence(u64_at(header, 12)));
    Ok(Frame { kind, sequence, synced, payload })
}

impl Frame<'_> {
    /// Bytes from its start to the next frame's.
    pub fn bytes(&self) -> usize {
        FRAME_HEADER_BYTES + self.payload.len()
    }
}

/// Where in `bytes` the first whole frame starts whose sequence is one of `among`. Others come from something that only looks
/// like a frame.
pub fn find<'a>(bytes: &'a [u8], among: &RangeInclusive<Sequence>) -> Option<(usize, Frame<'a>)> {
    (0..bytes.len().saturating_sub(FRAME_HEADER_BYTES - 1)).find_map(|at| {
        // The sequence first: it tells nearly all places apart at once.
        let near = among.contains(&Sequence(u64_at(bytes, at + 4)));
        near.then(|| decode(&bytes[at..]).ok()).flatten().map(|frame| (at, frame))
    })
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes were taken"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes were taken"))
}

/// Appends `value` as MessagePack, maps with named fields.
pub fn pack<T: Serialize>(value: &T, into: &mut Vec<u8>) {
    let mut serializer = rmp_serde::Serializer::new(into).with_struct_map();
    value.serialize(&mut serializer).expect("plain data is written to memory");
}

/// The value that `bytes` are, all of them.
///
/// # Errors
/// When they are not, or there are more.
pub fn unpack<T: DeserializeOwned>(mut bytes: &[u8]) -> Result<T, String> {
    let value = unpack_next(&mut bytes)?;
    if bytes.is_empty() { Ok(value) } else { Err(format!("{} bytes too many", bytes.len())) }
}

/// The value at the start of `bytes`, which moves on past it.
///
/// # Errors
/// When there is none.
pub fn unpack_next<T: DeserializeOwned>(bytes: &mut &[u8]) -> Result<T, String> {
    let mut deserializer = rmp_serde::Deserializer::new(&mut *bytes);
    T::deserialize(&mut deserializer).map_err(|cause| cause.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn framed(payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode(&mut bytes, FrameKind::Event, Sequence(7), Sequence(5), |into| into.extend(payload));
        bytes
    }

    #[test]
    fn a_frame_is_read_back_and_what_follows_is_left() {
        let mut bytes = framed(b"hello");
        bytes.extend(b"rest");
        let frame = decode(&bytes).unwrap();
        let expected = Frame { kind: FrameKind::Event, sequence: Sequence(7), synced: Sequence(5), payload: b"hello" };
        assert_eq!((frame, frame.bytes()), (expected, bytes.len() - 4));
    }

    #[test]
    fn a_frame_cut_anywhere_is_no_frame() {
        let bytes = framed(b"hello");
        for length in 0..bytes.len() {
            assert_eq!(decode(&bytes[..length]), Err(FrameError::CutShort), "{length}");
        }
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let bytes = framed(b"hello");
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&flipped).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_frame_is_found_after_damage_but_not_one_that_cannot_be() {
        let mut bytes = vec![0xff; 100];
        bytes.extend(framed(b"hello"));
        assert_eq!(
            find(&bytes, &(Sequence(6)..=Sequence(7))).map(|(at, frame)| (at, frame.payload)),
            Some((100, &b"hello"[..]))
        );
        assert_eq!(find(&bytes, &(Sequence(8)..=Sequence(9))), None);
        assert_eq!(find(&bytes, &(Sequence(1)..=Sequence(6))), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&bytes);
            let _ = find(&bytes, &(Sequence(1)..=Sequence(100)));
            let _ = unpack::<crate::feed::event::Event>(&bytes);
        }
    }
}
