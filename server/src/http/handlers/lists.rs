//! List operations: named feeds of chosen sources.

use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use serde_json::json;

use crate::http::answer;
use crate::http::auth::{Access, Caller};
use crate::http::engine_cell::ReadyEngine;
use crate::http::handlers::feeds;
use crate::http::handlers::page_query::PageQuery;
use crate::http::problem::Problem;
use crate::http::request::{Parameters, RequestBody, path, user, wait};
use tidewire::feed::cursor;
use tidewire::id::ListName;

fn name(request: &HttpRequest) -> Result<ListName, Problem> {
    path(request, "name")
}

/// Handles `GET /v1/users/{user}/lists`.
pub(in crate::http) async fn all(request: HttpRequest, engine: ReadyEngine) -> Result<HttpResponse, Problem> {
    let parameters = Parameters::read(&request, &["limit", "cursor"])?;
    let (reader, limit) = (user(&request)?, parameters.limit()?);
    let after = parameters.cursor("cursor", cursor::decode_name)?;
    let found = engine.lists(&reader, after.as_ref(), limit + 1);
    let item = |(name, members): &(ListName, usize)| json!({"name": name.as_str(), "members": members});
    Ok(answer::listing(&found, limit, item, |(name, _)| cursor::encode_name(name.as_str())))
}

/// Handles `DELETE /v1/users/{user}/lists/{name}`.
pub(in crate::http) async fn delete(request: HttpRequest, engine: ReadyEngine) -> Result<HttpResponse, Problem> {
    wait(&request)?;
    engine.drop_list(user(&request)?, name(&request)?).await?;
    Ok(answer::deleted())
}

/// Handles `GET /v1/users/{user}/lists/{name}/members`.
pub(in crate::http) async fn members(request: HttpRequest, engine: ReadyEngine) -> Result<HttpResponse, Problem> {
    let parameters = Parameters::read(&request, &["limit", "cursor"])?;
    let (reader, list) = (user(&request)?, name(&request)?);
    answer::sources(&parameters, |before, max| Ok(engine.members(&reader, &list, before, max)?))
}

/// Handles `PUT /v1/users/{user}/lists/{name}/members/{source}`.
pub(in crate::http) async fn add(
    request: HttpRequest,
    body: RequestBody,
    caller: Caller,
    engine: ReadyEngine,
    access: Data<Access>,
) -> Result<HttpResponse, Problem> {
    wait(&request)?;
    let (reader, list, source) = (user(&request)?, name(&request)?, path(&request, "source")?);
    body.no_fields(&request)?;
    access.count_new_sources(&caller, request.peer_addr(), &engine, [&source])?;
    Ok(answer::put(engine.set_listed(reader, list, source, true).await?))
}

/// Handles `DELETE /v1/users/{user}/lists/{name}/members/{source}`.
pub(in crate::http) async fn remove(request: HttpRequest, engine: ReadyEngine) -> Result<HttpResponse, Problem> {
    wait(&request)?;
    engine.set_listed(user(&request)?, name(&request)?, path(&request, "source")?, false).await?;
    Ok(answer::deleted())
}

/// Handles `GET /v1/users/{user}/lists/{name}/feed`.
pub(in crate::http) async fn feed(
    request: HttpRequest,
    engine: ReadyEngine,
    query: PageQuery,
) -> Result<HttpResponse, Problem> {
    let (PageQuery { user, page, fields }, list) = (query, name(&request)?);
    Ok(feeds::answer(&engine.list_feed(&user, &list, page).await?, fields.of(&engine)))
}
