//! The contents and the paths of the data files of released formats.

use std::path::{Path, PathBuf};

use tidewire::clock::UnixMicros;
use tidewire::feed::event::{Event, NewEdge};
use tidewire::feed::kind::Kind;
use tidewire::feed::position::Position;
use tidewire::feed::post::{Body, Draft};
use tidewire::id::{PostId, SourceId};

use crate::world::{draft, edge, id};

/// Files of a version, such as `v1`: those of journal format 1 and snapshot format 1.
pub fn folder_of(version: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures").join(version)
}

pub fn at(published_at: i64, id: u64) -> Position {
    Position { published_at: UnixMicros(published_at), id: PostId(id) }
}

pub fn published(position: Position, draft: Draft) -> Event {
    Event::Published { position, draft, accepted_at: UnixMicros(position.published_at.0 + 500) }
}

/// The third post of the journal, with everything a post can have.
pub fn full() -> Draft {
    // Earlier versions distinguished tags by case.
    let cased = serde_json::from_value("tag:Tea-2_b".into()).unwrap();
    Draft {
        kind: Kind::Ad,
        tags: vec![SourceId::tag("tea").unwrap(), cased],
        topic: Some(SourceId::topic("42").unwrap()),
        repost_of: Some(PostId(7)),
        reply_to: Some(PostId(u64::MAX)),
        ..draft("bob", r#"{"text": "h\u00e9llo é","n":[1,2.50,null]}"#)
    }
}

/// The events of the journal, from event 1 on.
pub fn events() -> Vec<Event> {
    let hidden = NewEdge { hidden: true, ..edge("ann", "tag:tea") };
    vec![
        Event::Followed { edges: vec![edge("ann", "bob"), hidden], since: UnixMicros(1_000_000) },
        published(at(-2_000_000, 20), draft("bob", "\"before 1970\"")),
        published(at(3_000_000, 30), full()),
        published(at(4_000_000, 40), draft("cas", "null")),
        Event::Edited {
            id: PostId(20),
            body: Some(Body::new("[2]").unwrap()),
            hidden: None,
            at: UnixMicros(5_000_000),
            post: None,
        },
        Event::Edited { id: PostId(30), body: None, hidden: Some(true), at: UnixMicros(6_000_000), post: None },
        Event::Deleted { id: PostId(40), repost_of: None, post: None },
        Event::Followed { edges: vec![edge("cas", "bob")], since: UnixMicros(8_000_000) },
        Event::Unfollowed { follower: id("cas"), source: id("bob"), keep_until: None },
        published(at(10_000_000, 100), draft("ann", "{\"after\":\"the snapshot\"}")),
    ]
}
