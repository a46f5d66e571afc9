//! Operations on registered consumers of changes.

use actix_web::http::StatusCode;
use actix_web::web;
use actix_web::{HttpRequest, HttpResponse};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::http::answer;
use crate::http::changes::refusal;
use crate::http::engine_cell::ReadyEngine;
use crate::http::problem::Problem;
use crate::http::request::{self, Parameters, RequestBody, path};
use tidewire::engine::{ChangeConsumer, ChangeConsumerError, Engine};
use tidewire::error::Error;
use tidewire::id::ConsumerName;
use tidewire::storage::sequence::Sequence;

/// Handles `GET /v1/changes/consumers`.
pub(in crate::http) async fn list(request: HttpRequest, engine: ReadyEngine) -> Result<HttpResponse, Problem> {
    Parameters::read(&request, &[])?;
    let consumers: Vec<Value> = engine.change_consumers().iter().map(described).collect();
    Ok(HttpResponse::Ok().json(json!({"items": consumers})))
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ChangeConsumerPosition")]
pub(in crate::http) struct Position {
    #[serde(default, deserialize_with = "request::present")]
    #[schemars(with = "u64", range(max = u64::MAX))]
    sequence: Option<Sequence>,
}

/// Handles `PUT /v1/changes/consumers/{consumer}`.
pub(in crate::http) async fn set(
    request: HttpRequest,
    body: RequestBody,
    engine: ReadyEngine,
) -> Result<HttpResponse, Problem> {
    Parameters::read(&request, &[])?;
    let name = name(&request)?;
    let bytes = body.optional_json_bytes(&request)?;
    let Position { sequence } = bytes.map_or_else(|| Ok(Position::default()), request::json)?;
    let applied = if sequence.is_none() { engine.applied().await? } else { Sequence(0) };
    let set = move |engine: &Engine| {
        // A stream sends only synced events, and a page shows only applied ones. The consumer begins at the lower sequence, so that it
        // gets the rest of both.
        let sequence = sequence.map_or_else(|| engine.last_change().map(|last| last.min(applied)), Ok)?;
        engine.set_change_consumer(name, sequence)
    };
    Ok(HttpResponse::Ok().json(described(&change(&engine, set).await?)))
}

/// Handles `DELETE /v1/changes/consumers/{consumer}`.
pub(in crate::http) async fn remove(request: HttpRequest, engine: ReadyEngine) -> Result<HttpResponse, Problem> {
    Parameters::read(&request, &[])?;
    let name = name(&request)?;
    change(&engine, move |engine| engine.remove_change_consumer(&name)).await?;
    Ok(answer::deleted())
}

fn name(request: &HttpRequest) -> Result<ConsumerName, Problem> {
    path(request, "consumer")
}

fn described(ChangeConsumer { name, sequence, behind }: &ChangeConsumer) -> Value {
    json!({"name": name.as_str(), "sequence": sequence, "behind": behind})
}

/// Stores a change of a consumer. Blocks.
async fn change<T: Send + 'static>(
    engine: &Engine,
    change: impl FnOnce(&Engine) -> Result<T, ChangeConsumerError> + Send + 'static,
) -> Result<T, Problem> {
    let engine = engine.clone();
    let changed = web::block(move || change(&engine)).await.map_err(|cause| Problem::internal(&cause))?;
    changed.map_err(|cause| match cause {
        ChangeConsumerError::Changes(cause) => refusal(&cause, "sequence"),
        ChangeConsumerError::InCluster => Problem::new(StatusCode::CONFLICT, "in_cluster", cause.to_string()),
        ChangeConsumerError::TooMany => {
            Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "too_many", format!("{cause}: remove one of them"))
        }
        ChangeConsumerError::Storage(cause) if cause.is_full() => Error::DiskFull(cause.to_string()).into(),
        ChangeConsumerError::Storage(cause) => Problem::internal(&cause),
    })
}
