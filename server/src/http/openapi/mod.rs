//! The description of the HTTP interface, as OpenAPI 3.1, which `/docs` shows.
//!
//! Responsible for:
//! - describing every operation of `http::operation`, and nothing else: paths, methods and names come from that table, limits
//!   from `limits`, what a kind of operation refuses from its kind. What is left to say is in `groups`.
//!
//! Not responsible for:
//! - how the description is shown (`console`).
//!
//! Written with `serde_json::json!` in place of a library of builders or derived schemas: what is read here is what is served,
//! and many answers are put together from text that no type stands for. Tests hold each example and all answers of the other
//! HTTP tests against it, so that a description that is wrong fails, by whatever means it was written.

#![allow(clippy::needless_pass_by_value, reason = "schemas are put together from what is made on the spot")]

mod documentation;
mod groups;
mod live_schemas;
mod problems;
mod schemas;
mod stats_schemas;
#[cfg(test)]
mod tests;

use std::sync::OnceLock;

use actix_web::http::header::CACHE_CONTROL;
use actix_web::{HttpRequest, HttpResponse};
use serde_json::{Map, Value, json};

use crate::http::openapi::groups::{GROUPS, Group};
use crate::http::operation::Operation;
use crate::http::problem::Problem;
use crate::http::request::Parameters;

/// `GET /openapi.json`: the description of all `operations`, which are the same each time.
pub(super) fn serve(request: &HttpRequest, operations: &[Operation]) -> Result<HttpResponse, Problem> {
    static TEXT: OnceLock<String> = OnceLock::new();
    Parameters::read(request, &[])?;
    let text = TEXT.get_or_init(|| document(operations).to_string());
    let mut response = HttpResponse::Ok();
    Ok(response.content_type("application/json").insert_header((CACHE_CONTROL, "no-cache")).body(text.as_str()))
}

/// The whole description.
pub(super) fn document(operations: &[Operation]) -> Value {
    let groups: Vec<Value> =
        GROUPS.iter().map(|group| json!({"name": group.name, "description": group.says})).collect();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Tidewire",
            "version": env!("CARGO_PKG_VERSION"),
            "description": SAYS,
            "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": groups,
        "paths": paths(operations),
        "components": {
            "schemas": schemas::all(),
            "securitySchemes": {"bearer": {
                "type": "http",
                "scheme": "bearer",
                "bearerFormat": "JWT",
                "description": "The server key, or a user's token, which is a JWT. Not looked at by a server without access control.",
            }},
        },
    })
}

const SAYS: &str = "A feed engine: what have the sources I follow published, newest first?\n\n\
    Refusals are problem documents (RFC 9457) with a stable `code`; nothing of a refused request was done. Unknown fields and \
    query parameters are refused with 400, a method that a path does not take with 405 and `Allow`. `HEAD` is served where `GET` \
    is. Ids of posts are 64-bit numbers, written as text. Cursors are opaque: pass them on as they came. Answers may get further \
    fields; let unknown ones be.";

fn paths(operations: &[Operation]) -> Map<String, Value> {
    let mut paths = Map::new();
    for operation in operations {
        let Some((group, documentation)) = find(operation.name) else { continue };
        let path = paths.entry(operation.path).or_insert_with(|| json!({}));
        path[operation.method.as_str().to_lowercase()] = documentation.operation(operation, group.name);
    }
    paths
}

/// What is documentation of an operation, and the group that tells it.
fn find(name: &str) -> Option<(&'static Group, documentation::Documentation)> {
    GROUPS.iter().find_map(|group| {
        let (_, documentation) = group.operations.iter().find(|(of, _)| *of == name)?;
        Some((group, documentation()))
    })
}
