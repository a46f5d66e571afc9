//! Encodes pages as JSON by copying: every post was encoded when it was published.

use std::fmt::Write as _;

use serde_json::Value;

use tidewire::engine::FeedPage;
use tidewire::feed::cursor;
use tidewire::feed::position::Position;
use tidewire::feed::resume::Resume;
use tidewire::id::SourceId;
use tidewire::state::feed_view::{Entry, Reposted};

/// The fields of each post that a page includes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fields {
    /// All fields of the post.
    All,
    /// The id, the author and the publication time.
    Ids,
}

// Ids, cursors and times contain no character that JSON escapes. Writing to a `String` cannot fail.

/// Encodes a page of a feed as JSON.
pub(super) fn page(page: &FeedPage, fields: Fields) -> String {
    let mut json = String::with_capacity(bytes(page));
    json.push('{');
    members(&mut json, page, fields);
    json
}

/// Appends a page of a reader's feed, which begins with the reader.
pub(super) fn page_of(json: &mut String, user: &SourceId, page: &FeedPage, fields: Fields) {
    json.reserve(bytes(page));
    let _ = write!(json, r#"{{"user":"{user}","#);
    members(json, page, fields);
}

/// Appends the problem that a reader gets in place of a page.
pub(super) fn problem_of(json: &mut String, user: &SourceId, problem: &Value) {
    let _ = write!(json, r#"{{"user":"{user}","problem":{problem}}}"#);
}

/// Returns about how many bytes a page takes.
fn bytes(page: &FeedPage) -> usize {
    page.page.items.iter().map(|(_, entry)| entry.post.json().len() + 128).sum::<usize>() + 128
}

/// Appends the members of a page and the end of its object.
fn members(json: &mut String, page: &FeedPage, fields: Fields) {
    json.push_str(r#""items":["#);
    for (nth, (position, entry)) in page.page.items.iter().enumerate() {
        if nth > 0 {
            json.push(',');
        }
        item(json, *position, entry, fields);
    }
    json.push_str(r#"],"next":"#);
    optional_cursor(json, page.page.next);
    json.push_str(r#","newest":"#);
    resume_token(json, page.page.resume);
    // Present only if the entries added since the given position are no longer known, so the client has to read the feed again.
    if page.page.gap {
        json.push_str(r#","gap":true"#);
    }
    json.push_str(r#","partial":"#);
    ids(json, page.partial.iter().map(SourceId::as_str));
    let unnamed = page.page.partial.len().saturating_sub(page.partial.len());
    if unnamed > 0 {
        let _ = write!(json, r#","partial_more":{unnamed}"#);
    }
    // Present only if the reader has a limit on posts per source and some posts were skipped because of it.
    if page.page.passed_over > 0 {
        let _ = write!(json, r#","passed_over":{}"#, page.page.passed_over);
    }
    // Present only if the archive is damaged.
    if !page.page.unreadable.is_empty() {
        json.push_str(r#","unreadable":"#);
        ids(json, page.page.unreadable.iter().map(|position| position.id.to_string()));
    }
    json.push('}');
}

/// Appends an entry of a feed.
pub(super) fn item(json: &mut String, position: Position, entry: &Entry, fields: Fields) {
    json.push_str(r#"{"post":"#);
    match fields {
        Fields::All => json.push_str(entry.post.json()),
        Fields::Ids => {
            let Position { published_at, id } = entry.post.position;
            let author = &entry.post.author().id;
            let _ = write!(json, r#"{{"id":"{id}","author":"{author}","published_at":"{published_at}"}}"#);
        }
    }
    json.push_str(r#","cursor":""#);
    cursor::encode_into(position, json);
    json.push_str(r#"","reposts":["#);
    for (nth, Reposted { user, at: Position { published_at, id } }) in entry.reposts().iter().enumerate() {
        let comma = if nth > 0 { "," } else { "" };
        let _ = write!(json, r#"{comma}{{"user":"{user}","at":"{published_at}","post":"{id}"}}"#);
    }
    json.push_str(r#"],"via":"#);
    ids(json, entry.via().map(SourceId::as_str));
    json.push('}');
}

/// Appends a cursor, or `null` if there is none.
pub(super) fn optional_cursor(json: &mut String, position: Option<Position>) {
    match position {
        None => json.push_str("null"),
        Some(position) => {
            json.push('"');
            cursor::encode_into(position, json);
            json.push('"');
        }
    }
}

fn resume_token(json: &mut String, resume: Option<Resume>) {
    match resume {
        None => json.push_str("null"),
        Some(resume) => {
            json.push('"');
            cursor::encode_resume_into(resume, json);
            json.push('"');
        }
    }
}

// Copied and not formatted, because this function runs about twenty times for each page.
fn ids(json: &mut String, ids: impl Iterator<Item = impl AsRef<str>>) {
    json.push('[');
    for (nth, id) in ids.enumerate() {
        json.push_str(if nth > 0 { ",\"" } else { "\"" });
        json.push_str(id.as_ref());
        json.push('"');
    }
    json.push(']');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::at;
    use tidewire::feed::page::Page;

    #[test]
    fn a_page_names_what_it_lacks_and_keeps_silent_about_damage_where_there_is_none() {
        let partial = vec![SourceId::new("bob").expect("a good id"), SourceId::new("cas").expect("a good id")];
        let mut lacking = FeedPage { page: Page::empty(), partial };
        let whole = r#"{"items":[],"next":null,"newest":null,"partial":["bob","cas"]}"#;
        assert_eq!(page(&lacking, Fields::All), whole);
        lacking.page.unreadable = vec![at(1, 7), at(2, 8)];
        let damaged = r#"{"items":[],"next":null,"newest":null,"partial":["bob","cas"],"unreadable":["7","8"]}"#;
        assert_eq!(page(&lacking, Fields::All), damaged);
    }
}
