//! Following: edges, one by one and in bulk, and the lists of them.

use actix_web::web::Payload;
use actix_web::{HttpRequest, HttpResponse};
use serde::Deserialize;
use serde_json::json;

use crate::api::problem::Problem;
use crate::api::request::{self, Parameters, json_bytes, optional_json_bytes, path, user, wait};
use crate::api::slot::Live;
use crate::clock::UnixMicros;
use crate::engine::Listed;
use crate::feed::cursor;
use crate::feed::event::NewEdge;
use crate::id::SourceId;
use crate::limits::{BULK_REQUEST_BYTES_MAX, FOLLOWS_PER_REQUEST_MAX, REQUEST_BYTES_MAX};

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct FollowOptions {
    #[serde(default)]
    hidden: bool,
    backfill: Option<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Bulk {
    follows: Vec<BulkEdge>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BulkEdge {
    follower: SourceId,
    source: SourceId,
    #[serde(default)]
    hidden: bool,
    backfill: Option<usize>,
}

/// `PUT /v1/users/{user}/following/{source}`
pub(super) async fn follow(request: HttpRequest, payload: Payload, engine: Live) -> Result<HttpResponse, Problem> {
    wait(&request)?;
    let (follower, source) = (user(&request)?, path(&request, "source")?);
    let bytes = optional_json_bytes(&request, payload, REQUEST_BYTES_MAX).await?;
    let options: FollowOptions = bytes.as_deref().map(request::json).transpose()?.unwrap_or_default();
    let followed = engine
        .follow(vec![NewEdge { hidden: options.hidden, backfill: options.backfill, ..NewEdge::new(follower, source) }])
        .await?;
    let mut response = if followed.created > 0 { HttpResponse::Created() } else { HttpResponse::Ok() };
    Ok(response.json(json!({"created": followed.created > 0})))
}

/// `DELETE /v1/users/{user}/following/{source}`
pub(super) async fn unfollow(request: HttpRequest, engine: Live) -> Result<HttpResponse, Problem> {
    wait(&request)?;
    engine.unfollow(user(&request)?, path(&request, "source")?).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// `POST /v1/follows`
pub(super) async fn follow_many(request: HttpRequest, payload: Payload, engine: Live) -> Result<HttpResponse, Problem> {
    wait(&request)?;
    let bytes = json_bytes(&request, payload, BULK_REQUEST_BYTES_MAX).await?;
    let Bulk { follows } = request::json(&bytes)?;
    if follows.len() > FOLLOWS_PER_REQUEST_MAX {
        let detail =
            format!("follows: a request may have at most {FOLLOWS_PER_REQUEST_MAX}, this one has {}", follows.len());
        return Err(Problem::bad("invalid_field", detail).of_field("follows"));
    }
    let edge = |BulkEdge { follower, source, hidden, backfill }| NewEdge {
        hidden,
        backfill,
        ..NewEdge::new(follower, source)
    };
    let followed = engine.follow(follows.into_iter().map(edge).collect()).await?;
    Ok(HttpResponse::Ok().json(json!({"created": followed.created, "existing": followed.existing})))
}

/// `GET /v1/users/{user}/following`
pub(super) async fn following(request: HttpRequest, engine: Live) -> Result<HttpResponse, Problem> {
    list(&request, |user, before, max| engine.following(user, before, max))
}

/// `GET /v1/users/{user}/followers`
pub(super) async fn followers(request: HttpRequest, engine: Live) -> Result<HttpResponse, Problem> {
    list(&request, |user, before, max| engine.followers(user, before, max))
}

fn list(
    request: &HttpRequest,
    read: impl Fn(&SourceId, UnixMicros, usize) -> Vec<Listed>,
) -> Result<HttpResponse, Problem> {
    let parameters = Parameters::read(request, &["limit", "cursor"])?;
    let (user, limit) = (user(request)?, parameters.limit()?);
    let before = parameters.cursor("cursor", cursor::decode_edge)?.unwrap_or(UnixMicros(i64::MAX));
    // One more than asked for tells whether there is a next page.
    let mut listed = read(&user, before, limit + 1);
    let more = listed.len() > limit;
    listed.truncate(limit);
    let next = listed.last().filter(|_| more).map(|last| cursor::encode_edge(last.since));
    let item = |listed: &Listed| json!({"id": listed.id.as_str(), "since": listed.since.to_string()});
    let items: Vec<_> = listed.iter().map(item).collect();
    Ok(HttpResponse::Ok().json(json!({"items": items, "next": next})))
}

/// `GET /v1/users/{user}`
pub(super) async fn info(request: HttpRequest, engine: Live) -> Result<HttpResponse, Problem> {
    Parameters::read(&request, &[])?;
    let info = engine.source(&user(&request)?)?;
    Ok(HttpResponse::Ok().json(json!({
        "id": info.id.as_str(),
        "followers": info.followers,
        "following": info.following,
        "posts": info.posts,
        "celebrity": info.celebrity,
        "active": info.active,
        "last_seen": info.last_seen.map(|at| at.to_string()),
    })))
}
