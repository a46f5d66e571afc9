//! Many posts in one request: `POST /v1/posts/batch` and `GET /v1/posts?ids=`.

use std::fmt::Write as _;

use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use futures_util::{StreamExt as _, stream};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::http::answer;
use crate::http::auth::Caller;
use crate::http::engine_cell::ReadyEngine;
use crate::http::handlers::page_query::fields;
use crate::http::handlers::posts::{NewPost, delivered_elsewhere, find_own, new_post};
use crate::http::post_json::{self, Shape};
use crate::http::problem::{Failures, Problem};
use crate::http::request::{self, Parameters, RequestBody, invalid_parameter, wait};
use crate::http::request_metrics::RequestMetrics;
use tidewire::error::Error;
use tidewire::feed::post::Draft;
use tidewire::id::PostName;
use tidewire::limits::{POSTS_PER_READ_MAX, POSTS_PER_REQUEST_MAX};
use tidewire::runtime::message::Published;

/// Number of posts of one request that are looked up in the archive at the same time.
const LOOKUPS_AT_ONCE: usize = 8;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "PostsRequest")]
pub(in crate::http) struct Batch<'a> {
    #[serde(borrow)]
    #[schemars(with = "Vec<NewPost<'_>>", length(max = POSTS_PER_REQUEST_MAX))]
    posts: Vec<&'a RawValue>,
}

/// Parses a `POST /v1/posts/batch` body. An invalid post gets a refusal of its own.
pub(in crate::http) fn drafts(bytes: &[u8]) -> Result<Vec<Result<Draft, Problem>>, Problem> {
    let Batch { posts } = request::json(bytes)?;
    if posts.len() > POSTS_PER_REQUEST_MAX {
        let detail = format!("posts: a request may have at most {POSTS_PER_REQUEST_MAX}, this one has {}", posts.len());
        return Err(Problem::bad("invalid_field", detail).of_field("posts"));
    }
    Ok(posts.into_iter().map(|post| new_post(post.get().as_bytes())).collect())
}

/// Handles `POST /v1/posts/batch`.
pub(in crate::http) async fn publish(
    request: HttpRequest,
    body: RequestBody,
    engine: ReadyEngine,
    metrics: Data<RequestMetrics>,
) -> Result<HttpResponse, Problem> {
    let wait = wait(&request)?;
    let parsed = drafts(body.json_bytes(&request)?)?;
    let (mut good, mut outcomes) = (Vec::with_capacity(parsed.len()), Vec::with_capacity(parsed.len()));
    for draft in parsed {
        outcomes.push(draft.map(|draft| good.push(draft)));
    }
    let published = engine.publish_many(good, wait).await;
    // Another node is the sequencer now, and nothing was done here, so the request is forwarded to that node.
    if let Some(Err(moved @ Error::NotSequencer)) = published.first()
        && published.iter().all(|outcome| matches!(outcome, Err(Error::NotSequencer)))
    {
        return Err(moved.clone().into());
    }
    let mut published = published.into_iter();
    if wait {
        delivered_elsewhere(&request).await;
    }
    let mut next = || published.next().unwrap_or(Err(Error::ShuttingDown)).map_err(Problem::from);
    let outcomes: Vec<Result<Published, Problem>> =
        outcomes.into_iter().map(|outcome| outcome.and_then(|()| next())).collect();
    let mut json = String::from(r#"{"posts":"#);
    let mut failures = Failures::of("posts");
    answer::push_array(&mut json, outcomes, |json, outcome| match outcome {
        Ok(published) => entry(json, &published),
        Err(problem) => {
            metrics.count_refusal(problem.code());
            // The caller has a server key, and may see internal details.
            let _ = write!(json, r#"{{"problem":{}}}"#, failures.noted(problem).in_full().entry());
        }
    });
    json.push('}');
    Ok(answer::json_text(json))
}

// Ids and times contain no character that JSON escapes. Writing to a `String` cannot fail.
fn entry(json: &mut String, Published { created, post }: &Published) {
    let _ = write!(json, r#"{{"created":{created},"post":"#);
    post_json::push(json, post, Shape::IDS);
    json.push('}');
}

/// Handles `GET /v1/posts?ids=…`. For a token, posts of other authors count as missing, so that callers cannot find out which posts
/// exist.
pub(in crate::http) async fn read(
    request: HttpRequest,
    caller: Caller,
    engine: ReadyEngine,
) -> Result<HttpResponse, Problem> {
    let parameters = Parameters::read(&request, &["ids", "fields"])?;
    let (ids, fields) = (ids(&parameters)?, fields(&parameters)?);
    let (caller, engine) = (&caller, &engine);
    let mut found = stream::iter(&ids).map(|name| find_own(caller, engine, name.id)).buffered(LOOKUPS_AT_ONCE);
    let (mut json, mut missing) = (String::from(r#"{"posts":["#), Vec::new());
    let mut separator = "";
    for name in &ids {
        match found.next().await.unwrap_or(Err(Error::ShuttingDown)) {
            Ok(post) => {
                json.push_str(std::mem::replace(&mut separator, ","));
                post_json::push(&mut json, &post, fields.of(engine));
            }
            Err(Error::UnknownPost(_)) => missing.push(name),
            Err(cause) => return Err(cause.into()),
        }
    }
    json.push_str(r#"],"missing":"#);
    // Names contain no character that JSON escapes. Writing to a `String` cannot fail.
    answer::push_array(&mut json, missing, |json, name| {
        let _ = write!(json, r#""{name}""#);
    });
    json.push('}');
    Ok(answer::json_text(json))
}

/// Parses `ids`: names of posts separated by commas. Returns each post once.
fn ids(parameters: &Parameters<'_>) -> Result<Vec<PostName>, Problem> {
    let Some(text) = parameters.text("ids") else {
        return Err(Problem::bad("missing_parameter", "ids: required, separated by commas").of_field("ids"));
    };
    let mut ids: Vec<PostName> = Vec::new();
    for id in text.split(',') {
        let id: PostName = id.parse().map_err(|cause| invalid_parameter("ids", &format!("{id:?}: {cause}")))?;
        if ids.iter().all(|other| other.id != id.id) {
            ids.push(id);
        }
        if ids.len() > POSTS_PER_READ_MAX {
            return Err(invalid_parameter("ids", &format!("a request may have at most {POSTS_PER_READ_MAX}")));
        }
    }
    Ok(ids)
}
