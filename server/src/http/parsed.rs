//! Values in request bodies that are parsed from text, with references to their schemas in the API description.

use std::borrow::Cow;
use std::fmt::Display;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use tidewire::clock::UnixMicros;
use tidewire::feed::kind::Kind;
use tidewire::feed::resume::Resume;
use tidewire::feed::rules::RulesPatch;
use tidewire::id::{ExternalId, PostId, PostName, SourceId};

/// A value that is parsed from a JSON string. Its schema refers to that of `T`, also for a `T` that serde parses in another way.
pub(super) struct Parsed<T>(pub(super) T);

impl<'de, T: FromStr<Err: Display>> Deserialize<'de> for Parsed<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Cow::<str>::deserialize(from)?.parse().map(Self).map_err(D::Error::custom)
    }
}

/// A type with a schema of its own in the API description, which `openapi` writes by hand.
pub(super) trait NamedSchema {
    /// The name of the schema.
    const NAME: &'static str;
}

impl<T: NamedSchema> JsonSchema for Parsed<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        T::NAME.into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        Schema::new_ref(format!("#/components/schemas/{}", T::NAME))
    }
}

/// The name of a tag. Only for schemas: a tag is parsed as a source.
pub(super) struct TagName;

/// The name of a topic. Only for schemas: a topic is parsed as a source.
pub(super) struct TopicName;

macro_rules! named {
    ($($type:ty: $name:literal),*) => {
        $(impl NamedSchema for $type {
            const NAME: &'static str = $name;
        })*
    };
}

named!(
    SourceId: "SourceId", PostId: "PostId", PostName: "PostName", ExternalId: "ExternalId", TagName: "TagName", TopicName: "TopicName",
    UnixMicros: "Time", Kind: "Kind", Resume: "Cursor", RulesPatch: "RulesPatch"
);
