//! Follow operations: single edges, bulk requests, and the lists of edges.

use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::json;

use crate::http::answer;
use crate::http::auth::{Access, Caller};
use crate::http::engine_cell::ReadyEngine;
use crate::http::parsed::Parsed;
use crate::http::problem::Problem;
use crate::http::request::{self, Object, Parameters, RequestBody, path, present, user, wait};
use tidewire::feed::event::{NewEdge, OldEdge};
use tidewire::id::SourceId;
use tidewire::json::Whole;
use tidewire::limits::{BACKFILL_MAX, FOLLOWS_PER_REQUEST_MAX};

#[derive(Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct FollowOptions {
    /// A hidden follow: in no list and no count.
    #[serde(default)]
    pub(in crate::http) hidden: bool,
    /// Number of earlier posts that the follow brings. Default: all.
    #[serde(default, deserialize_with = "earlier_posts")]
    #[schemars(with = "usize", range(max = BACKFILL_MAX))]
    pub(in crate::http) backfill: Option<usize>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "FollowsRequest", extend("minProperties" = 1))]
pub(in crate::http) struct Bulk {
    #[serde(default, deserialize_with = "present")]
    #[schemars(with = "Vec<BulkEdge>", length(max = FOLLOWS_PER_REQUEST_MAX))]
    follows: Option<Vec<Object<BulkEdge>>>,
    #[serde(default, deserialize_with = "present")]
    #[schemars(with = "Vec<BulkUnfollow>", length(max = FOLLOWS_PER_REQUEST_MAX))]
    unfollows: Option<Vec<Object<BulkUnfollow>>>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
struct BulkUnfollow {
    follower: Parsed<SourceId>,
    source: Parsed<SourceId>,
}

/// The edges of a `POST /v1/follows` body.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::http) struct Edges {
    pub(in crate::http) follows: Vec<NewEdge>,
    /// The edges to remove, if the body has this field.
    pub(in crate::http) unfollows: Option<Vec<OldEdge>>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
struct BulkEdge {
    follower: Parsed<SourceId>,
    source: Parsed<SourceId>,
    /// A hidden follow: in no list and no count.
    #[serde(default)]
    hidden: bool,
    /// Number of earlier posts that the follow brings. Default: all.
    #[serde(default, deserialize_with = "earlier_posts")]
    #[schemars(with = "usize", range(max = BACKFILL_MAX))]
    backfill: Option<usize>,
}

/// Parses the number of earlier posts. Refuses null, because it could mean none or all.
fn earlier_posts<'de, D: Deserializer<'de>>(from: D) -> Result<Option<usize>, D::Error> {
    let Whole(posts) = Whole::deserialize(from)?;
    if posts > BACKFILL_MAX {
        let what = format!("at most {BACKFILL_MAX} earlier posts can be requested; without the field, all are");
        return Err(D::Error::custom(what));
    }
    Ok(Some(posts))
}

/// Parses the edges of a `POST /v1/follows` body.
pub(in crate::http) fn edges(bytes: &[u8]) -> Result<Edges, Problem> {
    let Bulk { follows, unfollows } = request::json(bytes)?;
    if follows.is_none() && unfollows.is_none() {
        let detail = "follows or unfollows: no change is given";
        return Err(Problem::bad("missing_field", detail).of_field("follows"));
    }
    let follows = follows.unwrap_or_default();
    let count = follows.len() + unfollows.as_ref().map_or(0, Vec::len);
    if count > FOLLOWS_PER_REQUEST_MAX {
        let field = if follows.len() > FOLLOWS_PER_REQUEST_MAX { "follows" } else { "unfollows" };
        let detail =
            format!("{field}: a request may have at most {FOLLOWS_PER_REQUEST_MAX} edges, this one has {count}");
        return Err(Problem::bad("invalid_field", detail).of_field(field));
    }
    let edge = |Object(BulkEdge { follower, source, hidden, backfill })| NewEdge {
        hidden,
        backfill,
        ..NewEdge::new(follower.0, source.0)
    };
    let removed = |Object(BulkUnfollow { follower, source })| OldEdge { follower: follower.0, source: source.0 };
    let unfollows = unfollows.map(|edges| edges.into_iter().map(removed).collect());
    Ok(Edges { follows: follows.into_iter().map(edge).collect(), unfollows })
}

/// Handles `PUT /v1/users/{user}/following/{source}`.
pub(in crate::http) async fn follow(
    request: HttpRequest,
    body: RequestBody,
    caller: Caller,
    engine: ReadyEngine,
    access: Data<Access>,
) -> Result<HttpResponse, Problem> {
    wait(&request)?;
    let (follower, source) = (user(&request)?, path(&request, "source")?);
    let bytes = body.optional_json_bytes(&request)?;
    let options: FollowOptions = bytes.map(request::json).transpose()?.unwrap_or_default();
    if options.hidden {
        caller.may_hide()?;
    }
    access.count_new_sources(&caller, request.peer_addr(), &engine, [&source])?;
    let followed = engine
        .follow(vec![NewEdge { hidden: options.hidden, backfill: options.backfill, ..NewEdge::new(follower, source) }])
        .await?;
    Ok(answer::put(followed.created > 0))
}

/// Handles `DELETE /v1/users/{user}/following/{source}`. With `?keep=true`, the posts of the source remain in the feed.
pub(in crate::http) async fn unfollow(request: HttpRequest, engine: ReadyEngine) -> Result<HttpResponse, Problem> {
    let parameters = Parameters::read(&request, &["wait", "keep"])?;
    parameters.flag("wait", "delivered")?;
    let (follower, source) = (user(&request)?, path(&request, "source")?);
    if parameters.truth("keep")? {
        engine.unfollow_but_keep(follower, source).await?;
    } else {
        engine.unfollow(follower, source).await?;
    }
    Ok(answer::deleted())
}

/// Handles `POST /v1/follows`.
pub(in crate::http) async fn follow_many(
    request: HttpRequest,
    body: RequestBody,
    engine: ReadyEngine,
) -> Result<HttpResponse, Problem> {
    wait(&request)?;
    let bytes = body.json_bytes(&request)?;
    let Edges { follows, unfollows } = edges(bytes)?;
    let removes = unfollows.is_some();
    let result = engine.change_edges(follows, unfollows.unwrap_or_default()).await?;
    let mut answer = json!({"created": result.created, "existing": result.existing});
    if removes {
        answer["removed"] = json!(result.removed);
    }
    Ok(HttpResponse::Ok().json(answer))
}

/// Handles `GET /v1/users/{user}/following`. With `?hidden=true`, lists the virtual follows that an operator set.
pub(in crate::http) async fn following(
    request: HttpRequest,
    caller: Caller,
    engine: ReadyEngine,
) -> Result<HttpResponse, Problem> {
    let parameters = Parameters::read(&request, &["limit", "cursor", "hidden"])?;
    let (user, hidden) = (user(&request)?, parameters.truth("hidden")?);
    if hidden {
        caller.may_hide()?;
    }
    answer::sources(&parameters, |before, max| {
        Ok(if hidden { engine.hidden_following(&user, before, max) } else { engine.following(&user, before, max) })
    })
}

/// Handles `GET /v1/users/{user}/followers`.
pub(in crate::http) async fn followers(request: HttpRequest, engine: ReadyEngine) -> Result<HttpResponse, Problem> {
    let parameters = Parameters::read(&request, &["limit", "cursor"])?;
    let user = user(&request)?;
    answer::sources(&parameters, |before, max| Ok(engine.followers(&user, before, max)))
}

/// Handles `GET /v1/users/{user}`.
pub(in crate::http) async fn info(request: HttpRequest, engine: ReadyEngine) -> Result<HttpResponse, Problem> {
    Parameters::read(&request, &[])?;
    let info = engine.source(&user(&request)?)?;
    Ok(HttpResponse::Ok().json(json!({
        "id": info.id.as_str(),
        "followers": info.followers,
        "following": info.following,
        "posts": info.posts,
        "celebrity": info.celebrity,
        "cost": answer::route_cost(info.cost),
        "active": info.active,
        "last_seen": info.last_seen.map(|at| at.to_string()),
    })))
}
