//! Post operations: publish, read, edit, delete.

use std::sync::Arc;

use actix_web::http::StatusCode;
use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::value::RawValue;

#[cfg(feature = "cluster")]
use crate::http::admission::turn::Turn;
use crate::http::answer;
use crate::http::auth::{Access, Caller, Denial};
use crate::http::caching::{self, Tag};
use crate::http::engine_cell::ReadyEngine;
use crate::http::handlers::page_query::fields;
use crate::http::parsed::{Parsed, TagName, TopicName};
use crate::http::post_json;
use crate::http::problem::Problem;
use crate::http::request::{Parameters, RequestBody, json, post_in_path, present, wait};
use tidewire::clock::UnixMicros;
use tidewire::error::Error;
use tidewire::feed::kind::Kind;
use tidewire::feed::post::{Body, BodyError, Draft, Post};
use tidewire::id::{ExternalId, PostId, PostName, SourceId};
use tidewire::json::Name;
use tidewire::limits::{POST_BODY_BYTES_MAX, POST_BODY_DEPTH_MAX, POST_TAGS_MAX};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct NewPost<'a> {
    author: Parsed<SourceId>,
    #[serde(borrow)]
    #[schemars(description = body_description())]
    body: &'a RawValue,
    id: Option<Parsed<PostId>>,
    external_id: Option<Parsed<ExternalId>>,
    published_at: Option<Parsed<UnixMicros>>,
    #[schemars(with = "Option<Parsed<Kind>>")]
    kind: Option<Name<Kind>>,
    #[schemars(with = "Option<Vec<Parsed<TagName>>>", length(max = POST_TAGS_MAX))]
    tags: Option<Vec<String>>,
    #[schemars(with = "Option<Parsed<TopicName>>")]
    topic: Option<String>,
    repost_of: Option<Parsed<PostName>>,
    reply_to: Option<Parsed<PostName>>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("minProperties" = 1))]
pub(in crate::http) struct PostChange<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    #[schemars(description = body_description())]
    body: Option<&'a RawValue>,
    #[serde(default, deserialize_with = "present")]
    #[schemars(with = "bool")]
    hidden: Option<bool>,
}

/// Describes the body of a post.
pub(in crate::http) fn body_description() -> String {
    format!("Any JSON, at most {POST_BODY_BYTES_MAX} bytes and {POST_BODY_DEPTH_MAX} levels.")
}

impl NewPost<'_> {
    fn draft(self) -> Result<Draft, Problem> {
        let tags = self.tags.unwrap_or_default();
        if tags.len() > POST_TAGS_MAX {
            let detail = format!("tags: a post may have at most {POST_TAGS_MAX}, this one has {}", tags.len());
            return Err(Problem::bad("invalid_field", detail).of_field("tags"));
        }
        let mut checked = Vec::with_capacity(tags.len());
        for (nth, tag) in tags.iter().enumerate() {
            let tag = SourceId::tag(tag).map_err(|cause| invalid(&format!("tags[{nth}]"), &cause))?;
            if !checked.contains(&tag) {
                checked.push(tag);
            }
        }
        let topic = self.topic.map(|topic| SourceId::topic(&topic).map_err(|cause| invalid("topic", &cause)));
        Ok(Draft {
            id: self.id.map(|Parsed(id)| id),
            external_id: self.external_id.map(|Parsed(id)| id),
            author: self.author.0,
            published_at: self.published_at.map(|Parsed(at)| at),
            kind: self.kind.map(|Name(kind)| kind).unwrap_or_default(),
            body: body(self.body)?,
            tags: checked,
            topic: topic.transpose()?,
            repost_of: self.repost_of.map(|Parsed(post)| post.id),
            origin: None,
            reply_to: self.reply_to.map(|Parsed(post)| post.id),
            answered: None,
            earlier_reposts: Vec::new(),
        })
    }
}

/// Parses the draft in a `POST /v1/posts` body.
pub(in crate::http) fn new_post(bytes: &[u8]) -> Result<Draft, Problem> {
    let draft = json::<NewPost<'_>>(bytes)?.draft()?;
    draft.check_ids().map_err(|what| Error::InvalidDraft { what })?;
    Ok(draft)
}

/// Parses the changes in a `PATCH /v1/posts/{id}` body: the new body, and the new value of `hidden`.
pub(in crate::http) fn change(bytes: &[u8]) -> Result<(Option<Body>, Option<bool>), Problem> {
    let change: PostChange<'_> = json(bytes)?;
    if change.body.is_none() && change.hidden.is_none() {
        return Err(Problem::bad("missing_field", "body or hidden: no change is given").of_field("body"));
    }
    Ok((change.body.map(body).transpose()?, change.hidden))
}

fn body(raw: &RawValue) -> Result<Body, Problem> {
    Body::of_json(raw).map_err(|cause| match cause {
        BodyError::TooLarge { .. } => {
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", cause.to_string()).of_field("body")
        }
        BodyError::Number { .. } | BodyError::Surrogate { .. } | BodyError::Name { .. } => {
            let detail = format!("body: {cause}");
            Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "unportable_body", detail).of_field("body")
        }
        BodyError::TooDeep | BodyError::NotJson(_) => invalid("body", &cause),
    })
}

