//! Erasing users.

use actix_web::{HttpRequest, HttpResponse};
use serde_json::json;

use crate::http::answer;
use crate::http::problem::Problem;
use crate::http::request::{Parameters, path};
use crate::http::slot::Live;
use tidewire::engine::Erasing;

/// `DELETE /v1/users/{user}`: 202 for as long as it is under way, and 204 once nothing is known of the user.
pub(in crate::http) async fn erase(request: HttpRequest, engine: Live) -> Result<HttpResponse, Problem> {
    Parameters::read(&request, &[])?;
    Ok(match engine.erase(path(&request, "user")?).await? {
        Erasing::UnderWay => HttpResponse::Accepted().json(json!({"erased": "under_way"})),
        Erasing::Unknown => answer::deleted(),
    })
}
