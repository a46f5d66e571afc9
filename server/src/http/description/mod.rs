//! The description of the HTTP interface, as OpenAPI 3.1, which `/docs` shows.
//!
//! Responsible for:
//! - describing every operation of `http::operation`, and nothing else: paths, methods and names come from that table, limits
//!   from `limits`, what a kind of operation refuses from its kind. What is left to say is in `rooms`.
//!
//! Not responsible for:
//! - how the description is shown (`console`).
//!
//! Written with `serde_json::json!` in place of a library of builders or derived schemas: what is read here is what is served,
//! and many answers are put together from text that no type stands for. Tests hold each example and all answers of the other
//! HTTP tests against it, so that a description that is wrong fails, by whatever means it was written.

#![allow(clippy::needless_pass_by_value, reason = "schemas are put together from what is made on the spot")]

mod live_schemas;
mod problems;
mod rooms;
mod schemas;
mod stats_schemas;
#[cfg(test)]
mod tests;
mod told;

use std::sync::LazyLock;

use actix_web::http::header::CACHE_CONTROL;
use actix_web::{HttpRequest, HttpResponse};
use serde_json::{Map, Value, json};

use crate::http::description::rooms::{ROOMS, Room};
use crate::http::operation::OPERATIONS;
use crate::http::problem::Problem;
use crate::http::request::Parameters;

static TEXT: LazyLock<String> = LazyLock::new(|| document().to_string());

/// `GET /openapi.json`
pub(super) async fn openapi(request: HttpRequest) -> Result<HttpResponse, Problem> {
    Parameters::read(&request, &[])?;
    let mut response = HttpResponse::Ok();
    Ok(response.content_type("application/json").insert_header((CACHE_CONTROL, "no-cache")).body(TEXT.as_str()))
}

/// The whole description.
pub fn document() -> Value {
    let groups: Vec<Value> = ROOMS.iter().map(|room| json!({"name": room.name, "description": room.says})).collect();
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
        "paths": paths(),
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

fn paths() -> Map<String, Value> {
    let mut paths = Map::new();
    for operation in OPERATIONS {
        let Some((room, told)) = find(operation.name) else { continue };
        let path = paths.entry(operation.path).or_insert_with(|| json!({}));
        path[operation.method.as_str().to_lowercase()] = told.operation(operation, room.name);
    }
    paths
}

/// What is told of an operation, and the room that tells it.
fn find(name: &str) -> Option<(&'static Room, told::Told)> {
    ROOMS.iter().find_map(|room| {
        let (_, told) = room.operations.iter().find(|(of, _)| *of == name)?;
        Some((room, told()))
    })
}
