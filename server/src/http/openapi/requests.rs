//! The schemas of request bodies, derived from the types that parse them.

use schemars::generate::SchemaSettings;
use schemars::transform::transform_subschemas;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Value, json};

/// Creates a generator. The schemas that it generates are its definitions.
pub(super) fn generator() -> SchemaGenerator {
    let settings =
        SchemaSettings::draft2020_12().with(|settings| settings.definitions_path = "/components/schemas".into());
    settings.with_transform(simplify).into_generator()
}

/// Completes objects as clients expect them, and removes details of Rust types.
fn simplify(schema: &mut Schema) {
    // Number formats such as `uint64`. All other formats are in named schemas.
    schema.remove("format");
    // A missing field is parsed as `None`, but most of these fields refuse null.
    if schema.get("default").is_some_and(Value::is_null) {
        schema.remove("default");
    }
    if let Some(object) = schema.as_object_mut().filter(|object| object.contains_key("additionalProperties")) {
        object.entry("properties").or_insert(json!({}));
        object.entry("required").or_insert(json!([]));
    }
    transform_subschemas(&mut simplify, schema);
}
