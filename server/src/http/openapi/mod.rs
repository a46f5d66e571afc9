//! The OpenAPI 3.1 description of the HTTP API, which `/docs` shows.
//!
//! Responsible for:
//! - describing exactly the operations of `http::operation`. Paths, methods and names are from that table, limits from `limits`, and
//!   common refusals from the kind of the operation. The remaining texts are in `groups`.
//!
//! The schemas of request bodies are derived from the types that parse them; doc comments of these types and their fields are served as
//! descriptions. All other schemas are written with `serde_json::json!`, because most responses are encoded without a Rust type. Tests
//! validate each example and the responses of the other HTTP tests against the description, and compare the names of query parameters.

#![allow(clippy::needless_pass_by_value, reason = "schemas are put together from what is made on the spot")]

mod change_schemas;
mod diagnostics_schemas;
mod documentation;
mod groups;
mod live_schemas;
mod problems;
mod requests;
mod schemas;
mod stats_schemas;
#[cfg(test)]
mod tests;
mod value_schemas;

use std::sync::OnceLock;

use actix_web::{HttpRequest, HttpResponse};
use schemars::SchemaGenerator;
use serde_json::{Map, Value, json};

use crate::build_info;
use crate::http::compression;
use crate::http::openapi::groups::{GROUPS, Group};
use crate::http::operation::Operation;
use crate::http::problem::Problem;
use crate::http::request::Parameters;

/// Serves `GET /openapi.json`: the description of all `operations`. It is built once.
pub(super) fn serve(request: &HttpRequest, operations: &[Operation]) -> Result<HttpResponse, Problem> {
    static TEXT: OnceLock<String> = OnceLock::new();
    Parameters::read(request, &[])?;
    let text = TEXT.get_or_init(|| document(operations).to_string());
    let mut response = HttpResponse::Ok();
    response.content_type("application/json");
    Ok(compression::document(request, response, "/openapi.json", text))
}

/// Builds the whole description.
pub(super) fn document(operations: &[Operation]) -> Value {
    let groups: Vec<Value> =
        GROUPS.iter().map(|group| json!({"name": group.name, "description": group.description})).collect();
    let mut generator = requests::generator();
    let paths = paths(operations, &mut generator);
    let schemas: Map<String, Value> = response_schemas().chain(generator.take_definitions(true)).collect();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Tidewire",
            "version": build_info::VERSION,
            "description": DESCRIPTION,
            "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": groups,
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"bearer": {
                "type": "http",
                "scheme": "bearer",
                "bearerFormat": "JWT",
                "description": "The server key, or a user's token, which is a JWT. A server without access control ignores it.",
            }},
        },
    })
}

/// Returns the schemas that are not derived, by name.
fn response_schemas() -> impl Iterator<Item = (String, Value)> {
    [value_schemas::all(), schemas::all(), live_schemas::all()]
        .into_iter()
        .chain([change_schemas::all(), stats_schemas::all(), diagnostics_schemas::all()])
        .flatten()
        .map(|(name, schema)| (name.to_owned(), schema))
}

const DESCRIPTION: &str = "A feed engine: returns the posts of the sources that a reader follows, newest first.\n\n\
    Refusals are problem documents (RFC 9457) with a stable `code`. A refused request has no effect, except possibly with \
    `outcome_unknown` and `internal`. The server refuses unknown fields and query parameters with 400, and unsupported methods with \
    405 and `Allow`. Every path with `GET` supports `HEAD`. Post ids are 64-bit numbers, encoded as strings; requests may also name a \
    post by `ext:` and its external id. Cursors are opaque: send them back unchanged. Responses may get new fields: ignore unknown \
    ones. Pages and posts have an `ETag`: a request with `If-None-Match` gets 304 without content while the response is unchanged.\n\n\
    In a cluster, every node accepts every request, and `Tidewire-Node` names the node that responded. The response to a write has \
    `Tidewire-Sequence`. With `Tidewire-Applied`, the owner of the user has applied only that sequence so far. \
    A read with `Tidewire-After: SEQUENCE` waits up to a second until that write is applied. \
    `Tidewire-Stale-Seconds`: the node has not heard from the log for this long, so later writes may be missing.";

fn paths(operations: &[Operation], generator: &mut SchemaGenerator) -> Map<String, Value> {
    let mut paths = Map::new();
    for operation in operations {
        let Some((group, documentation)) = find(operation.name) else { continue };
        let path = paths.entry(operation.path).or_insert_with(|| json!({}));
        path[operation.method.as_str().to_lowercase()] = documentation.operation(operation, group.name, generator);
    }
    paths
}

/// Returns the documentation of an operation and its group.
fn find(name: &str) -> Option<(&'static Group, documentation::Documentation)> {
    GROUPS.iter().find_map(|group| {
        let (_, documentation) = group.operations.iter().find(|(of, _)| *of == name)?;
        Some((group, documentation()))
    })
}
