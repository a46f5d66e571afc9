//! The operation that erases a user.

use actix_web::{HttpRequest, HttpResponse};
use serde_json::json;

use crate::http::answer;
use crate::http::engine_cell::ReadyEngine;
use crate::http::problem::Problem;
use crate::http::request::{Parameters, path};
use tidewire::engine::Erasing;

/// Handles `DELETE /v1/users/{user}`: 202 while the erasure is in progress, and 204 once the engine stores no data of the user.
pub(in crate::http) async fn erase(request: HttpRequest, engine: ReadyEngine) -> Result<HttpResponse, Problem> {
    Parameters::read(&request, &[])?;
    Ok(match engine.erase(path(&request, "user")?).await? {
        Erasing::UnderWay => HttpResponse::Accepted().json(json!({"erased": "under_way"})),
        Erasing::Unknown => answer::deleted(),
    })
}
