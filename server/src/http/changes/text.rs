//! The text of an event in the stream of changes (specified in `docs/changes.md`), as one line of JSON.

use std::fmt::Write as _;

use crate::http::answer;
use crate::http::changes::place::Place;
use crate::http::changes::types::MISSED;
use crate::http::post_json;
use crate::one_line::on_one_line;
use tidewire::clock::UnixMicros;
use tidewire::engine::{Missed, PublishedPost};
use tidewire::feed::cursor;
use tidewire::feed::event::{Event, NewEdge, OldEdge};
use tidewire::feed::post::{EarlierRepost, Post};
use tidewire::id::ExternalId;
use tidewire::storage::sequence::Sequence;

/// The type of the message with the current place of the stream.
pub(super) const REACHED: &str = "reached";

/// Appends the message that all events up to this place were sent or left out. `goes_on` is false in the last line of a response.
pub(super) fn reached(place: &Place, goes_on: bool, json: &mut String) {
    let _ = write!(json, r#"{{"sequence":{},"type":"{REACHED}""#, place.after);
    let _ = place.reader.as_ref().map(|reader| write!(json, r#","reader":"{reader}""#));
    json.push_str(if goes_on { r#","more":true}"# } else { "}" });
}

/// Appends the event of a published post, which is encoded already, with the earlier reposts that it redirects.
pub(super) fn published(sequence: Sequence, post: &str, earlier: &[EarlierRepost], json: &mut String) {
    for part in [r#"{"sequence":"#, &sequence.to_string(), r#","type":"published","post":"#] {
        json.push_str(part);
    }
    json.push_str(&on_one_line(post));
    if !earlier.is_empty() {
        json.push_str(r#","earlier_reposts":"#);
        answer::push_array(json, earlier, |json, repost| {
            let _ = write!(json, r#""{}""#, repost.at.id);
        });
    }
    json.push('}');
}

/// Appends a post that a reader has missed. `sequence` and the reader form the place after this message.
pub(super) fn missed(sequence: Sequence, Missed { reader, via }: &Missed, post: PublishedPost<'_>, json: &mut String) {
    let external_id = post.draft.external_id.as_ref().map(ExternalId::as_str);
    let _ = write!(json, r#"{{"sequence":{sequence},"type":"{MISSED}","reader":"{reader}","reason":"asleep","post":"#);
    post_json::push_ids(json, post.position, external_id, &post.draft.author);
    json.push_str(r#","via":["#);
    for (nth, source) in via.iter().enumerate() {
        let _ = write!(json, r#"{}"{source}""#, if nth > 0 { "," } else { "" });
    }
    json.push_str("]}");
}

/// Appends an event of this type as JSON without line breaks.
// Writing to a `String` cannot fail, and ids, names and times have no character that JSON escapes.
pub(super) fn event(sequence: Sequence, name: &str, event: &Event, json: &mut String) {
    if let Event::Published { position, draft, accepted_at } = event {
        return published(sequence, Post::new(*position, draft, *accepted_at).json(), &draft.earlier_reposts, json);
    }
    let _ = write!(json, r#"{{"sequence":{sequence},"type":"{name}""#);
    match event {
        Event::Edited { id, body, hidden, at, .. } => {
            let _ = write!(json, r#","id":"{id}","at":"{at}""#);
            if let Some(body) = body {
                json.push_str(r#","body":"#);
                json.push_str(&on_one_line(body.as_str()));
            }
            let _ = hidden.map(|hidden| write!(json, r#","hidden":{hidden}"#));
        }
        Event::Deleted { id, repost_of, .. } => {
            let _ = write!(json, r#","id":"{id}""#);
            let _ = repost_of.map(|of| write!(json, r#","repost_of":"{of}""#));
        }
        Event::Followed { edges, since } => follows(edges, *since, json),
        Event::Unfollowed { follower, source, keep_until } => {
            let _ = write!(json, r#","follower":"{follower}","source":"{source}""#);
            let keep = if keep_until.is_some() { r#","keep":true"# } else { "" };
            json.push_str(keep);
        }
        Event::FollowsChanged { follows: new, since, unfollows } => {
            follows(new, *since, json);
            json.push_str(r#","unfollows":"#);
            answer::push_array(json, unfollows, |json, OldEdge { follower, source }| {
                let _ = write!(json, r#"{{"follower":"{follower}","source":"{source}"}}"#);
            });
        }
        Event::MuteChanged { reader, source, .. } => {
            let _ = write!(json, r#","user":"{reader}","source":"{source}""#);
        }
        Event::RulesChanged { reader, rules } => {
            let _ = write!(json, r#","user":"{reader}","rules":{}"#, answer::rules(rules));
        }
        Event::MarkerMoved { reader, at, .. } => {
            let _ = write!(json, r#","user":"{reader}","cursor":"{}""#, cursor::encode(*at));
        }
        Event::ListMemberChanged { reader, list, source, .. } => {
            let list = list.as_str();
            let _ = write!(json, r#","user":"{reader}","list":"{list}","source":"{source}""#);
        }
        Event::ListDeleted { reader, list } => {
            let _ = write!(json, r#","user":"{reader}","list":"{}""#, list.as_str());
        }
        Event::Revoked { user, not_before, .. } => {
            let _ = write!(json, r#","user":"{user}","not_before":"{not_before}""#);
        }
        Event::Erased { user, .. } => {
            let _ = write!(json, r#","user":"{user}""#);
        }
        // The first one is handled above; the others have no type.
        Event::Published { .. }
        | Event::ErasureScrubbed { .. }
        | Event::ErasureEnded { .. }
        | Event::ClockJumped { .. } => {}
    }
    json.push('}');
}

fn follows(edges: &[NewEdge], since: UnixMicros, json: &mut String) {
    json.push_str(r#","follows":"#);
    answer::push_array(json, (0..).zip(edges), |json, (nth, NewEdge { follower, source, hidden, .. })| {
        let since = UnixMicros(since.0.saturating_add(nth));
        let _ = write!(json, r#"{{"follower":"{follower}","source":"{source}","since":"{since}""#);
        json.push_str(if *hidden { r#","hidden":true}"# } else { "}" });
    });
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use tidewire::feed::event::MuteOrBlock;
    use tidewire::feed::position::Position;
    use tidewire::feed::post::{Body, Draft};
    use tidewire::feed::rules::Rules;
    use tidewire::id::{PostId, SourceId};

    use super::*;
    use crate::http::changes::types::{NAMES, Types, name};

    fn id(text: &str) -> SourceId {
        SourceId::new(text).unwrap()
    }

    fn draft() -> Draft {
        let body = Body::new("{\"text\":\n\r \"a\\nb\"}").unwrap();
        Draft { tags: vec![SourceId::tag("rust").unwrap()], ..Draft::new(id("bob"), body) }
    }

    #[test]
    fn a_repost_is_sent_with_the_earlier_reposts_that_repeat_its_original_now() {
        let position = |nth| Position { published_at: UnixMicros(1_000_000), id: PostId(nth) };
        let earlier = |nth| EarlierRepost { at: position(nth), sources: vec![id("cas")], hidden: true };
        let draft = Draft {
            repost_of: Some(PostId(1)),
            earlier_reposts: vec![earlier(8), earlier(u64::MAX)],
            ..Draft::new(id("bob"), Body::new("1").unwrap())
        };
        let mut json = String::new();
        let published = Event::Published { position: position(7), draft, accepted_at: UnixMicros(1) };
        event(Sequence(5), "published", &published, &mut json);
        let post = r#"{"id":"7","author":"bob","published_at":"1970-01-01T00:00:01.000000Z","kind":"post","body":1,"repost_of":"1","hidden":false}"#;
        let start = r#"{"sequence":5,"type":"published","post":"#;
        assert_eq!(json, format!(r#"{start}{post},"earlier_reposts":["8","18446744073709551615"]}}"#));
    }

    #[test]
    fn a_place_within_a_post_names_the_reader_and_only_the_last_line_lacks_more() {
        let places = [Place::after(Sequence(7)), Place { after: Sequence(7), reader: Some(id("ann")) }];
        let text = |place: &Place, goes_on| {
            let mut json = String::new();
            reached(place, goes_on, &mut json);
            json
        };
        assert_eq!(text(&places[0], false), r#"{"sequence":7,"type":"reached"}"#);
        assert_eq!(text(&places[0], true), r#"{"sequence":7,"type":"reached","more":true}"#);
        assert_eq!(text(&places[1], false), r#"{"sequence":7,"type":"reached","reader":"ann"}"#);
        assert_eq!(text(&places[1], true), r#"{"sequence":7,"type":"reached","reader":"ann","more":true}"#);
    }

    #[test]
    fn each_event_is_one_line_with_api_field_names() {
        let (at, post) = (UnixMicros(1_000_000), PostId(7));
        let position = Position { published_at: at, id: post };
        let (reader, source, list) = (id("ann"), id("bob"), "near".parse::<tidewire::id::ListName>().unwrap());
        let edge = |hidden| NewEdge { hidden, ..NewEdge::new(reader.clone(), source.clone()) };
        let silenced = |how, since| Event::MuteChanged { reader: reader.clone(), source: source.clone(), how, since };
        let listed = |since| Event::ListMemberChanged {
            reader: reader.clone(),
            list: list.clone(),
            source: source.clone(),
            since,
        };
        let marker = cursor::encode(position);
        let rules = answer::rules(&Rules::default()).to_string();
        let body = Some(Body::new("[1,\n2]").unwrap());
        let events = [
            (
                Event::Published { position, draft: draft(), accepted_at: at },
                r#","post":{"id":"7","author":"bob","published_at":"1970-01-01T00:00:01.000000Z","kind":"post","body":{"text":   "a\nb"},"tags":["rust"],"hidden":false}"#.to_owned(),
            ),
            (Event::Edited { id: post, body, hidden: Some(true), at, post: None }, r#","id":"7","at":"1970-01-01T00:00:01.000000Z","body":[1, 2],"hidden":true"#.to_owned()),
            (Event::Deleted { id: post, repost_of: Some(PostId(u64::MAX)), post: None }, r#","id":"7","repost_of":"18446744073709551615""#.to_owned()),
            (
                Event::Followed { edges: vec![edge(false), edge(true)], since: at },
                r#","follows":[{"follower":"ann","source":"bob","since":"1970-01-01T00:00:01.000000Z"},{"follower":"ann","source":"bob","since":"1970-01-01T00:00:01.000001Z","hidden":true}]"#.to_owned(),
            ),
            (
                Event::Unfollowed { follower: reader.clone(), source: source.clone(), keep_until: Some(position) },
                r#","follower":"ann","source":"bob","keep":true"#.to_owned(),
            ),
 (
                Event::FollowsChanged { follows: vec![edge(false)], since: at, unfollows: vec![OldEdge { follower: source.clone(), source: reader.clone() }] },
                r#","follows":[{"follower":"ann","source":"bob","since":"1970-01-01T00:00:01.000000Z"}],"unfollows":[{"follower":"bob","source":"ann"}]"#.to_owned(),
            ),
            (silenced(MuteOrBlock::Mute, Some(at)), r#","user":"ann","source":"bob""#.to_owned()),
            (silenced(MuteOrBlock::Mute, None), r#","user":"ann","source":"bob""#.to_owned()),
            (silenced(MuteOrBlock::Block, Some(at)), r#","user":"ann","source":"bob""#.to_owned()),
            (silenced(MuteOrBlock::Block, None), r#","user":"ann","source":"bob""#.to_owned()),
            (Event::RulesChanged { reader: reader.clone(), rules: Rules::default() }, format!(r#","user":"ann","rules":{rules}"#)),
            (Event::MarkerMoved { reader: reader.clone(), at: position, seen: None }, format!(r#","user":"ann","cursor":"{marker}""#)),
            (listed(Some(at)), r#","user":"ann","list":"near","source":"bob""#.to_owned()),
            (listed(None), r#","user":"ann","list":"near","source":"bob""#.to_owned()),
            (Event::ListDeleted { reader: reader.clone(), list: list.clone() }, r#","user":"ann","list":"near""#.to_owned()),
            (
                Event::Revoked { user: reader.clone(), not_before: at, forget_before: None },
                r#","user":"ann","not_before":"1970-01-01T00:00:01.000000Z""#.to_owned(),
            ),
            (Event::Erased { user: reader.clone(), at }, r#","user":"ann""#.to_owned()),
        ];
        assert_eq!(events.each_ref().map(|(event, _)| name(event).unwrap()), NAMES[..17]);
        for (accepted, expected) in &events {
            let mut stored = Vec::new();
            tidewire::storage::frame::pack(accepted, &mut stored);
            // The second byte is the length of the name of the kind.
            let kind = str::from_utf8(&stored[2..2 + usize::from(stored[1] - 0xa0)]).unwrap();
            for other in &NAMES[..16] {
                let may_have = Types::parse(other).unwrap().may_have(kind);
                assert!(may_have || *other != name(accepted).unwrap(), "{kind} as {other}");
            }
            let (mut line, of) = (String::new(), name(accepted).unwrap());
            event(Sequence(42), of, accepted, &mut line);
            assert_eq!(line, format!(r#"{{"sequence":42,"type":"{of}"{expected}}}"#));
            serde_json::from_str::<Value>(&line).unwrap();
        }
    }
}
