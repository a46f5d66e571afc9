//! The stream of accepted events, for other systems: `GET /v1/changes`.
//!
//! Responsible for:
//! - the request: where the stream begins, which types of events it has ([`types`]), and its refusals;
//! - sending it ([`body`]), what is sent ([`reading`]), the text of its lines ([`text`]), the limit on streams and their figures ([`streams`]).
//!
//! Not responsible for:
//! - the order and the durability of events, and how far back they are kept (the engine and its journal).

mod body;
mod reading;
pub(in crate::http) mod streams;
mod text;
mod types;

use std::sync::Arc;

use actix_web::http::header::{ACCEPT, CACHE_CONTROL, HeaderName, VARY};
use actix_web::http::{Method, StatusCode};
use actix_web::web::{self, Data};
use actix_web::{HttpRequest, HttpResponse};
use serde_json::json;

use crate::http::auth::{Access, Caller, SessionExpiry};
use crate::http::changes::body::Body;
use crate::http::changes::reading::{Format, Readers, Reading};
use crate::http::changes::streams::ChangeStreams;
use crate::http::changes::types::Types;
#[cfg(feature = "cluster")]
use crate::http::cluster::Peers;
use crate::http::engine_cell::ReadyEngine;
use crate::http::middleware::pipeline::PipelineState;
use crate::http::problem::Problem;
use crate::http::request::Parameters;
#[cfg(feature = "cluster")]
use tidewire::cluster::placement::Place;
use tidewire::engine::{Changes, ChangesError, Engine};
use tidewire::error::Error;
use tidewire::id::SourceId;
use tidewire::limits::{CHANGES_DEFAULT, CHANGES_MAX};
use tidewire::storage::journal::Sequence;
use tidewire::storage::log::LogError;

pub(in crate::http) use crate::http::changes::types::NAMES;

/// The media type of one JSON value per line.
pub(in crate::http) const NDJSON: &str = "application/x-ndjson";

/// The parameters of a request.
struct Wanted {
    /// The sequence after which the stream begins; `None` for the end of the journal.
    after: Option<Sequence>,
    /// Maximum number of events.
    limit: Option<u64>,
    types: Types,
    format: Format,
}

/// Handles `GET /v1/changes`.
pub(in crate::http) async fn changes(
    request: HttpRequest,
    caller: Caller,
    engine: ReadyEngine,
    access: Data<Access>,
    streams: Data<ChangeStreams>,
    pipeline: Data<PipelineState>,
) -> Result<HttpResponse, Problem> {
    let Wanted { after, limit, types, format } = wanted(&request)?;
    let slot = ChangeStreams::enter(&streams.into_inner())?;
    let opening = Engine::clone(&engine);
    // Searching the journal, or asking the log of a cluster, blocks.
    let opened = web::block(move || open(&opening, after)).await.map_err(|cause| Problem::internal(&cause))?;
    let changes = opened.map_err(|cause| refusal(&cause))?;
    let mut response = HttpResponse::Ok();
    response
        .content_type(format.media_type())
        .insert_header((CACHE_CONTROL, "no-store"))
        .insert_header((VARY, ACCEPT.as_str()))
        // Disables response buffering in proxies, which would delay events.
        .insert_header((HeaderName::from_static("x-accel-buffering"), "no"));
    if request.method() == Method::HEAD {
        return Ok(response.finish());
    }
    let session_expiry = SessionExpiry::of(&access, &caller, &engine);
    let readers = Readers { engine: (*engine).clone(), is_here: readers_here(&request) };
    let reading = Reading::new(changes, types, format, limit, readers);
    Ok(response.body(Body::new(reading, slot, (*engine).clone(), session_expiry, pipeline.pace.stall_max)))
}

/// Returns which readers this server serves: in a cluster, those that this node owns.
#[cfg(feature = "cluster")]
fn readers_here(request: &HttpRequest) -> Box<dyn Fn(&SourceId) -> bool + Send> {
    match request.app_data::<Data<Peers>>() {
        Some(peers) => {
            let cluster = Arc::clone(peers.cluster());
            Box::new(move |reader| cluster.placement().owner(reader) == Place::Here)
        }
        None => Box::new(|_| true),
    }
}

/// Returns which readers this server serves.
#[cfg(not(feature = "cluster"))]
fn readers_here(_: &HttpRequest) -> Box<dyn Fn(&SourceId) -> bool + Send> {
    Box::new(|_| true)
}

fn wanted(request: &HttpRequest) -> Result<Wanted, Problem> {
    let parameters = Parameters::read(request, &["after", "limit", "types"])?;
    let accept = request.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let format = if accept.contains("text/event-stream") { Format::EventStream } else { Format::Lines };
    let types = parameters.text("types").map_or(Ok(Types::ALL), Types::parse)?;
    let limit = match (parameters.number("limit")?, format) {
        (None, Format::Lines) => Some(CHANGES_DEFAULT),
        (None, Format::EventStream) => None,
        (Some(limit), _) if (1..=CHANGES_MAX).contains(&limit) => Some(limit),
        (Some(limit), _) => {
            let detail = format!("limit: {limit} is no whole number from 1 to {CHANGES_MAX}");
            return Err(Problem::bad("invalid_parameter", detail).of_field("limit"));
        }
    };
    // A reconnecting browser repeats the original URL, and has the current place in the header.
    let resumed = request.headers().get("last-event-id").filter(|_| format == Format::EventStream);
    let resumed = resumed.map(|id| {
        let number = id.to_str().ok().and_then(|id| id.parse().ok());
        number
            .ok_or_else(|| Problem::bad("invalid_parameter", "Last-Event-ID: not a sequence").of_field("Last-Event-ID"))
    });
    let resumed = resumed.transpose()?;
    let after = resumed.map_or_else(|| parameters.number("after"), |id| Ok(Some(id)))?.map(Sequence);
    Ok(Wanted { after, limit, types, format })
}

/// Begins to read. Blocks.
fn open(engine: &Engine, after: Option<Sequence>) -> Result<Changes, ChangesError> {
    let after = after.map_or_else(|| engine.last_change(), Ok)?;
    engine.changes(after)
}

/// Returns the refusal of a stream that cannot begin.
fn refusal(cause: &ChangesError) -> Problem {
    match cause {
        ChangesError::NoJournal => Error::NoDataDirectory.into(),
        ChangesError::Log(LogError::Deleted { first, .. }) => {
            let oldest = first.0.saturating_sub(1);
            let detail =
                format!("after: the journal begins after {oldest}; what was before it has to be read elsewhere");
            Problem::new(StatusCode::GONE, "gone", detail).of_field("after").with("oldest", json!(oldest))
        }
        ChangesError::Log(LogError::Shorter { wanted, last }) => {
            let detail = format!("after: the journal ends at {last}, before {wanted}: it is another one, or was cut");
            let problem = Problem::bad("sequence_in_future", detail).of_field("after");
            problem.with("newest", json!(last.0))
        }
        ChangesError::Log(LogError::Unavailable(_)) => {
            Problem::unavailable("log_unavailable", cause.to_string()).retry_soon()
        }
        _ => Problem::internal(cause),
    }
}

impl ChangeStreams {
    fn enter(streams: &Arc<Self>) -> Result<streams::Slot, Problem> {
        Self::begin(streams).ok_or_else(|| {
            let detail = format!("no room for more streams of changes: {} may be open", streams.limit());
            Problem::unavailable("overloaded", detail).retry_soon()
        })
    }
}
