//! An event as one line of JSON, for people and scripts. This is not the stored format: ids are strings and times are RFC 3339, as in the
//! API.

use serde::Serialize;
use serde_json::value::RawValue;

use crate::cli::post_line::{self, PostFields, PostLine};
use tidewire::feed::event::{Event, MuteOrBlock, NewEdge, OldEdge};
use tidewire::feed::rules::Rules;
use tidewire::storage::sequence::Sequence;

#[derive(Serialize)]
struct SequencedEvent<'a> {
    sequence: u64,
    event: EventLine<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum EventLine<'a> {
    Published {
        post: PostLine<'a>,
        accepted_at: String,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        earlier_reposts: Vec<String>,
    },
    Edited {
        id: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        body: Option<Box<RawValue>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        hidden: Option<bool>,
        at: String,
    },
    Deleted {
        id: String,
    },
    Followed {
        edges: &'a [NewEdge],
        since: String,
    },
    Unfollowed {
        follower: &'a str,
        source: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        keep_until: Option<String>,
    },
    FollowsChanged {
        follows: &'a [NewEdge],
        since: String,
        unfollows: &'a [OldEdge],
    },
    Silenced {
        reader: &'a str,
        source: &'a str,
        how: MuteOrBlock,
        since: Option<String>,
    },
    Ruled {
        reader: &'a str,
        rules: Rules,
    },
    Marked {
        reader: &'a str,
        at: String,
    },
    Listed {
        reader: &'a str,
        list: &'a str,
        source: &'a str,
        since: Option<String>,
    },
    ListDeleted {
        reader: &'a str,
        list: &'a str,
    },
    Revoked {
        user: &'a str,
        not_before: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        forget_before: Option<String>,
    },
    Erased {
        user: &'a str,
        at: String,
    },
    ErasureScrubbed {
        at: String,
    },
    ErasureEnded {
        at: String,
    },
    ClockJumped {
        at: String,
        #[serde(rename = "lead_us")]
        drift_us: i64,
    },
}

/// Returns the JSON line of an event without a line end.
///
/// # Errors
/// If a body is not valid JSON.
pub(super) fn line(sequence: Sequence, event: &Event) -> Result<String, String> {
    let event = match event {
        Event::Published { position, draft, accepted_at } => {
            let parts = PostFields {
                position: *position,
                external_id: draft.external_id.as_ref(),
                kind: draft.kind,
                body: draft.body.as_str(),
                sources: draft.named_sources().collect(),
                repost_of: draft.repost_of,
                reply_to: draft.reply_to,
                hidden: false,
            };
            let earlier_reposts = draft.earlier_reposts.iter().map(|repost| repost.at.id.to_string()).collect();
            EventLine::Published { post: PostLine::new(&parts)?, accepted_at: accepted_at.to_string(), earlier_reposts }
        }
        Event::Edited { id, body, hidden, at, .. } => {
            let body = body.as_ref().map(|body| post_line::body(body.as_str())).transpose();
            let body = body.map_err(|cause| format!("the new body of post {id} is not JSON: {cause}"))?;
            EventLine::Edited { id: id.to_string(), body, hidden: *hidden, at: at.to_string() }
        }
        Event::Deleted { id, .. } => EventLine::Deleted { id: id.to_string() },
        Event::Followed { edges, since } => EventLine::Followed { edges, since: since.to_string() },
        Event::Unfollowed { follower, source, keep_until } => EventLine::Unfollowed {
            follower: follower.as_str(),
            source: source.as_str(),
            keep_until: keep_until.map(|until| until.published_at.to_string()),
        },
        Event::FollowsChanged { follows, since, unfollows } => {
            EventLine::FollowsChanged { follows, since: since.to_string(), unfollows }
        }
        Event::Revoked { user, not_before, forget_before } => EventLine::Revoked {
            user: user.as_str(),
            not_before: not_before.to_string(),
            forget_before: forget_before.map(|before| before.to_string()),
        },
        Event::Erased { user, at } => EventLine::Erased { user: user.as_str(), at: at.to_string() },
        Event::ErasureScrubbed { at } => EventLine::ErasureScrubbed { at: at.to_string() },
        Event::ErasureEnded { at } => EventLine::ErasureEnded { at: at.to_string() },
        Event::ClockJumped { at, drift_us } => EventLine::ClockJumped { at: at.to_string(), drift_us: *drift_us },
        choice => line_of_choice(choice),
    };
    serde_json::to_string(&SequencedEvent { sequence: sequence.0, event }).map_err(|cause| cause.to_string())
}

fn line_of_choice(event: &Event) -> EventLine<'_> {
    match event {
        Event::MuteChanged { reader, source, how, since } => {
            let (reader, source, since) = (reader.as_str(), source.as_str(), since.map(|since| since.to_string()));
            EventLine::Silenced { reader, source, how: *how, since }
        }
        Event::RulesChanged { reader, rules } => EventLine::Ruled { reader: reader.as_str(), rules: *rules },
        Event::MarkerMoved { reader, at, .. } => {
            EventLine::Marked { reader: reader.as_str(), at: at.published_at.to_string() }
        }
        Event::ListMemberChanged { reader, list, source, since } => {
            let (reader, source, since) = (reader.as_str(), source.as_str(), since.map(|since| since.to_string()));
            EventLine::Listed { reader, list: list.as_str(), source, since }
        }
        Event::ListDeleted { reader, list } => EventLine::ListDeleted { reader: reader.as_str(), list: list.as_str() },
        _ => unreachable!("the other kinds were matched before"),
    }
}
