//! Cursors: positions as opaque, URL-safe text.
//!
//! A cursor carries the position itself, not a reference to a post, so that it stays good across restarts and when the
//! post it was made from is gone. Feed cursors compare as their positions do, byte by byte, so that a client can merge what
//! it has with what comes later. Layout before base64: a kind byte, then big-endian fields.

use base64::Engine as _;
use base64::alphabet::Alphabet;
use base64::engine::GeneralPurpose;
use base64::engine::general_purpose::NO_PAD;

use crate::clock::UnixMicros;
use crate::feed::position::Position;
use crate::id::ListName;

const FEED: u8 = 1;
const EDGES: u8 = 2;
const NAMES: u8 = 3;

/// The characters of base64url, in the order of their bytes, so that texts of one length compare as what they encode.
const ASCENDING: Alphabet = match Alphabet::new("-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz") {
    Ok(alphabet) => alphabet,
    Err(_) => panic!("64 different printable characters make an alphabet"),
};

const TEXT: GeneralPurpose = GeneralPurpose::new(&ASCENDING, NO_PAD);

/// A text that is no cursor, or a cursor of another kind of list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a cursor of this list: pass on `next`, `newest` or an item's `cursor` unchanged")]
pub struct CursorError;

/// Writes a feed cursor. Of two positions the greater has the greater text, compared byte by byte.
pub fn encode(position: Position) -> String {
    let mut text = String::new();
    encode_into(position, &mut text);
    text
}

/// Appends the feed cursor that [`encode`] writes to `text`.
pub fn encode_into(position: Position, text: &mut String) {
    let mut bytes = [FEED; 17];
    bytes[1..].copy_from_slice(&position.rank().to_be_bytes());
    TEXT.encode_string(bytes, text);
}

/// Reads a feed cursor.
///
/// # Errors
/// When the text was not made by [`encode`].
pub fn decode(text: &str) -> Result<Position, CursorError> {
    let bytes: [u8; 17] = bytes_of(text, FEED)?;
    Ok(Position::of_rank(u128::from_be_bytes(after_kind(&bytes))))
}

/// Writes a cursor into a list of follow edges: the instant of the last edge shown, which no two edges share.
pub fn encode_edge(since: UnixMicros) -> String {
    let mut bytes = [EDGES; 9];
    bytes[1..].copy_from_slice(&since.0.to_be_bytes());
    TEXT.encode(bytes)
}

/// Reads a cursor into a list of follow edges.
///
/// # Errors
/// When the text was not made by [`encode_edge`].
pub fn decode_edge(text: &str) -> Result<UnixMicros, CursorError> {
    let bytes: [u8; 9] = bytes_of(text, EDGES)?;
    Ok(UnixMicros(i64::from_be_bytes(after_kind(&bytes))))
}

/// Writes a cursor into a list by name: the last name shown.
pub fn encode_name(name: &ListName) -> String {
    let mut bytes = vec![NAMES];
    bytes.extend_from_slice(name.as_str().as_bytes());
    TEXT.encode(bytes)
}

/// Reads a cursor into a list by name.
///
/// # Errors
/// When the text was not made by [`encode_name`].
pub fn decode_name(text: &str) -> Result<ListName, CursorError> {
    match TEXT.decode(text).map_err(|_| CursorError)?.as_slice() {
        [NAMES, name @ ..] => str::from_utf8(name).ok().and_then(|name| name.parse().ok()).ok_or(CursorError),
        _ => Err(CursorError),
    }
}

fn bytes_of<const N: usize>(text: &str, kind: u8) -> Result<[u8; N], CursorError> {
    let mut bytes = [0; N];
    // Checked first: the decoder would have to guess at room for longer texts.
    if text.len() != (N * 8).div_ceil(6) {
        return Err(CursorError);
    }
    match TEXT.decode_slice(text, &mut bytes) {
        Ok(length) if length == N && bytes[0] == kind => Ok(bytes),
        _ => Err(CursorError),
    }
}

fn after_kind<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[1..]);
    array
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::position::at;
    use proptest::prelude::*;

    /// Some are equal, so that ids decide, and some on either side of 1970.
    fn times() -> impl Strategy<Value = i64> {
        prop_oneof![any::<i64>(), -2..2_i64]
    }

    proptest! {
        #[test]
        fn every_position_survives_the_round_trip(time: i64, id: u64) {
            prop_assert_eq!(decode(&encode(at(time, id))), Ok(at(time, id)));
            prop_assert_eq!(decode_edge(&encode_edge(UnixMicros(time))), Ok(UnixMicros(time)));
        }

        #[test]
        fn texts_compare_as_their_positions_do(positions in proptest::collection::vec((times(), any::<u64>()), 2)) {
            let (one, other) = (at(positions[0].0, positions[0].1), at(positions[1].0, positions[1].1));
            prop_assert_eq!(encode(one).as_bytes().cmp(encode(other).as_bytes()), one.cmp(&other));
        }

        #[test]
        fn no_text_makes_the_reader_panic(text in "\\PC{0,40}") {
            let _ = (decode(&text), decode_edge(&text), decode_name(&text));
        }
    }

    #[test]
    fn other_texts_are_refused() {
        let feed = encode(at(5, 5));
        let edge = encode_edge(UnixMicros(5));
        for bad in ["", "x", "AAAA", &feed[1..], &format!("{feed}A"), &feed.replace('-', "+"), &edge] {
            assert_eq!(decode(bad), Err(CursorError), "{bad:?}");
        }
        assert_eq!(decode_edge(&feed), Err(CursorError));
        let name: ListName = "close.friends".parse().unwrap();
        assert_eq!(decode_name(&encode_name(&name)), Ok(name.clone()));
        for bad in ["", "x", "-k", &feed, &edge, &format!("{}A", encode_name(&name))] {
            assert_eq!(decode_name(bad), Err(CursorError), "{bad:?}");
        }
    }
}
