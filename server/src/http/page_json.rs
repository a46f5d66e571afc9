//! Encodes pages as JSON by copying: every post was encoded when it was published.

use std::fmt::Write as _;
use std::ops::Range;

use serde_json::Value;

use crate::http::caching::Tag;
use crate::http::post_json::{self, Shape};
use tidewire::clock::UnixMicros;
use tidewire::engine::{FeedPage, RepostPage};
use tidewire::feed::cursor;
use tidewire::feed::position::Position;
use tidewire::feed::resume::Resume;
use tidewire::id::SourceId;
use tidewire::state::feed_filter::{Entry, Reposted};

// Ids, cursors and times contain no character that JSON escapes. Writing to a `String` cannot fail.

/// Encodes a page of a feed as JSON. Also returns its tag, unless the page lacks entries or requires the client to read the feed again.
pub(super) fn page(page: &FeedPage, shape: Shape<'_>) -> (String, Option<Tag>) {
    let (json, newest) = object(page, shape);
    let lacks = !page.page.partial.is_empty() || !page.partial.is_empty() || !page.page.unreadable.is_empty();
    let tag = (!lacks && !page.page.gap).then(|| {
        let token = page.page.resume.map(|token| token_bytes(token, page.page.resumable_from));
        let token = token.as_ref().map_or(&[][..], |token| token);
        Tag::of(&[&json.as_bytes()[..newest.start], token, &json.as_bytes()[newest.end..]])
    });
    (json, tag)
}

/// Encodes a page of a feed as JSON, for clients that have no use for its tag.
pub(super) fn untagged(page: &FeedPage, shape: Shape<'_>) -> String {
    object(page, shape).0
}

/// Encodes a page of a feed as JSON. Also returns the place of the value of `newest`.
fn object(page: &FeedPage, shape: Shape<'_>) -> (String, Range<usize>) {
    let mut json = String::with_capacity(bytes(page));
    json.push('{');
    let newest = members(&mut json, page, shape);
    (json, newest)
}

/// The unit of the instants of resume tokens in tags, in microseconds. An invalid token may have a reason that the tag does not contain.
/// The client that must read the page again then gets a new tag after this time.
const INSTANTS_MICROS: i64 = 60_000_000;

/// Returns the content of a resume token with its instants in minutes, since any publish increases the exact instants. A client with the
/// token of an earlier page that had the same entries misses nothing: it gets all later entries as long as that token is valid. So the
/// result also contains the first instant of valid tokens, and the validity of this token.
fn token_bytes(resume: Resume, resumable_from: UnixMicros) -> [u8; 53] {
    let Resume { position, above, below, ahead_us, preferences, is_partial, may_fall } = resume;
    let is_resumable = resume.since().is_none_or(|since| resumable_from <= since);
    let flags = [is_partial, below.is_some(), above.is_some(), may_fall, is_resumable];
    let flags: u8 = (0..).zip(flags).map(|(bit, flag)| u8::from(flag) << bit).sum();
    let minute = |at: Option<UnixMicros>| at.map_or(0, |at| at.0.div_euclid(INSTANTS_MICROS)).to_be_bytes();
    let mut bytes = [0; 53];
    bytes[..8].copy_from_slice(&position.published_at.0.to_be_bytes());
    bytes[8..16].copy_from_slice(&position.id.0.to_be_bytes());
    bytes[16..24].copy_from_slice(&ahead_us.to_be_bytes());
    bytes[24..28].copy_from_slice(&preferences.to_be_bytes());
    bytes[28] = flags;
    bytes[29..37].copy_from_slice(&resumable_from.0.to_be_bytes());
    bytes[37..45].copy_from_slice(&minute(above));
    bytes[45..].copy_from_slice(&minute(below));
    bytes
}

