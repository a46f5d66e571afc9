//! Encodes posts as JSON, with the fields that the client asks for.

use std::fmt::Write as _;
use std::str::FromStr;

use schemars::{Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

use tidewire::engine::Engine;
use tidewire::feed::position::Position;
use tidewire::feed::post::Post;
use tidewire::id::SourceId;
use tidewire::state::world::PostCounts;

/// The fields of each post that a request asks for: the parameter `fields`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Fields {
    /// Only the ids, the author and the publish time of each post.
    pub(super) only_ids: bool,
    /// The numbers of replies and reposts, in addition.
    pub(super) counts: bool,
}

/// The values of the parameter.
#[derive(Clone, Copy, Deserialize)]
pub(super) enum FieldsName {
    #[serde(rename = "ids")]
    Ids,
    #[serde(rename = "counts")]
    Counts,
    #[serde(rename = "ids,counts", alias = "counts,ids")]
    IdsAndCounts,
}

impl Fields {
    /// All values of the parameter, for the API description.
    pub(super) const NAMES: [&str; 4] = ["ids", "counts", "ids,counts", "counts,ids"];

    /// Returns the schema of an optional value.
    pub(super) fn schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"anyOf": [{"type": "string", "enum": Self::NAMES}, {"type": "null"}]})
    }

    /// Returns how to encode the posts of an engine.
    pub(super) fn of(self, engine: &Engine) -> Shape<'_> {
        Shape { only_ids: self.only_ids, counts: Some(engine).filter(|_| self.counts) }
    }

    /// Returns the value of the parameter, or `None` for the default.
    pub(super) fn name(self) -> Option<&'static str> {
        match (self.only_ids, self.counts) {
            (false, false) => None,
            (true, false) => Some("ids"),
            (false, true) => Some("counts"),
            (true, true) => Some("ids,counts"),
        }
    }
}

impl From<FieldsName> for Fields {
    fn from(name: FieldsName) -> Self {
        Self {
            only_ids: matches!(name, FieldsName::Ids | FieldsName::IdsAndCounts),
            counts: matches!(name, FieldsName::Counts | FieldsName::IdsAndCounts),
        }
    }
}

impl FromStr for Fields {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "ids" => Ok(FieldsName::Ids.into()),
            "counts" => Ok(FieldsName::Counts.into()),
            "ids,counts" | "counts,ids" => Ok(FieldsName::IdsAndCounts.into()),
            _ => Err(format!("{text:?} is not \"ids\", \"counts\", or both with a comma between them")),
        }
    }
}

/// How posts are encoded.
#[derive(Clone, Copy)]
pub(super) struct Shape<'a> {
    only_ids: bool,
    /// The engine that has the counts, if the request asks for them. Other requests do not look them up.
    counts: Option<&'a Engine>,
}

impl Shape<'_> {
    /// All fields of the post, without counts.
    pub(super) const FULL: Shape<'static> = Shape { only_ids: false, counts: None };
    /// The ids, the author and the publish time.
    pub(super) const IDS: Shape<'static> = Shape { only_ids: true, counts: None };
}

/// Appends a post.
pub(super) fn push(json: &mut String, post: &Post, shape: Shape<'_>) {
    if shape.only_ids {
        push_ids(json, post.position, post.external_id(), &post.author().id);
    } else {
        json.push_str(post.json());
    }
    if let Some(engine) = shape.counts {
        let PostCounts { replies, reposts } = engine.counts(post.id());
        // Remove the end of the object, to append further members.
        json.pop();
        let _ = write!(json, r#","counts":{{"replies":{replies},"reposts":{reposts}}}}}"#);
    }
}

/// Appends only the ids, the author and the publish time of a post.
// Ids and times contain no character that JSON escapes. Writing to a `String` cannot fail.
pub(super) fn push_ids(json: &mut String, position: Position, external_id: Option<&str>, author: &SourceId) {
    let Position { published_at, id } = position;
    let _ = write!(json, r#"{{"id":"{id}""#);
    let _ = external_id.map(|external_id| write!(json, r#","external_id":"{external_id}""#));
    let _ = write!(json, r#","author":"{author}","published_at":"{published_at}"}}"#);
}
