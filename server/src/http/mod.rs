//! The HTTP API: JSON over HTTP and WebSockets, implemented with the [`Engine`](tidewire::engine::Engine).
//!
//! Responsible for:
//! - validating requests, and converting engine results into responses and every refusal into a problem document.

pub mod admission;
mod answer;
pub mod auth;
mod caching;
pub mod certificates;
mod changes;
mod client;
#[cfg(feature = "cluster")]
pub mod cluster;
mod collected;
mod compression;
pub mod engine_cell;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod handlers;
pub mod history;
mod live;
pub mod middleware;
pub mod noted_requests;
mod offered_upgrade;
pub mod openapi;
mod operation;
mod page_json;
mod parsed;
pub(crate) mod plain_text;
mod post_json;
pub mod problem;
mod process;
pub mod proxies;
mod request;
pub mod request_metrics;
mod resp;
mod routes;
pub mod serve;
pub mod sockets;
pub mod state;
pub mod tls;
pub mod trust;
mod upgrade;
pub mod watched_files;

use problem::Problem;
use tidewire::error::Error;
use tidewire::id::PostId;

/// Returns the OpenAPI description, as served at `/openapi.json`.
pub fn description() -> serde_json::Value {
    openapi::document(routes::OPERATIONS)
}

/// Checks the body of a `POST /v1/posts` request without any state. Returns the id of the post if the request determines it.
///
/// # Errors
/// Returns the refusal of the request.
pub(crate) fn check_post(json: &[u8]) -> Result<Option<PostId>, Problem> {
    let draft = handlers::posts::new_post(json)?;
    if !draft.author.is_user() {
        return Err(Error::NotAUser { id: draft.author, action: "publish" }.into());
    }
    draft.check().map_err(|what| Error::InvalidDraft { what })?;
    Ok(draft.identified().id)
}

/// Returns the name, the method and the path of every operation.
pub fn operations() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    let operations = routes::OPERATIONS.iter();
    operations.map(|operation| (operation.name, operation.method.as_str(), operation.path))
}
