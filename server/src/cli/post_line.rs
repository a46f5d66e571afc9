//! A post as one line of JSON, in the format that `tidewire import posts` reads.

use serde::Serialize;
use serde_json::value::RawValue;

use crate::one_line::on_one_line;
use tidewire::feed::kind::Kind;
use tidewire::feed::position::Position;
use tidewire::id::{ExternalId, PostId, SourceId};

/// The fields of a post.
pub(crate) struct PostFields<'a> {
    pub(crate) position: Position,
    pub(crate) external_id: Option<&'a ExternalId>,
    pub(crate) kind: Kind,
    /// The body as JSON text.
    pub(crate) body: &'a str,
    /// The author, then the tags and the topic.
    pub(crate) sources: Vec<&'a SourceId>,
    pub(crate) repost_of: Option<PostId>,
    pub(crate) reply_to: Option<PostId>,
    pub(crate) hidden: bool,
}

/// A post as JSON without line breaks: the document of `POST /v1/posts`, plus `hidden` if the post is hidden.
#[derive(Serialize)]
pub(crate) struct PostLine<'a> {
    id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    external_id: Option<&'a str>,
    author: &'a str,
    published_at: String,
    #[serde(skip_serializing_if = "Kind::is_post")]
    kind: Kind,
    body: Box<RawValue>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tags: Vec<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    topic: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    repost_of: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reply_to: Option<String>,
    #[serde(skip_serializing_if = "is_false")]
    hidden: bool,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

impl<'a> PostLine<'a> {
    /// Converts the fields of a post.
    ///
    /// # Errors
    /// If the body is not valid JSON.
    pub(crate) fn new(parts: &PostFields<'a>) -> Result<Self, String> {
        let Position { published_at, id } = parts.position;
        let members = parts.sources.get(1..).unwrap_or_default();
        Ok(Self {
            id: id.to_string(),
            external_id: parts.external_id.map(ExternalId::as_str),
            author: parts.sources.first().map_or("", |author| author.as_str()),
            published_at: published_at.to_string(),
            kind: parts.kind,
            body: body(parts.body).map_err(|cause| format!("the body of post {id} is not JSON: {cause}"))?,
            tags: members.iter().filter_map(|source| source.tag_name()).collect(),
            topic: members.iter().find_map(|source| source.topic_name()),
            repost_of: parts.repost_of.map(|id| id.to_string()),
            reply_to: parts.reply_to.map(|id| id.to_string()),
            hidden: parts.hidden,
        })
    }

    /// Returns the JSON text without a line end.
    pub(crate) fn json(&self) -> Result<String, String> {
        serde_json::to_string(self).map_err(|cause| cause.to_string())
    }
}

/// Returns a body as JSON on one line.
pub(crate) fn body(json: &str) -> Result<Box<RawValue>, serde_json::Error> {
    RawValue::from_string(on_one_line(json).into_owned())
}
