//! User operations of the server's owner.

use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::http::auth::Access;
use crate::http::engine_cell::ReadyEngine;
use crate::http::parsed::Parsed;
use crate::http::problem::Problem;
use crate::http::request::{self, Parameters, RequestBody, user};
use tidewire::clock::UnixMicros;
use tidewire::limits::TOKEN_CLOCK_AHEAD_MAX;

#[derive(Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Revoke")]
pub(in crate::http) struct Revocation {
    not_before: Option<Parsed<UnixMicros>>,
}

/// Handles `POST /v1/users/{user}/revoke`.
pub(in crate::http) async fn revoke(
    request: HttpRequest,
    body: RequestBody,
    engine: ReadyEngine,
    access: Data<Access>,
) -> Result<HttpResponse, Problem> {
    Parameters::read(&request, &[])?;
    let user = user(&request)?;
    let bytes = body.optional_json_bytes(&request)?;
    let now = access.now();
    let not_before = not_before(bytes, now)?;
    let counts = engine.revoke_tokens(user.clone(), not_before, access.forget_revoked_before(now)).await?;
    Ok(HttpResponse::Ok().json(json!({"user": user.as_str(), "not_before": counts.to_string()})))
}

/// Parses the instant in a `POST /v1/users/{user}/revoke` body. The default is `now`.
pub(in crate::http) fn not_before(bytes: Option<&[u8]>, now: UnixMicros) -> Result<UnixMicros, Problem> {
    let revocation: Revocation = bytes.map(request::json).transpose()?.unwrap_or_default();
    let not_before = revocation.not_before.map_or(now, |Parsed(at)| at);
    if not_before > now.saturating_add(TOKEN_CLOCK_AHEAD_MAX) {
        // A revocation cannot be undone, and would lock the user out until that time.
        let limit = TOKEN_CLOCK_AHEAD_MAX.as_secs();
        let detail = format!("not_before: more than {limit} s ahead of the server's clock, which shows {now}");
        return Err(Problem::bad("invalid_field", detail).of_field("not_before"));
    }
    Ok(not_before)
}
