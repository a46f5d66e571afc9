//! Fuzz target for cursors and for the other texts in paths and queries: a text that is parsed must be written as the same text again.

use crate::clock::UnixMicros;
use crate::feed::cursor;
use crate::feed::position::Position;
use crate::id::{ListName, PostName, SourceId};

/// Parses `data` as every kind of cursor, id and time.
///
/// # Panics
/// If a parsed value is written as another text, or if cursors do not compare like their positions.
pub fn cursors(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let feed = cursor::decode(text);
    if let Ok(position) = feed {
        assert_eq!(cursor::encode(position), text, "a feed cursor has two texts");
        in_order(text, position);
    }
    if let Ok(resume) = cursor::decode_resume(text) {
        assert_eq!(cursor::encode_resume(resume), text, "a resume token has two texts");
    }
    let edge = cursor::decode_edge(text).inspect(|since| assert_eq!(cursor::encode_edge(*since), text));
    let name =
        cursor::decode_name::<ListName>(text).inspect(|name| assert_eq!(cursor::encode_name(name.as_str()), text));
    let kinds = [feed.is_ok(), edge.is_ok(), name.is_ok()].into_iter().filter(|is_one| *is_one).count();
    assert!(kinds <= 1, "{text:?} is a cursor of more than one kind");

    if let Ok(name) = text.parse::<PostName>() {
        assert_eq!(name.to_string(), text);
    }
    one_form(text);
    if let Ok(name) = text.parse::<ListName>() {
        assert_eq!(name.as_str(), text);
    }
    if let Ok(at) = text.parse::<UnixMicros>() {
        assert_eq!(at.to_string().parse(), Ok(at), "a time changes when it is written and parsed again");
    }
}

/// Checks that the normalized form of an id is its own normalized form.
fn one_form(text: &str) {
    if let Ok(id) = text.parse::<SourceId>() {
        assert!(id.as_str() == text || !id.is_user(), "{text:?} became {id}");
        assert_eq!(id.as_str().parse(), Ok(id.clone()), "{text:?}");
    }
}

fn in_order(text: &str, position: Position) {
    for other in [Position::MIN, Position::MAX, Position { published_at: UnixMicros(0), id: position.id }] {
        let written = cursor::encode(other);
        assert_eq!(text.as_bytes().cmp(written.as_bytes()), position.cmp(&other), "{text:?} and {written:?}");
    }
}
