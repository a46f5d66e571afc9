//! The text of live messages (specified in `docs/live.md`).

use std::fmt::Write as _;

use crate::http::page_json;
use crate::http::post_json::Shape;
use tidewire::engine::Unread;
use tidewire::feed::cursor;
use tidewire::feed::stream::{Epoch, StreamPosition};
use tidewire::live::event::{EventKind, LiveEntry, LiveEvent};
use tidewire::storage::sequence::Sequence;

/// Returns the `type` of a message.
pub(super) fn kind(event: &LiveEvent) -> &'static str {
    match event.kind {
        EventKind::Hello { .. } => "hello",
        EventKind::Beat => "beat",
        EventKind::Post(_) => "post",
        EventKind::Update(_) => "update",
        EventKind::Remove(_) => "remove",
        EventKind::Stale(_) => "stale",
        EventKind::Marker(_) => "marker",
    }
}

/// Appends a message as JSON. In a cluster, the first message of a connection contains the sequence that pages must have applied.
pub(super) fn message(event: &LiveEvent, sequence: Option<Sequence>, json: &mut String) {
    // Writing to a `String` cannot fail, and no value here contains a character that JSON escapes.
    let _ = write!(json, r#"{{"type":"{}","seq":{}"#, kind(event), event.place.last);
    match &event.kind {
        EventKind::Hello { recovered, marker } => {
            let _ = write!(json, r#","epoch":"{}","recovered":{recovered},"marker":"#, epoch(event.place.epoch));
            page_json::optional_cursor(json, *marker);
            if let Some(Sequence(sequence)) = sequence {
                let _ = write!(json, r#","after_sequence":{sequence}"#);
            }
        }
        EventKind::Beat => {}
        EventKind::Post(item) => {
            json.push_str(r#","item":"#);
            json.push_str(text(item));
        }
        EventKind::Update(post) => {
            json.push_str(r#","post":"#);
            json.push_str(post.json());
        }
        EventKind::Remove(post) => {
            let _ = write!(json, r#","post":"{post}""#);
        }
        EventKind::Stale(below) => {
            json.push_str(r#","below":"#);
            page_json::optional_cursor(json, *below);
        }
        EventKind::Marker(at) => {
            json.push_str(r#","cursor":"#);
            page_json::optional_cursor(json, Some(*at));
        }
    }
    json.push('}');
}

/// Returns the message with the number of unread entries. Its `seq` is that of the last message before it.
pub(super) fn unread(place: StreamPosition, Unread { entries, capped, complete, .. }: &Unread) -> String {
    format!(r#"{{"type":"unread","seq":{},"unread":{entries},"capped":{capped},"complete":{complete}}}"#, place.last)
}

/// Returns the JSON text of an entry, which is encoded once for all connections that receive it.
fn text(item: &LiveEntry) -> &str {
    item.text.get_or_init(|| cursor_and_post(item).into_boxed_str())
}

fn cursor_and_post(item: &LiveEntry) -> String {
    let mut json = String::with_capacity(item.entry.post.json().len() + 2 * cursor::encode(item.at).len() + 64);
    page_json::item(&mut json, item.at, &item.entry, Shape::FULL);
    json
}

/// Formats an epoch as 16 hexadecimal digits.
pub(super) fn epoch(Epoch(epoch): Epoch) -> String {
    format!("{epoch:016x}")
}

/// Parses an epoch of 16 hexadecimal digits.
pub(super) fn read_epoch(text: &str) -> Option<Epoch> {
    let is_one = text.len() == 16 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_one.then(|| u64::from_str_radix(text, 16).ok().map(Epoch))?
}
