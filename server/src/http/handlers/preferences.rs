//! Preference operations: mutes, blocks, rules, and the read marker.

use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};
use serde_json::json;

use crate::http::admission::{Admission, Permit};
use crate::http::answer;
use crate::http::auth::{Access, Caller};
use crate::http::engine_cell::ReadyEngine;
use crate::http::operation::WorkKind;
use crate::http::parsed::Parsed;
use crate::http::problem::Problem;
use crate::http::request::{self, Parameters, RequestBody, path, user, wait};
use tidewire::engine::{Engine, Unread};
use tidewire::feed::cursor;
use tidewire::feed::event::MuteOrBlock;
use tidewire::feed::resume::Resume;
use tidewire::id::{SourceId, Text};

/// Handles `PUT /v1/users/{user}/mutes/{source}` and `…/blocks/{source}`.
pub(in crate::http) async fn silence(
    request: HttpRequest,
    body: RequestBody,
    caller: Caller,
    engine: ReadyEngine,
    access: Data<Access>,
    how: MuteOrBlock,
) -> Result<HttpResponse, Problem> {
    wait(&request)?;
    let (reader, source) = (user(&request)?, path(&request, "source")?);
    body.no_fields(&request)?;
    access.count_new_sources(&caller, request.peer_addr(), &engine, [&source])?;
    Ok(answer::put(engine.silence(reader, source, how, true).await?))
}

/// Handles `DELETE /v1/users/{user}/mutes/{source}` and `…/blocks/{source}`.
pub(in crate::http) async fn unsilence(
    request: HttpRequest,
    engine: ReadyEngine,
    how: MuteOrBlock,
) -> Result<HttpResponse, Problem> {
    wait(&request)?;
    engine.silence(user(&request)?, path(&request, "source")?, how, false).await?;
    Ok(answer::deleted())
}

/// Handles `GET /v1/users/{user}/mutes` and `…/blocks`.
pub(in crate::http) async fn silenced(
    request: HttpRequest,
    engine: ReadyEngine,
    how: MuteOrBlock,
) -> Result<HttpResponse, Problem> {
    let parameters = Parameters::read(&request, &["limit", "cursor"])?;
    let reader = user(&request)?;
    answer::sources(&parameters, |before, max| Ok(engine.silenced(&reader, how, before, max)))
}

/// Handles `GET /v1/users/{user}/rules`.
pub(in crate::http) async fn rules(request: HttpRequest, engine: ReadyEngine) -> Result<HttpResponse, Problem> {
    Parameters::read(&request, &[])?;
    Ok(HttpResponse::Ok().json(answer::rules(&engine.rules(&user(&request)?))))
}

/// Handles `PATCH /v1/users/{user}/rules`.
pub(in crate::http) async fn change_rules(
    request: HttpRequest,
    body: RequestBody,
    engine: ReadyEngine,
) -> Result<HttpResponse, Problem> {
    wait(&request)?;
    let reader = user(&request)?;
    let bytes = body.json_bytes(&request)?;
    Ok(HttpResponse::Ok().json(answer::rules(&engine.change_rules(reader, request::json(bytes)?).await?)))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct Mark {
    #[serde(deserialize_with = "feed_cursor")]
    #[schemars(with = "Parsed<Resume>")]
    cursor: Resume,
}

fn feed_cursor<'de, D: Deserializer<'de>>(from: D) -> Result<Resume, D::Error> {
    from.deserialize_str(Text(cursor::decode_resume))
}

/// Parses the read marker of a `PUT /v1/users/{user}/marker` body.
pub(in crate::http) fn new_marker(bytes: &[u8]) -> Result<Resume, Problem> {
    request::json(bytes).map(|Mark { cursor }| cursor)
}

/// Handles `PUT /v1/users/{user}/marker`.
pub(in crate::http) async fn mark(
    request: HttpRequest,
    body: RequestBody,
    engine: ReadyEngine,
) -> Result<HttpResponse, Problem> {
    wait(&request)?;
    let reader = user(&request)?;
    let bytes = body.json_bytes(&request)?;
    let _permit = permit_to_count(&request, &engine, &reader)?;
    // Two calls: the command processor commits the marker, and only then the reader's actor can count from it.
    let up_to = new_marker(bytes)?;
    engine.mark(reader.clone(), up_to).await?;
    // The marker is set, so the request succeeds even if the count is refused.
    let counted = engine.unread(&reader).await;
    Ok(unread(&counted.unwrap_or_else(|_| Unread::not_counted(up_to.position))))
}

/// Handles `GET /v1/users/{user}/marker`.
pub(in crate::http) async fn marker(request: HttpRequest, engine: ReadyEngine) -> Result<HttpResponse, Problem> {
    Parameters::read(&request, &[])?;
    let reader = user(&request)?;
    let _permit = permit_to_count(&request, &engine, &reader)?;
    Ok(unread(&engine.unread(&reader).await?))
}

/// Admits counting the unread entries of a reader. For a sleeping reader, the count takes as long as waking the reader.
fn permit_to_count(request: &HttpRequest, engine: &Engine, reader: &SourceId) -> Result<Option<Permit>, Problem> {
    if engine.is_awake(reader) { Ok(None) } else { Admission::of(request)?.enter(WorkKind::WakeUp).map(Some) }
}

fn unread(Unread { marker, entries, capped, complete, .. }: &Unread) -> HttpResponse {
    let marker = marker.map(cursor::encode);
    HttpResponse::Ok().json(json!({"cursor": marker, "unread": entries, "capped": capped, "complete": complete}))
}
