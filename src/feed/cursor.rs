//! Cursors and resume tokens: positions as opaque, URL-safe text.
//!
//! A cursor contains the position itself, not a reference to a post, so that it stays valid across restarts and after the post is deleted.
//! Feed cursors compare like their positions, byte by byte, so that a client can merge its entries with later ones. Layout before base64: a
//! kind byte, then big-endian fields.

use base64::Engine as _;
use base64::alphabet::Alphabet;
use base64::engine::GeneralPurpose;
use base64::engine::general_purpose::NO_PAD;

use crate::clock::UnixMicros;
use crate::feed::position::Position;
use crate::feed::resume::Resume;
use std::str::FromStr;

/// Maximum bytes of a resume token after its cursor: flags, preferences, an offset and two instants.
const RESUME_BYTES_MAX: usize = 1 + 4 + 8 + 8 + 8;

/// The number of base64 characters of [`RESUME_BYTES_MAX`] bytes.
const TEXT_BYTES_MAX: usize = (RESUME_BYTES_MAX * 8).div_ceil(6);

/// The number of base64 characters of a feed cursor of 17 bytes.
const FEED_CHARACTERS: usize = (17_usize * 8).div_ceil(6);

const FEED: u8 = 1;
const EDGES: u8 = 2;
const NAMES: u8 = 3;

/// The characters of base64url, in the order of their bytes, so that texts of equal length compare like the encoded bytes.
const CHARACTERS: &str = "-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz";

const ASCENDING: Alphabet = match Alphabet::new(CHARACTERS) {
    Ok(alphabet) => alphabet,
    Err(_) => panic!("64 different printable characters make an alphabet"),
};

const TEXT: GeneralPurpose = GeneralPurpose::new(&ASCENDING, NO_PAD);

/// The text is not a cursor, or is a cursor of another kind of list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a cursor of this list: pass on `next`, `newest` or an item's `cursor` unchanged")]
pub struct CursorError;

/// Encodes a feed cursor. Of two positions the greater one has the greater text, compared byte by byte.
pub fn encode(position: Position) -> String {
    let mut text = String::new();
    encode_into(position, &mut text);
    text
}

/// Appends the feed cursor that [`encode`] returns to `text`.
// Written out, because a page has a cursor for each entry, and the generic encoder took a sixth of its instructions.
pub fn encode_into(position: Position, text: &mut String) {
    /// Aligned, because the standard library checks aligned ASCII fastest.
    #[repr(align(8))]
    struct Characters([u8; FEED_CHARACTERS]);

    let rank = position.rank();
    let mut characters = Characters([0; FEED_CHARACTERS]);
    let [first, second, rest @ ..] = &mut characters.0;
    let character_of = |bits: u128| CHARACTERS.as_bytes()[bits as usize];
    *first = character_of(u128::from(FEED) >> 2);
    *second = character_of((u128::from(FEED) & 0b11) << 4 | rank >> 124);
    let mut bits = rank << 4;
    for character in rest {
        *character = character_of(bits >> 122);
        bits <<= 6;
    }
    text.push_str(str::from_utf8(&characters.0).unwrap_or_default());
}

/// Appends at most [`RESUME_BYTES_MAX`] bytes as text. `Engine::encode_string` would clear a buffer of a kilobyte for each cursor of a page.
fn push(bytes: &[u8], text: &mut String) {
    let mut characters = [0; TEXT_BYTES_MAX];
    let length = TEXT.encode_slice(bytes, &mut characters).unwrap_or_default();
    text.push_str(str::from_utf8(&characters[..length]).unwrap_or_default());
}

/// Decodes a feed cursor.
///
/// # Errors
/// Returns an error if the text was not written by [`encode`].
pub fn decode(text: &str) -> Result<Position, CursorError> {
    let bytes: [u8; 17] = bytes_of(text, FEED)?;
    Ok(Position::of_rank(u128::from_be_bytes(after_kind(&bytes))))
}