fn invalid(field: &str, cause: &dyn std::error::Error) -> Problem {
    Problem::bad("invalid_field", format!("{field}: {cause}")).of_field(field)
}

/// Handles `POST /v1/posts`.
pub(in crate::http) async fn publish(
    request: HttpRequest,
    body: RequestBody,
    caller: Caller,
    engine: ReadyEngine,
    access: Data<Access>,
) -> Result<HttpResponse, Problem> {
    let wait = wait(&request)?;
    let bytes = body.json_bytes(&request)?;
    let draft = new_post(bytes)?;
    caller.may_have(&draft.author)?;
    if draft.id.is_some() || draft.external_id.is_some() {
        access.may_choose_id(&caller)?;
    }
    access.count_new_sources(&caller, request.peer_addr(), &engine, draft.sources())?;
    let published = engine.publish(draft, wait).await?;
    if wait {
        delivered_elsewhere(&request).await;
    }
    let status = if published.created { StatusCode::CREATED } else { StatusCode::OK };
    Ok(post(status, &published.post))
}

/// Handles `GET /v1/posts/{id}`.
pub(in crate::http) async fn read(
    request: HttpRequest,
    caller: Caller,
    engine: ReadyEngine,
) -> Result<HttpResponse, Problem> {
    let fields = fields(&Parameters::read(&request, &["fields"])?)?;
    let found = find_own(&caller, &engine, post_in_path(&request, "id")?).await?;
    let mut json = String::new();
    post_json::push(&mut json, &found, fields.of(&engine));
    let tag = Tag::of(&[json.as_bytes()]);
    let mut response = answer::json_text(json);
    caching::allow_caller(response.headers_mut(), tag);
    Ok(response)
}

/// Handles `PATCH /v1/posts/{id}`.
pub(in crate::http) async fn edit(
    request: HttpRequest,
    body: RequestBody,
    caller: Caller,
    engine: ReadyEngine,
) -> Result<HttpResponse, Problem> {
    wait(&request)?;
    let id = post_in_path(&request, "id")?;
    // Two calls for a user: the engine does not know callers, so this looks up the author before the post may change.
    let found = if caller.is_user() { Some(find_own(&caller, &engine, id).await?) } else { None };
    let bytes = body.json_bytes(&request)?;
    let (body, hidden) = change(bytes)?;
    let hidden = match (hidden, found) {
        // The engine does not store who hid the post. The author must not undo a change by the server's owner.
        (Some(false), Some(own)) if own.hidden => return Err(Denial::Forbidden(HIDDEN).into()),
        // The post is visible already. Forwarding `hidden: false` to the engine could undo a concurrent change by the server's owner.
        (Some(false), Some(own)) if body.is_none() => return Ok(post(StatusCode::OK, &own)),
        (Some(false), Some(_)) => None,
        (hidden, _) => hidden,
    };
    Ok(post(StatusCode::OK, &*engine.edit(id, body, hidden).await?))
}

/// The detail of the refusal if an author tries to show a hidden post.
const HIDDEN: &str = "only a server key may show a hidden post again";

/// Handles `DELETE /v1/posts/{id}`.
pub(in crate::http) async fn delete(
    request: HttpRequest,
    caller: Caller,
    engine: ReadyEngine,
) -> Result<HttpResponse, Problem> {
    wait(&request)?;
    let id = post_in_path(&request, "id")?;
    // Two calls for a user, for the same reason as in `edit`.
    let own = if caller.is_user() { find_own(&caller, &engine, id).await.map(drop) } else { Ok(()) };
    match own {
        Ok(()) => engine.delete(id).await?,
        // Skips the deletion, because a post of another author may have this id by now.
        Err(Error::UnknownPost(_)) => {}
        Err(cause) => return Err(cause.into()),
    }
    Ok(answer::deleted())
}

/// Waits until the other nodes of a cluster have delivered the posts that this one has published.
#[cfg(feature = "cluster")]
pub(super) async fn delivered_elsewhere(request: &HttpRequest) {
    if let Some(peers) = request.app_data::<Data<crate::http::cluster::Peers>>()
        && let Ok(turn) = Turn::of(request)
    {
        turn.wait_for_delivery(peers.delivered_elsewhere()).await;
    }
}

/// Does nothing, because there are no other nodes.
#[cfg(not(feature = "cluster"))]
pub(super) async fn delivered_elsewhere(_: &HttpRequest) {}

/// Returns a post if the caller may access it. Posts of other authors are reported as unknown, so that callers cannot find out which posts
/// exist.
pub(super) async fn find_own(caller: &Caller, engine: &ReadyEngine, id: PostId) -> Result<Arc<Post>, Error> {
    let found = engine.post(id).await?;
    caller.may_have(&found.author().id).map_err(|_| Error::UnknownPost(id))?;
    Ok(found)
}

fn post(status: StatusCode, post: &Post) -> HttpResponse {
    HttpResponse::build(status).content_type("application/json").body(post.json().to_owned())
}