/// Appends a page of a reader's feed, with the reader as its first member.
pub(super) fn page_of(json: &mut String, user: &SourceId, page: &FeedPage, shape: Shape<'_>) {
    json.reserve(bytes(page));
    let _ = write!(json, r#"{{"user":"{user}","#);
    members(json, page, shape);
}

/// Appends the problem that replaces a reader's page.
pub(super) fn problem_of(json: &mut String, user: &SourceId, problem: &Value) {
    let _ = write!(json, r#"{{"user":"{user}","problem":{problem}}}"#);
}

/// Estimates the bytes of an encoded page.
fn bytes(page: &FeedPage) -> usize {
    page.page.items.iter().map(|(_, entry)| entry.post.json().len() + 128).sum::<usize>() + 128
}

/// Appends the members of a page and the end of its object. Returns the place of the value of `newest`.
fn members(json: &mut String, page: &FeedPage, shape: Shape<'_>) -> Range<usize> {
    json.push_str(r#""items":["#);
    for (nth, (position, entry)) in page.page.items.iter().enumerate() {
        if nth > 0 {
            json.push(',');
        }
        item(json, *position, entry, shape);
    }
    json.push_str(r#"],"next":"#);
    optional_cursor(json, page.page.next);
    json.push_str(r#","newest":"#);
    let begin = json.len();
    resume_token(json, page.page.resume);
    let newest = begin..json.len();
    // Present only if the entries added since the given position are no longer known. The client then has to read the feed again.
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
    newest
}

/// Appends an entry of a feed.
pub(super) fn item(json: &mut String, position: Position, entry: &Entry, shape: Shape<'_>) {
    json.push_str(r#"{"post":"#);
    post_json::push(json, &entry.post, shape);
    json.push_str(r#","cursor":""#);
    cursor::encode_into(position, json);
    json.push_str(r#"","reposts":["#);
    for (nth, reposted) in entry.reposts().iter().enumerate() {
        json.push_str(if nth > 0 { ",{" } else { "{" });
        repost(json, reposted);
        json.push('}');
    }
    json.push_str(r#"],"via":"#);
    ids(json, entry.via().map(SourceId::as_str));
    json.push('}');
}

/// Appends the members of a repost.
pub(super) fn repost(json: &mut String, Reposted { user, at: Position { published_at, id } }: &Reposted) {
    let _ = write!(json, r#""user":"{user}","at":"{published_at}","post":"{id}""#);
}

/// Encodes a page of the reposts of a post as JSON.
pub(super) fn repost_page(page: &RepostPage) -> String {
    let mut json = String::from(r#"{"items":["#);
    for (nth, reposted) in page.items.iter().enumerate() {
        json.push_str(if nth > 0 { ",{" } else { "{" });
        repost(&mut json, reposted);
        json.push_str(r#","cursor":"#);
        optional_cursor(&mut json, Some(reposted.at));
        json.push('}');
    }
    json.push_str(r#"],"next":"#);
    optional_cursor(&mut json, page.next);
    json.push('}');
    json
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

// Copied instead of formatted, because this function runs about twenty times for each page.
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
    use tidewire::id::SourceSlot;

    #[test]
    fn a_partial_page_names_missing_sources_and_damaged_posts_and_has_no_etag() {
        let page = |lacking: &FeedPage| {
            let (json, tag) = page(lacking, Shape::FULL);
            assert!(tag.is_none(), "{json}");
            json
        };
        let partial = vec![SourceId::new("bob").expect("a good id"), SourceId::new("cas").expect("a good id")];
        let mut lacking = FeedPage { page: Page::empty(), partial };
        let whole = r#"{"items":[],"next":null,"newest":null,"partial":["bob","cas"]}"#;
        assert_eq!(page(&lacking), whole);
        lacking.page.unreadable = vec![at(1, 7), at(2, 8)];
        let damaged = r#"{"items":[],"next":null,"newest":null,"partial":["bob","cas"],"unreadable":["7","8"]}"#;
        assert_eq!(page(&lacking), damaged);
        lacking.partial.clear();
        assert!(page(&lacking).ends_with(r#""partial":[],"unreadable":["7","8"]}"#));
        (lacking.page.unreadable, lacking.page.gap) = (Vec::new(), true);
        assert!(page(&lacking).contains(r#""gap":true"#));
        lacking.page.gap = false;
        lacking.page.partial = vec![SourceSlot(7)];
        assert!(page(&lacking).ends_with(r#""partial":[],"partial_more":1}"#));
    }

    #[test]
    fn the_etag_of_a_page_ignores_only_the_seconds_of_its_token() {
        let newest = Resume::at(at(7, 1));
        let given = |resume: Option<Resume>, from| {
            let resumable_from = UnixMicros(from);
            FeedPage { page: Page { resume, resumable_from, ..Page::empty() }, partial: Vec::new() }
        };
        let tag_from = |resume, from| page(&given(resume, from), Shape::FULL).1.expect("it lacks nothing");
        let tag = |resume| tag_from(resume, 5);
        let of = |micros| Resume { above: Some(UnixMicros(micros)), below: Some(UnixMicros(micros)), ..newest };
        assert_eq!(tag(Some(of(8))), tag(Some(of(9))));
        let others = [
            None,
            Some(newest),
            Some(of(8)),
            Some(Resume { below: None, ..of(8) }),
            Some(Resume { above: None, ..of(8) }),
            Some(Resume { position: at(7, 2), ..of(8) }),
            Some(Resume { position: at(6, 1), ..of(8) }),
            Some(Resume { ahead_us: -1, ..of(8) }),
            Some(Resume { preferences: 1, ..of(8) }),
            Some(Resume { above: Some(UnixMicros(INSTANTS_MICROS)), ..of(8) }),
            Some(Resume { below: Some(UnixMicros(INSTANTS_MICROS)), ..of(8) }),
            Some(of(4)),
            Some(Resume { may_fall: true, ..of(8) }),
            Some(Resume { is_partial: true, ..of(8) }),
        ];
        let mut tags: Vec<Tag> = others.into_iter().map(tag).collect();
        tags.push(tag_from(Some(of(8)), 6));
        for (nth, one) in tags.iter().enumerate() {
            assert!(!tags[..nth].contains(one), "{nth}: {:?}", others.get(nth));
        }
    }
}