/// Appends a resume token to `text`: the cursor of its position, and its other fields after a dot. Tokens and cursors therefore compare as
/// plain text, and a token is directly above the cursor of the same position.
pub fn encode_resume_into(resume: Resume, text: &mut String) {
    encode_into(resume.position, text);
    let Resume { above, below, ahead_us, preferences, is_partial, may_fall, .. } = resume;
    if resume == Resume::at(resume.position) {
        return;
    }
    let is_whole = above.is_some() && above == below;
    let flags = [is_partial, below.is_some(), above.is_some() && !is_whole, is_whole, may_fall];
    let flags: u8 = (0..).zip(flags).map(|(bit, flag)| u8::from(flag) << bit).sum();
    let instants = below.into_iter().chain(above.filter(|_| !is_whole)).flat_map(|instant| instant.0.to_be_bytes());
    let fields = [flags].into_iter().chain(preferences.to_be_bytes()).chain(ahead_us.to_be_bytes()).chain(instants);
    let mut bytes = [0; RESUME_BYTES_MAX];
    let length = bytes.iter_mut().zip(fields).map(|(byte, field)| *byte = field).count();
    text.push('.');
    push(&bytes[..length], text);
}

/// Encodes a resume token.
pub fn encode_resume(resume: Resume) -> String {
    let mut text = String::new();
    encode_resume_into(resume, &mut text);
    text
}

/// Decodes a resume token, or a feed cursor as the token of a client that has everything up to that position.
///
/// # Errors
/// Returns an error if the text was not written by [`encode_resume`] or [`encode`].
pub fn decode_resume(text: &str) -> Result<Resume, CursorError> {
    let Some((cursor, rest)) = text.split_once('.') else { return decode(text).map(Resume::at) };
    let mut bytes = [0; RESUME_BYTES_MAX];
    // The length is checked first: for longer texts the decoder only estimates whether its output fits into the buffer.
    if rest.len() > TEXT_BYTES_MAX {
        return Err(CursorError);
    }
    let length = TEXT.decode_slice(rest, &mut bytes).map_err(|_| CursorError)?;
    let (flags, rest) = bytes[..length].split_first().ok_or(CursorError)?;
    let (preferences, rest) = rest.split_first_chunk::<4>().ok_or(CursorError)?;
    let (ahead_us, rest) = rest.split_first_chunk::<8>().ok_or(CursorError)?;
    let (instants, rest) = rest.as_chunks::<8>();
    let mut instants = instants.iter().map(|bytes| UnixMicros(i64::from_be_bytes(*bytes)));
    let flag = |bit: u8| flags & (1 << bit) != 0;
    let mut instant = |is_there: bool| if is_there { instants.next().map(Some).ok_or(CursorError) } else { Ok(None) };
    let below = instant(flag(1))?;
    let above = instant(flag(2))?.or(below.filter(|_| flag(3)));
    let resume = Resume {
        position: decode(cursor)?,
        above,
        below,
        ahead_us: i64::from_be_bytes(*ahead_us),
        preferences: u32::from_be_bytes(*preferences),
        is_partial: flag(0),
        may_fall: flag(4),
    };
    // Each token has one canonical text; any other text with the same fields is refused.
    if rest.is_empty() && encode_resume(resume) == text { Ok(resume) } else { Err(CursorError) }
}

/// Encodes a cursor for a list of follow edges: the instant of the last listed edge, which no two edges share.
pub fn encode_edge(since: UnixMicros) -> String {
    let mut bytes = [EDGES; 9];
    bytes[1..].copy_from_slice(&since.0.to_be_bytes());
    TEXT.encode(bytes)
}

/// Decodes a cursor for a list of follow edges.
///
/// # Errors
/// Returns an error if the text was not written by [`encode_edge`].
pub fn decode_edge(text: &str) -> Result<UnixMicros, CursorError> {
    let bytes: [u8; 9] = bytes_of(text, EDGES)?;
    Ok(UnixMicros(i64::from_be_bytes(after_kind(&bytes))))
}

