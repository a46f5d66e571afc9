//! The console's requests for operators: the history of figures, sources by their names, the fan-out of a post, slow and refused
//! requests, and keys.
//!
//! Each answer is about the answering node.

use std::time::Duration;

use actix_web::web::{self, Data};
use actix_web::{HttpRequest, HttpResponse};
use serde_json::{Value, json};

use crate::http::answer;
use crate::http::auth::{Access, KeyFigures};
#[cfg(feature = "cluster")]
use crate::http::cluster::Peers;
use crate::http::engine_cell::ReadyEngine;
use crate::http::handlers::server::check_node;
use crate::http::history::{self, History};
use crate::http::noted_requests::{RefusedRequest, RequestNotes, SlowRequest};
use crate::http::problem::Problem;
use crate::http::request::{Parameters, invalid_parameter, post_in_path};
use tidewire::engine::{
    FanoutProgress, FanoutState, PostFanout, PostSource, Reposter, SourceInfo, SourceKind, SourceSearch,
};
use tidewire::feed::outbox::Route;
use tidewire::limits::{PAGE_POSTS_DEFAULT, SOURCE_ID_BYTES_MAX, SOURCES_FOUND_MAX};
use tidewire::runtime::fanout::records::Deliveries;

/// Returns the name of the answering node, if it is part of a cluster.
#[cfg(feature = "cluster")]
fn node(request: &HttpRequest) -> Option<&str> {
    request.app_data::<Data<Peers>>().and_then(|peers| peers.cluster().name().to_str().ok())
}

/// Returns `None`, because there is no cluster.
#[cfg(not(feature = "cluster"))]
fn node(_: &HttpRequest) -> Option<&str> {
    None
}

/// Handles `GET /v1/stats/history`.
pub(in crate::http) async fn history(
    request: HttpRequest,
    _: ReadyEngine,
    history: Data<History>,
) -> Result<HttpResponse, Problem> {
    let parameters = Parameters::read(&request, &["span", "since", "node"])?;
    check_node(&request, &parameters)?;
    let columns = history.since(parameters.parsed("span")?.unwrap_or_default(), parameters.parsed("since")?);
    let text = serde_json::to_string(&history::OfNode(node(&request), &columns));
    text.map(answer::json_text).map_err(|cause| Problem::internal(&cause))
}

/// Handles `GET /v1/sources`.
pub(in crate::http) async fn sources(request: HttpRequest, engine: ReadyEngine) -> Result<HttpResponse, Problem> {
    let parameters = Parameters::read(&request, &["prefix", "kind", "limit"])?;
    let prefix = parameters.text("prefix").unwrap_or_default().to_owned();
    if prefix.chars().count() > SOURCE_ID_BYTES_MAX {
        return Err(invalid_parameter("prefix", &format!("an id has at most {SOURCE_ID_BYTES_MAX} characters")));
    }
    let kind = parameters.parsed::<SourceKind>("kind")?;
    let limit = parameters.limit_of(PAGE_POSTS_DEFAULT, SOURCES_FOUND_MAX)?;
    let (engine, search) = (engine.clone(), SourceSearch { prefix, kind, limit });
    // The search may examine millions of ids, so it runs on its own thread and delays no other request.
    let found = web::block(move || engine.find_sources(&search)).await.map_err(|cause| Problem::internal(&cause))?;
    Ok(HttpResponse::Ok().json(json!({
        "node": node(&request),
        "items": found.sources.iter().map(found_source).collect::<Vec<_>>(),
        "complete": found.complete,
        "examined": found.examined,
    })))
}

pub(super) fn found_source(source: &SourceInfo) -> Value {
    json!({
        "id": source.id.as_str(),
        "kind": SourceKind::of(&source.id).name(),
        "active": source.active,
        "followers": source.followers,
        "following": source.following,
        "posts": source.posts,
        "celebrity": source.celebrity,
        "last_seen": source.last_seen.map(|at| at.to_string()),
    })
}

/// Handles `GET /v1/posts/{id}/fanout`.
pub(in crate::http) async fn fanout(request: HttpRequest, engine: ReadyEngine) -> Result<HttpResponse, Problem> {
    Parameters::read(&request, &[])?;
    let fanout = engine.fanout(post_in_path(&request, "id")?).await?;
    let reposts = json!({
        "count": fanout.reposts.count,
        "complete": fanout.reposts.complete,
        "items": fanout.reposts.newest.iter().map(reposter).collect::<Vec<_>>(),
    });
    let mut answer = delivered(&fanout);
    answer["node"] = json!(node(&request));
    answer["post"] = json!(fanout.post.id().to_string());
    answer["author"] = json!(fanout.post.author().id.as_str());
    answer["accepted_at"] = json!(fanout.post.accepted_at.to_string());
    answer["reposts"] = reposts;
    Ok(HttpResponse::Ok().json(answer))
}

