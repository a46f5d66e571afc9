//! A frame: the representation of one event on disk.
//!
//! | bytes | content (numbers are little-endian) |
//! |---|---|
//! | 4 | length of the payload |
//! | 8 | sequence |
//! | 8 | the last sequence that was known to be synced when this frame was written |
//! | 1 | kind |
//! | 4 | CRC-32C of the payload |
//! | 4 | CRC-32C of the 25 bytes before |
//! | … | payload: for an event MessagePack, maps with named fields |
//!
//! The third field makes it possible to distinguish a torn tail from damage. After a power loss any part of the unsynced data may be
//! missing, even a part in front of complete frames. But if a later frame states that all events up to 7 are synced, then a broken frame
//! 5 was once complete and acknowledged, so it is damaged. No such frame follows the last synced events until the journal is closed or
//! idle for a moment. Then the writer appends a frame without an event that contains this number.

use std::ops::RangeInclusive;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::storage::sequence::Sequence;

/// Maximum payload bytes of one frame. The largest event is a bulk of follow edges with the longest ids.
const FRAME_PAYLOAD_BYTES_MAX: usize = 16 << 20;

/// Bytes before the payload: the fixed part of each frame.
pub const FRAME_HEADER_BYTES: usize = 29;

/// The payload of a frame that only records which events are synced. The journal may continue after it.
pub const MARK: &[u8] = b"synced";

/// The kind of content of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameKind {
    /// The payload is an event.
    Event,
    /// The frame contains no event. With an empty payload: the journal was closed in order after the event of this sequence. With the
    /// payload [`MARK`]: the writer was idle, and all events up to this sequence are synced.
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

/// A decoded frame with correct checksums.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame<'a> {
    /// The kind of its content.
    pub kind: FrameKind,
    /// The sequence of its event, or of the event before it if it contains none.
    pub sequence: Sequence,
    /// The last sequence that was known to be synced when the frame was written.
    pub synced: Sequence,
    /// Its content: for an event, MessagePack.
    pub payload: &'a [u8],
}

/// The reason why bytes cannot be decoded as a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameError {
    /// The bytes end within the frame.
    CutShort,
    /// The checksum of the header is wrong.
    BadHeader,
    /// The checksum of the payload is wrong.
    BadPayload,
    /// The checksums are correct, but no version writes such a content.
    BadContent,
}

impl std::fmt::Display for FrameError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::CutShort => "the frame is cut short",
            Self::BadHeader => "the checksum of the frame's header is wrong",
            Self::BadPayload => "the checksum of the frame's payload is wrong",
            Self::BadContent => "the frame has a content that no version writes",
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

/// Decodes the frame at the start of `bytes`.
///
/// # Errors
/// Returns the reason if there is no valid frame.
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
    /// Total bytes of the frame: header and payload.
    pub fn bytes(&self) -> usize {
        FRAME_HEADER_BYTES + self.payload.len()
    }
}

/// Returns the offset in `bytes` and the content of the first complete frame whose sequence is within `among`. Frames with another sequence
/// are ignored: they are other data that happens to look like a frame.
pub fn find<'a>(bytes: &'a [u8], among: &RangeInclusive<Sequence>) -> Option<(usize, Frame<'a>)> {
    (0..bytes.len().saturating_sub(FRAME_HEADER_BYTES - 1)).find_map(|at| {
        // The sequence is compared first: this excludes nearly all offsets without computing a checksum.
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

/// Appends `value` as MessagePack, with maps that have named fields.
pub fn pack<T: Serialize>(value: &T, into: &mut Vec<u8>) {
    let mut serializer = rmp_serde::Serializer::new(into).with_struct_map();
    value.serialize(&mut serializer).expect("plain data is written to memory");
}

/// Decodes a value from all of `bytes`.
///
/// # Errors
/// Fails if `bytes` is not such a value, or contains more bytes after it.
pub fn unpack<T: DeserializeOwned>(mut bytes: &[u8]) -> Result<T, String> {
    let value = unpack_next(&mut bytes)?;
    if bytes.is_empty() { Ok(value) } else { Err(format!("{} bytes too many", bytes.len())) }
}

/// Decodes the value at the start of `bytes`, and advances `bytes` past it.
///
/// # Errors
/// Fails if `bytes` does not begin with such a value.
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
    fn a_frame_is_decoded_without_the_following_bytes() {
        let mut bytes = framed(b"hello");
        bytes.extend(b"rest");
        let frame = decode(&bytes).unwrap();
        let expected = Frame { kind: FrameKind::Event, sequence: Sequence(7), synced: Sequence(5), payload: b"hello" };
        assert_eq!((frame, frame.bytes()), (expected, bytes.len() - 4));
    }

    #[test]
    fn a_truncated_frame_is_refused() {
        let bytes = framed(b"hello");
        for length in 0..bytes.len() {
            assert_eq!(decode(&bytes[..length]), Err(FrameError::CutShort), "{length}");
        }
    }

    #[test]
    fn every_flipped_bit_is_detected() {
        let bytes = framed(b"hello");
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&flipped).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_valid_frame_is_found_after_damage_and_an_impossible_one_is_not() {
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
        fn decoding_any_bytes_does_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&bytes);
            let _ = find(&bytes, &(Sequence(1)..=Sequence(100)));
            let _ = unpack::<crate::feed::event::Event>(&bytes);
        }
    }
}