/// Encodes a cursor for a list ordered by name or id: the last listed one.
pub fn encode_name(name: &str) -> String {
    let mut bytes = vec![NAMES];
    bytes.extend_from_slice(name.as_bytes());
    TEXT.encode(bytes)
}

/// Decodes a cursor for a list ordered by name or id.
///
/// # Errors
/// Returns an error if the text was not written by [`encode_name`].
pub fn decode_name<T: FromStr>(text: &str) -> Result<T, CursorError> {
    match TEXT.decode(text).map_err(|_| CursorError)?.as_slice() {
        [NAMES, name @ ..] => str::from_utf8(name).ok().and_then(|name| name.parse().ok()).ok_or(CursorError),
        _ => Err(CursorError),
    }
}

fn bytes_of<const N: usize>(text: &str, kind: u8) -> Result<[u8; N], CursorError> {
    let mut bytes = [0; N];
    // The length is checked first: for longer texts the decoder only estimates whether its output fits into the buffer.
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
    use crate::id::ListName;
    use proptest::prelude::*;

    /// Generates times before and after 1970, some of them equal, so that ids decide.
    fn times() -> impl Strategy<Value = i64> {
        prop_oneof![any::<i64>(), -2..2_i64]
    }

    proptest! {
        #[test]
        fn every_position_survives_the_round_trip(time: i64, id: u64) {
            let position = at(time, id);
            prop_assert_eq!(decode(&encode(position)), Ok(position));
            let bytes = [&[FEED][..], &position.rank().to_be_bytes()].concat();
            prop_assert_eq!(encode(position), TEXT.encode(bytes));
            prop_assert_eq!(decode_edge(&encode_edge(UnixMicros(time))), Ok(UnixMicros(time)));
        }

        #[test]
        fn every_resume_token_survives_the_round_trip(
            position in (times(), any::<u64>()),
            above: Option<i64>,
            below: Option<i64>,
            is_whole: bool,
            (ahead_us, preferences, is_partial, may_fall) in any::<(i64, u32, bool, bool)>(),
        ) {
            let (position, below) = (at(position.0, position.1), below.map(UnixMicros));
            let above = if is_whole { below } else { above.map(UnixMicros) };
            let resume = Resume { position, above, below, ahead_us, preferences, is_partial, may_fall };
            let text = encode_resume(resume);
            prop_assert_eq!(decode_resume(&text), Ok(resume));
            prop_assert!(text >= encode(position) && text < encode(position.next_up()) || position == Position::MAX);
            prop_assert_eq!(decode_resume(&encode(position)), Ok(Resume::at(position)));
        }

        #[test]
        fn encoded_cursors_sort_as_their_positions(positions in proptest::collection::vec((times(), any::<u64>()), 2)) {
            let (one, other) = (at(positions[0].0, positions[0].1), at(positions[1].0, positions[1].1));
            prop_assert_eq!(encode(one).as_bytes().cmp(encode(other).as_bytes()), one.cmp(&other));
        }

        #[test]
        fn decoding_any_text_does_not_panic(text in "\\PC{0,40}") {
            let _ = (decode(&text), decode_edge(&text), decode_name::<ListName>(&text));
            prop_assert_eq!(decode_resume(&format!("{}.{text}", encode(at(1, 1)))), Err(CursorError));
        }
    }

    #[test]
    fn invalid_cursors_are_refused() {
        let feed = encode(at(5, 5));
        let edge = encode_edge(UnixMicros(5));
        for bad in ["", "x", "AAAA", &feed[1..], &format!("{feed}A"), &feed.replace('-', "+"), &edge] {
            assert_eq!(decode(bad), Err(CursorError), "{bad:?}");
        }
        assert_eq!(decode_edge(&feed), Err(CursorError));
        let name: ListName = "close.friends".parse().unwrap();
        assert_eq!(decode_name(&encode_name(name.as_str())), Ok(name.clone()));
        for bad in ["", "x", "-k", &feed, &edge, &format!("{}A", encode_name(name.as_str()))] {
            assert_eq!(decode_name::<ListName>(bad), Err(CursorError), "{bad:?}");
        }
    }
}