fn reposter(repost: &Reposter) -> Value {
    json!({
        "user": repost.user.as_str(),
        "post": repost.at.id.to_string(),
        "at": repost.at.published_at.to_string(),
        "hidden": repost.hidden,
    })
}

/// Returns the progress of a fan-out. Figures that are not final yet are null.
fn delivered(fanout: &PostFanout) -> Value {
    let progress = fanout.progress.as_ref();
    let state = progress.map_or("gone", |progress| match progress.state() {
        FanoutState::Pulled => "pulled",
        FanoutState::Queued => "queued",
        FanoutState::Delivering => "delivering",
        FanoutState::Delivered => "delivered",
    });
    let followers = |route| progress.map(|progress| progress.followers(route));
    let (pushed, pulled) = (followers(Route::Push), followers(Route::Pull));
    let reached = progress.and_then(FanoutProgress::reached);
    let after = |of: fn(&Deliveries) -> Option<Duration>| {
        let after = progress.and_then(|progress| of(&progress.deliveries))?;
        Some(u64::try_from(after.as_micros()).unwrap_or(u64::MAX))
    };
    let decided_by = answer::decided_by(fanout.decided_by);
    let source = |source: &PostSource| {
        let route = if source.route == Route::Push { "push" } else { "pull" };
        json!({"id": source.id.as_str(), "route": route, "followers": source.followers, "decided_by": decided_by})
    };
    json!({
        "state": state,
        "sources": progress.iter().flat_map(|progress| &progress.sources).map(source).collect::<Vec<_>>(),
        "followers": pushed.zip(pulled).map(|(pushed, pulled)| pushed + pulled),
        "pulled": pulled,
        "awake": reached.map(|reached| reached.awake),
        "pushed": reached.map(|reached| reached.added),
        "already_there": reached.map(|reached| reached.already_there),
        "asleep": reached.map(|reached| reached.asleep),
        "started_after_us": after(|deliveries| deliveries.started),
        "first_delivery_after_us": after(|deliveries| deliveries.first),
        "finished_after_us": after(|deliveries| deliveries.finished),
    })
}

/// Handles `GET /v1/operations`.
pub(in crate::http) async fn operations(
    request: HttpRequest,
    access: Data<Access>,
    notes: Data<RequestNotes>,
) -> Result<HttpResponse, Problem> {
    check_node(&request, &Parameters::read(&request, &["node"])?)?;
    let RequestNotes { threshold, requests } = &**notes;
    let (slow_count, slow) = requests.slow.newest();
    let (refused_count, refused) = requests.refused.newest();
    let keys = access.key_figures().map(|keys| keys.iter().map(key).collect::<Vec<_>>());
    Ok(HttpResponse::Ok().json(json!({
        "node": node(&request),
        "slow_requests": {
            "threshold_ms": u64::try_from(threshold.as_millis()).unwrap_or(u64::MAX),
            "count": slow_count,
            "items": slow.iter().map(slow_request).collect::<Vec<_>>(),
        },
        "refused_requests": {
            "count": refused_count,
            "items": refused.iter().map(refused_request).collect::<Vec<_>>(),
        },
        "keys": keys,
    })))
}

fn slow_request(slow: &SlowRequest) -> Value {
    let (status, id) = slow.answer.as_ref().map(|(status, id)| (*status, &**id)).unzip();
    json!({
        "at": slow.at.to_string(),
        "operation": slow.operation.name,
        "method": slow.operation.method.as_str(),
        "route": slow.operation.path,
        "status": status,
        "took_ms": slow.took_ms,
        "request_id": id,
    })
}

fn refused_request(refused: &RefusedRequest) -> Value {
    json!({
        "at": refused.at.to_string(),
        "operation": refused.operation.map(|operation| operation.name),
        "method": refused.operation.map(|operation| operation.method.as_str()),
        "route": refused.operation.map(|operation| operation.path),
        "code": refused.code,
        "status": refused.status,
        "request_id": refused.request_id,
    })
}

fn key(key: &KeyFigures) -> Value {
    json!({
        "name": key.name,
        "kind": if key.scope.is_some() { "server" } else { "token" },
        "scope": key.scope,
        "requests": key.requests,
        "last_used": key.last_used.map(|at| at.to_string()),
    })
}
