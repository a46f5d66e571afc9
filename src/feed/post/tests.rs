//! Tests of posts and drafts.
#![cfg(test)]

use super::*;
use crate::feed::position::at;

fn draft(body: &str) -> Draft {
    Draft::new(SourceId::new("ann").unwrap(), Body::new(body).unwrap())
}

fn post(draft: &Draft) -> Post {
    Post::new(at(1_000_000, 7), draft, UnixMicros(1_000_000))
}

#[test]
fn a_post_is_encoded_with_its_body_unchanged() {
    let mut draft = draft(r#" {"b": 1.0,"a":"\u00e9"} "#);
    assert_eq!(
        post(&draft).json(),
        r#"{"id":"7","author":"ann","published_at":"1970-01-01T00:00:01.000000Z","kind":"post","body":{"b": 1.0,"a":"\u00e9"},"hidden":false}"#
    );
    draft.tags = ["rust", "news"].map(|tag| SourceId::tag(tag).unwrap()).into();
    draft.topic = Some(SourceId::topic("42").unwrap());
    draft.repost_of = Some(PostId(3));
    draft.reply_to = Some(PostId(4));
    let post = post(&draft).edited(Some(&Body::new("[]").unwrap()), Some(true), UnixMicros(2_000_000));
    assert_eq!(
        post.json(),
        r#"{"id":"7","author":"ann","published_at":"1970-01-01T00:00:01.000000Z","kind":"post","body":[],"tags":["rust","news"],"topic":"42","repost_of":"3","reply_to":"4","hidden":true,"edited_at":"1970-01-01T00:00:02.000000Z"}"#
    );
    assert_eq!(post.body(), "[]");
    assert_eq!(post.fingerprint, draft.fingerprint());
}

#[test]
fn hiding_a_post_does_not_count_as_an_edit() {
    let post = post(&draft("1")).edited(None, Some(true), UnixMicros(5));
    assert_eq!((post.hidden, post.edited_at, post.body()), (true, None, "1"));
}

#[test]
fn an_author_named_like_a_tag_prefix_has_no_tags() {
    assert!(!post(&draft("1")).json().contains("tags"));
}

#[test]
fn a_post_keeps_its_external_id_which_adds_17_bytes_to_its_length() {
    let external = "urn:isbn:0451450523";
    let plain = draft(r#"{"external_id":"of its body"}"#);
    let with = post(&Draft { external_id: ExternalId::new(external).ok(), ..plain.clone() });
    let changed =
        [with.clone(), with.edited(Body::new("2").ok().as_ref(), None, UnixMicros(5)), with.repeating(PostId(7))];
    for post in changed {
        assert_eq!(post.external_id(), Some(external), "{}", post.json());
        let json: serde_json::Value = serde_json::from_str(post.json()).unwrap();
        assert_eq!(json["external_id"], external);
    }
    let plain = post(&plain);
    assert_eq!((plain.external_id(), with.json().len() - plain.json().len()), (None, external.len() + 17));
}

#[test]
fn fingerprints_distinguish_fields() {
    let plain = draft("1");
    let mut variants = vec![plain.clone(), draft("2")];
    variants.push(Draft { kind: Kind::Ad, ..plain.clone() });
    variants.push(Draft { tags: vec![SourceId::tag("x").unwrap()], ..plain.clone() });
    variants.push(Draft { topic: Some(SourceId::topic("x").unwrap()), ..plain.clone() });
    variants.push(Draft { repost_of: Some(PostId(1)), ..plain.clone() });
    variants.push(Draft { reply_to: Some(PostId(1)), ..plain.clone() });
    variants.push(Draft { external_id: ExternalId::new("x").ok(), ..plain.clone() });
    let distinct: std::collections::BTreeSet<u64> = variants.iter().map(Draft::fingerprint).collect();
    assert_eq!(distinct.len(), variants.len());
    let dated = Draft { id: Some(PostId(9)), published_at: Some(UnixMicros(1)), ..plain.clone() };
    assert_eq!(dated.fingerprint(), plain.fingerprint());
}
